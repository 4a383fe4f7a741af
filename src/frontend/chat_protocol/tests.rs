use greenroom_protocol::observation::{EscalationStep, ModelUsage, QueueItem};
use proptest::prelude::*;

use super::*;

mod texts;

fn event(source: EventSource, item: Option<&str>, body: impl Into<EventBody>) -> Event {
    Event {
        risk: None,
        seq: 1,
        at: String::new(),
        source,
        cause: None,
        item: item.map(str::to_owned),
        body: body.into(),
        message: String::new(),
    }
}

fn observation(source: EventSource, item: Option<&str>, kind: ObservationKind, content: &str) -> Event {
    event(source, item, Observation { kind, content: content.to_owned() })
}

fn chat(turn: &str) -> Event {
    observation(EventSource::User, None, ObservationKind::Chat { attachments: vec![], turn: Some(turn.into()) }, "go")
}

fn state(agent_state: AgentState, reason: Option<&str>) -> Event {
    let reason = reason.map(str::to_owned);
    observation(
        EventSource::Server,
        None,
        ObservationKind::AgentStateChanged { agent_state, reason, since: String::new(), turn_over: false },
        "",
    )
}

/// Returns the event for the end of a turn beside a user action that still runs.
fn turn_over() -> Event {
    let kind = ObservationKind::AgentStateChanged {
        agent_state: AgentState::Running,
        reason: None,
        since: String::new(),
        turn_over: true,
    };
    observation(EventSource::Server, None, kind, "")
}

fn agent_message(item: &str, content: &str) -> Event {
    observation(EventSource::Agent, Some(item), ObservationKind::Message { partial: false }, content)
}

fn delta(kind: DeltaKind, item: &str, offset: u64, content: &str) -> DeltaChunk {
    DeltaChunk { delta: Delta { kind, item: item.into(), offset, content: content.into() }, at: offset }
}

/// Renders each frame as its type and texts. A frame that only ends an item is left out.
fn render(frames: impl IntoIterator<Item = ChatFrame>) -> Vec<String> {
    let rendered = |frame: ChatFrame| {
        let json = serde_json::to_value(&frame).expect("JSON");
        let texts = ["content", "message", "tool_name"].iter().filter_map(|key| json[key].as_str());
        [json["type"].as_str().expect("a type")].into_iter().chain(texts).collect::<Vec<_>>().join(" ")
    };
    let only_ends_item = |frame: &ChatFrame| match &frame.body {
        ChatFrameBody::TextDelta(part) | ChatFrameBody::Thinking(part) => part.content.is_empty(),
        _ => false,
    };
    frames.into_iter().filter(|frame| !only_ends_item(frame)).map(rendered).collect()
}

#[test]
fn turn_ends_beside_a_user_action() {
    let mut translator = ChatTranslator::joining(None);
    translator.event(chat("turn-1"));
    assert_eq!(render(translator.event(state(AgentState::Running, None))), [""; 0]);
    assert_eq!(render(translator.event(turn_over())), ["done"]);
    assert_eq!(render(translator.event(state(AgentState::Idle, None))), [""; 0]);
}

