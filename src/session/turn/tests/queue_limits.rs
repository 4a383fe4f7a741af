//! Rules for the limits of the queue. Every event about the queue can be rendered.

use std::collections::HashMap;

use super::*;
use crate::session::render::RenderedEvents;

const MIB: usize = 1024 * 1024;

/// Renders the events of a transition: kind and length in bytes of each.
fn rendered_events(rules: &RulesFixture, transition: &Transition) -> Vec<(String, usize)> {
    let mut rendered = RenderedEvents::new();
    for new_event in transition.new_events.clone() {
        rendered.add(new_event, rules.tail, &mut HashMap::new());
    }
    rendered.finish().into_iter().map(|event| (event.kind.to_string(), event.json.len())).collect()
}

fn names(rendered_events: &[(String, usize)]) -> Vec<&str> {
    rendered_events.iter().map(|(kind, _)| kind.as_str()).collect()
}

/// Longest texts that fit into a client's frame. In the second, each character takes six bytes.
fn longest() -> [String; 2] {
    ["x".repeat(MIB - 100), "\u{1}".repeat((MIB - 100) / 6)]
}

#[test]
fn message_as_long_as_a_frame_is_accepted_and_rendered() {
    for text in longest() {
        let mut rules = RulesFixture::after(&working());
        let message = rules.feed(say(&text)).expect("the queue has room");
        assert_eq!(names(&rendered_events(&rules, &message)), ["message", "queue"]);
        let next_turn = rules.feed(turn_ended(2, WorkOutcome::Done)).expect("the input is accepted");
        assert_eq!(names(&rendered_events(&rules, &next_turn)), ["chat", "queue"]);
        let mut rules = RulesFixture::after(&working());
        let done = rules.feed(SessionInput::UserAction(Action::Run { command: text })).expect("the queue has room");
        assert_eq!(names(&rendered_events(&rules, &done)), ["run"]);
        let interrupt = rules.feed(SessionInput::Interrupt).expect("a turn runs");
        assert_eq!(names(&rendered_events(&rules, &interrupt)), ["interrupt", "agent_state_changed"]);
        let receipt = rules.feed(lost()).expect("the input is always accepted");
        let receipt = rendered_events(&rules, &receipt);
        assert_eq!(names(&receipt), ["sandbox", "interrupted", "agent_state_changed"]);
        assert!(receipt[1].1 < 4096, "{} bytes", receipt[1].1);
    }
}

#[test]
fn queue_is_bounded_in_bytes_and_always_rendered() {
    for text in longest() {
        for length in [1, 20].map(|parts| text.len() / parts) {
            let mut rules = RulesFixture::after(&working());
            let error = loop {
                let text = &text[..length];
                let input = if rules.tail.is_multiple_of(3) { say_as(MessageMode::Steer, text) } else { say(text) };
                match rules.feed(input) {
                    Ok(message) => assert!(!names(&rendered_events(&rules, &message)).contains(&"error")),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), "invalid_args");
            let bytes = serde_json::to_string(&rules.state).expect("session state serializes").len();
            assert!(bytes < 3 * MIB, "each transition writes {bytes} bytes");
            // Missed steering messages return to the queue.
            let lost_events = rules.feed(lost()).expect("the input is always accepted");
            assert!(!names(&rendered_events(&rules, &lost_events)).contains(&"error"));
        }
    }
}

/// Returns `accepted` or the error's code. The input is too long for a failure message.
fn answer(given: &[SessionInput], input: SessionInput) -> &'static str {
    let mut rules = RulesFixture::after(given);
    let before = rules.state.clone();
    let code = rules.feed(input).map_or_else(|error| error.code(), |_| "accepted");
    assert!(code == "accepted" || rules.state == before, "a rejected input changes nothing");
    code
}

#[test]
fn messages_actions_and_edits_share_the_byte_limit() {
    let long = || "x".repeat(MIB - 100);
    let write = || SessionInput::UserAction(Action::Write { path: "a".into(), content: long() });
    let edit =
        |content: String| SessionInput::EditQueue { item: "message-4".into(), content: Some(content), remove: false };
    let actions = with(working(), &[run(), write()]);
    assert_eq!(answer(&actions, write()), "invalid_args");
    assert_eq!(answer(&actions, say(&long())), "invalid_args");
    assert_eq!(answer(&actions, say("m")), "accepted");
    let message = with(working(), &[say(&long())]);
    assert_eq!(answer(&message, write()), "invalid_args");
    assert_eq!(answer(&message, edit("y".repeat(MIB - 100))), "accepted");
    let both = with(vec![SessionInput::SessionCreated], &[write(), start("t")]);
    let edit =
        |content: String| SessionInput::EditQueue { item: "message-2".into(), content: Some(content), remove: false };
    assert_eq!(answer(&both, edit(long())), "invalid_args");
    assert_eq!(answer(&both, edit("u".into())), "accepted");
    assert_eq!(answer(&[SessionInput::SessionCreated, write()], start(&long())), "invalid_args");
}

#[test]
fn paused_agent_has_one_pending_model_change() {
    let change = || set_model();
    let rules =
        RulesFixture::after(&[SessionInput::SessionCreated, up(), SessionInput::Pause, change(), change(), change()]);
    assert_eq!(rules.state.outgoing.len(), 1);
}
