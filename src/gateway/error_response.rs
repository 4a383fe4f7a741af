//! Error responses of the endpoint: in the provider's format for the agent, in words for the user.
//! Pure.

use std::borrow::Cow;

use bytes::Bytes;
use greenroom_protocol::link::ProviderApi;
use greenroom_provider::ProviderError;
use hyper::StatusCode;
use serde_json::{Value, json};

use super::{ModelCallDenied, catalog::key_variable, route::GatewayRoute};

/// Error kind of an interrupted call. Not a failure: an agent that supports this kind expects the
/// stop command that follows.
const INTERRUPTED: &str = "interrupted";

/// Error response that the gateway itself makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EndpointError {
    pub(super) status: StatusCode,
    /// Error kind, by the provider's name for it.
    pub(super) kind: Cow<'static, str>,
    pub(super) message: String,
}

impl EndpointError {
    pub(super) fn new(
        status: StatusCode,
        kind: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> EndpointError {
        EndpointError { status, kind: kind.into(), message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> EndpointError {
        EndpointError::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// Response for an interrupted call. 403 instead of 408 or 503, because agents must not retry
    /// in an interrupted turn.
    pub(super) fn interrupted() -> EndpointError {
        EndpointError::new(StatusCode::FORBIDDEN, INTERRUPTED, "the session interrupted this call")
    }

    pub(super) fn forbidden(reason: ModelCallDenied) -> EndpointError {
        let (kind, message) = match reason {
            ModelCallDenied::Interrupted => (INTERRUPTED, "the turn is being interrupted".to_owned()),
            ModelCallDenied::Reason(text) | ModelCallDenied::BudgetSpent(text) => ("billing_error", text),
            ModelCallDenied::NothingRuns => {
                let text = "neither a turn nor a user action runs in this session, so its processes may not call models; \
                            send a message, or set `gateway.only_while_working` to `false`";
                return EndpointError::new(StatusCode::FORBIDDEN, "permission_error", text);
            }
        };
        EndpointError::new(StatusCode::PAYMENT_REQUIRED, kind, message)
    }

    pub(super) fn body(&self, api: ProviderApi) -> Bytes {
        error_json(api, self.status, &self.kind, &self.message).to_string().into()
    }

    /// Returns the error as a stream event, for a stream that broke after a complete line. The
    /// leading empty line ends an unfinished event.
    pub(super) fn event(&self, route: GatewayRoute) -> Bytes {
        let api = route.api();
        let (name, data) = match route {
            GatewayRoute::Responses => {
                let data = json!({"type": "error", "code": self.kind, "message": self.message, "param": null});
                ("event: error\n", data)
            }
            _ => match api {
                ProviderApi::Anthropic => ("event: error\n", error_json(api, self.status, &self.kind, &self.message)),
                ProviderApi::Openai | ProviderApi::Gemini => {
                    ("", error_json(api, self.status, &self.kind, &self.message))
                }
            },
        };
        format!("\n{name}data: {data}\n\n").into()
    }
}

fn error_json(api: ProviderApi, status: StatusCode, kind: &str, message: &str) -> Value {
    match api {
        ProviderApi::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
        ProviderApi::Openai => json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}),
        ProviderApi::Gemini => {
            let (code, status) = google_status(status, kind);
            json!({"error": {"code": code, "message": message, "status": status}})
        }
    }
}

/// Returns Google's code and status of an error (`google.rpc.Code`).
fn google_status(status: StatusCode, kind: &str) -> (u16, &'static str) {
    match status.as_u16() {
        code if kind == INTERRUPTED => (code, "CANCELLED"),
        code @ (400 | 413) => (code, "INVALID_ARGUMENT"),
        401 => (401, "UNAUTHENTICATED"),
        402 => (402, "FAILED_PRECONDITION"),
        403 => (403, "PERMISSION_DENIED"),
        404 => (404, "NOT_FOUND"),
        429 => (429, "RESOURCE_EXHAUSTED"),
        504 => (504, "DEADLINE_EXCEEDED"),
        503 | 529 => (503, "UNAVAILABLE"),
        code => (code, "INTERNAL"),
    }
}

/// Describes a final rejection by a provider, for the user.
pub(super) fn describe_rejection(api: ProviderApi, model: &str, error: &ProviderError) -> String {
    let (provider, status, message) = (provider_name(api), error.status, shortened(&error.message));
    match status {
        401 => format!("{provider} rejected the key (401): check `{}` or `LLM_API_KEY`", key_variable(api)),
        402 => format!("{provider} requires payment (402): {message}"),
        403 => format!("{provider} does not allow this key to use `{model}` (403): {message}"),
        404 => format!("{provider} does not serve `{model}` (404): {message}; check the model and the base URL"),
        413 => format!("the conversation is too large for {provider} (413): {message}"),
        429 => format!("{provider} limits the requests of this key (429): {message}"),
        503 | 529 => format!("{provider} is overloaded ({status}): {message}"),
        500..=599 => format!("{provider} failed ({status}): {message}"),
        _ => format!("{provider} rejected the request ({status}): {message}"),
    }
}

pub(super) fn provider_name(api: ProviderApi) -> &'static str {
    match api {
        ProviderApi::Anthropic => "Anthropic",
        ProviderApi::Openai => "OpenAI",
        ProviderApi::Gemini => "Google",
    }
}

/// Returns the error kind of a status. Both providers share these kinds.
pub(super) fn kind_of_status(status: u16) -> &'static str {
    match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}

