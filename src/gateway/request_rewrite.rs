//! The little of a request's body that the gateway reads, and the little that it changes: every other byte passes as it is.

use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{external_refs, route::GatewayRoute};

/// A request's body, read.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProxiedRequest {
    pub(super) model: String,
    pub(super) streaming: bool,
    /// The model reads more than `body`: that points at what the provider keeps.
    pub(super) has_external_refs: bool,
    pub(super) body: Bytes,
    /// Where in `body` the model's name stands, quotes included.
    model_range: Range<usize>,
}

#[derive(Deserialize)]
struct ProxiedRequestHead<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
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

/// `null` too is a value that stands somewhere, and may have to be replaced.
fn as_it_stands<'de: 'a, 'a, D: Deserializer<'de>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(value).map(Some)
}

impl ProxiedRequest {
    /// The error is for the person who wrote the client.
    pub(super) fn read(route: GatewayRoute, body: Bytes) -> Result<ProxiedRequest, String> {
        let head: ProxiedRequestHead = serde_json::from_slice(&body)
            .map_err(|e| format!("the body is no JSON object with a `model` and a boolean `stream`: {e}"))?;
        let model: String = serde_json::from_str(head.model.get()).map_err(|e| format!("`model` is no string: {e}"))?;
        let model_at = range_of(&body, head.model);
        // It would be worked on when the call is over, and nobody would hear what it took.
        if route == GatewayRoute::Responses && head.background == Some(true) {
            return Err("`background` is true, and what works on by itself cannot be metered; leave it out".to_owned());
        }
        let kept = [head.previous_response_id, head.conversation, head.prompt];
        let input = head.input.is_some_and(|input| external_refs::contains_external_refs(input.get()));
        let points_at_more = route == GatewayRoute::Responses && (kept.iter().any(Option::is_some) || input);
        let streaming = head.stream.unwrap_or(false);
        let change = match route {
            GatewayRoute::Chat if streaming => require_usage_option(&body, head.stream_options),
            _ => None,
        };
        let mut envelope = ProxiedRequest {
            model,
            streaming,
            has_external_refs: points_at_more,
            model_range: model_at,
            body: body.clone(),
        };
        if let Some((at, text)) = change {
            envelope.splice(at, text.as_bytes());
        }
        Ok(envelope)
    }

    /// Names another model.
    pub(super) fn set_model(&mut self, model: &str) {
        if self.model != model {
            let quoted = serde_json::Value::from(model).to_string();
            self.splice(self.model_range.clone(), quoted.as_bytes());
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

/// OpenAI's chat tells what a stream took only when asked. A client that asks not to be told is overruled: what is not
/// metered could be spent without limit.
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

/// Where `value`, which was read out of `body` without a copy, stands in it.
fn range_of(body: &[u8], value: &RawValue) -> Range<usize> {
    let start = value.get().as_ptr() as usize - body.as_ptr() as usize;
    start..start + value.get().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(route: GatewayRoute, body: &str, expected: &str) {
        let envelope = ProxiedRequest::read(route, Bytes::copy_from_slice(body.as_bytes())).expect("it is read");
        assert_eq!(String::from_utf8_lossy(&envelope.body), expected);
        assert_eq!(&envelope.body[envelope.model_range.clone()], br#""m""#);
    }

    #[test]
    fn usage_is_asked_for_and_nothing_else_changes() {
        const ASKED: &str = r#"{ "stream_options":{"include_usage":true}, "model" : "m","stream":true,"x":1.0e3 }"#;
        check(GatewayRoute::Chat, ASKED, ASKED);
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
    fn a_model_is_renamed_where_it_stands() {
        let body = Bytes::from_static(br#"{"stream":true,"model": "openai/gpt\u002d5","n":1}"#);
        let mut envelope = ProxiedRequest::read(GatewayRoute::Chat, body).expect("it is read");
        assert_eq!(envelope.model, "openai/gpt-5");
        envelope.set_model("gpt-5");
        assert_eq!(
            &envelope.body[..],
            br#"{"stream_options":{"include_usage":true},"stream":true,"model": "gpt-5","n":1}"#
        );
    }

    #[test]
    fn what_a_provider_keeps_is_more_than_the_body() {
        fn check(route: GatewayRoute, more: &str, expected: bool) {
            let body = format!(r#"{{"model":"m",{more}}}"#);
            let envelope = ProxiedRequest::read(route, body.into()).expect("it is read");
            assert_eq!(envelope.has_external_refs, expected, "{more}");
        }
        check(GatewayRoute::Responses, r#""previous_response_id":"r""#, true);
        check(GatewayRoute::Responses, r#""conversation":{"id":"c"}"#, true);
        check(GatewayRoute::Responses, r#""prompt":{"id":"p"}"#, true);
        check(GatewayRoute::Responses, r#""previous_response_id":null,"input":"conversation""#, false);
        // There it is nothing that the provider knows.
        check(GatewayRoute::Chat, r#""prompt":"hello""#, false);
    }

    #[test]
    fn a_wrong_body_says_what_is_wrong() {
        fn check(body: &'static str, part: &str) {
            let wrong =
                ProxiedRequest::read(GatewayRoute::Chat, Bytes::from_static(body.as_bytes())).expect_err("it is wrong");
            assert!(wrong.contains(part), "{wrong}");
        }
        check("{", "no JSON object");
        check("[]", "no JSON object");
        check(r#"{"stream":true}"#, "missing field `model`");
        check(r#"{"model":7}"#, "`model` is no string");
        check(r#"{"model":"m","stream":"yes"}"#, "expected a boolean");
        check(r#"{"model":"m","model":"n"}"#, "duplicate field `model`");
    }
}
