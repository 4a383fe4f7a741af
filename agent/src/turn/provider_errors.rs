//! Maps a provider's error to its effect on the turn. Pure; independent of the provider and the
//! transport.

use serde_json::Value;

use super::model::ModelError;

/// JSON pointers to the kind of an error, besides its message. Under `raw`, a relay keeps the error
/// of the provider behind it.
const KINDS: [&str; 5] = ["/error/type", "/error/code", "/error/metadata/raw", "/type", "/code"];

/// Gateway's type for an error that an interrupt caused.
const INTERRUPTED: &str = "interrupted";

/// Phrases with which providers reject a conversation that is too long, in lower case.
const TOO_LONG: [&str; 10] = [
    "too long",
    "too many tokens",
    "context length",
    "context_length",
    "context limit",
    "context size",
    "context_size",
    "context window",
    "input token count",
    "maximum prompt length",
];

/// Reads an error that a provider sent instead of a stream.
pub(super) fn from_response(status: u16, body: &str) -> ModelError {
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.trim().to_owned()));
    let text = error_text(&body);
    if is_interrupted(&body) {
        return ModelError::Interrupted(text);
    }
    let too_long = match status {
        402 => return ModelError::Budget(text),
        413 => true,
        400 => mentions_length(&body),
        500 => is_context_overflow(&body),
        _ => false,
    };
    if too_long {
        ModelError::TooLong(text)
    } else {
        ModelError::Rejected(format!("the model answered {status}: {text}"))
    }
}

/// Reads an error in the middle of a stream.
pub(super) fn from_stream(body: &Value) -> ModelError {
    let text = error_text(body);
    if is_interrupted(body) {
        ModelError::Interrupted(text)
    } else if is_context_overflow(body) {
        ModelError::TooLong(text)
    } else {
        ModelError::ProviderFailed(text)
    }
}

/// Returns `true` for an error that an interrupt caused. In a stream, the error may come without
/// its wrapper.
fn is_interrupted(body: &Value) -> bool {
    ["/error/type", "/type"].iter().any(|pointer| body.pointer(pointer).and_then(Value::as_str) == Some(INTERRUPTED))
}

fn mentions_length(body: &Value) -> bool {
    let kind = kind(body);
    TOO_LONG.iter().any(|phrase| kind.contains(phrase))
}

/// Recognizes a conversation that is too long in errors other than status 400. llama.cpp reports it
/// with status 500, or within the stream.
///
/// Narrower than [`TOO_LONG`]: other server errors mention tokens and contexts too, and must not
/// shorten the conversation.
fn is_context_overflow(body: &Value) -> bool {
    let kind = kind(body);
    kind.contains("context_length_exceeded")
        || kind.contains("exceed") && (kind.contains("context size") || kind.contains("context_size"))
}

/// Joins all texts that identify an error, in lower case.
fn kind(body: &Value) -> String {
    let kinds = KINDS.iter().filter_map(|pointer| body.pointer(pointer)?.as_str());
    kinds.fold(error_text(body), |all, kind| all + "\n" + kind).to_lowercase()
}

/// Returns the message of a provider's error, without its wrapper.
fn error_text(body: &Value) -> String {
    let message = body.pointer("/error/message").or_else(|| body.get("message")).unwrap_or(body);
    message.as_str().map_or_else(|| body.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn is_too_long(status: u16, body: &str) -> bool {
        matches!(from_response(status, body), ModelError::TooLong(_))
    }

    fn error(message: &str) -> String {
        json!({ "error": { "message": message } }).to_string()
    }

    #[test]
    fn too_long_is_recognized_by_message() {
        for message in [
            "prompt is too long: 213462 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 143291 + 64000 > 200000, decrease input length",
            "This model's maximum context length is 8192 tokens.",
            "Your input exceeds the context window of this model.",
            "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        ] {
            assert!(is_too_long(400, &error(message)) && is_too_long(400, message), "{message}");
        }
        assert!(is_too_long(413, "no"));
        assert!(!is_too_long(400, &error("`max_tokens` must be at most 32768")));
        assert!(!is_too_long(429, &error("too many tokens, please wait")));
    }

    #[test]
    fn too_long_is_recognized_by_type_and_code() {
        for status in [400, 500] {
            for (key, kind) in [("type", "exceed_context_size_error"), ("code", "context_length_exceeded")] {
                let body = json!({ "error": { "message": "no", key: kind } });
                assert!(is_too_long(status, &body.to_string()), "{status} {kind}");
                assert!(matches!(from_stream(&body), ModelError::TooLong(text) if text == "no"), "{kind}");
                assert!(matches!(from_stream(&body["error"]), ModelError::TooLong(_)), "{kind}");
            }
        }
        let relayed =
            json!({ "error": { "message": "Provider returned error", "metadata": { "raw": "prompt is too long" } } });
        assert!(is_too_long(400, &relayed.to_string()));
    }

    #[test]
    fn interrupt_is_recognized_by_type_only() {
        let error = json!({ "message": "no", "type": "interrupted" });
        for body in [json!({ "error": error }), json!({ "type": "error", "error": error })] {
            for status in [402, 403] {
                let answered = from_response(status, &body.to_string());
                assert!(matches!(answered, ModelError::Interrupted(text) if text == "no"), "{status} {body}");
            }
            assert!(matches!(from_stream(&body), ModelError::Interrupted(text) if text == "no"), "{body}");
        }
        assert!(matches!(from_stream(&error), ModelError::Interrupted(_)));
        assert!(matches!(from_response(403, &self::error("interrupted")), ModelError::Rejected(_)));
    }

    #[test]
    fn only_context_size_errors_of_a_server_shorten() {
        for too_long in ["Context size has been exceeded.", "the request exceeds the available context size."] {
            assert!(is_too_long(500, &error(too_long)), "{too_long}");
            assert!(matches!(from_stream(&json!({ "message": too_long })), ModelError::TooLong(_)), "{too_long}");
        }
        for other in ["it took too long", "cannot load a context window of 32768", "no memory for that context size"] {
            assert!(matches!(from_response(500, &error(other)), ModelError::Rejected(_)), "{other}");
            assert!(matches!(from_stream(&json!({ "message": other })), ModelError::ProviderFailed(_)), "{other}");
        }
    }
}
