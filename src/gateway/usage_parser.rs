//! The little of an event, or of an answer in one piece, that the meter reads. Pure.
//!
//! What is skipped costs no memory, however many values it has: an answer with the odds of each token has hundreds for each of
//! them. Of what is read, a value of another type than the formats name is skipped, too, as so many servers speak them.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// An event of any route, or an answer in one piece. Of what an object names twice, the last counts.
#[derive(Debug, Default)]
pub(super) struct ProviderEvent {
    /// `type`
    pub(super) kind: Option<String>,
    code: Option<String>,
    /// What it says of an answer by itself.
    pub(super) fields: ResponseFields,
    /// An answer, with which Anthropic's streams begin; or the text of an error.
    pub(super) message: ResponseFields,
    /// The answer of which an event of OpenAI's responses speaks.
    pub(super) response: ResponseFields,
    pub(super) delta: StreamedBytes,
    pub(super) choices: ChatChoices,
}

#[derive(Debug, Default)]
pub(super) struct ResponseFields {
    pub(super) model: Option<String>,
    pub(super) usage: ReportedUsage,
    pub(super) error: Option<ProviderError>,
    /// All of it, where it is a text.
    text: Option<String>,
}

/// Counts by the names that the formats have for them. Some servers give those of several formats at once, and mean one.
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

/// An error, or an event that is one.
#[derive(Debug, Clone, Default)]
pub(super) struct ProviderError {
    pub(super) kind: Option<String>,
    pub(super) code: Option<String>,
    pub(super) message: Option<String>,
}

/// How many bytes of text, thought and tool input there are in what a delta adds.
#[derive(Debug, Default)]
pub(super) struct StreamedBytes(pub(super) u64);

/// All choices of a chunk together.
#[derive(Debug, Default)]
pub(super) struct ChatChoices {
    pub(super) delta: StreamedBytes,
    pub(super) finish_reason: Option<String>,
}

impl ProviderEvent {
    /// `None` if it is no JSON.
    pub(super) fn read(json: &[u8]) -> Option<ProviderEvent> {
        let mut outline = ProviderEvent::default();
        let mut json = serde_json::Deserializer::from_slice(json);
        ParseTargetSeed(&mut outline).deserialize(&mut json).ok()?;
        json.end().ok()?;
        Some(outline)
    }

    /// The event, where it is an error itself.
    pub(super) fn as_error(&self) -> ProviderError {
        ProviderError { kind: self.kind.clone(), code: self.code.clone(), message: self.message.text.clone() }
    }
}

/// What a value of the JSON is read into. What it does not take is skipped.
trait ParseTarget {
    fn set_text(&mut self, _: &str) {}

    fn set_count(&mut self, _: u64) {}

    /// It is an object, be it an empty one.
    fn begin_object(&mut self) {}

    /// What takes the value of this name.
    fn field(&mut self, _: &str) -> Option<&mut dyn ParseTarget> {
        None
    }

    /// What takes each value of a list, one after the other.
    fn list_item(&mut self) -> Option<&mut dyn ParseTarget> {
        None
    }
}

impl ParseTarget for ProviderEvent {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let part: &mut dyn ParseTarget = match name {
            "type" => &mut self.kind,
            "code" => &mut self.code,
            "message" => &mut self.message,
            "response" => &mut self.response,
            "delta" => &mut self.delta,
            "choices" => &mut self.choices,
            _ => return self.fields.field(name),
        };
        Some(part)
    }
}

impl ParseTarget for ResponseFields {
    fn set_text(&mut self, text: &str) {
        self.text = Some(text.to_owned());
    }

    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let part: &mut dyn ParseTarget = match name {
            "model" => &mut self.model,
            "usage" => &mut self.usage,
            "error" => &mut self.error,
            _ => return None,
        };
        Some(part)
    }
}

impl ParseTarget for ReportedUsage {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let part: &mut dyn ParseTarget = match name {
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
        Some(part)
    }
}

impl ParseTarget for InputTokenDetails {
    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        if name == "cached_tokens" { Some(&mut self.cached_tokens) } else { None }
    }
}

/// An error is an object or a text; `null` is none.
impl ParseTarget for Option<ProviderError> {
    fn begin_object(&mut self) {
        self.get_or_insert_default();
    }

    fn set_text(&mut self, text: &str) {
        *self = Some(ProviderError { message: Some(text.to_owned()), ..ProviderError::default() });
    }

    fn field(&mut self, name: &str) -> Option<&mut dyn ParseTarget> {
        let fault = self.get_or_insert_default();
        let part: &mut dyn ParseTarget = match name {
            "type" => &mut fault.kind,
            "code" => &mut fault.code,
            "message" => &mut fault.message,
            _ => return None,
        };
        Some(part)
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
        let part: &mut dyn ParseTarget = match name {
            "delta" => &mut self.delta,
            "finish_reason" => &mut self.finish_reason,
            _ => return None,
        };
        Some(part)
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

/// Reads one value into its part.
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
        let Some(part) = self.0.list_item() else {
            IgnoredAny.visit_seq(list)?;
            return Ok(());
        };
        while list.next_element_seed(ParseTargetSeed(&mut *part))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.begin_object();
        while let Some(part) = object.next_key_seed(FieldNameSeed(&mut *self.0))? {
            match part {
                Some(part) => object.next_value_seed(ParseTargetSeed(part))?,
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// Reads a name, and finds what takes its value.
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
        ProviderEvent::read(json.as_bytes()).expect("it is JSON")
    }

    #[test]
    fn what_is_of_another_type_is_as_if_it_were_not_there() {
        for wrong in ["null", "true", "-1", "1.5", "[]", "[7,{}]", r#"{"x":[{"type":"y"}]}"#] {
            let names = ["type", "code", "model", "usage", "message", "response", "delta", "choices"];
            for name in names {
                let outline = read(&format!(r#"{{"{name}":{wrong},"error":{{"message":"m"}}}}"#));
                assert_eq!((&outline.kind, &outline.fields.model), (&None, &None), "{name}: {wrong}");
                assert_eq!((outline.delta.0, outline.fields.usage.input_tokens), (0, None), "{name}: {wrong}");
                let error = outline.fields.error.expect("there is one beside it");
                assert_eq!(error.message.as_deref(), Some("m"), "{name}: {wrong}");
            }
            read(wrong);
        }
        assert_eq!(read(r#"{"usage":{"output_tokens":2.0}}"#).fields.usage.output_tokens, None);
        assert!(read(r#"{"error":{}}"#).fields.error.is_some() && read(r#"{"error":null}"#).fields.error.is_none());
    }

    #[test]
    fn what_is_no_json_is_not_read() {
        for wrong in ["", "{", "{half", r#"{"type":"a"} {}"#, r#"{"skipped":[1,2}"#, r#"{"type":"a",}"#, "<html>"] {
            assert!(ProviderEvent::read(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    #[test]
    fn all_that_was_said_is_counted_and_nothing_beside_it() {
        let check = |json: &str, expected: u64| {
            let outline = read(json);
            assert_eq!(outline.delta.0 + outline.choices.delta.0, expected, "{json}");
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
    fn what_is_skipped_may_be_as_deep_as_it_is_long() {
        let deep = format!(r#"{{"odds":{}{},"model":"m"}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(read(&deep).fields.model.as_deref(), Some("m"));
    }
}
