use greenroom_protocol::{
    excerpt,
    observation::{QueueItem, Rung, Usage},
};
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
    seen(
        Source::Server,
        None,
        Seen::AgentStateChanged { agent_state, reason, since: String::new(), turn_over: false },
        "",
    )
}

/// What runs on is the user's own.
fn turn_over() -> Event {
    let seen_so =
        Seen::AgentStateChanged { agent_state: State::Running, reason: None, since: String::new(), turn_over: true };
    seen(Source::Server, None, seen_so, "")
}

fn said(item: &str, content: &str) -> Event {
    seen(Source::Agent, Some(item), Seen::Message { partial: false }, content)
}

fn grew(kind: DeltaKind, item: &str, offset: u64, content: &str) -> Piece {
    Piece { delta: Delta { kind, item: item.into(), offset, content: content.into() }, at: offset }
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
fn a_turn_ends_beside_a_command_of_the_users() {
    let mut dialect = Dialect::joining(None);
    dialect.event(chat("turn-1"));
    assert_eq!(words(dialect.event(state(State::Running, None))), [""; 0]);
    assert_eq!(words(dialect.event(turn_over())), ["done"]);
    assert_eq!(words(dialect.event(state(State::Idle, None))), [""; 0]);
}

#[test]
fn a_turn_with_a_tool() {
    let mut dialect = Dialect::joining(None);
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

fn interrupted(rung: Rung) -> Event {
    let seen = Seen::Interrupted { what: "the turn".into(), stopped_ms: 1, rung, partial: true };
    self::seen(Source::Server, None, seen, "")
}

fn sandbox(phase: Phase) -> Event {
    let (exit_code, out_of_memory, stderr_tail, isolation) = (None, false, None, None);
    let seen = Seen::Sandbox { phase, exit_code, out_of_memory, stderr_tail, isolation };
    self::seen(Source::Server, None, seen, "the sandbox died")
}

fn partial(item: &str, content: &str) -> Event {
    seen(Source::Agent, Some(item), Seen::Message { partial: true }, content)
}

fn queue(waiting: usize) -> Event {
    let item = |n| QueueItem { item: format!("message-{n}"), content: "go".into(), attachments: vec![] };
    seen(Source::Server, None, Seen::Queue { items: (0..waiting).map(item).collect() }, "")
}

fn failed(source: Source, item: Option<&str>, code: &str) -> Event {
    seen(source, item, Seen::Error { code: code.into(), detail: "why".into() }, "")
}

fn check(mut dialect: Dialect, events: Vec<Event>, expected: &[&str]) {
    let in_words = format!("{events:?}");
    let told = words(events.into_iter().flat_map(|event| dialect.event(event)).collect::<Vec<_>>());
    assert_eq!(told, expected, "{in_words}");
}

/// As `session/turn/tests.rs` has them: what a decision writes down, in its order.
#[test]
fn how_turns_end() {
    let end = |events: Vec<Event>, expected: &[&str]| {
        check(Dialect::joining(None), [vec![chat("turn-1")], events].concat(), expected);
    };
    let (idle, running) = (|| state(State::Idle, None), || state(State::Running, None));
    end(vec![running(), idle(), idle()], &["done"]);
    end(vec![running(), failed(Source::Agent, None, "model_error"), idle()], &["error why"]);
    end(vec![running(), state(State::Interrupting, None), interrupted(Rung::Cancel), idle()], &["done"]);
    end(vec![failed(Source::Server, None, "agent_restarted"), idle()], &["error why"]);
    end(vec![state(State::Paused, None), running()], &[]);
    end(vec![chat("turn-1")], &[]);
    end(vec![chat("turn-2"), idle()], &["done", "done"]);
    // Stopped, ended and killed by a person: what was asked for was done.
    end(vec![interrupted(Rung::Sandbox), state(State::Stopped, None)], &["done"]);
    end(vec![interrupted(Rung::Sandbox), state(State::Ended, None)], &["done"]);
    end(
        vec![partial("m", "Once"), interrupted(Rung::RestartAgent), state(State::Starting, None)],
        &["text_delta Once", "done"],
    );
    // What the sandbox's death cut short is no end of it that anybody wanted.
    let death = |phase| {
        vec![
            running(),
            sandbox(phase),
            partial("m", "Once"),
            interrupted(Rung::Sandbox),
            state(State::Failed, Some("gone")),
        ]
    };
    end(death(Phase::Lost), &["text_delta Once", "error gone"]);
    end(death(Phase::Failed), &["text_delta Once", "error gone"]);
    // Nor is it that the sandbox could not be thawed, twice, and was given up.
    let stuck = || failed(Source::Server, None, "sandbox");
    let given_up = vec![running(), stuck(), stuck(), interrupted(Rung::Sandbox), state(State::Failed, Some("gone"))];
    end(given_up, &["error gone"]);
    end(vec![stuck(), running(), idle()], &["done"]);
    let next = vec![
        queue(1),
        state(State::Starting, None),
        sandbox(Phase::Ready),
        chat("turn-2"),
        queue(0),
        running(),
        idle(),
    ];
    end([death(Phase::Lost), next].concat(), &["text_delta Once", "error gone", "done"]);
}

#[test]
fn whoever_waits_for_a_sandbox_that_never_comes_up_is_told() {
    let events =
        vec![queue(1), sandbox(Phase::Starting), sandbox(Phase::Failed), state(State::Failed, Some("no image"))];
    check(Dialect::joining(None), events, &["error no image"]);
}

#[test]
fn who_comes_in_the_middle_of_a_turn_hears_the_end_of_that_one() {
    let in_turn = || Dialect::joining(Some(Some("turn-1".into())));
    let (idle, running) = (|| state(State::Idle, None), || state(State::Running, None));
    check(in_turn(), vec![chat("turn-1"), idle()], &["done"]);
    // A message waited: the next turn begins at once, and the state stays as it is.
    check(in_turn(), vec![chat("turn-2"), queue(0), idle()], &["done", "done"]);
    // Its name could not be read.
    check(Dialect::joining(Some(None)), vec![idle()], &["done"]);
    // Nothing but an act of a person is under way.
    check(Dialect::joining(None), vec![idle()], &[]);
    check(
        Dialect::joining(None),
        vec![running(), interrupted(Rung::Cancel), idle(), chat("turn-1"), idle()],
        &["done"],
    );
}

#[test]
fn a_client_that_comes_late_hears_the_item_so_far_and_the_end_of_the_turn() {
    let mut dialect = Dialect::joining(Some(None));
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 0, "Hello"))), ["text_delta Hello"]);
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta  you"]);
    assert_eq!(words(dialect.event(said("m", "Hello you."))), ["text_delta ."]);
    assert_eq!(words(dialect.event(state(State::Idle, None))), ["done"]);
}

