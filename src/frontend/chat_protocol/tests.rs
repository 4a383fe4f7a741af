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

fn seen(source: EventSource, item: Option<&str>, seen: ObservationKind, content: &str) -> Event {
    event(source, item, Observation { kind: seen, content: content.to_owned() })
}

fn chat(turn: &str) -> Event {
    seen(EventSource::User, None, ObservationKind::Chat { attachments: vec![], turn: Some(turn.into()) }, "go")
}

fn state(agent_state: AgentState, reason: Option<&str>) -> Event {
    let reason = reason.map(str::to_owned);
    seen(
        EventSource::Server,
        None,
        ObservationKind::AgentStateChanged { agent_state, reason, since: String::new(), turn_over: false },
        "",
    )
}

/// What runs on is the user's own.
fn turn_over() -> Event {
    let seen_so = ObservationKind::AgentStateChanged {
        agent_state: AgentState::Running,
        reason: None,
        since: String::new(),
        turn_over: true,
    };
    seen(EventSource::Server, None, seen_so, "")
}

fn agent_message(item: &str, content: &str) -> Event {
    seen(EventSource::Agent, Some(item), ObservationKind::Message { partial: false }, content)
}

fn delta(kind: DeltaKind, item: &str, offset: u64, content: &str) -> DeltaChunk {
    DeltaChunk { delta: Delta { kind, item: item.into(), offset, content: content.into() }, at: offset }
}

/// Each frame as a word, with what it holds.
fn render(frames: impl IntoIterator<Item = ChatFrame>) -> Vec<String> {
    let word = |frame: ChatFrame| {
        let json = serde_json::to_value(&frame).expect("JSON");
        let held = ["content", "message", "tool_name"].iter().filter_map(|key| json[key].as_str());
        [json["type"].as_str().expect("a type")].into_iter().chain(held).collect::<Vec<_>>().join(" ")
    };
    frames.into_iter().map(word).collect()
}

#[test]
fn a_turn_ends_beside_a_command_of_the_users() {
    let mut dialect = ChatTranslator::joining(None);
    dialect.event(chat("turn-1"));
    assert_eq!(render(dialect.event(state(AgentState::Running, None))), [""; 0]);
    assert_eq!(render(dialect.event(turn_over())), ["done"]);
    assert_eq!(render(dialect.event(state(AgentState::Idle, None))), [""; 0]);
}