#[test]
fn turn_with_a_tool_becomes_frames() {
    let mut translator = ChatTranslator::joining(None);
    let mut frames = Vec::new();
    frames.extend(render(translator.event(chat("turn-1"))));
    frames.extend(render(translator.delta(delta(DeltaKind::Thinking, "t", 0, "Let me "))));
    frames.extend(render(translator.event(observation(
        EventSource::Agent,
        Some("t"),
        ObservationKind::Think { partial: false },
        "Let me see.",
    ))));
    frames.extend(render(translator.delta(delta(DeltaKind::ToolInput, "c", 0, "{}"))));
    frames.extend(render(translator.event(event(EventSource::Agent, Some("c"), Action::Run { command: "ls".into() }))));
    frames.extend(render(translator.delta(delta(DeltaKind::Output, "c", 0, "LICENSE"))));
    let run = ObservationKind::Run {
        command: "ls".into(),
        exit_code: Some(0),
        signal: None,
        duration_ms: 1,
        timed_out: false,
        truncated: None,
    };
    frames.extend(render(translator.event(observation(EventSource::Agent, Some("c"), run, "LICENSE"))));
    frames.extend(render(translator.event(agent_message("m", "There it is."))));
    frames.extend(render(translator.event(state(AgentState::Idle, None))));
    frames.extend(render(translator.event(state(AgentState::Idle, None))));
    assert_eq!(
        frames,
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
fn frames_have_the_documented_form() {
    let mut translator = ChatTranslator::default();
    let frames = translator.event(event(EventSource::Agent, Some("c"), Action::Run { command: "ls".into() }));
    let expected = serde_json::json!([{
        "type": "tool_use_start", "tool_use_id": "c", "tool_name": "run", "tool_input": { "command": "ls" }, "seq": 1
    }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    let usage = ModelUsage {
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
        estimated: false,
    };
    let frames = translator.event(observation(EventSource::Server, None, ObservationKind::Usage(usage), ""));
    let expected = serde_json::json!([{ "type": "cost_update", "cost_usd": 0.5, "input_tokens": 10, "output_tokens": 20, "seq": 1 }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    assert_eq!(serde_json::to_string(&ChatFrame::from(ChatFrameBody::Pong)).expect("JSON"), r#"{"type":"pong"}"#);
    let frames = translator.delta(delta(DeltaKind::Text, "m", 0, "Hi"));
    let expected = serde_json::json!([{ "type": "text_delta", "item": "m", "offset": 0, "content": "Hi" }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    let frames = translator.event(agent_message("m", "Hi."));
    let expected = serde_json::json!([{ "type": "text_delta", "item": "m", "offset": 2, "content": ".", "seq": 1 }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    let ends = [chat("turn-1"), state(AgentState::Idle, None), chat("turn-2"), state(AgentState::Failed, Some("no"))];
    let frames: Vec<_> = ends.into_iter().flat_map(|event| translator.event(event)).collect();
    let expected = serde_json::json!([
        { "type": "done", "turn": "turn-1", "seq": 1 },
        { "type": "error", "message": "no", "turn": "turn-2", "seq": 1 },
    ]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
}

#[test]
fn rejection_names_the_frame() {
    let check = |text: &str, id: Value, words: &str| {
        let rejected = ChatRequestFrame::parse(text).expect_err("the frame is wrong");
        let json = serde_json::to_value(ChatFrame::rejection(rejected.message, rejected.id)).expect("JSON");
        assert_eq!((&json["type"], &json["id"]), (&"error".into(), &id), "{json}");
        assert!(json["message"].as_str().is_some_and(|message| message.contains(words)), "{json}");
        assert_eq!(json.as_object().map(serde_json::Map::len), Some(3), "no field of a turn's end: {json}");
    };
    check(r#"{"type":"dance","id":"a"}"#, "a".into(), "not a frame of a chat");
    check(r#"{"type":"message","id":"a"}"#, "a".into(), "missing field `content`");
    check(r#"{"type":"dance"}"#, Value::Null, "not a frame of a chat");
    check(r#"{"type":"interrupt","id":7}"#, Value::Null, "`id` must be a string");
    check(r#"{"type":"interrupt","id":""}"#, Value::Null, "`id` must be a string");
    check("{", Value::Null, "not a frame of a chat");
    let frame = |id: Option<&str>, request| ChatRequestFrame { id: id.map(str::to_owned), request };
    let parsed = |text: &str| ChatRequestFrame::parse(text).expect("a frame");
    assert_eq!(parsed(r#"{"type":"interrupt"}"#), frame(None, ChatRequest::Interrupt));
    let message = ChatRequest::Message { content: "go".into() };
    assert_eq!(parsed(r#"{"type":"message","content":"go","id":"a"}"#), frame(Some("a"), message));
}

fn interrupted(step: EscalationStep) -> Event {
    let kind =
        ObservationKind::Interrupted { what: "the turn".into(), stopped_ms: 1, escalation_step: step, partial: true };
    observation(EventSource::Server, None, kind, "")
}

fn sandbox(phase: SandboxPhase) -> Event {
    let (exit_code, out_of_memory, stderr_tail, isolation) = (None, false, None, None);
    let kind = ObservationKind::Sandbox { phase, exit_code, out_of_memory, stderr_tail, isolation };
    observation(EventSource::Server, None, kind, "the sandbox died")
}

fn partial(item: &str, content: &str) -> Event {
    observation(EventSource::Agent, Some(item), ObservationKind::Message { partial: true }, content)
}

fn queue(waiting: usize) -> Event {
    let item = |n| QueueItem { item: format!("message-{n}"), content: "go".into(), attachments: vec![] };
    observation(EventSource::Server, None, ObservationKind::Queue { items: (0..waiting).map(item).collect() }, "")
}

fn failed(source: EventSource, item: Option<&str>, code: &str) -> Event {
    observation(source, item, ObservationKind::Error { code: code.into(), detail: "why".into() }, "")
}

fn check(mut translator: ChatTranslator, events: Vec<Event>, expected: &[&str]) {
    let description = format!("{events:?}");
    let rendered = render(events.into_iter().flat_map(|event| translator.event(event)).collect::<Vec<_>>());
    assert_eq!(rendered, expected, "{description}");
}

/// Sequences of events as `session/turn` persists them.
#[test]
fn each_turn_ends_once_with_the_fitting_frame() {
    let end = |events: Vec<Event>, expected: &[&str]| {
        check(ChatTranslator::joining(None), [vec![chat("turn-1")], events].concat(), expected);
    };
    let (idle, running) = (|| state(AgentState::Idle, None), || state(AgentState::Running, None));
    end(vec![running(), idle(), idle()], &["done"]);
    end(vec![running(), failed(EventSource::Agent, None, "model_error"), idle()], &["error why"]);
    end(vec![running(), state(AgentState::Interrupting, None), interrupted(EscalationStep::Cancel), idle()], &["done"]);
    end(vec![failed(EventSource::Server, None, "agent_restarted"), idle()], &["error why"]);
    end(vec![state(AgentState::Paused, None), running()], &[]);
    end(vec![chat("turn-1")], &[]);
    end(vec![chat("turn-2"), idle()], &["done", "done"]);
    // A stop, an end and a kill by a person end the turn as requested.
    end(vec![interrupted(EscalationStep::Sandbox), state(AgentState::Stopped, None)], &["done"]);
    end(vec![interrupted(EscalationStep::Sandbox), state(AgentState::Ended, None)], &["done"]);
    end(
        vec![partial("m", "Once"), interrupted(EscalationStep::RestartAgent), state(AgentState::Starting, None)],
        &["text_delta Once", "done"],
    );
    // A turn that the sandbox's failure ended has failed.
    let sandbox_failed = |phase| {
        vec![
            running(),
            sandbox(phase),
            partial("m", "Once"),
            interrupted(EscalationStep::Sandbox),
            state(AgentState::Failed, Some("gone")),
        ]
    };
    end(sandbox_failed(SandboxPhase::Lost), &["text_delta Once", "error gone"]);
    end(sandbox_failed(SandboxPhase::Failed), &["text_delta Once", "error gone"]);
    // The same holds for a sandbox that could not be unpaused twice and was stopped.
    let stuck = || failed(EventSource::Server, None, "sandbox");
    let given_up = vec![
        running(),
        stuck(),
        stuck(),
        interrupted(EscalationStep::Sandbox),
        state(AgentState::Failed, Some("gone")),
    ];
    end(given_up, &["error gone"]);
    end(vec![stuck(), running(), idle()], &["done"]);
    let next = vec![
        queue(1),
        state(AgentState::Starting, None),
        sandbox(SandboxPhase::Ready),
        chat("turn-2"),
        queue(0),
        running(),
        idle(),
    ];
    end([sandbox_failed(SandboxPhase::Lost), next].concat(), &["text_delta Once", "error gone", "done"]);
}

#[test]
fn failed_sandbox_start_is_an_error() {
    let events = vec![
        queue(1),
        sandbox(SandboxPhase::Starting),
        sandbox(SandboxPhase::Failed),
        state(AgentState::Failed, Some("no image")),
    ];
    check(ChatTranslator::joining(None), events, &["error no image"]);
}

#[test]
fn client_that_joins_during_a_turn_gets_its_end() {
    let in_turn = || ChatTranslator::joining(Some(Some("turn-1".into())));
    let (idle, running) = (|| state(AgentState::Idle, None), || state(AgentState::Running, None));
    check(in_turn(), vec![chat("turn-1"), idle()], &["done"]);
    // With a queued message the next turn begins at once, and the state stays the same.
    check(in_turn(), vec![chat("turn-2"), queue(0), idle()], &["done", "done"]);
    // The name of the turn was not readable.
    check(ChatTranslator::joining(Some(None)), vec![idle()], &["done"]);
    // Only a user action is running.
    check(ChatTranslator::joining(None), vec![idle()], &[]);
    check(
        ChatTranslator::joining(None),
        vec![running(), interrupted(EscalationStep::Cancel), idle(), chat("turn-1"), idle()],
        &["done"],
    );
}

/// An agent cannot report the session's state: its claims change nothing.
#[test]
fn agent_claims_do_not_end_a_turn() {
    let claim = |event: Event| Event { source: EventSource::Agent, ..event };
    let claims = [
        chat("turn-9"),
        sandbox(SandboxPhase::Lost),
        interrupted(EscalationStep::Cancel),
        state(AgentState::Failed, None),
    ];
    let events = [vec![chat("turn-1")], claims.map(claim).into(), vec![interrupted(EscalationStep::Cancel)]].concat();
    check(ChatTranslator::joining(None), events, &["done"]);
}

/// Texts of a client that follows the frames: keep the first `offset` bytes, append `content`.
#[derive(Default)]
struct ClientTexts(std::collections::BTreeMap<String, String>);

impl ClientTexts {
    fn apply(&mut self, frame: &ChatFrame) {
        match &frame.body {
            ChatFrameBody::TextDelta(part) | ChatFrameBody::Thinking(part) => {
                let text = self.0.entry(part.item.clone()).or_default();
                assert!(part.offset <= text.len(), "no gap: {part:?} after {text:?}");
                text.truncate(part.offset);
                text.push_str(&part.content);
            }
            ChatFrameBody::TextReset { item } => drop(self.0.remove(item)),
            _ => {}
        }
    }
}

proptest! {
    /// Each turn ends once for any sequence of events. The client has the texts of the journal, but
    /// for the cut ones that the turn replaced.
    #[test]
    fn turn_ends_once(steps in prop::collection::vec(0..10usize, 0..60)) {
        let mut translator = ChatTranslator::joining(None);
        let (mut turns, mut ends, mut open, mut n) = (0, 0, false, 0);
        let (mut texts, mut client) = (std::collections::BTreeMap::new(), ClientTexts::default());
        let mut cut: Vec<String> = Vec::new();
        for step in steps {
            n += 1;
            let mut deltas = Vec::new();
            let mut events = match step {
                0 => {
                    turns += 1;
                    open = true;
                    cut.clear();
                    vec![chat(&format!("turn-{n}")), state(AgentState::Running, None)]
                }
                1 => vec![state(AgentState::Idle, None)],
                2 if open => vec![sandbox(SandboxPhase::Lost), interrupted(EscalationStep::Sandbox), state(AgentState::Failed, None)],
                2 => vec![],
                3 => vec![failed(EventSource::Agent, None, "model"), state(AgentState::Idle, None)],
                4 | 8 | 9 => {
                    let (item, text) = (n.to_string(), format!("text {n}. "));
                    // The item may have begun with another text, after a retry of the call.
                    if step == 8 {
                        deltas.push(delta(DeltaKind::Text, &item, 0, "txt"));
                    }
                    deltas.push(delta(DeltaKind::Text, &item, 0, &text[..3]));
                    cut.drain(..).for_each(|item| drop(texts.remove(&item)));
                    texts.insert(item.clone(), text.clone());
                    if step == 9 {
                        cut.push(item.clone());
                        vec![partial(&item, &text)]
                    } else {
                        vec![agent_message(&item, &text)]
                    }
                }
                5 => vec![state(AgentState::Paused, None)],
                6 => vec![interrupted(EscalationStep::Cancel), state(AgentState::Idle, None)],
                _ => vec![failed(EventSource::Server, None, "provider_retrying")],
            };
            events.iter_mut().for_each(|event| event.at = n.to_string());
            if matches!(step, 1..=3 | 6) {
                open = false;
                if step != 2 || !events.is_empty() {
                    cut.clear();
                }
            }
            let mut frames: Vec<_> = deltas.into_iter().flat_map(|delta| translator.delta(delta)).collect();
            frames.extend(events.into_iter().flat_map(|event| translator.event(event)));
            for frame in frames {
                ends += usize::from(matches!(frame.body, ChatFrameBody::Done { .. } | ChatFrameBody::TurnFailed { .. }));
                client.apply(&frame);
            }
            prop_assert_eq!(ends, turns - usize::from(open));
        }
        prop_assert_eq!(client.0, texts);
    }
}

#[test]
fn failed_item_does_not_end_the_turn() {
    let mut translator = ChatTranslator::joining(Some(None));
    assert_eq!(render(translator.event(failed(EventSource::Agent, Some("act-1"), "tool_failed"))), [] as [&str; 0]);
    assert_eq!(render(translator.event(agent_message("m", "and on"))), ["text_delta and on"]);
    assert_eq!(render(translator.event(failed(EventSource::Agent, None, "model_error"))), ["error why"]);
}
