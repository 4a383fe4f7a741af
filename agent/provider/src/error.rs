//! Errors of providers, in the body of a response or inside a stream.

use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::{
    AnswerVerdict,
    error_fields::ErrorReport,
    error_words::{is_context_overflow, mentions_length, requested_wait},
    verdict::NextStep,
};

/// Longest message that is kept, characters.
const MAX_MESSAGE_CHARS: usize = 2000;

/// Status of an error inside an answer that names none.
const UNKNOWN_STATUS: u16 = 500;

/// Error that a provider reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// HTTP status of the response, or the status that the error's code or type stands for.
    pub status: u16,
    /// Provider's own code or type. Empty if it named none.
    pub kind: String,
    /// Provider's words, without their wrapper. "no reason given" if there are none.
    pub message: String,
    /// Wait that the provider requests.
    pub retry_after: Option<Duration>,
    pub class: ErrorClass,
}

/// Class of an error: status and code decide first, words last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The conversation is too long for the model.
    TooLong,
    /// Unknown rejection (400, 413, 422) that a shorter conversation may avoid.
    MaybeTooLong,
    /// Temporary: rate limit, overload, server error.
    Temporary,
    /// Permanent: the same request is rejected again.
    Permanent,
}

impl ErrorClass {
    /// Returns the next step after an error of this class.
    pub fn next_step(self) -> NextStep {
        match self {
            ErrorClass::TooLong | ErrorClass::MaybeTooLong => NextStep::Shorten,
            ErrorClass::Temporary => NextStep::Retry,
            ErrorClass::Permanent => NextStep::Stop,
        }
    }
}

impl ProviderError {
    /// Reads the body of a response with an error status. `header` returns a header's value.
    ///
    /// A date in `retry-after` counts from the header `date`.
    pub fn of_response(status: u16, header: impl Fn(&str) -> Option<String>, body: &[u8]) -> ProviderError {
        let report = ErrorReport::of_body(body);
        let forbids_retry = header("x-should-retry").is_some_and(|value| value.trim() == "false");
        let retry_after = requested_by_header(&header);
        let status = if status >= 400 { Some(status) } else { report.status() };
        let mut error = ProviderError::new(status, report);
        error.retry_after = retry_after.or(error.retry_after);
        if forbids_retry && error.class == ErrorClass::Temporary {
            error.class = ErrorClass::Permanent;
        }
        error
    }

    /// Reads an event that is an error, or the body of a response that succeeded by its status.
    pub(crate) fn of_event(event: &Value) -> ProviderError {
        let report = ErrorReport::of_value(event);
        ProviderError::new(report.status(), report)
    }

    /// Reads an error in plain words.
    pub(crate) fn of_text(text: &[u8]) -> ProviderError {
        let report = ErrorReport::of_body(text);
        ProviderError::new(report.status(), report)
    }

    /// Describes an answer that the provider ended as failed, without an error.
    pub(crate) fn of_end(reason: &str, words: &str) -> ProviderError {
        let words =
            if words.is_empty() { format!("the provider ended the answer with `{reason}`") } else { words.to_owned() };
        ProviderError {
            status: UNKNOWN_STATUS,
            kind: reason.to_owned(),
            message: shortened(&words),
            retry_after: None,
            class: ErrorClass::Temporary,
        }
    }

    pub(crate) fn verdict(&self) -> AnswerVerdict {
        match self.class {
            ErrorClass::TooLong => AnswerVerdict::TooLong,
            ErrorClass::MaybeTooLong | ErrorClass::Temporary | ErrorClass::Permanent => AnswerVerdict::Failed,
        }
    }

    fn new(status: Option<u16>, report: ErrorReport) -> ProviderError {
        let class = classify(status, &report);
        let words = report.words();
        ProviderError {
            status: status.unwrap_or(UNKNOWN_STATUS),
            kind: report.kind().to_owned(),
            retry_after: report.retry_after.or_else(|| requested_wait(&words)),
            message: shortened(&words),
            class,
        }
    }
}

