//! Conversation as the demo model reads it: the newest task, its progress, and the result of the
//! last step.

use std::collections::HashSet;

use serde_json::Value;

use super::tool::DemoTool;
use crate::gateway::route::GatewayRoute;

/// Plan tool. Its results are not worth repeating.
const PLAN_TOOL: &str = "plan";

/// Start of the agent's report about user actions. The user's text follows after an empty line.
const USER_ACTION_PREFIX: &str = "[The user did this in the sandbox: ";
/// Start of the agent's report about an interrupt. The user's text follows.
const INTERRUPTED_PREFIX: &str = "[The user interrupted you here.]";
/// Start of the built-in agent's result of a denied call.
const DENIED_PREFIX: &str = "This call was denied";
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
    /// Number of model responses since that result.
    pub(super) steps_since_result: usize,
    /// Tools that the agent offers.
    pub(super) tools: Vec<DemoTool>,
}

impl DemoConversation {
    /// Reads a request body in the format of `route`. `None` if the route has no conversation.
    pub(super) fn read(route: GatewayRoute, body: &Value) -> Option<DemoConversation> {
        let conversation = match route {
            GatewayRoute::Messages => DemoConversation::from_messages(body),
            GatewayRoute::Chat => DemoConversation::from_chat(body),
            GatewayRoute::Responses => DemoConversation::from_responses(body),
            GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream => DemoConversation::from_gemini(body),
            _ => return None,
        };
        Some(DemoConversation { tools: DemoTool::offered(route, &body["tools"]), ..conversation })
    }

    /// Reads the messages of Anthropic Messages.
    fn from_messages(body: &Value) -> DemoConversation {
        let mut conversation = DemoConversation::default();
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.add_responses(1);
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
                                conversation.add_result(text(&block["content"]));
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

    /// Reads the messages of OpenAI Chat Completions.
    fn from_chat(body: &Value) -> DemoConversation {
        let mut conversation = DemoConversation::default();
        let mut plans = HashSet::new();
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("assistant") => {
                    conversation.add_responses(1);
                    let is_plan = |call: &&Value| call["function"]["name"] == PLAN_TOOL;
                    plans.extend(
                        items(&message["tool_calls"]).iter().filter(is_plan).filter_map(|it| it["id"].as_str()),
                    );
                }
                Some("user") => conversation.add_user_text(&text(&message["content"])),
                Some("tool") if !contains_id(&plans, &message["tool_call_id"]) => {
                    conversation.add_result(text(&message["content"]));
                }
                _ => {}
            }
        }
        conversation
    }

    /// Reads the input of OpenAI Responses. Consecutive items of the model are one response.
    fn from_responses(body: &Value) -> DemoConversation {
        let mut conversation = DemoConversation::default();
        if let Some(task) = body["input"].as_str() {
            conversation.add_user_text(task);
        }
        let (mut plans, mut in_response) = (HashSet::new(), false);
        for item in items(&body["input"]) {
            let is_output = item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
            let is_message = matches!(item["type"].as_str(), None | Some("message"));
            let is_input = is_output || (is_message && item["role"] != "assistant");
            if is_output && !contains_id(&plans, &item["call_id"]) {
                conversation.add_result(text(&item["output"]));
            } else if is_message && item["role"] == "user" {
                match item["content"].as_array() {
                    Some(blocks) => blocks.iter().for_each(|block| conversation.add_user_text(&text(&block["text"]))),
                    None => conversation.add_user_text(&text(&item["content"])),
                }
            } else if !is_input {
                conversation.add_responses(usize::from(!in_response));
                if item["name"] == PLAN_TOOL {
                    plans.extend(item["call_id"].as_str());
                }
            }
            in_response = !is_input;
        }
        conversation
    }

    /// Reads the contents of a Gemini request.
    fn from_gemini(body: &Value) -> DemoConversation {
        let mut conversation = DemoConversation::default();
        for content in items(&body["contents"]) {
            if content["role"] == "model" {
                conversation.add_responses(1);
                continue;
            }
            for part in items(&content["parts"]) {
                let response = &part["functionResponse"];
                if response.is_object() && response["name"] != PLAN_TOOL {
                    let output = &response["response"];
                    let named = ["output", "result", "content"].into_iter().find_map(|field| output[field].as_str());
                    conversation.add_result(named.map_or_else(|| output.to_string(), str::to_owned));
                }
                conversation.add_user_text(&text(&part["text"]));
            }
        }
        conversation
    }

    /// Returns true if the newest call was denied, by a person or by a rule.
    pub(super) fn is_denied(&self) -> bool {
        self.result.starts_with(DENIED_PREFIX)
    }

    fn add_responses(&mut self, count: usize) {
        self.steps += count;
        self.steps_since_result += count;
    }

    fn add_result(&mut self, result: String) {
        (self.result, self.steps_since_result) = (result, 0);
    }

    fn add_user_text(&mut self, text: &str) {
        let text = text.rsplit_once(ATTACHMENTS_MARKER).map_or(text, |(user_text, _)| user_text);
        let text = text.strip_prefix(INTERRUPTED_PREFIX).map_or(text, str::trim_start);
        let user_text = if text.starts_with(USER_ACTION_PREFIX) {
            text.rsplit_once("\n\n").map_or(text, |(_, user_text)| user_text)
        } else {
            text
        };
        if !user_text.trim().is_empty() && !is_wrapped(user_text.trim()) {
            self.task = user_text.trim().to_owned();
            self.tasks += usize::from(self.tasks == 0 || self.steps > 0);
            self.steps = 0;
            self.add_result(String::new());
        }
    }
}

