//! Usage parser: reads the few fields of an event, or of a response in one piece, that the meter
//! needs. Pure.
//!
//! Skipped values cost no memory, however many there are: a response with token probabilities has
//! hundreds per token. A value of an unexpected type is skipped too, because many servers speak
//! these formats.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Event of any route, or a response in one piece. If an object has a key twice, the last value
/// counts.
#[derive(Debug, Default)]
pub(super) struct ProviderEvent {
    /// Value of `type`.
    pub(super) kind: Option<String>,
    code: Option<String>,
    /// Fields of the event itself.
    pub(super) fields: ResponseFields,
    /// Response that starts an Anthropic stream, or the text of an error.
    pub(super) message: ResponseFields,
    /// Response inside an event of OpenAI Responses.
    pub(super) response: ResponseFields,
    pub(super) delta: StreamedBytes,
    pub(super) choices: ChatChoices,
}

#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    pub(super) model: Option<String>,
    pub(super) usage: ReportedUsage,
    pub(super) error: Option<ProviderError>,
    /// Value itself, if it is a string.
    text: Option<String>,
}

/// Token counts under the names of all formats. Some servers report the names of several formats at
/// once for the same usage.
#[derive(Debug, Default)]
pub(super) struct ReportedUsage {
    pub(super) input_tokens: Option<u64>,
    pub(super) output_tokens: Option<u64>,
    pub(super) cache_read_input_tokens: Option<u64>,
    pub(super) cache_creation_input_tokens: Option<u64>,
    pub(super) prompt_tokens: Option<u64>,
    pub(super) completion_tokens: Option<u64>,
    pub(super) input_tokens_details: InputTokenDetails,
    pub(super) prompt_tokens_details: InputTokenDetails,
}

#[derive(Debug, Default)]
pub(super) struct InputTokenDetails {
    pub(super) cached_tokens: Option<u64>,
}

/// Error object, or an event that is an error.
#[derive(Debug, Clone, Default)]
pub(super) struct ProviderError {
    pub(super) kind: Option<String>,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
}

/// Bytes of text, thinking and tool input that a delta adds.
#[derive(Debug, Default)]
pub(super) struct StreamedBytes(pub(super) u64);

/// Sum of all choices of a chunk.
#[derive(Debug, Default)]
pub(super) struct ChatChoices {
    pub(super) delta: StreamedBytes,
    pub(super) finish_reason: Option<String>,
}

impl ProviderEvent {
    /// Parses an event. `None` if `json` is no JSON.
    pub(super) fn read(json: &[u8]) -> Option<ProviderEvent> {
        let mut event = ProviderEvent::default();
        let mut json = serde_json::Deserializer::from_slice(json);
        ParseTargetSeed(&mut event).deserialize(&mut json).ok()?;
        json.end().ok()?;
        Some(event)
    }

    /// Returns the event as an error. For an event that is an error itself.
    pub(super) fn as_error(&self) -> ProviderError {
        ProviderError { kind: self.kind.clone(), code: self.code.clone(), message: self.message.text.clone() }
    }
}

/// Destination of a JSON value. Values that it does not accept are skipped.
trait ParseTarget {
    fn set_text(&mut self, _: &str) {}

    fn set_count(&mut self, _: u64) {}

    /// Called for each object, also for an empty one.
    fn begin_object(&mut self) {}

    /// Returns the destination of the field `name`.
    fn field(&mut self, _: &str) -> Option<&mut dyn ParseTarget> {
        None
    }

    /// Returns the destination of the values of a list, one after the other.
    fn list_item(&mut self) -> Option<&mut dyn ParseTarget> {
        None
    }
}

impl ParseTarget for ProviderEvent {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let target: &mut dyn ParseTarget = match name {
            "type" => &mut self.kind,
            "code" => &mut self.code,
            "message" => &mut self.message,
            "response" => &mut self.response,
            "delta" => &mut self.delta,
            "choices" => &mut self.choices,
            _ => return self.fields.field(name),
        };
        Some(target)
    }
}

impl ParseTarget for ResponseFields {
    fn set_text(&mut self, text: &str) {
        self.text = Some(text.to_owned());
    }

    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let target: &mut dyn ParseTarget = match name {
            "model" => &mut self.model,
            "usage" => &mut self.usage,
            "error" => &mut self.error,
            _ => return None,
        };
        Some(target)
    }
}

impl ParseTarget for ReportedUsage {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let target: &mut dyn ParseTarget = match name {
            "input_tokens" => &mut self.input_tokens,
            "output_tokens" => &mut self.output_tokens,
            "cache_read_input_tokens" => &mut self.cache_read_input_tokens,
            "cache_creation_input_tokens" => &mut self.cache_creation_input_tokens,
            "prompt_tokens" => &mut self.prompt_tokens,
            "completion_tokens" => &mut self.completion_tokens,
            "input_tokens_details" => &mut self.input_tokens_details,
            "prompt_tokens_details" => &mut self.prompt_tokens_details,
            _ => return None,
        };
        Some(target)
    }
}

impl ParseTarget for InputTokenDetails {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        if name == "cached_tokens" { Some(&mut self.cached_tokens) } else { None }
    }
}

/// Error field: an object or a string. `null` is no error.
impl ParseTarget for Option<ProviderError> {
    fn begin_object(&mut self) {
        self.get_or_insert_default();
    }