/// Class by code, then by status, then by words.
fn classify(status: Option<u16>, report: &ErrorReport) -> ErrorClass {
    if let Some(class) = report.kinds.iter().find_map(|kind| class_of_code(kind)) {
        return class;
    }
    let words = report.all_words();
    match status {
        Some(413) => ErrorClass::TooLong,
        Some(400 | 422) if mentions_length(&words) => ErrorClass::TooLong,
        Some(400 | 422) => ErrorClass::MaybeTooLong,
        // The request alone exceeds the rate limit, so a later one fails too.
        Some(429) if words.contains("request too large") => ErrorClass::TooLong,
        Some(408 | 409 | 425 | 429) => ErrorClass::Temporary,
        Some(501 | 505) => ErrorClass::Permanent,
        Some(500..) if is_context_overflow(&words) => ErrorClass::TooLong,
        Some(500..) => ErrorClass::Temporary,
        Some(_) => ErrorClass::Permanent,
        None if mentions_length(&words) => ErrorClass::TooLong,
        None => ErrorClass::Temporary,
    }
}

/// Class of codes that say more than the status beside them.
fn class_of_code(code: &str) -> Option<ErrorClass> {
    Some(match normalized(code).as_str() {
        "contextlengthexceeded"
        | "contextwindowexceeded"
        | "contextwindowexceedederror"
        | "modelcontextwindowexceeded"
        | "exceedcontextsizeerror"
        | "contextlimitexceeded"
        | "tokenlimitexceeded"
        | "inputtoolong"
        | "prompttoolong"
        | "promptistoolong"
        | "stringabovemaxlength"
        | "requesttoolarge" => ErrorClass::TooLong,
        "insufficientquota"
        | "insufficientbalance"
        | "insufficientfunds"
        | "insufficientcredits"
        | "billingerror"
        | "billinghardlimitreached"
        | "billingnotactive"
        | "quotaexceedederror"
        | "invalidapikey"
        | "apikeyinvalid"
        | "authenticationerror"
        | "permissionerror"
        | "permissiondenied"
        | "modelnotfound"
        | "unsupportedparameter"
        | "unsupportedvalue"
        | "unknownparameter"
        | "missingrequiredparameter"
        | "contentfilter"
        | "contentpolicyviolation"
        | "invalidprompt"
        | "interrupted" => ErrorClass::Permanent,
        _ => return None,
    })
}

/// Returns the status that a code or type stands for. Numbers count like names.
pub(crate) fn status_of_code(code: &str) -> Option<u16> {
    if let Ok(number) = code.trim().parse::<f64>() {
        return (400.0..600.0).contains(&number).then_some(number as u16);
    }
    Some(match normalized(code).as_str() {
        "invalidrequesterror"
        | "invalidrequest"
        | "invalidargument"
        | "badrequest"
        | "badrequesterror"
        | "failedprecondition"
        | "outofrange"
        | "invalidprompt"
        | "validationerror"
        | "validationexception"
        | "contextlengthexceeded"
        | "contextwindowexceedederror"
        | "contentfilter"
        | "invalidparameter" => 400,
        "authenticationerror" | "unauthenticated" | "unauthorized" | "invalidapikey" | "apikeyinvalid" => 401,
        "billingerror" | "insufficientbalance" | "insufficientcredits" | "paymentrequired" => 402,
        "permissionerror" | "permissiondenied" | "permissiondeniederror" | "forbidden" | "accessdeniedexception" => 403,
        "notfounderror" | "notfound" | "modelnotfound" | "resourcenotfoundexception" => 404,
        "requesttimeout" => 408,
        "aborted" => 409,
        "requesttoolarge" => 413,
        "unprocessableentity" | "unprocessableentityerror" => 422,
        "ratelimiterror"
        | "ratelimitexceeded"
        | "ratelimitexceedederror"
        | "ratelimit"
        | "ratelimited"
        | "toomanyrequests"
        | "resourceexhausted"
        | "throttling"
        | "throttlingexception"
        | "throttled"
        | "insufficientquota"
        | "quotaexceeded"
        | "tokens"
        | "requests" => 429,
        "apierror"
        | "servererror"
        | "internal"
        | "internalservererror"
        | "internalerror"
        | "internalserverexception"
        | "unknown" => 500,
        "unimplemented" => 501,
        "badgateway" | "upstreamerror" | "modelstreamerrorexception" => 502,
        "unavailable"
        | "serviceunavailable"
        | "serviceunavailableerror"
        | "serviceunavailableexception"
        | "slowdown"
        | "serverisoverloaded"
        | "serveroverloaded"
        | "engineoverloadederror"
        | "modelnotreadyexception" => 503,
        "timeouterror" | "timeout" | "deadlineexceeded" | "gatewaytimeout" => 504,
        "overloadederror" | "overloaded" => 529,
        _ => return None,
    })
}

