//! What an error of a provider means for the turn. Pure; knows neither the provider nor how its answer came.

use serde_json::Value;

use super::model::ModelError;

/// Where an error says of what kind it is, besides its message. A relay keeps under `raw` what the provider behind it said.
const KINDS: [&str; 5] = ["/error/type", "/error/code", "/error/metadata/raw", "/type", "/code"];

/// What the gateway calls an error that an interrupt made.
const INTERRUPTED: &str = "interrupted";

/// How a request for which the conversation is too long is refused, in small letters.
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

/// What a provider answered instead of a stream.
pub(super) fn from_response(status: u16, body: &str) -> ModelError {
    let body = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.trim().to_owned()));
    let words = error_text(&body);
    if is_interrupted(&body) {
        return ModelError::Interrupted(words);
    }
    let too_long = match status {
        402 => return ModelError::Budget(words),
        413 => true,
        400 => mentions_length(&body),
        500 => is_context_overflow(&body),
        _ => false,
    };
    if too_long {
        ModelError::TooLong(words)
    } else {
        ModelError::Rejected(format!("the model answered {status}: {words}"))
    }
}

/// What a provider said in the middle of a stream.
pub(super) fn from_stream(body: &Value) -> ModelError {
    let words = error_text(body);
    if is_interrupted(body) {
        ModelError::Interrupted(words)
    } else if is_context_overflow(body) {
        ModelError::TooLong(words)
    } else {
        ModelError::ProviderFailed(words)
    }
}

/// In the middle of a stream the error may come without its wrapping.
fn is_interrupted(body: &Value) -> bool {
    ["/error/type", "/type"].iter().any(|place| body.pointer(place).and_then(Value::as_str) == Some(INTERRUPTED))
}

fn mentions_length(body: &Value) -> bool {
    let kind = kind(body);
    TOO_LONG.iter().any(|sign| kind.contains(sign))
}

/// llama.cpp says so with status 500, or within the stream. Other errors of a server speak of tokens and contexts too, and must
/// not cost the conversation its beginning, so this is narrower than [`TOO_LONG`].
fn is_context_overflow(body: &Value) -> bool {
    let kind = kind(body);
    kind.contains("context_length_exceeded")
        || kind.contains("exceed") && (kind.contains("context size") || kind.contains("context_size"))
}

/// All by which an error may be known, in small letters.
fn kind(body: &Value) -> String {
    let kinds = KINDS.iter().filter_map(|place| body.pointer(place)?.as_str());
    kinds.fold(error_text(body), |all, kind| all + "\n" + kind).to_lowercase()
}

/// What a provider's error says, without its wrapping.
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
    fn a_conversation_that_is_too_long_is_known_by_what_is_said_of_it() {
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
    fn it_is_known_by_type_and_code_whatever_the_message() {
        for status in [400, 500] {
            for (key, kind) in [("type", "exceed_context_size_error"), ("code", "context_length_exceeded")] {
                let body = json!({ "error": { "message": "no", key: kind } });
                assert!(is_too_long(status, &body.to_string()), "{status} {kind}");
                assert!(matches!(from_stream(&body), ModelError::TooLong(said) if said == "no"), "{kind}");
                assert!(matches!(from_stream(&body["error"]), ModelError::TooLong(_)), "{kind}");
            }
        }
        let relayed =
            json!({ "error": { "message": "Provider returned error", "metadata": { "raw": "prompt is too long" } } });
        assert!(is_too_long(400, &relayed.to_string()));
    }

    #[test]
    fn an_interrupt_is_known_by_its_type_alone() {
        let error = json!({ "message": "no", "type": "interrupted" });
        for body in [json!({ "error": error }), json!({ "type": "error", "error": error })] {
            for status in [402, 403] {
                let answered = from_response(status, &body.to_string());
                assert!(matches!(answered, ModelError::Interrupted(said) if said == "no"), "{status} {body}");
            }
            assert!(matches!(from_stream(&body), ModelError::Interrupted(said) if said == "no"), "{body}");
        }
        assert!(matches!(from_stream(&error), ModelError::Interrupted(_)));
        assert!(matches!(from_response(403, &self::error("interrupted")), ModelError::Rejected(_)));
    }

    #[test]
    fn of_a_servers_own_errors_only_the_one_about_the_context_size_shortens_anything() {
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
