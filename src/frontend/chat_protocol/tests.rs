use greenroom_protocol::{
    excerpt,
    observation::{EscalationStep, ModelUsage, QueueItem},
};
use proptest::prelude::*;

use super::*;

fn event(source: EventSource, item: Option<&str>, body: impl Into<EventBody>) -> Event {
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

/// Renders each frame as its type and texts.
fn render(frames: impl IntoIterator<Item = ChatFrame>) -> Vec<String> {
    let rendered = |frame: ChatFrame| {
        let json = serde_json::to_value(&frame).expect("JSON");
        let texts = ["content", "message", "tool_name"].iter().filter_map(|key| json[key].as_str());
        [json["type"].as_str().expect("a type")].into_iter().chain(texts).collect::<Vec<_>>().join(" ")
    };
    frames.into_iter().map(rendered).collect()
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
    assert_eq!(
        serde_json::from_str::<ChatRequest>(r#"{"type":"interrupt"}"#).expect("a frame"),
        ChatRequest::Interrupt
    );
    assert!(serde_json::from_str::<ChatRequest>(r#"{"type":"message"}"#).is_err());
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

#[test]
fn late_client_gets_the_item_so_far_and_the_turns_end() {
    let mut translator = ChatTranslator::joining(Some(None));
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 0, "Hello"))), ["text_delta Hello"]);
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta  you"]);
    assert_eq!(render(translator.event(agent_message("m", "Hello you."))), ["text_delta ."]);
    assert_eq!(render(translator.event(state(AgentState::Idle, None))), ["done"]);
}

#[test]
fn repeated_delta_sends_only_its_new_part() {
    let mut translator = ChatTranslator::joining(Some(None));
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta Hello you"]);
    for (offset, old) in [(0, "Hel"), (3, "lo"), (5, " you")] {
        assert_eq!(
            render(translator.delta(delta(DeltaKind::Text, "m", offset, old))),
            [""; 0],
            "{old} was sent before"
        );
    }
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 9, " there"))), ["text_delta  there"]);
    assert_eq!(render(translator.event(agent_message("m", "Hello you there."))), ["text_delta ."]);
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

#[test]
fn items_that_never_end_are_bounded() {
    let mut translator = ChatTranslator::joining(None);
    translator.event(chat("turn-1"));
    for n in 0..10 * MAX_ITEMS {
        translator.delta(delta(DeltaKind::Text, &format!("text-{n}"), 0, "Hello"));
        translator.event(event(EventSource::Agent, Some(&format!("tool-{n}")), Action::Run { command: "ls".into() }));
    }
    assert_eq!((translator.sent_bytes.entries.len(), translator.open_tools.entries.len()), (MAX_ITEMS, MAX_ITEMS));
    // The newest items are kept, and the oldest are not.
    let newest = 10 * MAX_ITEMS - 1;
    assert_eq!(render(translator.event(agent_message(&format!("text-{newest}"), "Hello you"))), ["text_delta  you"]);
    let write = || ObservationKind::Write { path: "a".into(), bytes: 1 };
    let done = |translator: &mut ChatTranslator, n| {
        render(translator.event(observation(EventSource::Agent, Some(&format!("tool-{n}")), write(), "x")))
    };
    assert_eq!(done(&mut translator, newest), ["tool_result x run"]);
    assert_eq!(done(&mut translator, 0), [] as [&str; 0]);
    // A dropped item continues at its next delta.
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "text-0", 5, " you"))), ["text_delta  you"]);
    assert_eq!(render(translator.event(agent_message("text-0", "Hello you."))), ["text_delta ."]);
}

