//! Checkpoints at the end of turns, and restores.

use super::*;

fn capturing(given: &[SessionInput]) -> RulesFixture {
    let mut rules = RulesFixture { captures_turns: true, ..RulesFixture::after(&[]) };
    for input in given {
        rules.feed(input.clone()).unwrap_or_else(|error| panic!("{input:?} was rejected: {error}"));
    }
    rules
}

fn effects(rules: &mut RulesFixture, input: SessionInput) -> Vec<String> {
    let transition = rules.feed(input).expect("the input is accepted");
    transition.effects.iter().map(effect_text).collect()
}

fn ended(checkpoint: &str) -> SessionInput {
    SessionInput::Capture(CaptureChange::Ended { checkpoint: checkpoint.to_owned(), observations: Vec::new() })
}

fn delayed(checkpoint: &str) -> SessionInput {
    SessionInput::Capture(CaptureChange::Delayed { checkpoint: checkpoint.to_owned() })
}

fn restore() -> SessionInput {
    SessionInput::Capture(CaptureChange::RestoreBegun { checkpoint: "restore-1".to_owned() })
}

#[test]
fn queued_message_waits_for_the_checkpoint() {
    let mut rules = capturing(&with(working(), &[say("next")]));
    let done = turn_ended(2, WorkOutcome::Done);
    assert_eq!(effects(&mut rules, done), ["capture turn-2"]);
    assert_eq!(rules.state.visible_state(), AgentState::Idle);
    assert!(rules.state.turn.is_none(), "the queue is held");
    let begun = effects(&mut rules, ended("turn-2"));
    assert!(begun[0].starts_with("prompt") && begun[0].ends_with("next"), "{begun:?}");
}

#[test]
fn delayed_checkpoint_holds_the_queue_no_longer() {
    let mut rules = capturing(&with(working(), &[say("next"), turn_ended(2, WorkOutcome::Done)]));
    let begun = effects(&mut rules, delayed("turn-2"));
    assert!(begun[0].starts_with("prompt"), "{begun:?}");
    let notice = ObservationKind::Error { code: "c".to_owned(), detail: String::new() };
    let late = CaptureChange::Ended { checkpoint: "turn-2".to_owned(), observations: vec![notice] };
    let transition = rules.feed(SessionInput::Capture(late.clone())).expect("the end is accepted");
    assert_eq!(transition.new_events.len(), 1);
    let repeated = rules.feed(SessionInput::Capture(late)).expect("the end is accepted");
    assert!(repeated.new_events.is_empty(), "a repeated end has no effect");
}

#[test]
fn interrupt_pause_and_stop_wait_for_no_checkpoint() {
    let given = with(working(), &[turn_ended(2, WorkOutcome::Done)]);
    for (input, effect) in [(SessionInput::Pause, "pause"), (SessionInput::Stop { reason: None }, "stop")] {
        assert!(effects(&mut capturing(&given), input).contains(&effect.to_owned()));
    }
    let mut rules = capturing(&with(working(), &[SessionInput::Interrupt]));
    let stopped = effects(&mut rules, turn_ended(2, cancelled("the turn")));
    assert_eq!(stopped, ["capture turn-2"], "an interrupted turn has a checkpoint");
    assert_eq!(rules.state.visible_state(), AgentState::Idle);
}

#[test]
fn turn_that_a_lost_sandbox_ends_has_a_checkpoint() {
    assert!(effects(&mut capturing(&working()), lost()).contains(&"capture turn-2".to_owned()));
}

#[test]
fn restore_excludes_turns() {
    let rejected = |rules: &mut RulesFixture| rules.feed(restore()).expect_err("no restore may begin").code();
    assert_eq!(rejected(&mut capturing(&working())), "busy");
    let mut rules = capturing(&with(working(), &[turn_ended(2, WorkOutcome::Done)]));
    assert_eq!(rejected(&mut rules), "busy", "the turn's capture runs");
    rules.feed(ended("turn-2")).expect("the end is accepted");
    rules.feed(restore()).expect("nothing runs");
    assert_eq!(rejected(&mut rules), "busy", "another restore runs");
    assert_eq!(effects(&mut rules, say("next")), [""; 0]);
    assert!(effects(&mut rules, ended("restore-1"))[0].starts_with("prompt"));
}

#[test]
fn next_server_takes_up_unfinished_captures() {
    let rules = capturing(&with(working(), &[turn_ended(2, WorkOutcome::Done)]));
    let stored = rules.state.to_opaque_state();
    let state: SessionState = serde_json::from_str(stored.as_str()).expect("the state is readable");
    let redone: Vec<_> = state.captures_after_restart().iter().map(effect_text).collect();
    assert_eq!(redone, ["capture turn-2"]);
    assert!(!SessionState::default().to_opaque_state().as_str().contains("captures"), "older versions read the state");
}

#[test]
fn no_turn_overlaps_a_restore_however_long() {
    let mut rules = capturing(&with(working(), &[turn_ended(2, WorkOutcome::Done), ended("turn-2"), restore()]));
    for server in ["the first server", "the next server"] {
        assert_eq!(effects(&mut rules, delayed("restore-1")), [""; 0], "{server}");
        assert_eq!(effects(&mut rules, say(server)), [""; 0], "{server}");
        let stored = rules.state.to_opaque_state();
        rules.state = serde_json::from_str(stored.as_str()).expect("the state is readable");
        let redone: Vec<_> = rules.state.captures_after_restart().iter().map(effect_text).collect();
        assert_eq!(redone, ["capture restore-1"], "{server}");
    }
    assert!(effects(&mut rules, ended("restore-1"))[0].starts_with("prompt"));
}

#[test]
fn interrupt_pause_and_stop_wait_for_no_restore() {
    let given = with(working(), &[turn_ended(2, WorkOutcome::Done), ended("turn-2"), restore()]);
    for (input, effect) in [(SessionInput::Pause, "pause"), (SessionInput::Stop { reason: None }, "stop")] {
        assert!(effects(&mut capturing(&given), input).contains(&effect.to_owned()));
    }
}
