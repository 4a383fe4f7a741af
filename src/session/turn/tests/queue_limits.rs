//! What waits is bounded, in number and in bytes, and every event about it can be shown.

use std::collections::HashMap;

use super::*;
use crate::session::render::RenderedEvents;

const MIB: usize = 1024 * 1024;

/// The events that a decision makes, as clients see them.
fn shown(world: &RulesFixture, decision: &Transition) -> Vec<(String, usize)> {
    let mut rendered = RenderedEvents::new();
    for draft in decision.new_events.clone() {
        rendered.add(draft, world.tail, &mut HashMap::new());
    }
    rendered.finish().into_iter().map(|event| (event.kind.to_string(), event.json.len())).collect()
}

fn names(shown: &[(String, usize)]) -> Vec<&str> {
    shown.iter().map(|(kind, _)| kind.as_str()).collect()
}

/// The longest texts that a frame of a client has room for: the second in its own form, where each character takes six bytes.
fn longest() -> [String; 2] {
    ["x".repeat(MIB - 100), "\u{1}".repeat((MIB - 100) / 6)]
}

#[test]
fn a_message_as_long_as_a_frame_is_taken_and_shown() {
    for text in longest() {
        let mut world = RulesFixture::after(&working());
        let said = world.feed(say(&text)).expect("there is room");
        assert_eq!(names(&shown(&world, &said)), ["message", "queue"]);
        let begun = world.feed(turn_ended(2, WorkOutcome::Done)).expect("it is taken");
        assert_eq!(names(&shown(&world, &begun)), ["chat", "queue"]);
        let mut world = RulesFixture::after(&working());
        let done = world.feed(SessionInput::UserAction(Action::Run { command: text })).expect("there is room");
        assert_eq!(names(&shown(&world, &done)), ["run"]);
        let asked = world.feed(SessionInput::Interrupt).expect("something runs");
        assert_eq!(names(&shown(&world, &asked)), ["interrupt", "agent_state_changed"]);
        let receipt = world.feed(lost()).expect("nobody can refuse that");
        let receipt = shown(&world, &receipt);
        assert_eq!(names(&receipt), ["sandbox", "interrupted", "agent_state_changed"]);
        assert!(receipt[1].1 < 4096, "{} bytes", receipt[1].1);
    }
}

#[test]
fn what_waits_is_bounded_in_bytes_and_can_always_be_shown() {
    for text in longest() {
        for length in [1, 20].map(|parts| text.len() / parts) {
            let mut world = RulesFixture::after(&working());
            let refusal = loop {
                let text = &text[..length];
                let wish = if world.tail.is_multiple_of(3) { say_as(MessageMode::Steer, text) } else { say(text) };
                match world.feed(wish) {
                    Ok(said) => assert!(!names(&shown(&world, &said)).contains(&"error")),
                    Err(refusal) => break refusal,
                }
            };
            assert_eq!(refusal.code(), "invalid_args");
            let core = serde_json::to_string(&world.state).expect("it is JSON").len();
            assert!(core < 3 * MIB, "{core} bytes are written down with each decision");
            // Whatever steers nothing comes into the queue.
            let over = world.feed(lost()).expect("nobody can refuse that");
            assert!(!names(&shown(&world, &over)).contains(&"error"));
        }
    }
}

/// How a wish is answered; what it says is too long to be shown.
fn answer(given: &[SessionInput], wish: SessionInput) -> &'static str {
    let mut world = RulesFixture::after(given);
    let before = world.state.clone();
    let code = world.feed(wish).map_or_else(|refusal| refusal.code(), |_| "taken");
    assert!(code == "taken" || world.state == before, "a refusal changes nothing");
    code
}

#[test]
fn messages_acts_and_changes_share_the_room() {
    let long = || "x".repeat(MIB - 100);
    let write = || SessionInput::UserAction(Action::Write { path: "a".into(), content: long() });
    let edit =
        |content: String| SessionInput::EditQueue { item: "message-4".into(), content: Some(content), remove: false };
    let acts = with(working(), &[run(), write()]);
    assert_eq!(answer(&acts, write()), "invalid_args");
    assert_eq!(answer(&acts, say(&long())), "invalid_args");
    assert_eq!(answer(&acts, say("m")), "taken");
    let message = with(working(), &[say(&long())]);
    assert_eq!(answer(&message, write()), "invalid_args");
    assert_eq!(answer(&message, edit("y".repeat(MIB - 100))), "taken");
    let both = with(vec![SessionInput::SessionCreated], &[write(), start("t")]);
    let edit =
        |content: String| SessionInput::EditQueue { item: "message-2".into(), content: Some(content), remove: false };
    assert_eq!(answer(&both, edit(long())), "invalid_args");
    assert_eq!(answer(&both, edit("u".into())), "taken");
    assert_eq!(answer(&[SessionInput::SessionCreated, write()], start(&long())), "invalid_args");
}

#[test]
fn an_agent_that_stands_still_keeps_one_change_of_the_model() {
    let change = || SessionInput::SetModel { settings: settings(), title: None };
    let world =
        RulesFixture::after(&[SessionInput::SessionCreated, up(), SessionInput::Pause, change(), change(), change()]);
    assert_eq!(world.state.outgoing.len(), 1);
}
