//! Request bodies: the gateway reads a few fields and changes at most two. All other bytes pass
//! unchanged.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{
    external_refs,
    route::{GatewayRoute, RoutedPath},
};

/// Parsed body of a request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProxiedRequest {
    pub(super) model: String,
    pub(super) streaming: bool,
    /// True if the model reads more than `body`: content that the provider stores.
    pub(super) has_external_refs: bool,
    pub(super) body: Bytes,
    /// Range of the model's name in `body`, including quotes. Empty if the path names the model.
    model_range: Range<usize>,
}

#[derive(Deserialize)]
struct ProxiedRequestHead<'a> {
    #[serde(borrow, default)]
    model: Option<&'a RawValue>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    previous_response_id: Option<IgnoredAny>,
    #[serde(default)]
    conversation: Option<IgnoredAny>,
    #[serde(default)]
    prompt: Option<IgnoredAny>,
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    input: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    stream_options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChatStreamOptions<'a> {
    #[serde(borrow, default, deserialize_with = "as_it_stands")]
    include_usage: Option<&'a RawValue>,
}

/// Keeps the raw text of a value. `null` also has a position, and may have to be replaced.
pub(super) fn as_it_stands<'de: 'a, 'a, D: Deserializer<'de>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

impl ProxiedRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// Describes the invalid field, for the author of the client.
    pub(super) fn read(path: &RoutedPath, body: Bytes) -> Result<ProxiedRequest, String> {
        let route = path.route;
        let head: ProxiedRequestHead = serde_json::from_slice(&body)
            .map_err(|e| format!("the body must be a JSON object with a `model` and a boolean `stream`: {e}"))?;
        let (model, model_range) = match (&path.model, head.model) {
            (Some(model), _) => (model.clone(), 0..0),
            (None, None) => return Err("the body must be a JSON object: missing field `model`".to_owned()),
            (None, Some(raw)) => {
                let model = serde_json::from_str(raw.get()).map_err(|e| format!("`model` must be a string: {e}"))?;
                (model, range_of(&body, raw))
            }
        };
        // Background work would outlast the call, so its usage would not be reported.
        if route == GatewayRoute::Responses && head.background == Some(true) {
            return Err(
                "`background` must not be true, because background work cannot be metered; leave it out".to_owned()
            );
        }
        let references = [head.previous_response_id, head.conversation, head.prompt];
        let input = head.input.is_some_and(|input| external_refs::contains_external_refs(input.get()));
        let may_refer = matches!(route, GatewayRoute::Responses | GatewayRoute::CompactResponses);
        let has_external_refs = may_refer && (references.iter().any(Option::is_some) || input);
        let streaming = match route {
            GatewayRoute::GeminiStream => true,
            GatewayRoute::GeminiGenerate => false,
            _ => head.stream.unwrap_or(false),
        };
        let change = match route {
            GatewayRoute::Chat if streaming => require_usage_option(&body, head.stream_options),
            _ => None,
        };
        let mut request = ProxiedRequest { model, streaming, has_external_refs, model_range, body: body.clone() };
        if let Some((at, text)) = change {
            request.splice(at, text.as_bytes());
        }
        Ok(request)
    }

    /// Replaces the model's name.
    pub(super) fn set_model(&mut self, model: &str) {
        if self.model != model {
            if !self.model_range.is_empty() {
                let quoted = serde_json::Value::from(model).to_string();
                self.splice(self.model_range.clone(), quoted.as_bytes());
            }
            self.model = model.to_owned();
        }
    }

    fn splice(&mut self, at: Range<usize>, with: &[u8]) {
        let body = [&self.body[..at.start], with, &self.body[at.end..]].concat();
        if at.start <= self.model_range.start {
            let start = if at == self.model_range { at.start } else { self.model_range.start + with.len() - at.len() };
            let len = if at == self.model_range { with.len() } else { self.model_range.len() };
            self.model_range = start..start + len;
        }
        self.body = body.into();
    }
}

