//! Parses the tool calls of an answer in OpenAI's format from its frames.
//!
//! `genai` expects calls that are numbered from 0 without a gap. Services that imitate the format
//! number them otherwise, or not at all.

use serde::Deserialize;
use serde_json::Value;

use super::conversation::ToolCallRequest;

/// Collects the calls of the frames so far.
#[derive(Debug, Default)]
pub(super) struct ToolCallParser {
    calls: Vec<ParsedToolCall>,
    /// Pieces of arguments that were not taken yet.
    deltas: Vec<ToolCallDelta>,
    is_complete: bool,
}

/// Further piece of a call's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolCallDelta {
    /// Index of the call in the answer, from 0.
    pub call: usize,
    /// Model's own id; may be empty.
    pub id: String,
    pub arguments: String,
}

#[derive(Debug)]
struct ParsedToolCall {
    index: Option<Value>,
    id: String,
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct ToolCallFrame {
    #[serde(default)]
    choices: Vec<ToolCallChoice>,
}

#[derive(Deserialize)]
struct ToolCallChoice {
    delta: Option<ToolCallChoiceDelta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ToolCallChoiceDelta {
    tool_calls: Option<Vec<Value>>,
}

#[derive(Deserialize)]
struct ToolCallPart {
    index: Option<Value>,
    id: Option<String>,
    function: Option<ToolCallFunction>,
}

#[derive(Deserialize)]
struct ToolCallFunction {
    name: Option<String>,
    arguments: Option<Value>,
}

impl ToolCallParser {
    pub(super) fn parse_frame(&mut self, frame: &str) {
        // `genai` itself reports an error for an invalid frame.
        let Ok(ToolCallFrame { choices }) = serde_json::from_str(frame) else { return };
        let Some(ToolCallChoice { delta, finish_reason }) = choices.into_iter().next() else { return };
        let parts = delta.and_then(|delta| delta.tool_calls).unwrap_or_default();
        parts.into_iter().filter_map(|part| serde_json::from_value(part).ok()).for_each(|part| self.add_part(part));
        self.is_complete |= finish_reason.is_some();
    }