#[test]
fn what_begins_again_is_told_from_where_it_is_new() {
    let mut dialect = Dialect::joining(Some(None));
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 0, "Hello you"))), ["text_delta Hello you"]);
    for (offset, old) in [(0, "Hel"), (3, "lo"), (5, " you")] {
        assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", offset, old))), [""; 0], "{old} is told already");
    }
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 9, " there"))), ["text_delta  there"]);
    assert_eq!(words(dialect.event(said("m", "Hello you there."))), ["text_delta ."]);
}

/// How a session stands is its server's word; an agent that claims it changes nothing.
#[test]
fn an_agent_does_not_end_a_turn_by_saying_so() {
    let claim = |event: Event| Event { source: Source::Agent, ..event };
    let claims = [chat("turn-9"), sandbox(Phase::Lost), interrupted(Rung::Cancel), state(State::Failed, None)];
    let events = [vec![chat("turn-1")], claims.map(claim).into(), vec![interrupted(Rung::Cancel)]].concat();
    check(Dialect::joining(None), events, &["done"]);
}

#[test]
fn an_agent_that_ends_nothing_of_what_it_begins_fills_no_memory() {
    let mut dialect = Dialect::joining(None);
    dialect.event(chat("turn-1"));
    for n in 0..10 * MOST_ITEMS {
        dialect.delta(grew(DeltaKind::Text, &format!("text-{n}"), 0, "Hello"));
        dialect.event(event(Source::Agent, Some(&format!("tool-{n}")), Action::Run { command: "ls".into() }));
    }
    assert_eq!((dialect.told.known.len(), dialect.tools.known.len()), (MOST_ITEMS, MOST_ITEMS));
    // The newest are known, and those of before are not.
    let newest = 10 * MOST_ITEMS - 1;
    assert_eq!(words(dialect.event(said(&format!("text-{newest}"), "Hello you"))), ["text_delta  you"]);
    let write = || Seen::Write { path: "a".into(), bytes: 1 };
    let done =
        |dialect: &mut Dialect, n| words(dialect.event(seen(Source::Agent, Some(&format!("tool-{n}")), write(), "x")));
    assert_eq!(done(&mut dialect, newest), ["tool_result x run"]);
    assert_eq!(done(&mut dialect, 0), [] as [&str; 0]);
    // What of an item is not known any more goes on where it goes on.
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "text-0", 5, " you"))), ["text_delta  you"]);
    assert_eq!(words(dialect.event(said("text-0", "Hello you."))), ["text_delta ."]);
}