/// Shortens a provider's words to a length that a notice can show.
fn shortened(message: &str) -> Cow<'_, str> {
    const MAX_CHARS: usize = 300;
    match message.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => Cow::Owned(format!("{}…", &message[..end])),
        None => Cow::Borrowed(message),
    }
}

/// Applies [`scrub`] to a string.
pub(super) fn scrubbed(text: &str, key: Option<&str>) -> String {
    let clean = scrub(Bytes::copy_from_slice(text.as_bytes()), key);
    String::from_utf8_lossy(&clean).into_owned()
}

/// Removes `key` from a provider's error, and any word that shows a masked part of a key (OpenAI
/// quotes a wrong key this way).
pub(super) fn scrub(body: Bytes, key: Option<&str>) -> Bytes {
    let shows_key = key.is_some_and(|key| !key.is_empty() && contains(&body, key.as_bytes()));
    if !shows_key && !contains(&body, b"***") {
        return body;
    }
    let text = String::from_utf8_lossy(&body);
    let text = key.filter(|key| !key.is_empty()).map_or(text.to_string(), |key| text.replace(key, "[redacted]"));
    let is_boundary = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '\\');
    let words = text.split_inclusive(is_boundary).map(|word| match word.find("***") {
        Some(_) => format!(
            "[redacted]{}",
            word.chars().next_back().filter(|c| is_boundary(*c)).map_or(String::new(), Into::into)
        ),
        None => word.to_owned(),
    });
    words.collect::<String>().into()
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_are_described() {
        fn check(status: u16, body: &str, expected: &str) {
            let error = ProviderError::of_response(status, |_| None, body.as_bytes());
            assert_eq!(describe_rejection(ProviderApi::Anthropic, "claude-x", &error), expected);
        }
        check(401, "{}", "Anthropic rejected the key (401): check `ANTHROPIC_API_KEY` or `LLM_API_KEY`");
        check(400, r#"{"error":{"message":"bad role"}}"#, "Anthropic rejected the request (400): bad role");
        check(400, r#"{"error":"bad role"}"#, "Anthropic rejected the request (400): bad role");
        check(404, "", "Anthropic does not serve `claude-x` (404): no reason given; check the model and the base URL");
        check(529, "", "Anthropic is overloaded (529): no reason given");
        check(502, "<h1>Bad gateway</h1>\n", "Anthropic failed (502): Bad gateway");
        let long = ProviderError::of_response(400, |_| None, "ä".repeat(1000).as_bytes());
        let long = describe_rejection(ProviderApi::Openai, "m", &long);
        assert!(long.ends_with("ä…") && long.chars().count() < 350);
    }

    #[test]
    fn errors_have_the_provider_format() {
        let error = EndpointError::new(StatusCode::PAYMENT_REQUIRED, "billing_error", "the budget is spent");
        assert_eq!(
            error.body(ProviderApi::Anthropic),
            r#"{"type":"error","error":{"type":"billing_error","message":"the budget is spent"}}"#
        );
        assert_eq!(
            error.body(ProviderApi::Gemini),
            r#"{"error":{"code":402,"message":"the budget is spent","status":"FAILED_PRECONDITION"}}"#
        );
        assert_eq!(
            error.event(GatewayRoute::Chat),
            "\ndata: {\"error\":{\"message\":\"the budget is spent\",\"type\":\"billing_error\",\"param\":null,\"code\":\"billing_error\"}}\n\n"
        );
        assert!(error.event(GatewayRoute::Messages).starts_with(b"\nevent: error\ndata: {\"type\":\"error\""));
        assert!(
            error.event(GatewayRoute::Responses).starts_with(b"\nevent: error\ndata: {\"type\":\"error\",\"code\"")
        );
    }

    #[test]
    fn key_is_removed_from_an_error() {
        fn check(body: &'static str, expected: &str) {
            assert_eq!(scrub(Bytes::from_static(body.as_bytes()), Some("sk-canary")), expected);
        }
        check(r#"{"message":"bad key: sk-canary."}"#, r#"{"message":"bad key: [redacted]."}"#);
        check(r#"{"message":"key sk-ca***ry. See"}"#, r#"{"message":"key [redacted] See"}"#);
        check(r#"{"message":"a ** b"}"#, r#"{"message":"a ** b"}"#);
    }
}
