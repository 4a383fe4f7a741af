use super::*;
use proptest::prelude::*;
use serde_json::json;

#[derive(Debug, Clone)]
enum ConversationStep {
    User(usize),
    Text(usize),
    Blank,
    Calls(u8),
    /// Call with arguments of about this many bytes: one text if `true`, else many.
    LongCall(usize, bool),
    /// Two calls with the id of the newest one.
    SameCall,
    Result(u8, usize),
}

fn steps() -> impl Strategy<Value = Vec<ConversationStep>> {
    let size = 1usize..3000;
    let one = prop_oneof![
        size.clone().prop_map(ConversationStep::User),
        size.clone().prop_map(ConversationStep::Text),
        (1u8..4).prop_map(ConversationStep::Calls),
        (size.clone(), any::<bool>()).prop_map(|(size, one)| ConversationStep::LongCall(size, one)),
        (20_000usize..50_000).prop_map(ConversationStep::User),
        Just(ConversationStep::SameCall),
        Just(ConversationStep::Blank),
        (0u8..8, size).prop_map(|(call, size)| ConversationStep::Result(call, size)),
    ];
    proptest::collection::vec(one, 0..60)
}

/// Asserts what every provider requires.
fn assert_acceptable(entries: &[ConversationEntry]) {
    let mut ids = HashSet::new();
    for (at, entry) in entries.iter().enumerate() {
        let next = entries.get(at + 1);
        match entry {
            ConversationEntry::User(_) => assert!(matches!(next, None | Some(ConversationEntry::Assistant(_)))),
            ConversationEntry::Assistant(message) if !message.text.is_empty() && message.text.trim().is_empty() => {
                panic!("a blank text")
            }
            ConversationEntry::Assistant(message) if message.calls.is_empty() => {
                assert!(matches!(next, None | Some(ConversationEntry::User(_))))
            }
            ConversationEntry::Assistant(message) => {
                let Some(ConversationEntry::Results { results, .. }) = next else { panic!("calls without results") };
                assert!(message.calls.iter().all(|call| ids.insert(&call.id)), "duplicate id");
                let mut asked: Vec<_> = message.calls.iter().map(|call| &call.id).collect();
                let mut answered: Vec<_> = results.iter().map(|result| &result.id).collect();
                asked.sort();
                answered.sort();
                assert_eq!(asked, answered);
            }
            ConversationEntry::Results { .. } => {
                assert!(at > 0 && matches!(entries[at - 1], ConversationEntry::Assistant(_)));
                assert!(matches!(next, None | Some(ConversationEntry::Assistant(_))));
            }
        }
    }
    assert!(matches!(entries.first(), None | Some(ConversationEntry::User(_))));
}

/// Smallest size of a text, a result or a call, in bytes.
const MIN_PART_BYTES: usize = 64;

fn count_parts(entries: &[ConversationEntry]) -> usize {
    let parts = |entry: &ConversationEntry| match entry {
        ConversationEntry::User(_) => 1,
        ConversationEntry::Assistant(message) => 1 + message.calls.len(),
        ConversationEntry::Results { results, .. } => results.len() + 1,
    };
    entries.iter().map(parts).sum()
}

