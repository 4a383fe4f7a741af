//! Conversation as it is sent to a model. Pure; independent of the providers' formats.
//!
//! Keeps the order that providers require: user and assistant alternate, and every tool call has a
//! result before any other message.

use std::collections::HashSet;

use serde_json::Value;

use super::{UserMessage, model::SignedThought, truncate};

/// Bytes of conversation that are kept and sent: about 120,000 tokens of English or code.
pub(super) const BUDGET: usize = 480 * 1024;

/// Text that replaces a dropped tool result.
const OUTPUT_DROPPED: &str = "[This output was left out to save room. Run the tool again if you need it.]";
const INTERRUPTED: &str = "[Interrupted before it had a result.]";
/// Suffix that makes a duplicate id unique.
const DUPLICATE_SUFFIX: &str = "-again";
const DROPPED: &str = "[What came here was left out to save room.]";

/// Number of newest entries whose results are never dropped.
const UNSHORTENED_ENTRIES: usize = 6;

/// Message of the conversation.
#[derive(Debug, Clone)]
pub(super) enum ConversationEntry {
    User(String),
    Assistant(AssistantMessage),
    /// Results of the calls in the assistant's message before, and the user's text after them.
    Results {
        results: Vec<ToolCallResult>,
        user: String,
    },
}

/// Assistant's message: the output of one or more steps without a result between them.
#[derive(Debug, Clone, Default)]
pub(super) struct AssistantMessage {
    /// Thoughts that the model signed. It requires them back unchanged.
    pub thoughts: Vec<SignedThought>,
    pub text: String,
    pub calls: Vec<ToolCallRequest>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCallRequest {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCallResult {
    pub id: String,
    pub text: String,
}

/// Conversation of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentConversation {
    entries: Vec<ConversationEntry>,
    /// Ids of all calls.
    call_ids: HashSet<String>,
    /// Ids of calls that were begun. When asked again, a model may give the same id to another
    /// call. Readers of the stream would then see one item for both.
    begun_call_ids: HashSet<String>,
    /// Ids of the calls in the assistant's last message that have no result yet.
    open_call_ids: HashSet<String>,
}

impl AgentConversation {
    pub(super) fn add_user_message(&mut self, message: &UserMessage) {
        let mut text = message.content.clone();
        if !message.attachments.is_empty() {
            let files: Vec<String> = message.attachments.iter().map(|path| format!("`{path}`")).collect();
            text.push_str(&format!("\n\n[Attached files, in the workspace: {}]", files.join(", ")));
        }
        self.add_user_text(&text);
    }

    /// Adds a text to the user's side. Open calls are answered first.
    pub(super) fn add_user_text(&mut self, text: &str) {
        self.answer_open_calls();
        match self.entries.last_mut() {
            Some(ConversationEntry::User(message) | ConversationEntry::Results { user: message, .. }) => {
                join(message, text)
            }
            Some(ConversationEntry::Assistant(_)) | None => self.entries.push(ConversationEntry::User(text.to_owned())),
        }
    }

    pub(super) fn add_assistant_message(&mut self, mut message: AssistantMessage) {
        // Providers reject a text of white space alone.
        if message.text.trim().is_empty() {
            message.text.clear();
        }
        if message.text.is_empty() && message.calls.is_empty() {
            return;
        }
        let continues = match self.entries.last() {
            // Text or calls after a text join the same message. After calls come results.
            Some(ConversationEntry::Assistant(before)) => before.calls.is_empty() || message.text.is_empty(),
            _ => false,
        };
        if !continues {
            self.answer_open_calls();
        }
        for call in &mut message.calls {
            // In a journal of an earlier version, two calls may share an id. Providers reject that.
            while !self.call_ids.insert(call.id.clone()) {
                call.id.push_str(DUPLICATE_SUFFIX);
            }
            self.open_call_ids.insert(call.id.clone());
        }
        match self.entries.last_mut() {
            Some(ConversationEntry::Assistant(before)) if continues => {
                join(&mut before.text, &message.text);
                before.thoughts.extend(message.thoughts);
                before.calls.extend(message.calls);
            }
            _ => self.entries.push(ConversationEntry::Assistant(message)),
        }
    }