/// Letters and digits of a code in lower case: services write the same code in many ways.
fn normalized(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// Reads the delay that the headers request: milliseconds (OpenAI's own header), seconds, or a
/// date.
fn requested_by_header(header: &impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let number = |name: &str| header(name)?.trim().parse::<f64>().ok();
    if let Some(ms) = number("retry-after-ms") {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    if let Some(seconds) = number("retry-after") {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |name: &str| -> Option<SystemTime> { httpdate::parse_http_date(header(name)?.trim()).ok() };
    let (after, now) = (date("retry-after")?, date("date")?);
    Some(after.duration_since(now).unwrap_or(Duration::ZERO))
}

fn shortened(words: &str) -> String {
    match words.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((end, _)) => format!("{}…", &words[..end]),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn response(status: u16, body: &str) -> ProviderError {
        ProviderError::of_response(status, |_| None, body.as_bytes())
    }

    #[track_caller]
    fn check(error: &ProviderError, status: u16, kind: &str, message: &str, class: ErrorClass) {
        let ProviderError { status: got_status, kind: got_kind, message: got_message, class: got_class, .. } = error;
        assert_eq!((*got_status, &got_kind[..], &got_message[..], *got_class), (status, kind, message, class));
    }

    #[test]
    fn error_bodies_are_read_in_any_shape() {
        use ErrorClass::{MaybeTooLong, Permanent, Temporary};
        for (status, body, kind, message, class) in [
            (400, r#"{"error":{"message":"bad role"}}"#, "", "bad role", MaybeTooLong),
            (400, r#"{"error":"bad role"}"#, "", "bad role", MaybeTooLong),
            (
                422,
                r#"{"detail":[{"loc":["body"],"msg":"field required","type":"missing"}]}"#,
                "missing",
                "field required",
                MaybeTooLong,
            ),
            (422, r#"{"detail":"bad role"}"#, "", "bad role", MaybeTooLong),
            (404, r#"{"timestamp":1,"status":404,"error":"Not Found","path":"/v1"}"#, "404", "Not Found", Permanent),
            (404, r#"{"code":"model_not_found","message":"no model"}"#, "model_not_found", "no model", Permanent),
            (
                400,
                r#"[{"error":{"code":400,"message":"no key","status":"INVALID_ARGUMENT"}}]"#,
                "INVALID_ARGUMENT",
                "no key",
                MaybeTooLong,
            ),
            (502, "<h1>Bad gateway</h1>\n", "", "Bad gateway", Temporary),
            (529, "", "", "no reason given", Temporary),
            (401, "{}", "", "no reason given", Permanent),
            (400, r#"{"error":{"message":"{\"error\":{\"message\":\"inner\"}}"}}"#, "", "inner", MaybeTooLong),
            (
                400,
                r#"{"error":{"type":"bad_request_error","message":"m","http_code":"400"}}"#,
                "bad_request_error",
                "m",
                MaybeTooLong,
            ),
        ] {
            check(&response(status, body), status, kind, message, class);
        }
        let long = response(400, &"ä".repeat(10_000));
        assert_eq!(long.message.chars().count(), MAX_MESSAGE_CHARS + 1);
        let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
        check(&response(500, &deep), 500, "", "no reason given", Temporary);
    }

    #[test]
    fn status_and_code_decide_before_words() {
        let class = |status: u16, error: Value| response(status, &json!({ "error": error }).to_string()).class;
        for status in [408, 409, 429, 500, 502, 503, 504, 520, 529] {
            assert_eq!(class(status, json!({ "message": "no" })), ErrorClass::Temporary, "{status}");
        }
        for status in [401, 402, 403, 404, 405, 501] {
            assert_eq!(class(status, json!({ "message": "no" })), ErrorClass::Permanent, "{status}");
        }
        for status in [400, 422] {
            assert_eq!(class(status, json!({ "message": "no" })), ErrorClass::MaybeTooLong, "{status}");
        }
        assert_eq!(class(413, json!({ "message": "no" })), ErrorClass::TooLong);
        assert_eq!(class(429, json!({ "message": "too many tokens, please wait" })), ErrorClass::Temporary);
        assert_eq!(class(429, json!({ "message": "Request too large for gpt-x: Limit 30000" })), ErrorClass::TooLong);
        assert_eq!(class(429, json!({ "code": "insufficient_quota" })), ErrorClass::Permanent);
        assert_eq!(class(400, json!({ "code": "unsupported_parameter" })), ErrorClass::Permanent);
        assert_eq!(class(500, json!({ "message": "Context size has been exceeded." })), ErrorClass::TooLong);
        for status in [400, 500] {
            for (key, code) in [("type", "exceed_context_size_error"), ("code", "context_length_exceeded")] {
                assert_eq!(
                    class(status, json!({ "message": "no", key: code })),
                    ErrorClass::TooLong,
                    "{status} {code}"
                );
            }
        }
    }

    #[test]
    fn numeric_and_textual_codes_count_alike() {
        for code in [json!(429), json!("429"), json!(429.0), json!("rate_limit_exceeded"), json!("RESOURCE_EXHAUSTED")]
        {
            for event in [
                json!({ "error": { "message": "slow", "code": code } }),
                json!({ "type": "error", "code": code, "message": "slow" }),
                json!({ "error": { "message": "slow", "type": code } }),
            ] {
                let error = ProviderError::of_event(&event);
                assert_eq!((error.status, error.class), (429, ErrorClass::Temporary), "{event}");
                assert_eq!(error.message, "slow", "{event}");
            }
        }
    }

    #[test]
    fn interrupt_keeps_its_kind() {
        let error = json!({ "message": "no", "type": "interrupted", "code": "interrupted" });
        for body in [json!({ "error": error }), json!({ "type": "error", "error": error })] {
            check(&response(403, &body.to_string()), 403, "interrupted", "no", ErrorClass::Permanent);
        }
    }

    #[test]
    fn requested_wait_is_read_from_headers_and_body() {
        let check = |headers: &[(&str, &str)], body: &str, expected: Option<u64>| {
            let header =
                |name: &str| headers.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
            let error = ProviderError::of_response(429, header, body.as_bytes());
            assert_eq!(error.retry_after, expected.map(Duration::from_millis), "{headers:?} {body}");
        };
        let now = ("date", "Fri, 31 Dec 1999 23:59:59 GMT");
        check(&[("retry-after", "7")], "", Some(7000));
        check(&[("retry-after", " 0.5 ")], "", Some(500));
        check(&[("retry-after-ms", "250"), ("retry-after", "7")], "", Some(250));
        check(&[("retry-after", "Sat, 01 Jan 2000 00:00:09 GMT"), now], "", Some(10_000));
        check(&[("retry-after", "Fri, 31 Dec 1999 23:59:00 GMT"), now], "", Some(0));
        check(&[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")], "", None);
        check(&[("retry-after", "soon")], "", None);
        check(&[("retry-after", "-3")], "", None);
        check(&[], r#"{"error":{"details":[{"retryDelay":"34.5s"}]}}"#, Some(34_500));
        check(&[], r#"{"error":{"details":[{"metadata":{"quotaResetDelay":"373ms"}}]}}"#, Some(373));
        check(&[], r#"{"error":{"message":"m","retry_after":3}}"#, Some(3000));
        check(&[], r#"{"error":{"message":"Please try again in 1.5s."}}"#, Some(1500));
        check(&[("retry-after", "7")], r#"{"error":{"message":"try again in 1s"}}"#, Some(7000));
    }

    #[test]
    fn header_forbids_a_retry() {
        let header = |name: &str| (name == "x-should-retry").then(|| "false".to_owned());
        assert_eq!(ProviderError::of_response(500, header, b"").class, ErrorClass::Permanent);
    }
}
