//! How an interrupt gets its way.

use super::*;

#[test]
fn the_ladder() {
    let mut given = with(working(), &[SessionInput::Interrupt]);
    check(&given, SessionInput::EscalationDue, AgentState::Interrupting, &[], &["kill processes"]);
    given.push(SessionInput::EscalationDue);
    let receipt = ["interrupted the turn by RestartAgent", "is starting"];
    check(&given, SessionInput::EscalationDue, AgentState::Starting, &receipt, &["restart"]);
    let killed = ["interrupted x by KillProcesses", "is idle"];
    check(&given, turn_ended(2, cancelled("x")), AgentState::Idle, &killed, &[]);
    check(&working(), SessionInput::EscalationDue, AgentState::Running, &[], &[]);
}

/// After a kill of the server the next command would have the same, and an agent does nothing for a name that it knows.
#[test]
fn what_is_ordered_and_not_written_down_has_no_counted_name() {
    let mut world = RulesFixture::after(&with(working(), &[SessionInput::Interrupt]));
    let counted = world.state.name_counter;
    let decision = world.feed(SessionInput::EscalationDue).expect("nobody can refuse that");
    assert!(decision.new_events.is_empty());
    assert_eq!(world.state.name_counter, counted);
}
