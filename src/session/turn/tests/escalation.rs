//! Rules for the escalation of an interrupt.

use super::*;

#[test]
fn interrupt_escalates_in_three_steps() {
    let mut given = with(working(), &[SessionInput::Interrupt]);
    check(&given, SessionInput::EscalationDue, AgentState::Interrupting, &[], &["kill processes"]);
    given.push(SessionInput::EscalationDue);
    let receipt = ["interrupted the turn by RestartAgent", "is starting"];
    check(&given, SessionInput::EscalationDue, AgentState::Starting, &receipt, &["restart"]);
    let killed = ["interrupted x by KillProcesses", "is idle"];
    check(&given, turn_ended(2, cancelled("x")), AgentState::Idle, &killed, &[]);
    check(&working(), SessionInput::EscalationDue, AgentState::Running, &[], &[]);
}

/// After a kill of the server, the next command would get the same name. An agent ignores a command
/// whose name is known.
#[test]
fn command_without_event_takes_no_counted_name() {
    let mut rules = RulesFixture::after(&with(working(), &[SessionInput::Interrupt]));
    let counted = rules.state.name_counter;
    let transition = rules.feed(SessionInput::EscalationDue).expect("the input is always accepted");
    assert!(transition.new_events.is_empty());
    assert_eq!(rules.state.name_counter, counted);
}
