//! Rules for interrupts and their escalation.

use super::*;

#[test]
fn interrupt_ends_running_turn() {
    let asked = ["interrupt!", "is interrupting"];
    check(
        &working(),
        SessionInput::Interrupt,
        AgentState::Interrupting,
        &asked,
        &["hint turn-2", "abort streams", "cancel"],
    );
    check_rejected(&[SessionInput::SessionCreated, up()], SessionInput::Interrupt, "nothing_to_interrupt");
    check_rejected(&[SessionInput::SessionCreated, start("t")], SessionInput::Interrupt, "nothing_to_interrupt");
    let interrupting = with(working(), &[SessionInput::Interrupt]);
    let receipt = ["interrupted the command `ls` by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, cancelled("the command `ls`")), AgentState::Idle, &receipt, &[]);
    let late = ["interrupted the turn, which had just ended by Cancel", "is idle"];
    check(&interrupting, turn_ended(2, WorkOutcome::Done), AgentState::Idle, &late, &[]);
}

#[test]
fn interrupt_waits_for_turn_and_action_and_drops_queued_actions() {
    let both = with(working(), &[run(), run()]);
    check(
        &both,
        SessionInput::Interrupt,
        AgentState::Interrupting,
        &["interrupt!", "error not_begun", "is interrupting"],
        &["hint turn-2 act-4", "abort streams", "cancel"],
    );
    let turn_gone = with(both, &[SessionInput::Interrupt, turn_ended(2, cancelled("a"))]);
    let action_ended = SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: cancelled("b") };
    check(&turn_gone, action_ended, AgentState::Idle, &["interrupted a and b by Cancel", "is idle"], &[]);
}

#[test]
fn second_interrupt_restarts_agent() {
    let given = with(working(), &[SessionInput::Interrupt]);
    let events = ["interrupt!", "interrupted the turn by RestartAgent", "is starting"];
    check(&given, SessionInput::Interrupt, AgentState::Starting, &events, &["restart"]);
    let back = with(given, &[SessionInput::Interrupt]);
    check(
        &back,
        SessionInput::HelloReceived { boot: "b2".into() },
        AgentState::Idle,
        &["sandbox Ready", "is idle"],
        &[],
    );
}

#[test]
fn queue_is_paused_after_interrupt_until_next_input() {
    let paused = with(working(), &[say("m"), SessionInput::Interrupt]);
    let stopped = ["interrupted x by Cancel", "is idle"];
    check(&paused, turn_ended(2, cancelled("x")), AgentState::Idle, &stopped, &[]);
    let paused = with(paused, &[turn_ended(2, cancelled("x"))]);
    check(
        &paused,
        SessionInput::Resume,
        AgentState::Running,
        &["resume!", "chat m", "queue 0", "is running"],
        &["prompt turn-6 m"],
    );
    check(
        &paused,
        say("n"),
        AgentState::Running,
        &["message!", "chat m", "queue 1", "is running"],
        &["prompt turn-7 m"],
    );
    check(&paused, run(), AgentState::Running, &["run!", "is running"], &["user action act-6"]);
    let steered = with(working(), &[say_as(MessageMode::Steer, "s"), SessionInput::Interrupt]);
    let missed = with(steered, &[SessionInput::SteerMissed { command: "command-5".into() }]);
    check(&missed, turn_ended(2, cancelled("x")), AgentState::Idle, &stopped, &[]);
}

#[test]
fn message_can_interrupt() {
    let events = ["message!", "queue 1", "is interrupting"];
    check(
        &working(),
        say_as(MessageMode::Interrupt, "m"),
        AgentState::Interrupting,
        &events,
        &["hint turn-2", "abort streams", "cancel"],
    );
    let given = with(working(), &[say_as(MessageMode::Interrupt, "m")]);
    let events = ["interrupted x by Cancel", "chat m", "queue 0", "is running"];
    check(&given, turn_ended(2, cancelled("x")), AgentState::Running, &events, &["prompt turn-6 m"]);
    // Nothing runs yet, so nothing is interrupted.
    let queued = [SessionInput::SessionCreated, run()];
    check(&queued, say_as(MessageMode::Interrupt, "m"), AgentState::Starting, &["message!", "queue 1"], &[]);
}

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