    fn set_text(&mut self, text: &str) {
        *self = Some(ProviderError { message: Some(text.to_owned()), ..ProviderError::default() });
    }

    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let error = self.get_or_insert_default();
        let target: &mut dyn ParseTarget = match name {
            "type" => &mut error.kind,
            "code" => &mut error.code,
            "message" => &mut error.message,
            _ => return None,
        };
        Some(target)
    }
}

impl ParseTarget for StreamedBytes {
    fn set_text(&mut self, text: &str) {
        self.0 += text.len() as u64;
    }

    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        match name {
            "text" | "thinking" | "partial_json" | "content" | "reasoning_content" | "reasoning" | "refusal"
            | "tool_calls" | "function" | "arguments" => Some(self),
            _ => None,
        }
    }

    fn list_item(&mut self) -> Option<&mut dyn ParseTarget> {
        Some(self)
    }
}

impl ParseTarget for ChatChoices {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let target: &mut dyn ParseTarget = match name {
            "delta" => &mut self.delta,
            "finish_reason" => &mut self.finish_reason,
            _ => return None,
        };
        Some(target)
    }

    fn list_item(&mut self) -> Option<&mut dyn ParseTarget> {
        Some(self)
    }
}

impl ParseTarget for Option<String> {
    fn set_text(&mut self, text: &str) {
        *self = Some(text.to_owned());
    }
}

impl ParseTarget for Option<u64> {
    fn set_count(&mut self, count: u64) {
        *self = Some(count);
    }
}

/// Reads one value into its destination.
struct ParseTargetSeed<'a>(&'a mut dyn ParseTarget);

impl<'de> DeserializeSeed<'de> for ParseTargetSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ParseTargetSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, count: u64) -> Result<(), E> {
        self.0.set_count(count);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.set_text(text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some(target) = self.0.list_item() else {
            IgnoredAny.visit_seq(list)?;
            return Ok(());
        };
        while list.next_element_seed(ParseTargetSeed(&mut *target))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.begin_object();
        while let Some(target) = object.next_key_seed(FieldNameSeed(&mut *self.0))? {
            match target {
                Some(target) => object.next_value_seed(ParseTargetSeed(target))?,
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a field name and returns the destination of its value.
struct FieldNameSeed<'a>(&'a mut dyn ParseTarget);

impl<'de, 'a> DeserializeSeed<'de> for FieldNameSeed<'a> {
    type Value = Option<&'a mut dyn ParseTarget>;

    fn deserialize<D: Deserializer<'de>>(self, name: D) -> Result<Self::Value, D::Error> {
        name.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for FieldNameSeed<'a> {
    type Value = Option<&'a mut dyn ParseTarget>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.field(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> ProviderEvent {
        ProviderEvent::read(json.as_bytes()).expect("the text is JSON")
    }

    #[test]
    fn values_of_another_type_are_skipped() {
        for json in ["null", "true", "-1", "1.5", "[]", "[7,{}]", r#"{"x":[{"type":"y"}]}"#] {
            let names = ["type", "code", "model", "usage", "message", "response", "delta", "choices"];
            for name in names {
                let event = read(&format!(r#"{{"{name}":{json},"error":{{"message":"m"}}}}"#));
                assert_eq!((&event.kind, &event.fields.model), (&None, &None), "{name}: {json}");
                assert_eq!((event.delta.0, event.fields.usage.input_tokens), (0, None), "{name}: {json}");
                let error = event.fields.error.expect("the error field is valid");
                assert_eq!(error.message.as_deref(), Some("m"), "{name}: {json}");
            }
            read(json);
        }
        assert_eq!(read(r#"{"usage":{"output_tokens":2.0}}"#).fields.usage.output_tokens, None);
        assert!(read(r#"{"error":{}}"#).fields.error.is_some() && read(r#"{"error":null}"#).fields.error.is_none());
    }

    #[test]
    fn invalid_json_is_not_read() {
        for json in ["", "{", "{half", r#"{"type":"a"} {}"#, r#"{"skipped":[1,2}"#, r#"{"type":"a",}"#, "<html>"] {
            assert!(ProviderEvent::read(json.as_bytes()).is_none(), "{json}");
        }
    }

    #[test]
    fn streamed_text_is_counted_and_nothing_else() {
        let check = |json: &str, expected: u64| {
            let event = read(json);
            assert_eq!(event.delta.0 + event.choices.delta.0, expected, "{json}");
        };
        check(r#"{"delta":"12345"}"#, 5);
        check(r#"{"delta":{"type":"text_delta","text":"123"}}"#, 3);
        check(r#"{"choices":[{"delta":{"role":"assistant","content":"12"}},{"delta":{"content":"3"}}]}"#, 3);
        check(r#"{"choices":[{"delta":{"content":[{"type":"text","text":"12"}]}}]}"#, 2);
        let calls = r#"[{"id":"c","function":{"name":"run","arguments":"{}"}},{"function":{"arguments":"1"}}]"#;
        check(&format!(r#"{{"choices":[{{"delta":{{"content":null,"tool_calls":{calls}}}}}]}}"#), 3);
        check(r#"{"choices":[{"delta":{},"logprobs":{"content":[{"token":"1"}]}}],"content":"12"}"#, 0);
    }

    #[test]
    fn skipped_values_may_be_deeply_nested() {
        let deep = format!(r#"{{"logprobs":{}{},"model":"m"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&deep).fields.model.as_deref(), Some("m"));
    }
}
