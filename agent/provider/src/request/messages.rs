//! Body in Anthropic's format (`POST /v1/messages`).
//!
//! Source: <https://docs.anthropic.com/en/api/messages>.

use serde_json::{Value, json};

use super::{AssistantOutput, ModelRequest, RequestMessage, ThinkingEffort, UserPart, id_to_send, name_to_send};
use crate::reader::OpaqueSlot;

/// Smallest thinking budget that the provider accepts, in tokens.
const MIN_THINKING: u64 = 1024;

impl ModelRequest<'_> {
    /// Writes the body in Anthropic's format.
    ///
    /// Two cache marks: the system prompt, which covers the tools, and the last message. The next
    /// request repeats both and a little more.
    pub fn messages_body(&self) -> Value {
        let mut messages: Vec<Value> = self.messages.iter().map(message).collect();
        messages.last_mut().into_iter().for_each(mark_last_block);
        let mut body = json!({
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": [{ "type": "text", "text": self.system, "cache_control": cache_mark() }],
            "messages": messages,
            "stream": true,
        });
        if !self.tools.is_empty() {
            let tools = self.tools.iter().map(
                |tool| json!({ "name": tool.name, "description": tool.description, "input_schema": tool.parameters }),
            );
            body["tools"] = tools.collect();
        }
        if let Some(thinking) = self.effort.and_then(|effort| self.thinking(effort)) {
            body["thinking"] = thinking;
        }
        body
    }

    /// Returns the field `thinking`, or `None` if the provider would reject it: there is no room
    /// for thinking, or the last calls were made without it.
    fn thinking(&self, effort: ThinkingEffort) -> Option<Value> {
        let last = self.messages.iter().rev().find_map(|message| match message {
            RequestMessage::Assistant(output) => Some(output),
            RequestMessage::User(_) | RequestMessage::Results { .. } => None,
        });
        let without_thinking =
            last.is_some_and(|output| !output.calls.is_empty() && blocks(output, 0).next().is_none());
        let tokens = effort.thinking_tokens().min(self.max_tokens / 2);
        (tokens >= MIN_THINKING && !without_thinking).then(|| json!({ "type": "enabled", "budget_tokens": tokens }))
    }
}

fn message(message: &RequestMessage) -> Value {
    match message {
        RequestMessage::User(parts) => json!({ "role": "user", "content": user_content(parts) }),
        RequestMessage::Assistant(output) => json!({ "role": "assistant", "content": assistant_content(output) }),
        // In this format, results are part of the user's message, so the user's parts join them.
        RequestMessage::Results { results, user } => {
            let results = results.iter().map(|result| {
                json!({ "type": "tool_result", "tool_use_id": id_to_send(&result.call_id), "content": result.text })
            });
            let content: Vec<Value> = results.chain(user.iter().map(user_block)).collect();
            json!({ "role": "user", "content": content })
        }
    }
}

fn user_content(parts: &[UserPart]) -> Value {
    match parts {
        [UserPart::Text(text)] => json!(text),
        parts => parts.iter().map(user_block).collect(),
    }
}

fn user_block(part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({ "type": "text", "text": text }),
        UserPart::Image { media_type, base64 } => json!({
            "type": "image",
            "source": { "type": "base64", "media_type": media_type, "data": &**base64 },
        }),
    }
}

/// Returns the blocks in the order of the answer: those before a call stand before it.
fn assistant_content(output: &AssistantOutput) -> Value {
    let mut content: Vec<Value> = blocks(output, 0).cloned().collect();
    if !output.text.is_empty() {
        content.push(json!({ "type": "text", "text": output.text }));
    }
    for (at, call) in output.calls.iter().enumerate() {
        if at > 0 {
            content.extend(blocks(output, at).cloned());
        }
        content.push(json!({
            "type": "tool_use",
            "id": id_to_send(&call.id),
            "name": name_to_send(&call.name),
            "input": call.object(),
        }));
    }
    if !output.calls.is_empty() {
        content.extend(blocks(output, output.calls.len()).cloned());
    }
    Value::Array(content)
}

/// Returns the opaque blocks that stand right before the call at this index.
fn blocks(output: &AssistantOutput, at: usize) -> impl Iterator<Item = &Value> {
    output.opaque.iter().filter_map(move |piece| match piece.slot {
        OpaqueSlot::Block { before_call } => (before_call == at).then_some(&piece.value),
        OpaqueSlot::MessageField(_) | OpaqueSlot::CallField { .. } | OpaqueSlot::Item => None,
    })
}

fn cache_mark() -> Value {
    json!({ "type": "ephemeral" })
}

fn mark_last_block(message: &mut Value) {
    let content = &mut message["content"];
    if let Value::String(text) = content {
        *content = json!([{ "type": "text", "text": text }]);
    }
    if let Some(block) = content.as_array_mut().and_then(|blocks| blocks.last_mut()) {
        block["cache_control"] = cache_mark();
    }
}