proptest! {
    /// Each turn ends once for any sequence of events, and each text arrives once.
    #[test]
    fn turn_ends_once(steps in prop::collection::vec(0..8usize, 0..60)) {
        let mut translator = ChatTranslator::joining(None);
        let (mut turns, mut ends, mut open, mut n) = (0, 0, false, 0);
        let (mut sent, mut received) = (String::new(), String::new());
        for step in steps {
            n += 1;
            let mut deltas = Vec::new();
            let events = match step {
                0 => {
                    turns += 1;
                    open = true;
                    vec![chat(&format!("turn-{n}")), state(AgentState::Running, None)]
                }
                1 => vec![state(AgentState::Idle, None)],
                2 if open => vec![sandbox(SandboxPhase::Lost), interrupted(EscalationStep::Sandbox), state(AgentState::Failed, None)],
                2 => vec![],
                3 => vec![failed(EventSource::Agent, None, "model"), state(AgentState::Idle, None)],
                4 => {
                    let text = format!("text {n}. ");
                    deltas.push(delta(DeltaKind::Text, &n.to_string(), 0, &text[..3]));
                    sent.push_str(&text);
                    vec![agent_message(&n.to_string(), &text)]
                }
                5 => vec![state(AgentState::Paused, None)],
                6 => vec![interrupted(EscalationStep::Cancel), state(AgentState::Idle, None)],
                _ => vec![failed(EventSource::Server, None, "provider_retrying")],
            };
            if matches!(step, 1..=3 | 6) {
                open = false;
            }
            let mut frames: Vec<_> = deltas.into_iter().flat_map(|delta| translator.delta(delta)).collect();
            frames.extend(events.into_iter().flat_map(|event| translator.event(event)));
            for frame in frames {
                match frame.body {
                    ChatFrameBody::Done | ChatFrameBody::Error { .. } => ends += 1,
                    ChatFrameBody::TextDelta { content } => received.push_str(&content),
                    _ => {}
                }
            }
            prop_assert_eq!(ends, turns - usize::from(open));
        }
        prop_assert_eq!(received, sent);
    }
}

#[test]
fn failed_item_does_not_end_the_turn() {
    let mut translator = ChatTranslator::joining(Some(None));
    assert_eq!(render(translator.event(failed(EventSource::Agent, Some("act-1"), "tool_failed"))), [] as [&str; 0]);
    assert_eq!(render(translator.event(agent_message("m", "and on"))), ["text_delta and on"]);
    assert_eq!(render(translator.event(failed(EventSource::Agent, None, "model_error"))), ["error why"]);
}

#[test]
fn lagging_client_gets_the_rest_of_a_truncated_answer() {
    let long = format!("BEGIN {} END", "ä".repeat(200_000));
    let cut = excerpt(&long, 1000).expect("the text is too long for an event");
    let received = |sent: usize| {
        let mut translator = ChatTranslator::joining(Some(None));
        let deltas = translator.delta(delta(DeltaKind::Text, "m", 0, &long[..sent]));
        let frames =
            deltas.into_iter().chain(translator.truncated_event(agent_message("m", &cut.text), long.len() as u64));
        let texts = frames.filter_map(|frame| match frame.body {
            ChatFrameBody::TextDelta { content } => Some(content),
            _ => None,
        });
        texts.collect::<String>()
    };
    assert_eq!(received(0), cut.text);
    assert_eq!(received(100), cut.text, "the head continues where the delta ended");
    assert_eq!(received(long.len()), long, "nothing is sent twice");
    assert_eq!(received(long.len() - 104), long);
    let partial = received(100_000);
    assert!(partial.starts_with(&long[..100_000]) && partial.ends_with(" END"));
    assert!(partial[100_000..].starts_with("\n… ") && partial.len() < 101_000, "a marker names the missing bytes");
}

#[test]
fn lagging_client_gets_a_marker_for_dropped_deltas() {
    let mut translator = ChatTranslator::joining(Some(None));
    translator.delta(delta(DeltaKind::Text, "m", 0, "begin"));
    let kept = DeltaChunk { at: 105, ..delta(DeltaKind::Text, "m", 0, "goes on") };
    assert_eq!(render(translator.delta(kept)), ["text_delta \n… 100 bytes left out …\ngoes on"]);
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 112, " and on"))), ["text_delta  and on"]);
    assert_eq!(render(translator.event(agent_message("m", &("x".repeat(119) + ".")))), ["text_delta ."]);
}
