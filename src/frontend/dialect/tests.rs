use greenroom_protocol::observation::{Rung, Usage};
use proptest::prelude::*;

use super::*;

fn event(source: Source, item: Option<&str>, body: impl Into<Body>) -> Event {
    Event {
        seq: 1,
        at: String::new(),
        source,
        cause: None,
        item: item.map(str::to_owned),
        body: body.into(),
        message: String::new(),
    }
}

fn seen(source: Source, item: Option<&str>, seen: Seen, content: &str) -> Event {
    event(source, item, Observation { seen, content: content.to_owned() })
}

fn chat(turn: &str) -> Event {
    seen(Source::User, None, Seen::Chat { attachments: vec![], turn: Some(turn.into()) }, "go")
}

fn state(agent_state: State, reason: Option<&str>) -> Event {
    let reason = reason.map(str::to_owned);
    seen(Source::Server, None, Seen::AgentStateChanged { agent_state, reason, since: String::new() }, "")
}

fn said(item: &str, content: &str) -> Event {
    seen(Source::Agent, Some(item), Seen::Message { partial: false }, content)
}

fn grew(kind: DeltaKind, item: &str, offset: u64, content: &str) -> Delta {
    Delta { kind, item: item.into(), offset, content: content.into() }
}

/// Each frame as a word, with what it holds.
fn words(frames: impl IntoIterator<Item = Frame>) -> Vec<String> {
    let word = |frame: Frame| {
        let json = serde_json::to_value(&frame).expect("JSON");
        let held = ["content", "message", "tool_name"].iter().filter_map(|key| json[key].as_str());
        [json["type"].as_str().expect("a type")].into_iter().chain(held).collect::<Vec<_>>().join(" ")
    };
    frames.into_iter().map(word).collect()
}

#[test]
fn a_turn_with_a_tool() {
    let mut dialect = Dialect::joining(false);
    let mut told = Vec::new();
    told.extend(words(dialect.event(chat("turn-1"))));
    told.extend(words(dialect.delta(grew(DeltaKind::Thinking, "t", 0, "Let me "))));
    told.extend(words(dialect.event(seen(Source::Agent, Some("t"), Seen::Think { partial: false }, "Let me see."))));
    told.extend(words(dialect.delta(grew(DeltaKind::ToolInput, "c", 0, "{}"))));
    told.extend(words(dialect.event(event(Source::Agent, Some("c"), Action::Run { command: "ls".into() }))));
    told.extend(words(dialect.delta(grew(DeltaKind::Output, "c", 0, "LICENSE"))));
    let run = Seen::Run { command: "ls".into(), exit_code: Some(0), duration_ms: 1, timed_out: false, truncated: None };
    told.extend(words(dialect.event(seen(Source::Agent, Some("c"), run, "LICENSE"))));
    told.extend(words(dialect.event(said("m", "There it is."))));
    told.extend(words(dialect.event(state(State::Idle, None))));
    told.extend(words(dialect.event(state(State::Idle, None))));
    assert_eq!(
        told,
        [
            "thinking Let me ",
            "thinking see.",
            "tool_use_start run",
            "tool_result LICENSE run",
            "text_delta There it is.",
            "done",
        ]
    );
}

