//! Body in OpenAI's chat format (`POST /v1/chat/completions`), which many services share.
//!
//! Source: <https://platform.openai.com/docs/api-reference/chat/create>.

use serde_json::{Map, Value, json};

use super::{AssistantOutput, ModelRequest, RequestMessage, UserPart, id_to_send, name_to_send};
use crate::reader::OpaqueSlot;

impl ModelRequest<'_> {
    /// Writes the body in OpenAI's chat format.
    ///
    /// `max_tokens` is left out: services name the limit differently, and some reject the other
    /// name. The model's own limit holds.
    pub fn chat_body(&self) -> Value {
        let system = std::iter::once(json!({ "role": "system", "content": self.system }));
        let messages: Vec<Value> = system.chain(self.messages.iter().flat_map(messages)).collect();
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": { "include_usage": true },
        });
        if !self.tools.is_empty() {
            let tools = self.tools.iter().map(|tool| {
                let function =
                    json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters });
                json!({ "type": "function", "function": function })
            });
            body["tools"] = tools.collect();
        }
        if let Some(effort) = self.effort {
            body["reasoning_effort"] = json!(effort.name());
        }
        body
    }
}

fn messages(message: &RequestMessage) -> Vec<Value> {
    match message {
        RequestMessage::User(parts) => vec![user(parts)],
        RequestMessage::Assistant(output) => vec![assistant(output)],
        RequestMessage::Results { results, user: parts } => {
            let results = results.iter().map(
                |result| json!({ "role": "tool", "tool_call_id": id_to_send(&result.call_id), "content": result.text }),
            );
            results.chain((!parts.is_empty()).then(|| user(parts))).collect()
        }
    }
}

fn user(parts: &[UserPart]) -> Value {
    let content = match parts {
        [UserPart::Text(text)] => json!(text),
        parts => parts.iter().map(part).collect(),
    };
    json!({ "role": "user", "content": content })
}

fn part(part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({ "type": "text", "text": text }),
        UserPart::Image { media_type, base64 } => {
            json!({ "type": "image_url", "image_url": { "url": format!("data:{media_type};base64,{base64}") } })
        }
    }
}

fn assistant(output: &AssistantOutput) -> Value {
    let content = if output.text.is_empty() { Value::Null } else { json!(output.text) };
    let mut message = Map::from_iter([("role".to_owned(), json!("assistant")), ("content".to_owned(), content)]);
    let mut calls: Vec<Value> = output
        .calls
        .iter()
        .map(|call| {
            let function = json!({ "name": name_to_send(&call.name), "arguments": call.object().to_string() });
            json!({ "id": id_to_send(&call.id), "type": "function", "function": function })
        })
        .collect();
    for piece in &output.opaque {
        match &piece.slot {
            OpaqueSlot::MessageField(field) => join_field(&mut message, field, &piece.value),
            OpaqueSlot::CallField { call, field } => {
                if let Some(call) = calls.get_mut(*call) {
                    call[field] = piece.value.clone();
                }
            }
            OpaqueSlot::Block { .. } | OpaqueSlot::Item => {}
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

/// Sets a field of a message. Of several answers in one message, texts and arrays are joined.
fn join_field(message: &mut Map<String, Value>, field: &str, value: &Value) {
    match (message.get_mut(field), value) {
        (Some(Value::String(before)), Value::String(more)) => before.push_str(more),
        (Some(Value::Array(before)), Value::Array(more)) => before.extend(more.iter().cloned()),
        _ => {
            message.insert(field.to_owned(), value.clone());
        }
    }
}
