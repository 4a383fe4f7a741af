//! Rules for inputs that meet other work in progress.

use greenroom_protocol::{CONTENT_LIMIT, DeltaKind};

use super::*;

#[test]
fn turn_end_beside_user_action_is_reported() {
    let both = with(working(), &[run()]);
    check(&both, turn_ended(2, WorkOutcome::Done), AgentState::Running, &["turn over"], &[]);
    let failed = WorkOutcome::Failed { code: "model_error".into(), detail: "why".into() };
    check(&both, turn_ended(2, failed), AgentState::Running, &["error model_error", "turn over"], &[]);
    let queued = with(both.clone(), &[say("m")]);
    let next = ["chat m", "queue 0"];
    check(&queued, turn_ended(2, WorkOutcome::Done), AgentState::Running, &next, &["prompt turn-7 m"]);
    let action_ended = SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: WorkOutcome::Done };
    check(&both, action_ended.clone(), AgentState::Running, &[], &[]);
    check(&with(both, &[turn_ended(2, WorkOutcome::Done)]), action_ended, AgentState::Idle, &["is idle"], &[]);
}

#[test]
fn undelivered_commands_follow_agent_connected() {
    let mut rules = RulesFixture::after(&with(working(), &[SessionInput::Interrupt]));
    let transition = rules.feed(up()).expect("the hello is accepted");
    assert_eq!(
        transition.effects.iter().map(effect_text).collect::<Vec<_>>(),
        ["agent connected", "prompt turn-2 t", "cancel"]
    );
}

#[test]
fn partial_text_keeps_head_tail_and_length() {
    let partial_of = |start: u64, text: String| {
        let mut rules = RulesFixture::after(&working());
        rules.open = vec![OpenItem { item: "i".into(), kind: DeltaKind::Text, start, text }];
        let transition = rules.feed(lost()).expect("the input is always accepted");
        let item_event = transition.new_events.into_iter().find(|new_event| new_event.item.as_deref() == Some("i"));
        let body = serde_json::to_value(item_event.expect("the partial text is recorded").body).expect("JSON");
        let content = body["content"].as_str().expect("text").to_owned();
        (content, body["extras"]["truncated"]["bytes"].as_u64())
    };
    assert_eq!(partial_of(0, "short".into()), ("short".into(), None));
    let (content, full_bytes) = partial_of(0, format!("BEGIN{}END", "x".repeat(300_000)));
    assert!(content.len() <= CONTENT_LIMIT && content.starts_with("BEGIN") && content.ends_with("END"));
    assert_eq!(full_bytes, Some(300_008));
    let (content, full_bytes) = partial_of(1_000_000, format!("{}END", "x".repeat(200_000)));
    assert!(
        content.len() <= CONTENT_LIMIT
            && content.starts_with("\n… 1134531 bytes left out …\n")
            && content.ends_with("END")
    );
    assert_eq!(full_bytes, Some(1_200_003));
}

/// Includes the case that an earlier stop is in progress.
#[test]
fn messages_before_last_stop_stay_queued() {
    for stopping in [
        [say_as(MessageMode::Interrupt, "m"), SessionInput::Interrupt].as_slice(),
        &[SessionInput::Interrupt, say("m"), SessionInput::Interrupt],
    ] {
        let reconnected = with(with(working(), stopping), &[SessionInput::HelloReceived { boot: "b2".into() }]);
        let queued_texts: Vec<_> =
            RulesFixture::after(&reconnected).state.queue.into_iter().map(|queued| queued.item.content).collect();
        assert_eq!(
            (RulesFixture::after(&reconnected).state.visible_state(), queued_texts),
            (AgentState::Idle, vec!["m".to_owned()]),
            "{stopping:?}"
        );
    }
}