#[test]
fn a_frame_is_as_the_protocol_says() {
    let mut dialect = Dialect::default();
    let frames = dialect.event(event(Source::Agent, Some("c"), Action::Run { command: "ls".into() }));
    let expected = serde_json::json!([{
        "type": "tool_use_start", "tool_use_id": "c", "tool_name": "run", "tool_input": { "command": "ls" }, "seq": 1
    }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    let usage = Usage {
        model: "m".into(),
        input_tokens: 1,
        output_tokens: 1,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cost_usd: Some(0.1),
        total_input_tokens: 10,
        total_output_tokens: 20,
        total_cost_usd: Some(0.5),
        context_used: 0,
        context_limit: None,
    };
    let frames = dialect.event(seen(Source::Server, None, Seen::Usage(usage), ""));
    let expected = serde_json::json!([{ "type": "cost_update", "cost_usd": 0.5, "input_tokens": 10, "output_tokens": 20, "seq": 1 }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    assert_eq!(serde_json::to_string(&Frame::from(Told::Pong)).expect("JSON"), r#"{"type":"pong"}"#);
    assert_eq!(serde_json::from_str::<Said>(r#"{"type":"interrupt"}"#).expect("a frame"), Said::Interrupt);
    assert!(serde_json::from_str::<Said>(r#"{"type":"message"}"#).is_err());
}

#[test]
fn how_turns_end() {
    let end = |events: Vec<Event>| {
        let mut dialect = Dialect::joining(false);
        dialect.event(chat("turn-1"));
        words(events.into_iter().flat_map(|event| dialect.event(event)).collect::<Vec<_>>())
    };
    let error = |code: &str| {
        seen(Source::Agent, None, Seen::Error { code: code.into(), detail: "too many requests".into() }, "")
    };
    let interrupted = Seen::Interrupted { what: "the turn".into(), stopped_ms: 1, rung: Rung::Cancel, partial: true };
    assert_eq!(end(vec![error("model"), state(State::Idle, None)]), ["error too many requests"]);
    assert_eq!(end(vec![seen(Source::Server, None, interrupted, ""), state(State::Idle, None)]), ["done"]);
    assert_eq!(end(vec![state(State::Failed, Some("out of memory"))]), ["error out of memory"]);
    assert_eq!(end(vec![state(State::Paused, None), state(State::Running, None)]), Vec::<String>::new());
    assert_eq!(end(vec![chat("turn-1")]), Vec::<String>::new(), "steered into the turn that runs");
    assert_eq!(end(vec![chat("turn-2"), state(State::Idle, None)]), ["done", "done"], "the next began at once");
}

#[test]
fn a_client_that_comes_late_hears_the_item_so_far_and_the_end_of_the_turn() {
    let mut dialect = Dialect::joining(true);
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 0, "Hello"))), ["text_delta Hello"]);
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta  you"]);
    assert_eq!(words(dialect.event(said("m", "Hello you."))), ["text_delta ."]);
    assert_eq!(words(dialect.event(state(State::Idle, None))), ["done"]);
}

proptest! {
    /// Whatever a turn goes through, it ends once; and what was said arrives once.
    #[test]
    fn a_turn_ends_once(steps in prop::collection::vec(0..7usize, 0..60)) {
        let mut dialect = Dialect::joining(false);
        let (mut turns, mut ends, mut open, mut n) = (0, 0, false, 0);
        let (mut spoken, mut heard) = (String::new(), String::new());
        for step in steps {
            n += 1;
            let mut frames = Vec::new();
            match step {
                0 => {
                    turns += 1;
                    open = true;
                    frames.extend(dialect.event(chat(&format!("turn-{n}"))));
                }
                1 => frames.extend(dialect.event(state(State::Idle, None))),
                2 => frames.extend(dialect.event(state(State::Failed, None))),
                3 => {
                    let failed = Seen::Error { code: "model".into(), detail: "d".into() };
                    frames.extend(dialect.event(seen(Source::Agent, None, failed, "")));
                }
                4 => {
                    let text = format!("said {n}. ");
                    let piece = grew(DeltaKind::Text, &n.to_string(), 0, &text[..3]);
                    frames.extend(dialect.delta(piece));
                    frames.extend(dialect.event(said(&n.to_string(), &text)));
                    spoken.push_str(&text);
                }
                5 => frames.extend(dialect.event(state(State::Paused, None))),
                _ => {
                    let retried = Seen::Error { code: "provider_retrying".into(), detail: "d".into() };
                    frames.extend(dialect.event(seen(Source::Server, None, retried, "")));
                }
            }
            if matches!(step, 1..=3) {
                open = false;
            }
            for frame in frames {
                match frame.told {
                    Told::Done | Told::Error { .. } => ends += 1,
                    Told::TextDelta { content } => heard.push_str(&content),
                    _ => {}
                }
            }
            prop_assert_eq!(ends, turns - usize::from(open));
        }
        prop_assert_eq!(heard, spoken);
    }
}

#[test]
fn what_fails_within_a_turn_does_not_end_it() {
    let error = |code: &str| Seen::Error { code: code.into(), detail: "why".into() };
    let mut dialect = Dialect::joining(true);
    assert_eq!(words(dialect.event(seen(Source::Agent, Some("act-1"), error("tool_failed"), ""))), [] as [&str; 0]);
    assert_eq!(words(dialect.event(said("m", "and on"))), ["text_delta and on"]);
    assert_eq!(words(dialect.event(seen(Source::Agent, None, error("model_error"), ""))), ["error why"]);
}
