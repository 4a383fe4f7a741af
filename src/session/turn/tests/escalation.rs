//! How an interrupt gets its way.

use super::*;

#[test]
fn the_ladder() {
    let mut given = with(working(), &[Input::Interrupt]);
    check(&given, Input::LadderDue, State::Interrupting, &[], &["kill processes"]);
    given.push(Input::LadderDue);
    let receipt = ["interrupted the turn by RestartAgent", "is starting"];
    check(&given, Input::LadderDue, State::Starting, &receipt, &["restart"]);
    let killed = ["interrupted x by KillProcesses", "is idle"];
    check(&given, turn_ended(2, cancelled("x")), State::Idle, &killed, &[]);
    check(&working(), Input::LadderDue, State::Running, &[], &[]);
}

/// After a kill of the server the next command would have the same, and an agent does nothing for a name that it knows.
#[test]
fn what_is_ordered_and_not_written_down_has_no_counted_name() {
    let mut world = World::after(&with(working(), &[Input::Interrupt]));
    let counted = world.core.named;
    let decision = world.feed(Input::LadderDue).expect("nobody can refuse that");
    assert!(decision.drafts.is_empty());
    assert_eq!(world.core.named, counted);
}
