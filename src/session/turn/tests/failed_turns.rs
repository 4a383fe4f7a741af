//! Failed turns: the reason stays until the next turn begins.

use super::*;

fn reason_after(given: &[SessionInput]) -> Option<String> {
    RulesFixture::after(given).state.reason()
}

fn ended(outcome: WorkOutcome) -> SessionInput {
    turn_ended(2, outcome)
}

/// Returns the inputs until the first turn has failed.
fn failed() -> Vec<SessionInput> {
    let outcome = WorkOutcome::Failed { code: "model_error".into(), detail: "busy".into() };
    with(working(), &[ended(outcome)])
}

#[test]
fn failed_turn_is_the_reason_until_the_next_turn_begins() {
    let [failure] = &failed()[working().len()..] else { panic!("one input is the failure") };
    check(&working(), failure.clone(), AgentState::Idle, &["error model_error", "is idle"], &[]);
    assert_eq!(reason_after(&failed()).as_deref(), Some("failed"));
    assert_eq!(reason_after(&with(failed(), &[say("again")])), None);
    assert_eq!(reason_after(&with(working(), &[ended(WorkOutcome::Done)])), None);
}

#[test]
fn users_own_command_keeps_the_reason() {
    let running = with(failed(), &[run()]);
    let after = RulesFixture::after(&running).state;
    assert_eq!((after.visible_state(), after.reason().as_deref()), (AgentState::Running, Some("failed")));
    let user_action = after.user_action.expect("the command runs").id;
    let done = SessionInput::UserActionEnded { user_action, outcome: WorkOutcome::Done };
    check(&running, done.clone(), AgentState::Idle, &["is idle"], &[]);
    assert_eq!(reason_after(&with(running, &[done])).as_deref(), Some("failed"));
}

#[test]
fn reason_survives_a_pause_and_a_restart() {
    let again = with(failed(), &[SessionInput::Pause, SessionInput::Resume]);
    let stored = RulesFixture::after(&again).state.to_opaque_state();
    let state: SessionState = serde_json::from_str(stored.as_str()).expect("a stored state is readable");
    assert_eq!(state.reason().as_deref(), Some("failed"));
    assert_eq!(reason_after(&with(failed(), &[SessionInput::Pause])), None, "the pause is the person's");
}

#[test]
fn state_of_an_earlier_version_has_no_failed_turn() {
    let stored = RulesFixture::after(&with(working(), &[ended(WorkOutcome::Done)])).state.to_opaque_state();
    assert!(!stored.as_str().contains("turn_failed"), "{}", stored.as_str());
    let state: SessionState = serde_json::from_str(stored.as_str()).expect("a stored state is readable");
    assert_eq!(state.reason(), None);
}

#[test]
fn interrupted_turn_has_not_failed() {
    let failure = WorkOutcome::Failed { code: "model_error".into(), detail: "aborted".into() };
    let given = with(working(), &[SessionInput::Interrupt, ended(failure)]);
    assert_eq!(reason_after(&given), None);
}

#[test]
fn turn_cut_by_its_sandbox_or_agent_has_failed() {
    let cut = with(working(), &[lost(), SessionInput::Resume, SessionInput::HelloReceived { boot: "b2".into() }]);
    assert_eq!(reason_after(&cut).as_deref(), Some("failed"));
    let taken = RulesFixture::after(&working()).state.outgoing.first().map(|frame| frame.id.clone());
    let taken = taken.map(|command| SessionInput::CommandAccepted { command });
    let restarted = SessionInput::HelloReceived { boot: "another".into() };
    let given = working().into_iter().chain(taken).chain([restarted]).collect::<Vec<_>>();
    assert_eq!(reason_after(&given).as_deref(), Some("failed"));
    let idle = with(failed(), &[say("again"), lost()]);
    assert_ne!(reason_after(&idle).as_deref(), Some("failed"), "the sandbox's own reason");
}