    fn add_part(&mut self, ToolCallPart { index, id, function }: ToolCallPart) {
        let id = id.unwrap_or_default();
        let ToolCallFunction { name, arguments } = function.unwrap_or(ToolCallFunction { name: None, arguments: None });
        let name = name.unwrap_or_default();
        let arguments = match arguments {
            Some(Value::String(arguments)) => arguments,
            None | Some(Value::Null) => String::new(),
            // Some services send the arguments as a JSON value instead of a string.
            Some(arguments) => arguments.to_string(),
        };
        let last = self.calls.len().saturating_sub(1);
        let continues = |(at, call): (usize, &ParsedToolCall)| match &index {
            Some(_) => call.index == index && (id.is_empty() || call.id.is_empty() || id == call.id),
            None if id.is_empty() => at == last && (name.is_empty() || call.name.is_empty()),
            None => id == call.id,
        };
        let existing = (0..self.calls.len()).rev().find(|at| continues((*at, &self.calls[*at])));
        let at = existing.unwrap_or_else(|| {
            self.calls.push(ParsedToolCall { index, id: String::new(), name: String::new(), arguments: String::new() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        for (field, value) in [(&mut call.id, id), (&mut call.name, name)] {
            if field.is_empty() {
                *field = value;
            }
        }
        call.arguments.push_str(&arguments);
        self.deltas.push(ToolCallDelta { call: at, id: call.id.clone(), arguments });
    }

    pub(super) fn take_deltas(&mut self) -> Vec<ToolCallDelta> {
        std::mem::take(&mut self.deltas)
    }

    /// Returns `true` if the model has sent a finish reason. Then nothing is missing, even if the
    /// service closes the connection without an end.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn take(&mut self) -> Vec<ToolCallRequest> {
        let call = |ParsedToolCall { id, name, arguments, .. }| {
            let arguments = match arguments.trim() {
                "" => Value::Object(Default::default()),
                json => serde_json::from_str(json).unwrap_or_else(|_| Value::String(arguments)),
            };
            ToolCallRequest { id, name, arguments }
        };
        std::mem::take(&mut self.calls).into_iter().map(call).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parses frames with these `tool_calls`, and compares id, name and arguments of each call.
    fn check(frames: &[Value], expected: &[(&str, &str, Value)]) {
        let mut calls = ToolCallParser::default();
        for frame in frames {
            calls.parse_frame(&json!({ "choices": [{ "index": 0, "delta": { "tool_calls": frame } }] }).to_string());
        }
        let mut streamed = vec![String::new(); expected.len()];
        calls.take_deltas().into_iter().for_each(|delta| streamed[delta.call].push_str(&delta.arguments));
        let found = calls.take();
        let expected = expected.iter().map(|(id, name, arguments)| ToolCallRequest {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            arguments: arguments.clone(),
        });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{frames:?}");
        for (call, streamed) in found.iter().zip(streamed) {
            let streamed = if streamed.is_empty() { "{}".to_owned() } else { streamed };
            assert!(serde_json::from_str(&streamed).unwrap_or(Value::String(streamed)) == call.arguments);
        }
    }

    fn part(index: Value, id: &str, name: &str, arguments: &str) -> Value {
        json!({ "index": index, "id": id, "function": { "name": name, "arguments": arguments } })
    }

    #[test]
    fn interleaved_pieces_join_their_calls() {
        let begun = json!([part(json!(0), "a", "run", ""), part(json!(1), "b", "read", r#"{"pa"#)]);
        let more = json!([{ "index": 1, "function": { "arguments": r#"th":1}"# } }]);
        let rest = json!([{ "index": 0, "function": { "arguments": "{}" } }]);
        check(&[begun, more, rest], &[("a", "run", json!({})), ("b", "read", json!({ "path": 1 }))]);
    }

    #[test]
    fn any_index_yields_one_call() {
        for index in [json!(1), json!(300), json!(4_000_000_000_u64), json!("0"), Value::Null] {
            check(&[json!([part(index, "a", "run", "{}")])], &[("a", "run", json!({}))]);
        }
    }

    #[test]
    fn calls_with_shared_or_missing_index_stay_separate() {
        for index in [json!(0), Value::Null] {
            let both = json!([part(index.clone(), "a", "run", "{}"), part(index, "b", "run", "{}")]);
            check(&[both], &[("a", "run", json!({})), ("b", "run", json!({}))]);
        }
        let nameless = |n: i32| json!([{ "function": { "name": "run", "arguments": { "n": n } } }]);
        check(&[nameless(1), nameless(2)], &[("", "run", json!({ "n": 1 })), ("", "run", json!({ "n": 2 }))]);
    }

    #[test]
    fn two_calls_with_same_id_stay_separate() {
        let both = json!([part(json!(0), "a", "run", "{}"), part(json!(1), "a", "run", "[1]")]);
        check(&[both], &[("a", "run", json!({})), ("a", "run", json!([1]))]);
    }

    #[test]
    fn invalid_json_arguments_are_kept_as_text() {
        check(&[json!([part(json!(0), "a", "run", "{nope")])], &[("a", "run", json!("{nope"))]);
        check(&[json!([part(json!(0), "a", "finish", "")])], &[("a", "finish", json!({}))]);
    }

    #[test]
    fn answer_is_complete_after_finish_reason() {
        let mut calls = ToolCallParser::default();
        for frame in ["", "[DONE]", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"delta":{},"finish_reason":null}]}"#] {
            calls.parse_frame(frame);
            assert!(!calls.is_complete(), "{frame}");
        }
        calls.parse_frame(r#"{"choices":[{"finish_reason":"stop"}]}"#);
        assert!(calls.is_complete());
    }
}