#[test]
fn a_turn_with_a_tool() {
    let mut dialect = ChatTranslator::joining(None);
    let mut told = Vec::new();
    told.extend(render(dialect.event(chat("turn-1"))));
    told.extend(render(dialect.delta(delta(DeltaKind::Thinking, "t", 0, "Let me "))));
    told.extend(render(dialect.event(seen(
        EventSource::Agent,
        Some("t"),
        ObservationKind::Think { partial: false },
        "Let me see.",
    ))));
    told.extend(render(dialect.delta(delta(DeltaKind::ToolInput, "c", 0, "{}"))));
    told.extend(render(dialect.event(event(EventSource::Agent, Some("c"), Action::Run { command: "ls".into() }))));
    told.extend(render(dialect.delta(delta(DeltaKind::Output, "c", 0, "LICENSE"))));
    let run = ObservationKind::Run {
        command: "ls".into(),
        exit_code: Some(0),
        duration_ms: 1,
        timed_out: false,
        truncated: None,
    };
    told.extend(render(dialect.event(seen(EventSource::Agent, Some("c"), run, "LICENSE"))));
    told.extend(render(dialect.event(agent_message("m", "There it is."))));
    told.extend(render(dialect.event(state(AgentState::Idle, None))));
    told.extend(render(dialect.event(state(AgentState::Idle, None))));
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
    let mut dialect = ChatTranslator::default();
    let frames = dialect.event(event(EventSource::Agent, Some("c"), Action::Run { command: "ls".into() }));
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
    };
    let frames = dialect.event(seen(EventSource::Server, None, ObservationKind::Usage(usage), ""));
    let expected = serde_json::json!([{ "type": "cost_update", "cost_usd": 0.5, "input_tokens": 10, "output_tokens": 20, "seq": 1 }]);
    assert_eq!(serde_json::to_value(frames).expect("JSON"), expected);
    assert_eq!(serde_json::to_string(&ChatFrame::from(ChatFrameBody::Pong)).expect("JSON"), r#"{"type":"pong"}"#);
    assert_eq!(
        serde_json::from_str::<ChatRequest>(r#"{"type":"interrupt"}"#).expect("a frame"),
        ChatRequest::Interrupt
    );
    assert!(serde_json::from_str::<ChatRequest>(r#"{"type":"message"}"#).is_err());
}

fn interrupted(rung: EscalationStep) -> Event {
    let seen =
        ObservationKind::Interrupted { what: "the turn".into(), stopped_ms: 1, escalation_step: rung, partial: true };
    self::seen(EventSource::Server, None, seen, "")
}

fn sandbox(phase: SandboxPhase) -> Event {
    let (exit_code, out_of_memory, stderr_tail, isolation) = (None, false, None, None);
    let seen = ObservationKind::Sandbox { phase, exit_code, out_of_memory, stderr_tail, isolation };
    self::seen(EventSource::Server, None, seen, "the sandbox died")
}

fn partial(item: &str, content: &str) -> Event {
    seen(EventSource::Agent, Some(item), ObservationKind::Message { partial: true }, content)
}

fn queue(waiting: usize) -> Event {
    let item = |n| QueueItem { item: format!("message-{n}"), content: "go".into(), attachments: vec![] };
    seen(EventSource::Server, None, ObservationKind::Queue { items: (0..waiting).map(item).collect() }, "")
}

fn failed(source: EventSource, item: Option<&str>, code: &str) -> Event {
    seen(source, item, ObservationKind::Error { code: code.into(), detail: "why".into() }, "")
}

fn check(mut dialect: ChatTranslator, events: Vec<Event>, expected: &[&str]) {
    let in_words = format!("{events:?}");
    let told = render(events.into_iter().flat_map(|event| dialect.event(event)).collect::<Vec<_>>());
    assert_eq!(told, expected, "{in_words}");
}

/// As `session/turn/tests.rs` has them: what a decision writes down, in its order.
#[test]
fn how_turns_end() {
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
    // Stopped, ended and killed by a person: what was asked for was done.
    end(vec![interrupted(EscalationStep::Sandbox), state(AgentState::Stopped, None)], &["done"]);
    end(vec![interrupted(EscalationStep::Sandbox), state(AgentState::Ended, None)], &["done"]);
    end(
        vec![partial("m", "Once"), interrupted(EscalationStep::RestartAgent), state(AgentState::Starting, None)],
        &["text_delta Once", "done"],
    );
    // What the sandbox's death cut short is no end of it that anybody wanted.
    let death = |phase| {
        vec![
            running(),
            sandbox(phase),
            partial("m", "Once"),
            interrupted(EscalationStep::Sandbox),
            state(AgentState::Failed, Some("gone")),
        ]
    };
    end(death(SandboxPhase::Lost), &["text_delta Once", "error gone"]);
    end(death(SandboxPhase::Failed), &["text_delta Once", "error gone"]);
    // Nor is it that the sandbox could not be thawed, twice, and was given up.
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
    end([death(SandboxPhase::Lost), next].concat(), &["text_delta Once", "error gone", "done"]);
}

#[test]
fn whoever_waits_for_a_sandbox_that_never_comes_up_is_told() {
    let events = vec![
        queue(1),
        sandbox(SandboxPhase::Starting),
        sandbox(SandboxPhase::Failed),
        state(AgentState::Failed, Some("no image")),
    ];
    check(ChatTranslator::joining(None), events, &["error no image"]);
}

#[test]
fn who_comes_in_the_middle_of_a_turn_hears_the_end_of_that_one() {
    let in_turn = || ChatTranslator::joining(Some(Some("turn-1".into())));
    let (idle, running) = (|| state(AgentState::Idle, None), || state(AgentState::Running, None));
    check(in_turn(), vec![chat("turn-1"), idle()], &["done"]);
    // A message waited: the next turn begins at once, and the state stays as it is.
    check(in_turn(), vec![chat("turn-2"), queue(0), idle()], &["done", "done"]);
    // Its name could not be read.
    check(ChatTranslator::joining(Some(None)), vec![idle()], &["done"]);
    // Nothing but an act of a person is under way.
    check(ChatTranslator::joining(None), vec![idle()], &[]);
    check(
        ChatTranslator::joining(None),
        vec![running(), interrupted(EscalationStep::Cancel), idle(), chat("turn-1"), idle()],
        &["done"],
    );
}

#[test]
fn a_client_that_comes_late_hears_the_item_so_far_and_the_end_of_the_turn() {
    let mut dialect = ChatTranslator::joining(Some(None));
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", 0, "Hello"))), ["text_delta Hello"]);
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta  you"]);
    assert_eq!(render(dialect.event(agent_message("m", "Hello you."))), ["text_delta ."]);
    assert_eq!(render(dialect.event(state(AgentState::Idle, None))), ["done"]);
}

#[test]
fn what_begins_again_is_told_from_where_it_is_new() {
    let mut dialect = ChatTranslator::joining(Some(None));
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta Hello you"]);
    for (offset, old) in [(0, "Hel"), (3, "lo"), (5, " you")] {
        assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", offset, old))), [""; 0], "{old} is told already");
    }
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", 9, " there"))), ["text_delta  there"]);
    assert_eq!(render(dialect.event(agent_message("m", "Hello you there."))), ["text_delta ."]);
}

/// How a session stands is its server's word; an agent that claims it changes nothing.
#[test]
fn an_agent_does_not_end_a_turn_by_saying_so() {
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
fn an_agent_that_ends_nothing_of_what_it_begins_fills_no_memory() {
    let mut dialect = ChatTranslator::joining(None);
    dialect.event(chat("turn-1"));
    for n in 0..10 * MAX_ITEMS {
        dialect.delta(delta(DeltaKind::Text, &format!("text-{n}"), 0, "Hello"));
        dialect.event(event(EventSource::Agent, Some(&format!("tool-{n}")), Action::Run { command: "ls".into() }));
    }
    assert_eq!((dialect.sent_bytes.entries.len(), dialect.open_tools.entries.len()), (MAX_ITEMS, MAX_ITEMS));
    // The newest are known, and those of before are not.
    let newest = 10 * MAX_ITEMS - 1;
    assert_eq!(render(dialect.event(agent_message(&format!("text-{newest}"), "Hello you"))), ["text_delta  you"]);
    let write = || ObservationKind::Write { path: "a".into(), bytes: 1 };
    let done = |dialect: &mut ChatTranslator, n| {
        render(dialect.event(seen(EventSource::Agent, Some(&format!("tool-{n}")), write(), "x")))
    };
    assert_eq!(done(&mut dialect, newest), ["tool_result x run"]);
    assert_eq!(done(&mut dialect, 0), [] as [&str; 0]);
    // What of an item is not known any more goes on where it goes on.
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "text-0", 5, " you"))), ["text_delta  you"]);
    assert_eq!(render(dialect.event(agent_message("text-0", "Hello you."))), ["text_delta ."]);
}

