//! Body in Google's format (`POST /v1beta/models/{model}:streamGenerateContent`). The path names
//! the model.
//!
//! Source: <https://ai.google.dev/api/generate-content>.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::{AssistantOutput, ModelRequest, RequestMessage, UserPart, id_to_send, name_to_send};
use crate::reader::OpaqueSlot;

impl ModelRequest<'_> {
    /// Writes the body in Google's format.
    pub fn gemini_body(&self) -> Value {
        // A result names its tool.
        let mut names = HashMap::new();
        let contents: Vec<Value> = self.messages.iter().map(|message| content(message, &mut names)).collect();
        let mut config = json!({ "maxOutputTokens": self.max_tokens });
        if let Some(effort) = self.effort {
            config["thinkingConfig"] = json!({ "thinkingBudget": effort.thinking_tokens(), "includeThoughts": true });
        }
        let mut body = json!({
            "systemInstruction": { "parts": [{ "text": self.system }] },
            "contents": contents,
            "generationConfig": config,
        });
        if !self.tools.is_empty() {
            let declarations = self.tools.iter().map(
                |tool| json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters }),
            );
            body["tools"] = json!([{ "functionDeclarations": declarations.collect::<Vec<_>>() }]);
        }
        body
    }
}

fn content(message: &RequestMessage, names: &mut HashMap<String, String>) -> Value {
    match message {
        RequestMessage::User(parts) => json!({ "role": "user", "parts": parts.iter().map(part).collect::<Vec<_>>() }),
        RequestMessage::Assistant(output) => {
            names.extend(output.calls.iter().map(|call| (call.id.clone(), name_to_send(&call.name).to_owned())));
            json!({ "role": "model", "parts": model_parts(output) })
        }
        RequestMessage::Results { results, user } => {
            let results = results.iter().map(|result| {
                let name = names.get(&result.call_id).map_or("no_such_tool", String::as_str);
                let response = json!({ "result": result.text });
                json!({ "functionResponse": { "id": id_to_send(&result.call_id), "name": name, "response": response } })
            });
            let parts: Vec<Value> = results.chain(user.iter().map(part)).collect();
            json!({ "role": "user", "parts": parts })
        }
    }
}

fn part(part: &UserPart) -> Value {
    match part {
        UserPart::Text(text) => json!({ "text": text }),
        UserPart::Image { media_type, base64 } => {
            json!({ "inlineData": { "mimeType": media_type, "data": &**base64 } })
        }
    }
}

/// Returns the parts of an answer. A field of the message belongs to its text.
fn model_parts(output: &AssistantOutput) -> Vec<Value> {
    let mut text = (!output.text.is_empty()).then(|| json!({ "text": output.text }));
    let mut calls: Vec<Value> = output
        .calls
        .iter()
        .map(|call| {
            let (id, name) = (id_to_send(&call.id), name_to_send(&call.name));
            json!({ "functionCall": { "id": id, "name": name, "args": call.object() } })
        })
        .collect();
    for piece in &output.opaque {
        match &piece.slot {
            OpaqueSlot::CallField { call, field } => {
                if let Some(call) = calls.get_mut(*call) {
                    call[field] = piece.value.clone();
                }
            }
            OpaqueSlot::MessageField(field) => {
                if let Some(text) = &mut text {
                    text[field] = piece.value.clone();
                }
            }
            OpaqueSlot::Block { .. } | OpaqueSlot::Item => {}
        }
    }
    text.into_iter().chain(calls).collect()
}
