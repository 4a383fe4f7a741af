//! Compaction: a summary by the model replaces the older part of a conversation. Pure.

use greenroom_protocol::excerpt;

use super::{
    conversation::{AgentConversation, AssistantMessage, ConversationEntry, UserInput, join},
    truncate,
};

/// Request for a summary. The older part of the conversation follows.
pub(super) const PROMPT: &str = include_str!("compaction.md");

/// Size limit of a summary, in bytes.
const SUMMARY_LIMIT: usize = 16 * 1024;
/// Size limit of the first message, which is the task, beside a summary.
const TASK_LIMIT: usize = 8 * 1024;
/// Size limit of one text in the transcript, in bytes.
const TEXT_LIMIT: usize = 4 * 1024;
/// Line before a summary.
const SUMMARY_HEAD: &str = "[To save room, the conversation until here is replaced by your summary of it:]";

/// Part of a conversation that a summary can replace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CompactionPlan {
    /// Older part of the conversation as text, shortened.
    pub transcript: String,
    /// Number of newest entries that stay.
    pub kept: usize,
    /// Size of the part that is replaced, in bytes.
    pub bytes: usize,
}

impl AgentConversation {
    /// Returns the part that a summary should replace, for a conversation of more than `budget`
    /// bytes. About a quarter of the budget stays.
    ///
    /// Returns `None` if a summary would save too little. A single long text is truncated instead.
    pub(super) fn plan_compaction(&self, budget: usize) -> Option<CompactionPlan> {
        let (mut start, mut tail) = (None, 0);
        for (at, entry) in self.entries.iter().enumerate().skip(2).rev() {
            tail += entry.size();
            if start.is_some() && tail > budget / 4 {
                break;
            }
            // Results stay with their calls.
            if !matches!(entry, ConversationEntry::Results { .. }) {
                start = Some(at);
            }
        }
        let start = start?;
        let old = &self.entries[..start];
        let bytes = old.iter().map(ConversationEntry::size).sum();
        if bytes < budget / 4 {
            return None;
        }
        let mut transcript = String::new();
        old.iter().for_each(|entry| transcribe(entry, &mut transcript));
        let transcript = shorten(transcript, budget / 2);
        Some(CompactionPlan { transcript, kept: self.entries.len() - start, bytes })
    }

    /// Replaces all entries but the newest `kept` by the summary. The first message, which is the
    /// task, precedes the summary.
    pub(super) fn compact(&mut self, summary: &str, kept: usize) {
        self.answer_open_calls();
        let tail = self.entries.split_off(self.entries.len().saturating_sub(kept));
        let mut text = match self.entries.first() {
            // An earlier summary is part of the new one.
            Some(ConversationEntry::User(first)) => {
                let task = first.text.split(SUMMARY_HEAD).next().unwrap_or_default().trim_end();
                if task.len() > TASK_LIMIT { truncate::truncate_text(task, TASK_LIMIT) } else { task.to_owned() }
            }
            Some(ConversationEntry::Assistant(_) | ConversationEntry::Results { .. }) | None => String::new(),
        };
        join(&mut text, &format!("{SUMMARY_HEAD}\n{}", limit_summary(summary)));
        self.entries = vec![ConversationEntry::User(UserInput { text, files: Vec::new() })];
        self.entries.extend(tail);
        self.join_beginning();
    }
}

/// Returns the summary within its limit, without white space around it.
pub(super) fn limit_summary(summary: &str) -> String {
    shorten(summary.trim().to_owned(), SUMMARY_LIMIT)
}

