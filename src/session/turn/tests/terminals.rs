//! Terminals: the start of their sandbox, and their end in a receipt.

use super::*;

fn listed(names: &[&str]) -> SessionInput {
    SessionInput::TerminalsListed { names: names.iter().map(|name| (*name).to_owned()).collect() }
}

fn escalated_twice(given: Vec<SessionInput>) -> Vec<SessionInput> {
    with(given, &[SessionInput::Interrupt, SessionInput::EscalationDue])
}

#[test]
fn terminal_starts_a_stopped_sandbox() {
    let start = SessionInput::StartForTerminal;
    let stopped = with(working(), &[turn_ended(2, WorkOutcome::Done), SessionInput::Stop { reason: None }]);
    check(&stopped, start.clone(), AgentState::Starting, &["resume!", "is starting"], &["start"]);
    let failed = with(working(), &[lost()]);
    check(&failed, start.clone(), AgentState::Starting, &["resume!", "is starting"], &["start"]);
    for given in [vec![SessionInput::SessionCreated], vec![SessionInput::SessionCreated, up()]] {
        let state = RulesFixture::after(&given).state.visible_state();
        check(&given, start.clone(), state, &[], &[]);
    }
    check_rejected(&with(stopped, &[SessionInput::End]), start, "ended");
}

#[test]
fn terminal_leaves_a_paused_queue_paused() {
    let interrupted = with(working(), &[say("next"), SessionInput::Interrupt]);
    let halted = with(interrupted, &[turn_ended(2, cancelled("the turn")), SessionInput::Stop { reason: None }]);
    let rules = RulesFixture::after(&with(halted, &[SessionInput::StartForTerminal, up()]));
    assert!(rules.state.turn.is_none() && rules.state.queue.len() == 1);
}

#[test]
fn receipt_names_the_terminals_that_a_restart_ends() {
    let due = SessionInput::EscalationDue;
    for (names, receipt) in [
        (&["main"][..], "interrupted the turn and the terminal `main` by RestartAgent"),
        (&["main", "b"], "interrupted the turn and the terminals `main`, `b` by RestartAgent"),
        (&[], "interrupted the turn by RestartAgent"),
    ] {
        let given = escalated_twice(with(working(), &[listed(&["old"]), listed(names)]));
        check(&given, due.clone(), AgentState::Starting, &[receipt, "is starting"], &["restart"]);
        let mut rules = RulesFixture::after(&given);
        rules.feed(due.clone()).expect("the escalation is always accepted");
        assert!(rules.state.terminals.is_empty());
    }
}

#[test]
fn interrupt_without_a_restart_leaves_terminals_alone() {
    let interrupted = with(working(), &[listed(&["main"]), SessionInput::Interrupt]);
    let receipt = ["interrupted the turn by Cancel", "is idle"];
    check(&interrupted, turn_ended(2, cancelled("the turn")), AgentState::Idle, &receipt, &[]);
    assert_eq!(RulesFixture::after(&interrupted).state.terminals, ["main"]);
}

#[test]
fn terminals_end_with_their_sandbox() {
    for input in [lost(), SessionInput::Stop { reason: None }, SessionInput::HelloReceived { boot: "other".into() }] {
        let ended = vec![SessionInput::SessionCreated, up(), listed(&["main"]), input];
        assert!(RulesFixture::after(&ended).state.terminals.is_empty());
    }
    let stopped = vec![SessionInput::SessionCreated, up(), SessionInput::Stop { reason: None }, listed(&["late"])];
    assert!(RulesFixture::after(&stopped).state.terminals.is_empty());
}
