//! Conversation as the demo model reads it: the newest task, its progress, and the result of the
//! last step.

use std::collections::HashSet;

use serde_json::Value;

/// Plan tool. Its results are not worth repeating.
const PLAN_TOOL: &str = "plan";

/// Start of the agent's report about user actions. The user's text follows after an empty line.
const USER_ACTION_PREFIX: &str = "[The user did this in the sandbox: ";
/// Start of the agent's report about an interrupt. The user's text follows.
const INTERRUPTED_PREFIX: &str = "[The user interrupted you here.]";
/// Start of the agent's list of attached files, after the user's text.
const ATTACHMENTS_MARKER: &str = "\n\n[Attached files, in the workspace: ";

/// Summary of a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DemoConversation {
    /// Newest text of the user.
    pub(super) task: String,
    /// Number of user turns. Texts that arrive together, such as a context and a task, count once.
    pub(super) tasks: usize,
    /// Number of model responses since the newest text.
    pub(super) steps: usize,
    /// Result of the newest tool call, except for plans.
    pub(super) result: String,
    /// Tools that the agent offers.
    pub(super) tools: Vec<String>,
}

impl DemoConversation {
    /// Reads a request body of Anthropic Messages.
    pub(super) fn from_messages(body: &Value) -> DemoConversation {
        let mut conversation =
            DemoConversation { tools: names(&body["tools"], "/name"), ..DemoConversation::default() };
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.steps += 1;
                    let is_plan = |block: &&Value| block["name"] == PLAN_TOOL;
                    plans.extend(items(&message["content"]).iter().filter(is_plan).filter_map(|it| it["id"].as_str()));
                }
                Some("user") if message["content"].is_string() => {
                    conversation.add_user_text(&text(&message["content"]))
                }
                Some("user") => {
                    for block in items(&message["content"]) {
                        match block["type"].as_str() {
                            Some("text") => conversation.add_user_text(&text(&block["text"])),
                            Some("tool_result") if !contains_id(&plans, &block["tool_use_id"]) => {
                                conversation.result = text(&block["content"]);
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        conversation
    }

    /// Reads a request body of OpenAI Chat Completions.
    pub(super) fn from_chat(body: &Value) -> DemoConversation {
        let mut conversation =
            DemoConversation { tools: names(&body["tools"], "/function/name"), ..DemoConversation::default() };
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.steps += 1;
                    let is_plan = |call: &&Value| call["function"]["name"] == PLAN_TOOL;
                    plans.extend(
                        items(&message["tool_calls"]).iter().filter(is_plan).filter_map(|it| it["id"].as_str()),
                    );
                }
                Some("user") => conversation.add_user_text(&text(&message["content"])),
                Some("tool") if !contains_id(&plans, &message["tool_call_id"]) => {
                    conversation.result = text(&message["content"]);
                }
                _ => {}
            }
        }
        conversation
    }

    fn add_user_text(&mut self, text: &str) {
        let text = text.rsplit_once(ATTACHMENTS_MARKER).map_or(text, |(user_text, _)| user_text);
        let text = text.strip_prefix(INTERRUPTED_PREFIX).map_or(text, str::trim_start);
        let user_text = if text.starts_with(USER_ACTION_PREFIX) {
            text.rsplit_once("\n\n").map_or(text, |(_, user_text)| user_text)
        } else {
            text
        };
        if !user_text.trim().is_empty() {
            self.task = user_text.trim().to_owned();
            self.tasks += usize::from(self.tasks == 0 || self.steps > 0);
            self.steps = 0;
            self.result.clear();
        }
    }
}

fn contains_id(calls: &HashSet<&str>, id: &Value) -> bool {
    id.as_str().is_some_and(|id| calls.contains(id))
}

/// Returns a string, or the joined texts of a list of blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

fn names(tools: &Value, pointer: &str) -> Vec<String> {
    items(tools).iter().filter_map(|tool| tool.pointer(pointer)?.as_str()).map(str::to_owned).collect()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn both_formats_give_the_same_conversation() {
        let messages = json!({
            "tools": [{"name": "run"}],
            "messages": [
                {"role": "user", "content": "first"},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "run", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": "old"},
                    {"type": "text", "text": " second "},
                ]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "run", "input": {}},
                    {"type": "tool_use", "id": "3", "name": "plan", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "new"}]},
                    {"type": "tool_result", "tool_use_id": "3", "content": "planned"},
                ]},
            ],
        });
        let chat = json!({
            "tools": [{"type": "function", "function": {"name": "run"}}],
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "first"},
                {"role": "assistant", "tool_calls": []},
                {"role": "tool", "content": "old"},
                {"role": "user", "content": [{"type": "text", "text": "second"}]},
                {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "run"}},
                    {"id": "3", "function": {"name": "plan"}}]},
                {"role": "tool", "tool_call_id": "2", "content": "new"},
                {"role": "tool", "tool_call_id": "3", "content": "planned"},
            ],
        });
        let expected = DemoConversation {
            task: "second".into(),
            tasks: 2,
            steps: 1,
            result: "new".into(),
            tools: vec!["run".into()],
        };
        assert_eq!(DemoConversation::from_messages(&messages), expected);
        assert_eq!(DemoConversation::from_chat(&chat), expected);
        assert_eq!(DemoConversation::from_messages(&json!([])), DemoConversation::default());

        let context = json!([{"type": "text", "text": "the date"}, {"type": "text", "text": "the task"}]);
        let sent_together =
            DemoConversation::from_messages(&json!({"messages": [{"role": "user", "content": context}]}));
        assert_eq!((sent_together.task.as_str(), sent_together.tasks), ("the task", 1));

        let with_user_action =
            "[The user did this in the sandbox: Running command: ls]\na\n\nb\n[Exit code 0.]\n\nslow: 3";
        let after_user_action =
            DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": with_user_action}]}));
        assert_eq!(after_user_action.task, "slow: 3", "a user action is not the user's text");

        let interrupted = "[The user interrupted you here.]\n\nrun: id";
        let after_interrupt =
            DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": interrupted}]}));
        assert_eq!(after_interrupt.task, "run: id", "an interrupt is not the user's text");

        let with_files = "run: cat uploads/a.txt\n\n[Attached files, in the workspace: `uploads/a.txt`]";
        let with_files = DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": with_files}]}));
        assert_eq!(with_files.task, "run: cat uploads/a.txt", "a list of files is not the user's text");
    }
}
