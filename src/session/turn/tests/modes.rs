//! Rules for the mode, and for an agent that repeats itself.

use greenroom_protocol::approval::ApprovalMode;

use super::{
    approvals::{asks, policy_allows},
    *,
};

fn set_mode(answers: Vec<PolicyAnswer>, message: Option<&str>) -> SessionInput {
    let change = ModeChange { mode: ApprovalMode::Auto, answers };
    SessionInput::SetMode { settings: settings(), change, message: message.map(str::to_owned) }
}

#[test]
fn mode_change_answers_requests_and_queues_its_message() {
    let idle = [SessionInput::SessionCreated, up()];
    check(&idle, set_mode(vec![], None), AgentState::Idle, &["set_mode!"], &["settings"]);
    let events = ["set_mode!", "message!", "chat go", "is running"];
    check(&idle, set_mode(vec![], Some("go")), AgentState::Running, &events, &["settings", "prompt turn-3 go"]);
    let both = with(working(), &[asks("r"), asks("s")]);
    let allowed = set_mode(vec![policy_allows("r")], None);
    let events = ["set_mode!", "allowed by mode `auto`"];
    check(&both, allowed, AgentState::AwaitingConfirmation, &events, &["answer r", "settings"]);
    check_rejected(&[SessionInput::SessionCreated, up(), SessionInput::End], set_mode(vec![], None), "ended");
    check_rejected(&idle, set_mode(vec![], Some(&"x".repeat(2 << 20))), "invalid_args");
}

#[test]
fn mode_changes_with_the_model() {
    let change = Some(ModeChange { mode: ApprovalMode::Plan, answers: vec![] });
    let input = SessionInput::SetModel { settings: settings(), title: None, analyzer: None, mode: change };
    let idle = [SessionInput::SessionCreated, up()];
    check(&idle, input, AgentState::Idle, &["set_model!", "set_mode!"], &["settings"]);
}

#[test]
fn repetition_is_told_to_a_running_agent() {
    let noted = SessionInput::LoopNoted { what: "`ls` was called 3 times".into() };
    let steer = "steer Note from the server, not from the user: `ls` was called 3 times. Try another way. If you cannot \
                 go on, end the turn and say what is missing. If this repeats, the user is asked before your next tool \
                 call.";
    check(&working(), noted.clone(), AgentState::Running, &["notice loop_noted"], &[steer]);
    // The receipt of the note is no person's message.
    let told = with(working(), std::slice::from_ref(&noted));
    check(&told, SessionInput::Steered { command: "command-4".into() }, AgentState::Running, &[], &[]);
    check(&told, SessionInput::SteerMissed { command: "command-4".into() }, AgentState::Running, &[], &[]);
    check(&[SessionInput::SessionCreated, up()], noted, AgentState::Idle, &[], &[]);
}
