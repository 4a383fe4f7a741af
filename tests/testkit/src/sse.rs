//! Encoding of a scripted answer as each provider's stream of server-sent events.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::{Value, json};

use super::model::{ScriptedRule, ScriptedTool};

/// Wire format of a provider.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScriptedDialect {
    Anthropic,
    OpenAi,
}

/// Part of an answer, sent as a whole.
#[derive(Debug, Clone)]
pub(super) enum ScriptedPiece {
    /// Start, with the number of input tokens.
    Begin(u64),
    BeginThought,
    Thought(String),
    EndThought,
    BeginText,
    Word(String),
    /// Word that contains the time at which it leaves.
    Stamp,
    EndText,
    Call(ScriptedTool),
    /// End, with the numbers of input and output tokens, and whether a tool call precedes it.
    End {
        given: u64,
        tokens: usize,
        calls: bool,
    },
}

impl ScriptedPiece {
    pub(super) fn is_word(&self) -> bool {
        matches!(self, ScriptedPiece::Word(_) | ScriptedPiece::Thought(_) | ScriptedPiece::Stamp)
    }
}

/// Returns the pieces of an answer, in order.
pub(super) fn pieces(rule: &ScriptedRule) -> Vec<ScriptedPiece> {
    let given = rule.input_tokens.unwrap_or(10);
    let mut pieces = vec![ScriptedPiece::Begin(given)];
    if let Some(thought) = &rule.think {
        pieces.push(ScriptedPiece::BeginThought);
        pieces.extend(words(thought).map(ScriptedPiece::Thought));
        pieces.push(ScriptedPiece::EndThought);
    }
    if let Some(text) = &rule.say {
        pieces.push(ScriptedPiece::BeginText);
        for _ in 0..rule.times {
            pieces.extend(
                words(text).map(|word| if rule.stamped { ScriptedPiece::Stamp } else { ScriptedPiece::Word(word) }),
            );
        }
        if !rule.hang {
            pieces.push(ScriptedPiece::EndText);
        }
    }
    pieces.extend(rule.tool.clone().map(ScriptedPiece::Call));
    if !rule.hang {
        let tokens = pieces.iter().filter(|piece| piece.is_word()).count();
        pieces.push(ScriptedPiece::End { given, tokens, calls: rule.tool.is_some() });
    }
    pieces
}

/// Returns the text since the model's last answer: of the user and of tool results.
pub(super) fn news(body: &Value) -> String {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let since = messages.iter().rposition(|message| message["role"] == "assistant").map_or(0, |last| last + 1);
    let mut text = String::new();
    // OpenAI's format begins with the agent's own instructions, which may contain any word.
    let recent = messages[since..].iter().filter(|message| message["role"] != "system");
    recent.for_each(|message| collect(message, &mut text));
    text
}

fn collect(value: &Value, text: &mut String) {
    match value {
        Value::String(part) => {
            text.push_str(part);
            text.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, text)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split_inclusive(' ').map(str::to_owned)
}

impl ScriptedDialect {
    pub(super) fn encode(self, piece: &ScriptedPiece) -> Bytes {
        let text = match self {
            ScriptedDialect::Anthropic => anthropic(piece),
            ScriptedDialect::OpenAi => openai(piece),
        };
        Bytes::from(text)
    }
}

fn anthropic(piece: &ScriptedPiece) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default());
    let start = |index: u32, block: Value| {
        event(json!({ "type": "content_block_start", "index": index, "content_block": block }))
    };
    let delta =
        |index: u32, delta: Value| event(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
    let stop = |index: u32| event(json!({ "type": "content_block_stop", "index": index }));
    match piece {
        ScriptedPiece::Begin(given) => event(json!({
            "type": "message_start",
            "message": {
                "id": "msg_scripted", "type": "message", "role": "assistant", "model": "scripted", "content": [],
                "stop_reason": null, "usage": { "input_tokens": given, "output_tokens": 1 },
            },
        })),
        ScriptedPiece::BeginThought => start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        ScriptedPiece::Thought(word) => delta(0, json!({ "type": "thinking_delta", "thinking": word })),
        ScriptedPiece::EndThought => delta(0, json!({ "type": "signature_delta", "signature": "c2lnbmVk" })) + &stop(0),
        ScriptedPiece::BeginText => start(1, json!({ "type": "text", "text": "" })),
        ScriptedPiece::Word(word) => delta(1, json!({ "type": "text_delta", "text": word })),
        ScriptedPiece::Stamp => delta(1, json!({ "type": "text_delta", "text": stamp() })),
        ScriptedPiece::EndText => stop(1),
        ScriptedPiece::Call(tool) => {
            let block = json!({ "type": "tool_use", "id": call_id(), "name": tool.name, "input": {} });
            let input = json!({ "type": "input_json_delta", "partial_json": tool.input.to_string() });
            start(2, block) + &delta(2, input) + &stop(2)
        }
        ScriptedPiece::End { given: _, tokens, calls } => {
            let reason = if *calls { "tool_use" } else { "end_turn" };
            event(json!({
                "type": "message_delta",
                "delta": { "stop_reason": reason, "stop_sequence": null },
                "usage": { "output_tokens": tokens },
            })) + &event(json!({ "type": "message_stop" }))
        }
    }
}

fn openai(piece: &ScriptedPiece) -> String {
    let event = |choices: Value, usage: Value| {
        let data = json!({
            "id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
            "choices": choices, "usage": usage,
        });
        format!("data: {data}\n\n")
    };
    let chunk = |delta: Value, reason: Value| {
        event(json!([{ "index": 0, "delta": delta, "finish_reason": reason }]), Value::Null)
    };
    match piece {
        ScriptedPiece::Begin(_) => chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        ScriptedPiece::Thought(word) => chunk(json!({ "reasoning_content": word }), Value::Null),
        ScriptedPiece::Word(word) => chunk(json!({ "content": word }), Value::Null),
        ScriptedPiece::Stamp => chunk(json!({ "content": stamp() }), Value::Null),
        ScriptedPiece::BeginThought | ScriptedPiece::EndThought | ScriptedPiece::BeginText | ScriptedPiece::EndText => {
            String::new()
        }
        ScriptedPiece::Call(tool) => {
            let function = json!({ "name": tool.name, "arguments": tool.input.to_string() });
            let call = json!({ "index": 0, "id": call_id(), "type": "function", "function": function });
            chunk(json!({ "tool_calls": [call] }), Value::Null)
        }
        ScriptedPiece::End { given, tokens, calls } => {
            let reason = if *calls { "tool_calls" } else { "stop" };
            let usage =
                json!({ "prompt_tokens": given, "completion_tokens": tokens, "total_tokens": *tokens as u64 + given });
            chunk(json!({}), reason.into()) + &event(json!([]), usage) + "data: [DONE]\n\n"
        }
    }
}

/// Returns a unique id, in the form of a provider's.
fn call_id() -> String {
    format!("call_{}", ulid::Ulid::generate())
}

/// Returns the time in microseconds since 1970, and a space.
fn stamp() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is after 1970");
    format!("{} ", now.as_micros())
}