fn transcribe(entry: &ConversationEntry, transcript: &mut String) {
    let mut add = |speaker: &str, text: &str| {
        if !text.is_empty() {
            join(transcript, &format!("{speaker}: {}", shorten(text.to_owned(), TEXT_LIMIT)));
        }
    };
    match entry {
        ConversationEntry::User(UserInput { text, .. }) => add("User", text),
        ConversationEntry::Assistant(AssistantMessage { text, calls, .. }) => {
            add("You", text);
            calls.iter().for_each(|call| add("You called", &format!("`{}` {}", call.name, call.arguments)));
        }
        ConversationEntry::Results { results, user } => {
            results.iter().for_each(|result| add("Result", &result.text));
            add("User", &user.text);
        }
    }
}

fn shorten(text: String, limit: usize) -> String {
    excerpt(&text, limit).map_or(text, |cut| cut.text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::turn::conversation::ToolCallRequest;

    fn conversation(steps: usize) -> AgentConversation {
        let mut conversation = AgentConversation::default();
        conversation.add_user_text("the task");
        for step in 0..steps {
            let id = step.to_string();
            let call = ToolCallRequest {
                id: id.clone(),
                name: "run".into(),
                arguments: json!({ "command": format!("step {step}") }),
                unusable: None,
            };
            conversation.add_assistant_message(AssistantMessage { calls: vec![call], ..AssistantMessage::default() });
            conversation.add_result(&id, format!("result {step} {}", "x".repeat(1000)));
        }
        conversation
    }

    fn first_text(conversation: &AgentConversation) -> &str {
        let ConversationEntry::User(first) = &conversation.entries[0] else { panic!("the first entry is the user's") };
        &first.text
    }

    #[test]
    fn summary_replaces_older_part() {
        let mut conversation = conversation(20);
        let before = conversation.size();
        let plan = conversation.plan_compaction(16_000).expect("there is something to summarize");
        assert!(plan.transcript.starts_with("User: the task\n\nYou called: `run` {\"command\":\"step 0\"}"));
        assert!(plan.transcript.len() < 8200 && plan.kept < 9, "{plan:?}");
        conversation.compact("It went well.", plan.kept);
        assert_eq!(first_text(&conversation), format!("the task\n\n{SUMMARY_HEAD}\nIt went well."));
        assert_eq!(conversation.entries.len(), 1 + plan.kept);
        assert!(matches!(conversation.entries[1], ConversationEntry::Assistant(_)));
        assert!(conversation.size() < before - plan.bytes + 200);
    }

    #[test]
    fn later_summary_replaces_earlier_one() {
        let mut conversation = conversation(3);
        conversation.compact("first", 2);
        conversation.compact("second", 2);
        assert_eq!(first_text(&conversation), format!("the task\n\n{SUMMARY_HEAD}\nsecond"));
    }

    #[test]
    fn restored_conversation_with_other_entries_stays_in_order() {
        for kept in 0..10 {
            let mut conversation = conversation(3);
            conversation.compact("so far", kept);
            conversation.add_user_text("go on");
            assert!(first_text(&conversation).contains("so far"));
            let order: Vec<u8> = conversation
                .to_send()
                .iter()
                .map(|entry| match entry {
                    ConversationEntry::User(_) => 0,
                    ConversationEntry::Assistant(_) => 1,
                    ConversationEntry::Results { .. } => 2,
                })
                .collect();
            assert!(order[1..].chunks(2).all(|pair| pair == [1, 2] || pair.is_empty()), "{kept}: {order:?}");
        }
    }

    #[test]
    fn long_first_message_or_short_past_is_not_summarized() {
        let mut one = AgentConversation::default();
        one.add_user_text(&"x".repeat(100_000));
        assert_eq!(one.plan_compaction(16_000), None);
        let mut late = conversation(1);
        late.add_user_text(&"x".repeat(100_000));
        assert_eq!(late.plan_compaction(16_000), None);
    }

    #[test]
    fn long_summary_and_task_are_shortened() {
        let mut conversation = conversation(0);
        conversation.add_user_text(&"t".repeat(100_000));
        conversation.compact(&"s".repeat(100_000), 0);
        assert!(first_text(&conversation).len() < TASK_LIMIT + SUMMARY_LIMIT + 500);
    }
}