/// Returns the edit that makes a stream report its usage: the range and its new text.
///
/// OpenAI's chat reports the usage of a stream only on request. The option overrides a client that
/// declines it, because unmetered usage could be spent without limit.
fn require_usage_option(body: &[u8], options: Option<&RawValue>) -> Option<(Range<usize>, &'static str)> {
    let Some(options) = options else {
        let brace = body.iter().position(|byte| *byte == b'{')? + 1;
        return Some((brace..brace, r#""stream_options":{"include_usage":true},"#));
    };
    match serde_json::from_str::<ChatStreamOptions>(options.get()) {
        Ok(ChatStreamOptions { include_usage: Some(value) }) if value.get() == "true" => None,
        Ok(ChatStreamOptions { include_usage: Some(value) }) => Some((range_of(body, value), "true")),
        Ok(ChatStreamOptions { include_usage: None }) if options.get().starts_with('{') => {
            let brace = range_of(body, options).start + 1;
            let is_empty = options.get()[1..].trim_start().starts_with('}');
            let text = if is_empty { r#""include_usage":true"# } else { r#""include_usage":true,"# };
            Some((brace..brace, text))
        }
        Ok(_) | Err(_) => Some((range_of(body, options), r#"{"include_usage":true}"#)),
    }
}

/// Returns the range of `value` in `body`. `value` must borrow from `body`.
pub(super) fn range_of(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
    start..start + value.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::route::path_of;

    fn check(route: GatewayRoute, body: &str, expected: &str) {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let request = ProxiedRequest::read(&path_of(route), body).expect("the body is valid");
        assert_eq!(String::from_utf8_lossy(&request.body), expected);
        assert_eq!(&request.body[request.model_range.clone()], br#""m""#);
    }

    #[test]
    fn usage_option_is_set_and_nothing_else_changes() {
        const WITH_USAGE: &str =
            r#"{ "stream_options":{"include_usage":true}, "model" : "m","stream":true,"x":1.0e3 }"#;
        check(GatewayRoute::Chat, WITH_USAGE, WITH_USAGE);
        check(
            GatewayRoute::Chat,
            r#" { "model" : "m","stream":true,"x":1.0e3 }"#,
            r#" {"stream_options":{"include_usage":true}, "model" : "m","stream":true,"x":1.0e3 }"#,
        );
        check(
            GatewayRoute::Chat,
            r#"{"stream_options":{ "include_usage" : false,"y":2},"model":"m","stream":true}"#,
            r#"{"stream_options":{ "include_usage" : true,"y":2},"model":"m","stream":true}"#,
        );
        check(
            GatewayRoute::Chat,
            r#"{"model":"m","stream":true,"stream_options":{"y":2}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"y":2}}"#,
        );
        check(
            GatewayRoute::Chat,
            r#"{"model":"m","stream":true,"stream_options":{ }}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true }}"#,
        );
        check(
            GatewayRoute::Chat,
            r#"{"model":"m","stream":true,"stream_options":7}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
        );
        check(
            GatewayRoute::Chat,
            r#"{"model":"m","stream":true,"stream_options":null}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
        );
        const WHOLE: &str = r#"{"model":"m","messages":[{"x":[1,{"stream":true}]}]}"#;
        check(GatewayRoute::Chat, WHOLE, WHOLE);
        const MESSAGES: &str = r#"{"stream":true,"model":"m"}"#;
        check(GatewayRoute::Messages, MESSAGES, MESSAGES);
    }

    #[test]
    fn model_is_replaced_in_place() {
        let body = Bytes::from_static(br#"{"stream":true,"model": "openai/gpt\u002d5","n":1}"#);
        let mut request = ProxiedRequest::read(&path_of(GatewayRoute::Chat), body).expect("the body is valid");
        assert_eq!(request.model, "openai/gpt-5");
        request.set_model("gpt-5");
        assert_eq!(
            &request.body[..],
            br#"{"stream_options":{"include_usage":true},"stream":true,"model": "gpt-5","n":1}"#
        );
    }

    #[test]
    fn gemini_has_its_model_in_the_path() {
        let path = path_of(GatewayRoute::GeminiStream);
        let body = Bytes::from_static(br#"{"contents":[]}"#);
        let mut request = ProxiedRequest::read(&path, body.clone()).expect("the body is valid");
        assert_eq!((request.model.as_str(), request.streaming), ("{model}", true));
        request.set_model("other");
        assert_eq!((request.model.as_str(), request.body), ("other", body));
    }

    #[test]
    fn stored_content_counts_as_external_refs() {
        fn check(route: GatewayRoute, fields: &str, expected: bool) {
            let body = format!(r#"{{"model":"m",{fields}}}"#);
            let request = ProxiedRequest::read(&path_of(route), body.into()).expect("the body is valid");
            assert_eq!(request.has_external_refs, expected, "{fields}");
        }
        check(GatewayRoute::Responses, r#""previous_response_id":"r""#, true);
        check(GatewayRoute::Responses, r#""conversation":{"id":"c"}"#, true);
        check(GatewayRoute::Responses, r#""prompt":{"id":"p"}"#, true);
        check(GatewayRoute::Responses, r#""previous_response_id":null,"input":"conversation""#, false);
        // In a chat request, `prompt` refers to nothing that the provider stores.
        check(GatewayRoute::Chat, r#""prompt":"hello""#, false);
    }

    #[test]
    fn invalid_body_is_described() {
        fn check(body: &'static str, part: &str) {
            let error = ProxiedRequest::read(&path_of(GatewayRoute::Chat), Bytes::from_static(body.as_bytes()))
                .expect_err("the body is invalid");
            assert!(error.contains(part), "{error}");
        }
        check("{", "must be a JSON object");
        check("[]", "must be a JSON object");
        check(r#"{"stream":true}"#, "missing field `model`");
        check(r#"{"model":7}"#, "`model` must be a string");
        check(r#"{"model":"m","stream":"yes"}"#, "expected a boolean");
        check(r#"{"model":"m","model":"n"}"#, "duplicate field `model`");
    }
}
