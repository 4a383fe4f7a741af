//! Texts of a chat: growing, repeated, replaced, withdrawn and truncated.

use greenroom_protocol::excerpt;

use super::{super::sent_text::MAX_ITEMS, *};

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
    for (offset, old) in [(0, "Hello you"), (3, "lo"), (5, " you")] {
        assert_eq!(
            render(translator.delta(delta(DeltaKind::Text, "m", offset, old))),
            [""; 0],
            "{old} was sent before"
        );
    }
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 0, "Hello you two"))), ["text_delta  two"]);
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "m", 13, " there"))), ["text_delta  there"]);
    assert_eq!(render(translator.event(agent_message("m", "Hello you two there."))), ["text_delta ."]);
}

/// A text of the item that begins again, or that its event has, replaces another one.
#[test]
fn other_text_of_an_item_replaces_the_sent_text() {
    let begun = || {
        let mut translator = ChatTranslator::joining(Some(None));
        translator.delta(delta(DeltaKind::Text, "m", 0, "Hello you"));
        translator
    };
    for other in ["Hellø you all", "Hel", "Good day, and more"] {
        let mut translator = begun();
        let restarted = render(translator.delta(delta(DeltaKind::Text, "m", 0, other)));
        assert_eq!(restarted, ["text_reset".to_owned(), format!("text_delta {other}")]);
        assert_eq!(render(translator.event(agent_message("m", &format!("{other}.")))), ["text_delta ."]);
        let ended = render(begun().event(agent_message("m", other)));
        assert_eq!(ended, ["text_reset".to_owned(), format!("text_delta {other}")]);
    }
    // Head and tail of a long text that begins otherwise.
    let long = format!("Good day {}", "x".repeat(5000));
    let cut = excerpt(&long, 1000).expect("the text is long").text;
    let ended = render(begun().truncated_event(agent_message("m", &cut), long.len() as u64));
    assert_eq!(ended, ["text_reset".to_owned(), format!("text_delta {cut}")]);
}

/// The model is asked again after an answer that was cut. The client has one text at the end.
#[test]
fn retried_answer_replaces_the_cut_one() {
    let at = |time: &str, event: Event| Event { at: time.to_owned(), ..event };
    let idle = || state(AgentState::Idle, None);
    let in_turn = || ChatTranslator::joining(Some(Some("turn-1".into())));
    let whole = || agent_message("b", "It works.");
    check(
        in_turn(),
        vec![at("1", partial("a", "It wo")), at("2", whole()), idle()],
        &["text_delta It wo", "text_reset", "text_delta It works.", "done"],
    );
    let call = event(EventSource::Agent, Some("c"), Action::Run { command: "ls".into() });
    check(
        in_turn(),
        vec![at("1", partial("a", "It wo")), at("2", call)],
        &["text_delta It wo", "text_reset", "tool_use_start run"],
    );
    check(
        in_turn(),
        vec![at("1", partial("a", "It")), at("2", partial("b", "It wo")), idle()],
        &["text_delta It", "text_reset", "text_delta It wo", "done"],
    );
    // The last answer stays, and an interrupt cuts all growing texts at once.
    check(
        in_turn(),
        vec![at("1", partial("a", "It wo")), failed(EventSource::Agent, None, "model_error")],
        &["text_delta It wo", "error why"],
    );
    let both = vec![at("1", partial("a", "It")), at("1", partial("b", "wo")), interrupted(EscalationStep::Cancel)];
    check(
        in_turn(),
        [both, vec![chat("turn-2"), whole()]].concat(),
        &["text_delta It", "text_delta wo", "done", "text_delta It works."],
    );
    let mut translator = in_turn();
    translator.event(partial("a", "It wo"));
    let growing = translator.delta(delta(DeltaKind::Text, "b", 0, "It"));
    let withdrawn = ChatFrameBody::TextReset { item: "a".into() };
    assert_eq!(growing[0].body, withdrawn, "the text is withdrawn before the new one grows");
    assert_eq!(render(growing), ["text_reset", "text_delta It"]);
}

/// No event ends the item, so the journal does not have its text.
#[test]
fn text_without_an_event_is_withdrawn_with_its_turn() {
    let mut translator = ChatTranslator::joining(Some(Some("turn-1".into())));
    translator.delta(delta(DeltaKind::Text, "m", 0, "Hello"));
    translator.delta(delta(DeltaKind::Thinking, "t", 0, "Hm"));
    translator.event(agent_message("m", "Hello."));
    let frames = translator.event(state(AgentState::Idle, None));
    let bodies: Vec<_> = frames.into_iter().map(|frame| frame.body).collect();
    let withdrawn = ChatFrameBody::TextReset { item: "t".into() };
    assert_eq!(bodies, [withdrawn, ChatFrameBody::Done { turn: Some("turn-1".into()) }]);
}

#[test]
fn items_that_never_end_are_bounded() {
    let mut translator = ChatTranslator::joining(None);
    translator.event(chat("turn-1"));
    for n in 0..10 * MAX_ITEMS {
        translator.delta(delta(DeltaKind::Text, &format!("text-{n}"), 0, "Hello"));
        translator.event(event(EventSource::Agent, Some(&format!("tool-{n}")), Action::Run { command: "ls".into() }));
    }
    assert_eq!((translator.sent.len(), translator.open_tools.len()), (MAX_ITEMS, MAX_ITEMS));
    // The newest items are kept, and the oldest are not.
    let newest = 10 * MAX_ITEMS - 1;
    assert_eq!(render(translator.event(agent_message(&format!("text-{newest}"), "Hello you"))), ["text_delta  you"]);
    let write = || ObservationKind::Write { path: "a".into(), bytes: 1 };
    let done = |translator: &mut ChatTranslator, n| {
        render(translator.event(observation(EventSource::Agent, Some(&format!("tool-{n}")), write(), "x")))
    };
    assert_eq!(done(&mut translator, newest), ["tool_result x run"]);
    assert_eq!(done(&mut translator, 0), [] as [&str; 0]);
    // A dropped item continues at its next delta, and is sent again at its end.
    assert_eq!(render(translator.delta(delta(DeltaKind::Text, "text-0", 5, " you"))), ["text_delta  you"]);
    let end = render(translator.event(agent_message("text-0", "Hello you.")));
    assert_eq!(end, ["text_reset", "text_delta Hello you."]);
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
            ChatFrameBody::TextDelta(part) => Some(part.content),
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
    // The event has the missing bytes too.
    let whole = "x".repeat(119) + ".";
    assert_eq!(
        render(translator.event(agent_message("m", &whole))),
        ["text_reset".to_owned(), format!("text_delta {whole}")]
    );
}