proptest! {
    /// Whatever a turn goes through, it ends once; and what was said arrives once.
    #[test]
    fn a_turn_ends_once(steps in prop::collection::vec(0..8usize, 0..60)) {
        let mut dialect = Dialect::joining(None);
        let (mut turns, mut ends, mut open, mut n) = (0, 0, false, 0);
        let (mut spoken, mut heard) = (String::new(), String::new());
        for step in steps {
            n += 1;
            let mut deltas = Vec::new();
            let events = match step {
                0 => {
                    turns += 1;
                    open = true;
                    vec![chat(&format!("turn-{n}")), state(State::Running, None)]
                }
                1 => vec![state(State::Idle, None)],
                2 if open => vec![sandbox(Phase::Lost), interrupted(Rung::Sandbox), state(State::Failed, None)],
                2 => vec![],
                3 => vec![failed(Source::Agent, None, "model"), state(State::Idle, None)],
                4 => {
                    let text = format!("said {n}. ");
                    deltas.push(grew(DeltaKind::Text, &n.to_string(), 0, &text[..3]));
                    spoken.push_str(&text);
                    vec![said(&n.to_string(), &text)]
                }
                5 => vec![state(State::Paused, None)],
                6 => vec![interrupted(Rung::Cancel), state(State::Idle, None)],
                _ => vec![failed(Source::Server, None, "provider_retrying")],
            };
            if matches!(step, 1..=3 | 6) {
                open = false;
            }
            let mut frames: Vec<_> = deltas.into_iter().flat_map(|delta| dialect.delta(delta)).collect();
            frames.extend(events.into_iter().flat_map(|event| dialect.event(event)));
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
    let mut dialect = Dialect::joining(Some(None));
    assert_eq!(words(dialect.event(failed(Source::Agent, Some("act-1"), "tool_failed"))), [] as [&str; 0]);
    assert_eq!(words(dialect.event(said("m", "and on"))), ["text_delta and on"]);
    assert_eq!(words(dialect.event(failed(Source::Agent, None, "model_error"))), ["error why"]);
}

#[test]
fn of_an_answer_too_long_for_an_event_who_is_behind_hears_what_is_left_of_it() {
    let long = format!("BEGIN {} END", "ä".repeat(200_000));
    let cut = excerpt(&long, 1000).expect("it is too long");
    let heard = |told: usize| {
        let mut dialect = Dialect::joining(Some(None));
        let deltas = dialect.delta(grew(DeltaKind::Text, "m", 0, &long[..told]));
        let frames = deltas.into_iter().chain(dialect.part(said("m", &cut.text), long.len() as u64));
        let texts = frames.filter_map(|frame| match frame.told {
            Told::TextDelta { content } => Some(content),
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
    let mut dialect = Dialect::joining(Some(None));
    dialect.delta(grew(DeltaKind::Text, "m", 0, "begin"));
    let kept = Piece { at: 105, ..grew(DeltaKind::Text, "m", 0, "goes on") };
    assert_eq!(words(dialect.delta(kept)), ["text_delta \n… 100 bytes left out …\ngoes on"]);
    assert_eq!(words(dialect.delta(grew(DeltaKind::Text, "m", 112, " and on"))), ["text_delta  and on"]);
    assert_eq!(words(dialect.event(said("m", &("x".repeat(119) + ".")))), ["text_delta ."]);
}