proptest! {
    /// Whatever a turn goes through, it ends once; and what was said arrives once.
    #[test]
    fn a_turn_ends_once(steps in prop::collection::vec(0..8usize, 0..60)) {
        let mut dialect = ChatTranslator::joining(None);
        let (mut turns, mut ends, mut open, mut n) = (0, 0, false, 0);
        let (mut spoken, mut heard) = (String::new(), String::new());
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
                    let text = format!("said {n}. ");
                    deltas.push(delta(DeltaKind::Text, &n.to_string(), 0, &text[..3]));
                    spoken.push_str(&text);
                    vec![agent_message(&n.to_string(), &text)]
                }
                5 => vec![state(AgentState::Paused, None)],
                6 => vec![interrupted(EscalationStep::Cancel), state(AgentState::Idle, None)],
                _ => vec![failed(EventSource::Server, None, "provider_retrying")],
            };
            if matches!(step, 1..=3 | 6) {
                open = false;
            }
            let mut frames: Vec<_> = deltas.into_iter().flat_map(|delta| dialect.delta(delta)).collect();
            frames.extend(events.into_iter().flat_map(|event| dialect.event(event)));
            for frame in frames {
                match frame.body {
                    ChatFrameBody::Done | ChatFrameBody::Error { .. } => ends += 1,
                    ChatFrameBody::TextDelta { content } => heard.push_str(&content),
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
    let mut dialect = ChatTranslator::joining(Some(None));
    assert_eq!(render(dialect.event(failed(EventSource::Agent, Some("act-1"), "tool_failed"))), [] as [&str; 0]);
    assert_eq!(render(dialect.event(agent_message("m", "and on"))), ["text_delta and on"]);
    assert_eq!(render(dialect.event(failed(EventSource::Agent, None, "model_error"))), ["error why"]);
}

#[test]
fn of_an_answer_too_long_for_an_event_who_is_behind_hears_what_is_left_of_it() {
    let long = format!("BEGIN {} END", "ä".repeat(200_000));
    let cut = excerpt(&long, 1000).expect("it is too long");
    let heard = |told: usize| {
        let mut dialect = ChatTranslator::joining(Some(None));
        let deltas = dialect.delta(delta(DeltaKind::Text, "m", 0, &long[..told]));
        let frames =
            deltas.into_iter().chain(dialect.truncated_event(agent_message("m", &cut.text), long.len() as u64));
        let texts = frames.filter_map(|frame| match frame.body {
            ChatFrameBody::TextDelta { content } => Some(content),
            _ => None,
        });
        texts.collect::<String>()
    };
    assert_eq!(heard(0), cut.text);
    assert_eq!(heard(100), cut.text, "its head goes on where the delta ended");
    assert_eq!(heard(long.len()), long, "and nothing is told twice");
    assert_eq!(heard(long.len() - 104), long);
    let most = heard(100_000);
    assert!(most.starts_with(&long[..100_000]) && most.ends_with(" END"));
    assert!(most[100_000..].starts_with("\n… ") && most.len() < 101_000, "what is missing is named");
}

#[test]
fn of_what_has_grown_longer_than_is_kept_who_is_behind_hears_the_end() {
    let mut dialect = ChatTranslator::joining(Some(None));
    dialect.delta(delta(DeltaKind::Text, "m", 0, "begin"));
    let kept = DeltaChunk { at: 105, ..delta(DeltaKind::Text, "m", 0, "goes on") };
    assert_eq!(render(dialect.delta(kept)), ["text_delta \n… 100 bytes left out …\ngoes on"]);
    assert_eq!(render(dialect.delta(delta(DeltaKind::Text, "m", 112, " and on"))), ["text_delta  and on"]);
    assert_eq!(render(dialect.event(agent_message("m", &("x".repeat(119) + ".")))), ["text_delta ."]);
}
