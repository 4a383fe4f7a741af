//! The tool calls of an answer in OpenAI's format, put together from its frames. The crate that speaks the format takes it that
//! calls are numbered from 0 and without a gap; services that imitate it number them otherwise, or not at all.

use serde::Deserialize;
use serde_json::Value;

use super::conversation::ToolCallRequest;

/// What the frames so far say.
#[derive(Debug, Default)]
pub(super) struct ToolCallParser {
    calls: Vec<ParsedToolCall>,
    /// What was heard of which call and has not been asked for yet.
    deltas: Vec<ToolCallDelta>,
    is_complete: bool,
}

/// A further piece of a call's arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ToolCallDelta {
    /// Which call of the answer it is, from 0.
    pub call: usize,
    /// The model's own id; may be empty.
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
        // What is no such frame, the crate itself complains of.
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
            // Some say them as they mean them.
            Some(arguments) => arguments.to_string(),
        };
        let last = self.calls.len().saturating_sub(1);
        let goes_on = |(at, call): (usize, &ParsedToolCall)| match &index {
            Some(_) => call.index == index && (id.is_empty() || call.id.is_empty() || id == call.id),
            None if id.is_empty() => at == last && (name.is_empty() || call.name.is_empty()),
            None => id == call.id,
        };
        let known = (0..self.calls.len()).rev().find(|at| goes_on((*at, &self.calls[*at])));
        let at = known.unwrap_or_else(|| {
            self.calls.push(ParsedToolCall { index, id: String::new(), name: String::new(), arguments: String::new() });
            self.calls.len() - 1
        });
        let call = &mut self.calls[at];
        for (field, said) in [(&mut call.id, id), (&mut call.name, name)] {
            if field.is_empty() {
                *field = said;
            }
        }
        call.arguments.push_str(&arguments);
        self.deltas.push(ToolCallDelta { call: at, id: call.id.clone(), arguments });
    }

    pub(super) fn take_deltas(&mut self) -> Vec<ToolCallDelta> {
        std::mem::take(&mut self.deltas)
    }

    /// Whether the model has said why it ends. Then nothing is missing, even if the service hangs up without a word.
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

    /// What comes of frames with these `tool_calls` each: id, name and arguments of each call.
    fn check(frames: &[Value], expected: &[(&str, &str, Value)]) {
        let mut calls = ToolCallParser::default();
        for frame in frames {
            calls.parse_frame(&json!({ "choices": [{ "index": 0, "delta": { "tool_calls": frame } }] }).to_string());
        }
        let mut told = vec![String::new(); expected.len()];
        calls.take_deltas().into_iter().for_each(|fresh| told[fresh.call].push_str(&fresh.arguments));
        let found = calls.take();
        let expected = expected.iter().map(|(id, name, arguments)| ToolCallRequest {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            arguments: arguments.clone(),
        });
        assert_eq!(found, expected.collect::<Vec<_>>(), "{frames:?}");
        for (call, told) in found.iter().zip(told) {
            let told = if told.is_empty() { "{}".to_owned() } else { told };
            assert!(serde_json::from_str(&told).unwrap_or(Value::String(told)) == call.arguments);
        }
    }

    fn part(index: Value, id: &str, name: &str, arguments: &str) -> Value {
        json!({ "index": index, "id": id, "function": { "name": name, "arguments": arguments } })
    }

    #[test]
    fn pieces_of_two_calls_find_their_call() {
        let begun = json!([part(json!(0), "a", "run", ""), part(json!(1), "b", "read", r#"{"pa"#)]);
        let more = json!([{ "index": 1, "function": { "arguments": r#"th":1}"# } }]);
        let rest = json!([{ "index": 0, "function": { "arguments": "{}" } }]);
        check(&[begun, more, rest], &[("a", "run", json!({})), ("b", "read", json!({ "path": 1 }))]);
    }

    #[test]
    fn a_call_is_one_call_whatever_its_number() {
        for index in [json!(1), json!(300), json!(4_000_000_000_u64), json!("0"), Value::Null] {
            check(&[json!([part(index, "a", "run", "{}")])], &[("a", "run", json!({}))]);
        }
    }

    #[test]
    fn calls_that_share_a_number_or_have_none_are_several() {
        for index in [json!(0), Value::Null] {
            let both = json!([part(index.clone(), "a", "run", "{}"), part(index, "b", "run", "{}")]);
            check(&[both], &[("a", "run", json!({})), ("b", "run", json!({}))]);
        }
        let nameless = |n: i32| json!([{ "function": { "name": "run", "arguments": { "n": n } } }]);
        check(&[nameless(1), nameless(2)], &[("", "run", json!({ "n": 1 })), ("", "run", json!({ "n": 2 }))]);
    }

    #[test]
    fn two_calls_of_one_id_are_two() {
        let both = json!([part(json!(0), "a", "run", "{}"), part(json!(1), "a", "run", "[1]")]);
        check(&[both], &[("a", "run", json!({})), ("a", "run", json!([1]))]);
    }

    #[test]
    fn arguments_that_are_no_json_are_kept_as_they_are() {
        check(&[json!([part(json!(0), "a", "run", "{nope")])], &[("a", "run", json!("{nope"))]);
        check(&[json!([part(json!(0), "a", "finish", "")])], &[("a", "finish", json!({}))]);
    }

    #[test]
    fn an_answer_is_whole_when_the_model_has_said_why_it_ends() {
        let mut calls = ToolCallParser::default();
        for frame in ["", "[DONE]", "{}", r#"{"choices":[]}"#, r#"{"choices":[{"delta":{},"finish_reason":null}]}"#] {
            calls.parse_frame(frame);
            assert!(!calls.is_complete(), "{frame}");
        }
        calls.parse_frame(r#"{"choices":[{"finish_reason":"stop"}]}"#);
        assert!(calls.is_complete());
    }
}
