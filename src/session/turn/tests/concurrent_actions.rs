//! What happens beside something else.

use super::*;

#[test]
fn a_turn_that_ends_beside_an_act_says_so() {
    let both = with(working(), &[run()]);
    check(&both, turn_ended(2, WorkOutcome::Done), AgentState::Running, &["turn over"], &[]);
    let failed = WorkOutcome::Failed { code: "model_error".into(), detail: "why".into() };
    check(&both, turn_ended(2, failed), AgentState::Running, &["error model_error", "turn over"], &[]);
    let waiting = with(both.clone(), &[say("m")]);
    let next = ["chat m", "queue 0"];
    check(&waiting, turn_ended(2, WorkOutcome::Done), AgentState::Running, &next, &["prompt turn-7 m"]);
    let act = SessionInput::UserActionEnded { user_action: "act-4".into(), outcome: WorkOutcome::Done };
    check(&both, act.clone(), AgentState::Running, &[], &[]);
    check(&with(both, &[turn_ended(2, WorkOutcome::Done)]), act, AgentState::Idle, &["is idle"], &[]);
}

#[test]
fn what_an_agent_may_not_have_comes_behind_the_word_that_it_comes_anew() {
    let mut world = RulesFixture::after(&with(working(), &[SessionInput::Interrupt]));
    let decision = world.feed(up()).expect("it is welcome");
    assert_eq!(decision.effects.iter().map(effect_text).collect::<Vec<_>>(), ["anew", "prompt turn-2 t", "cancel"]);
}

#[test]
fn of_a_long_text_that_is_cut_its_ends_are_kept_and_how_long_it_was() {
    let kept = |start: u64, text: String| {
        let mut world = RulesFixture::after(&working());
        world.open = vec![OpenItem { item: "i".into(), kind: DeltaKind::Text, start, text }];
        let decision = world.feed(lost()).expect("it is told");
        let of_the_item = decision.new_events.into_iter().find(|draft| draft.item.as_deref() == Some("i"));
        let body = serde_json::to_value(of_the_item.expect("it is kept").body).expect("JSON");
        let content = body["content"].as_str().expect("a text").to_owned();
        (content, body["extras"]["truncated"]["bytes"].as_u64())
    };
    assert_eq!(kept(0, "short".into()), ("short".into(), None));
    let (content, whole) = kept(0, format!("BEGIN{}END", "x".repeat(300_000)));
    assert!(content.len() < 66_000 && content.starts_with("BEGIN") && content.ends_with("END"));
    assert_eq!(whole, Some(300_008));
    let (content, whole) = kept(1_000_000, format!("{}END", "x".repeat(200_000)));
    assert!(
        content.len() < 66_000 && content.starts_with("\n… 1134467 bytes left out …\n") && content.ends_with("END")
    );
    assert_eq!(whole, Some(1_200_003));
}

/// Also where an earlier stop is under way.
#[test]
fn what_was_said_before_the_last_stop_is_held() {
    for stopping in [
        [say_as(MessageMode::Interrupt, "m"), SessionInput::Interrupt].as_slice(),
        &[SessionInput::Interrupt, say("m"), SessionInput::Interrupt],
    ] {
        let anew = with(with(working(), stopping), &[SessionInput::HelloReceived { boot: "b2".into() }]);
        let waits: Vec<_> =
            RulesFixture::after(&anew).state.queue.into_iter().map(|waiting| waiting.item.content).collect();
        assert_eq!(
            (RulesFixture::after(&anew).state.visible_state(), waits),
            (AgentState::Idle, vec!["m".to_owned()]),
            "{stopping:?}"
        );
    }
}
