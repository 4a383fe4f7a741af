//! Request writer: a conversation as the body of a request, in three formats.
//!
//! A model's name is written as it is, and nothing is derived from it. No body has a temperature.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use serde_json::Value;

use crate::reader::OpaquePiece;

mod chat;
mod gemini;
mod messages;
#[cfg(test)]
mod tests;

/// Longest call id that every provider accepts, in bytes.
const ID_LIMIT: usize = 40;
/// Longest tool name that every provider accepts, in bytes.
const NAME_LIMIT: usize = 64;

/// Request for one answer, independent of the format.
///
/// `messages` alternate between user and assistant, beginning with the user. The results of an
/// assistant's calls follow at once.
#[derive(Debug, Clone)]
pub struct ModelRequest<'a> {
    pub model: &'a str,
    pub system: &'a str,
    pub messages: Vec<RequestMessage>,
    pub tools: Vec<RequestTool>,
    /// Absent: the model's own default.
    pub effort: Option<ThinkingEffort>,
    /// Limit of output tokens, thinking included.
    pub max_tokens: u64,
}

/// Message of a conversation.
#[derive(Debug, Clone)]
pub enum RequestMessage {
    User(Vec<UserPart>),
    Assistant(AssistantOutput),
    /// Results of the calls in the assistant's message before, and the user's parts after them.
    Results {
        results: Vec<RequestResult>,
        user: Vec<UserPart>,
    },
}

/// Part of a user's message.
#[derive(Debug, Clone)]
pub enum UserPart {
    /// Text that is not empty.
    Text(String),
    /// Picture in base64.
    Image { media_type: &'static str, base64: Arc<str> },
}

/// Output of the assistant: text, calls, and the values that the provider requires back.
#[derive(Debug, Clone, Default)]
pub struct AssistantOutput {
    pub text: String,
    pub calls: Vec<RequestCall>,
    pub opaque: Vec<OpaquePiece>,
}

/// Tool call of the assistant. `arguments` is an object; another value is written as an empty one.
#[derive(Debug, Clone)]
pub struct RequestCall {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

/// Result of a tool call.
#[derive(Debug, Clone)]
pub struct RequestResult {
    pub call_id: String,
    pub text: String,
}

/// Tool that the model may call.
#[derive(Debug, Clone)]
pub struct RequestTool {
    pub name: &'static str,
    pub description: &'static str,
    /// JSON schema of the arguments.
    pub parameters: Value,
}

/// Effort that a model spends on thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingEffort {
    Minimal,
    Low,
    Medium,
    High,
}

impl ThinkingEffort {
    /// Name of the effort in OpenAI's formats.
    fn name(self) -> &'static str {
        match self {
            ThinkingEffort::Minimal => "minimal",
            ThinkingEffort::Low => "low",
            ThinkingEffort::Medium => "medium",
            ThinkingEffort::High => "high",
        }
    }

    /// Tokens for thinking, in formats that count them.
    fn thinking_tokens(self) -> u64 {
        match self {
            ThinkingEffort::Minimal => 1024,
            ThinkingEffort::Low => 4096,
            ThinkingEffort::Medium => 10_240,
            ThinkingEffort::High => 24_576,
        }
    }
}

impl RequestCall {
    /// Returns the arguments as an object, which providers require. A call with other arguments was
    /// answered with an error.
    fn object(&self) -> Value {
        if self.arguments.is_object() { self.arguments.clone() } else { Value::Object(Default::default()) }
    }
}

/// Returns `true` for an id or a name that every provider accepts.
fn is_plain(text: &str, longest: usize) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !text.is_empty() && text.len() <= longest && text.bytes().all(is_plain)
}

/// Returns a call id that the provider accepts. Providers reject ids of other providers, and a
/// session may hold both.
fn id_to_send(id: &str) -> String {
    if is_plain(id, ID_LIMIT) {
        return id.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("call_{:016x}", hasher.finish())
}

/// Returns a tool name that the provider accepts. A misspelt name was answered with an error; sent
/// back unchanged, the provider would reject the whole request.
fn name_to_send(name: &str) -> &str {
    if is_plain(name, NAME_LIMIT) { name } else { "no_such_tool" }
}