    /// Adds the result of a call. A result without a call is ignored.
    pub(super) fn add_result(&mut self, id: &str, text: String) {
        let mut id = id.to_owned();
        while !self.open_call_ids.remove(&id) {
            if !self.call_ids.contains(&id) {
                return;
            }
            id.push_str(DUPLICATE_SUFFIX);
        }
        let result = ToolCallResult { id, text };
        match self.entries.last_mut() {
            Some(ConversationEntry::Results { results, .. }) => results.push(result),
            _ => self.entries.push(ConversationEntry::Results { results: vec![result], user: String::new() }),
        }
    }

    /// Drops the signed thoughts, which only the model that made them can use.
    pub(super) fn drop_thoughts(&mut self) {
        for entry in &mut self.entries {
            if let ConversationEntry::Assistant(message) = entry {
                message.thoughts.clear();
            }
        }
    }

    /// Records that a call was begun under this id.
    pub(super) fn begin_call(&mut self, id: String) {
        self.begun_call_ids.insert(id);
    }

    /// Returns `true` if a call with this id was made or begun before. Some servers count from 0 in
    /// each step, or give two calls the same id.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.call_ids.contains(id) || self.begun_call_ids.contains(id)
    }

    /// Returns the conversation as it is sent: open calls are answered, and the user's message
    /// comes first.
    pub(super) fn to_send(&self) -> Vec<ConversationEntry> {
        let mut sent = self.clone();
        sent.answer_open_calls();
        if !matches!(sent.entries.first(), None | Some(ConversationEntry::User(_))) {
            sent.entries.insert(0, ConversationEntry::User(DROPPED.to_owned()));
        }
        sent.entries
    }

    /// Shrinks a conversation of more than `budget` bytes for good. First old results are dropped,
    /// then old messages. The first message, which is the task, and the newest messages stay. They
    /// are truncated if they alone are too large.
    ///
    /// The target is three quarters of the budget. So the beginning of the conversation stays the
    /// same over many steps. A provider that caches beginnings then does not read it anew each
    /// time.
    pub(super) fn fit(&mut self, budget: usize) {
        if self.size() <= budget {
            return;
        }
        let target = budget / 4 * 3;
        // A text that alone exceeds the target cannot stay whole. Truncated, it leaves room for
        // other texts.
        truncate::to_length(&mut self.entries, target, budget / 2);
        self.drop_old(target);
        if self.size() > budget {
            truncate::to_fit(&mut self.entries, target);
        }
    }

    fn size(&self) -> usize {
        self.entries.iter().map(ConversationEntry::size).sum()
    }

    /// Drops old results, then old messages, until `target` is reached.
    fn drop_old(&mut self, target: usize) {
        let (mut size, old) = (self.size(), self.entries.len().saturating_sub(UNSHORTENED_ENTRIES));
        for entry in &mut self.entries[..old] {
            if size <= target {
                break;
            }
            let before = entry.size();
            entry.shorten();
            size -= before - entry.size();
        }
        let all = self.entries.len();
        while size > target && self.entries.len() > UNSHORTENED_ENTRIES + 1 {
            size -= self.entries.remove(1).size();
        }
        if self.entries.len() < all {
            self.repair_beginning();
        }
    }

    /// Restores the order after messages behind the first were removed. Results without their calls
    /// are removed. The user's text in or after them joins the first message.
    fn repair_beginning(&mut self) {
        if !matches!(self.entries.first(), Some(ConversationEntry::User(_))) {
            self.entries[0] = ConversationEntry::User(String::new());
        }
        if let Some(ConversationEntry::User(first)) = self.entries.first_mut()
            && !first.ends_with(DROPPED)
        {
            join(first, DROPPED);
        }
        while let [
            ConversationEntry::User(first),
            ConversationEntry::User(more) | ConversationEntry::Results { user: more, .. },
            ..,
        ] = self.entries.as_mut_slice()
        {
            join(first, more);
            self.entries.remove(1);
        }
    }

