//! What the demo model understands of a conversation: the last task, how far its work is, and what came of the last step.

use std::collections::HashSet;

use serde_json::Value;

/// The tool whose results say nothing that would be worth repeating.
const PLAN_TOOL: &str = "plan";

/// How the agent begins to tell what a person did beside it. What the person says then follows behind an empty line.
const USER_ACTION_PREFIX: &str = "[The user did this in the sandbox: ";
/// How the agent tells that a person stopped it. What the person says then follows as well.
const INTERRUPTED_PREFIX: &str = "[The user interrupted you here.]";
/// How the agent tells, below what a person says, which files came with it.
const ATTACHMENTS_MARKER: &str = "\n\n[Attached files, in the workspace: ";

/// A conversation, reduced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DemoConversation {
    /// The newest text of the user.
    pub(super) task: String,
    /// How often the user wrote: what comes in one go, such as a context and a task, counts once.
    pub(super) tasks: usize,
    /// How many answers the model gave since.
    pub(super) steps: usize,
    /// What the newest tool call led to that was no plan.
    pub(super) result: String,
    /// The tools that the agent offers.
    pub(super) tools: Vec<String>,
}

impl DemoConversation {
    /// Reads a body of Anthropic's messages.
    pub(super) fn from_messages(body: &Value) -> DemoConversation {
        let mut conversation =
            DemoConversation { tools: names(&body["tools"], "/name"), ..DemoConversation::default() };
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.steps += 1;
                    let planned = |block: &&Value| block["name"] == PLAN_TOOL;
                    plans.extend(items(&message["content"]).iter().filter(planned).filter_map(|it| it["id"].as_str()));
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

    /// Reads a body of OpenAI's chat completions.
    pub(super) fn from_chat(body: &Value) -> DemoConversation {
        let mut conversation =
            DemoConversation { tools: names(&body["tools"], "/function/name"), ..DemoConversation::default() };
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.steps += 1;
                    let planned = |call: &&Value| call["function"]["name"] == PLAN_TOOL;
                    plans.extend(
                        items(&message["tool_calls"]).iter().filter(planned).filter_map(|it| it["id"].as_str()),
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
        let text = text.rsplit_once(ATTACHMENTS_MARKER).map_or(text, |(said, _)| said);
        let text = text.strip_prefix(INTERRUPTED_PREFIX).map_or(text, str::trim_start);
        let said = if text.starts_with(USER_ACTION_PREFIX) {
            text.rsplit_once("\n\n").map_or(text, |(_, said)| said)
        } else {
            text
        };
        if !said.trim().is_empty() {
            self.task = said.trim().to_owned();
            self.tasks += usize::from(self.tasks == 0 || self.steps > 0);
            self.steps = 0;
            self.result.clear();
        }
    }
}

fn contains_id(calls: &HashSet<&str>, id: &Value) -> bool {
    id.as_str().is_some_and(|id| calls.contains(id))
}

/// A text, or the texts of a list of blocks.
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
    fn both_formats_read_the_same() {
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
        let in_one_go = DemoConversation::from_messages(&json!({"messages": [{"role": "user", "content": context}]}));
        assert_eq!((in_one_go.task.as_str(), in_one_go.tasks), ("the task", 1));

        let aside = "[The user did this in the sandbox: Running command: ls]\na\n\nb\n[Exit code 0.]\n\nslow: 3";
        let after_an_act = DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": aside}]}));
        assert_eq!(after_an_act.task, "slow: 3", "what a person did beside it is not what they say");

        let stopped = "[The user interrupted you here.]\n\nrun: id";
        let after_a_stop = DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": stopped}]}));
        assert_eq!(after_a_stop.task, "run: id", "that a person stopped it is not what they say");

        let with_files = "run: cat uploads/a.txt\n\n[Attached files, in the workspace: `uploads/a.txt`]";
        let with_files = DemoConversation::from_chat(&json!({"messages": [{"role": "user", "content": with_files}]}));
        assert_eq!(with_files.task, "run: cat uploads/a.txt", "which files came with it is not what they say");
    }
}
