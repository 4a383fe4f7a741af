//! Processes that commands left behind.

use super::*;

fn listed(pids: &[i32]) -> SessionInput {
    SessionInput::LeftoversReported { pids: pids.to_vec() }
}

/// Returns the inputs until an idle session has these leftovers.
fn left(pids: &[i32]) -> Vec<SessionInput> {
    vec![SessionInput::SessionCreated, up(), listed(pids)]
}

#[test]
fn interrupt_while_idle_ends_leftovers() {
    let given = left(&[7, 9]);
    check(
        &given,
        SessionInput::Interrupt,
        AgentState::Interrupting,
        &["interrupt!", "is interrupting"],
        &["kill leftovers"],
    );
    let interrupted = with(given, &[SessionInput::Interrupt]);
    check(&interrupted, listed(&[9]), AgentState::Interrupting, &[], &[]);
    let receipt = "interrupted 2 processes that commands had left running by Cancel";
    check(&interrupted, listed(&[]), AgentState::Idle, &[receipt, "is idle"], &[]);
    check(&interrupted, SessionInput::EscalationDue, AgentState::Interrupting, &[], &["kill processes"]);
    let over = with(interrupted.clone(), &[listed(&[])]);
    check_rejected(&over, SessionInput::Interrupt, "nothing_to_interrupt");
    let mut again = RulesFixture::after(&interrupted);
    let transition = again.feed(SessionInput::Interrupt).expect("a second interrupt restarts the agent");
    assert_eq!(again.state.visible_state(), AgentState::Starting);
    assert!(transition.effects.iter().map(effect_text).any(|effect| effect == "restart"));
}

#[test]
fn message_during_interrupt_of_leftovers_waits_for_its_end() {
    let interrupted = with(left(&[7]), &[SessionInput::Interrupt, say("next")]);
    let rules = RulesFixture::after(&interrupted);
    assert!(rules.state.turn.is_none());
    let over = RulesFixture::after(&with(interrupted, &[listed(&[])]));
    assert!(over.state.turn.is_some());
}

#[test]
fn interrupt_of_a_turn_leaves_leftovers() {
    let given = with(working(), &[listed(&[7]), SessionInput::Interrupt]);
    let rules = RulesFixture::after(&given);
    assert!(!rules.state.outgoing.iter().any(|frame| matches!(frame.command, AgentCommand::KillLeftovers {})));
    assert_eq!(rules.state.leftovers, [7]);
}

#[test]
fn only_a_listed_process_can_be_ended() {
    let kill = |pid| SessionInput::KillProcess { pid };
    check(&left(&[7]), kill(7), AgentState::Idle, &["kill_process!"], &["kill process 7"]);
    check_rejected(&left(&[7]), kill(8), "no_process");
    let stopped = with(left(&[7]), &[SessionInput::Stop { reason: None }]);
    check_rejected(&stopped, kill(7), "no_process");
    let restarted = with(left(&[7]), &[SessionInput::HelloReceived { boot: "another".into() }]);
    check_rejected(&restarted, kill(7), "no_process");
}

#[test]
fn exceeded_quota_ends_leftovers() {
    let exceeded = SessionInput::QuotaExceeded(QuotaExceeded { reason: "too much".into(), is_hard: false });
    check(&left(&[7]), exceeded, AgentState::Interrupting, &["error quota", "is interrupting"], &["kill leftovers"]);
}