proptest! {
    #[test]
    fn any_history_is_acceptable_to_providers(moves in steps(), budget in 0usize..20_000, fit: bool) {
        let (mut conversation, mut calls) = (AgentConversation::default(), 0u32);
        for step in moves {
            if fit { conversation.fit(budget); }
            match step {
                ConversationStep::User(size) => conversation.add_user_text(&"u".repeat(size)),
                ConversationStep::Text(size) => conversation.add_assistant_message(AssistantMessage { text: "t".repeat(size), ..AssistantMessage::default() }),
                ConversationStep::Calls(count) => {
                    let calls = (0..count).map(|_| { calls += 1; ToolCallRequest { id: calls.to_string(), name: "run".into(), arguments: Value::Null, ..ToolCallRequest::default() } });
                    conversation.add_assistant_message(AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() });
                }
                ConversationStep::LongCall(size, one) => {
                    calls += 1;
                    let arguments = if one { json!({ "content": "c".repeat(size) }) } else { json!(vec!["c"; size / 4]) };
                    let call = ToolCallRequest { id: calls.to_string(), name: "write".into(), arguments, ..ToolCallRequest::default() };
                    conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
                }
                ConversationStep::SameCall => {
                    let call = ToolCallRequest { id: calls.to_string(), name: "run".into(), arguments: Value::Null, ..ToolCallRequest::default() };
                    conversation.add_assistant_message(AssistantMessage { calls: vec![call.clone(), call], ..AssistantMessage::default() });
                }
                ConversationStep::Blank => conversation.add_assistant_message(AssistantMessage { text: " \n".into(), ..AssistantMessage::default() }),
                ConversationStep::Result(back, size) => conversation.add_result(&calls.saturating_sub(back.into()).to_string(), "r".repeat(size)),
            }
        }
        conversation.fit(budget);
        prop_assert!(conversation.size() <= budget.max(MIN_PART_BYTES * count_parts(&conversation.entries)));
        assert_acceptable(&conversation.to_send());
    }
}

#[test]
fn task_and_newest_entries_survive_fit() {
    let mut conversation = AgentConversation::default();
    conversation.add_user_text("the task");
    for n in 0..50 {
        let call = ToolCallRequest {
            id: n.to_string(),
            name: "run".into(),
            arguments: Value::Null,
            ..ToolCallRequest::default()
        };
        conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
        conversation.add_result(&n.to_string(), format!("{n} {}", "x".repeat(1000)));
    }
    conversation.fit(10_000);
    let sent = conversation.to_send();
    assert!(matches!(&sent[0], ConversationEntry::User(input) if input.text.starts_with("the task")));
    assert!(
        matches!(sent.last(), Some(ConversationEntry::Results { results, .. }) if results[0].text.starts_with("49 xx"))
    );
    assert!(sent.iter().map(ConversationEntry::size).sum::<usize>() <= 10_000 + DROPPED.len() + 2);
}

#[test]
fn overlong_text_is_truncated_and_other_messages_stay() {
    let mut conversation = AgentConversation::default();
    conversation.add_user_text("the task");
    for n in 0..20 {
        conversation
            .add_assistant_message(AssistantMessage { text: format!("answer {n}"), ..AssistantMessage::default() });
        conversation.add_user_text(&format!("question {n}"));
    }
    conversation.add_user_text(&format!("BEGIN{}END", "x".repeat(900_000)));
    let entries = conversation.entries.len();
    conversation.fit(480 << 10);
    assert!(conversation.size() <= 480 << 10);
    assert_eq!(conversation.entries.len(), entries, "no other entry is removed");
    let Some(ConversationEntry::User(UserInput { text: last, .. })) = conversation.entries.last() else {
        panic!("the last entry is not the user's")
    };
    assert!(last.starts_with("question 19\n\nBEGIN") && last.ends_with("END"));
    assert!(last.contains(" bytes left out …"));
}

#[test]
fn newest_results_over_budget_are_truncated() {
    let mut conversation = AgentConversation::default();
    conversation.add_user_text("the task");
    let calls = (0..20).map(|n| ToolCallRequest {
        id: n.to_string(),
        name: "run".into(),
        arguments: Value::Null,
        ..ToolCallRequest::default()
    });
    conversation.add_assistant_message(AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() });
    (0..20).for_each(|n| conversation.add_result(&n.to_string(), format!("{n} {} end", "x".repeat(30_000))));
    conversation.fit(16_000);
    assert!(conversation.size() <= 16_000 && conversation.size() > 11_000, "{}", conversation.size());
    let sent = conversation.to_send();
    assert_acceptable(&sent);
    let Some(ConversationEntry::Results { results, .. }) = sent.last() else { panic!("no results") };
    assert!(results.iter().all(|result| result.text.starts_with(&result.id) && result.text.ends_with(" end")));
}