/// Returns true for context that an agent adds in the user's name, such as
/// `<environment_context>…</environment_context>`.
fn is_wrapped(text: &str) -> bool {
    text.starts_with('<') && text.ends_with('>') && text.contains("</")
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

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_formats_give_the_same_conversation() {
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
        let call = |id: &str, name: &str| json!({"type": "function_call", "call_id": id, "name": name});
        let output = |id: &str, text: &str| json!({"type": "function_call_output", "call_id": id, "output": text});
        let responses = json!({
            "tools": [{"type": "function", "name": "run"}, {"type": "web_search"}],
            "input": [
                {"role": "developer", "content": "s"},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "first"}]},
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "<environment_context>\nx\n</environment_context>"},
                ]},
                {"type": "reasoning"}, call("1", "run"), output("1", "old"),
                {"role": "user", "content": "second"},
                {"type": "message", "role": "assistant", "content": []}, call("2", "run"), call("3", "plan"),
                output("2", "new"), output("3", "planned"),
            ],
        });
        let result = |name: &str, text: &str| json!({"functionResponse": {"name": name, "response": {"output": text}}});
        let gemini = json!({
            "tools": [{"functionDeclarations": [{"name": "run"}]}],
            "contents": [
                {"role": "user", "parts": [{"text": "first"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "run"}}]},
                {"role": "user", "parts": [result("run", "old"), {"text": "second"}]},
                {"role": "model", "parts": [{"functionCall": {"name": "run"}}, {"functionCall": {"name": "plan"}}]},
                {"role": "user", "parts": [result("run", "new"), result("plan", "planned")]},
            ],
        });
        let expected = DemoConversation {
            task: "second".into(),
            tasks: 2,
            steps: 1,
            result: "new".into(),
            steps_since_result: 0,
            tools: vec![DemoTool { name: "run".into(), ..DemoTool::default() }],
        };
        for (route, body) in [
            (GatewayRoute::Messages, messages),
            (GatewayRoute::Chat, chat),
            (GatewayRoute::Responses, responses),
            (GatewayRoute::GeminiStream, gemini),
        ] {
            assert_eq!(DemoConversation::read(route, &body), Some(expected.clone()), "{route:?}");
        }
        assert_eq!(DemoConversation::read(GatewayRoute::Embeddings, &json!({})), None);
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