    fn answer_open_calls(&mut self) {
        if self.open_call_ids.is_empty() {
            return;
        }
        let ([.., ConversationEntry::Assistant(message)]
        | [.., ConversationEntry::Assistant(message), ConversationEntry::Results { .. }]) = self.entries.as_slice()
        else {
            return;
        };
        let ids = message.calls.iter().map(|call| &call.id).filter(|id| self.open_call_ids.contains(*id));
        for id in ids.cloned().collect::<Vec<_>>() {
            self.add_result(&id, INTERRUPTED.to_owned());
        }
    }
}

impl ConversationEntry {
    pub(super) fn size(&self) -> usize {
        match self {
            ConversationEntry::User(text) => text.len(),
            ConversationEntry::Assistant(message) => {
                let calls = message.calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
                message.text.len() + calls.sum::<usize>()
            }
            ConversationEntry::Results { results, user } => {
                user.len() + results.iter().map(|result| result.text.len()).sum::<usize>()
            }
        }
    }

    fn shorten(&mut self) {
        if let ConversationEntry::Results { results, .. } = self {
            for result in results.iter_mut().filter(|result| result.text.len() > OUTPUT_DROPPED.len()) {
                result.text = OUTPUT_DROPPED.to_owned();
            }
        }
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
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
                    let Some(ConversationEntry::Results { results, .. }) = next else {
                        panic!("calls without results")
                    };
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
                        let calls = (0..count).map(|_| { calls += 1; ToolCallRequest { id: calls.to_string(), name: "run".into(), arguments: Value::Null } });
                        conversation.add_assistant_message(AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() });
                    }
                    ConversationStep::LongCall(size, one) => {
                        calls += 1;
                        let arguments = if one { json!({ "content": "c".repeat(size) }) } else { json!(vec!["c"; size / 4]) };
                        let call = ToolCallRequest { id: calls.to_string(), name: "write".into(), arguments };
                        conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
                    }
                    ConversationStep::SameCall => {
                        let call = ToolCallRequest { id: calls.to_string(), name: "run".into(), arguments: Value::Null };
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
            let call = ToolCallRequest { id: n.to_string(), name: "run".into(), arguments: Value::Null };
            conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
            conversation.add_result(&n.to_string(), format!("{n} {}", "x".repeat(1000)));
        }
        conversation.fit(10_000);
        let sent = conversation.to_send();
        assert!(matches!(&sent[0], ConversationEntry::User(text) if text.starts_with("the task")));
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
        conversation.fit(BUDGET);
        assert!(conversation.size() <= BUDGET);
        assert_eq!(conversation.entries.len(), entries, "no other entry is removed");
        let Some(ConversationEntry::User(last)) = conversation.entries.last() else {
            panic!("the last entry is not the user's")
        };
        assert!(last.starts_with("question 19\n\nBEGIN") && last.ends_with("END"));
        assert!(last.contains(" bytes left out …"));
    }

    #[test]
    fn newest_results_over_budget_are_truncated() {
        let mut conversation = AgentConversation::default();
        conversation.add_user_text("the task");
        let calls = (0..20).map(|n| ToolCallRequest { id: n.to_string(), name: "run".into(), arguments: Value::Null });
        conversation.add_assistant_message(AssistantMessage { calls: calls.collect(), ..AssistantMessage::default() });
        (0..20).for_each(|n| conversation.add_result(&n.to_string(), format!("{n} {} end", "x".repeat(30_000))));
        conversation.fit(16_000);
        assert!(conversation.size() <= 16_000 && conversation.size() > 11_000, "{}", conversation.size());
        let sent = conversation.to_send();
        assert_acceptable(&sent);
        let Some(ConversationEntry::Results { results, .. }) = sent.last() else { panic!("no results") };
        assert!(results.iter().all(|result| result.text.starts_with(&result.id) && result.text.ends_with(" end")));
    }
}
