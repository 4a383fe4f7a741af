//! Retry rules: which failures are retried, and after which delay. Pure, except for the clock that
//! a date is compared with.

use std::time::Duration;

use hyper::{HeaderMap, StatusCode, header::RETRY_AFTER};

use super::headers::SHOULD_RETRY;
use crate::config::RetryConfig;

/// Returns the delay after attempt `attempt` (counted from 1). `None`: do not retry.
///
/// `requested` is the delay that the provider asks for. `jitter` is between 0 and 1. It keeps
/// sessions that were rejected together from retrying together.
pub(super) fn backoff(
    options: &RetryConfig,
    attempt: u32,
    requested: Option<Duration>,
    jitter: f64,
) -> Option<Duration> {
    if attempt >= options.max_attempts {
        return None;
    }
    let longest = options.max.0;
    match requested {
        Some(requested) if requested > longest => None,
        // Never sooner than requested.
        Some(requested) => Some(requested + jittered_base(options, jitter)),
        None => {
            let doubled = options.base.0.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
            Some(doubled.min(longest).mul_f64(0.5 + jitter / 2.0))
        }
    }
}

fn jittered_base(options: &RetryConfig, jitter: f64) -> Duration {
    options.base.0.mul_f64(jitter / 2.0)
}

/// Returns true if a rejection may be temporary.
pub(super) fn is_retryable(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> bool {
    let may_be_temporary = matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504 | 529);
    let forbids_retry = headers.get(SHOULD_RETRY).is_some_and(|value| value == "false");
    let contains = |words: &&[u8]| body.windows(words.len()).any(|window| window == *words);
    may_be_temporary && !forbids_retry && !PERMANENT_ERRORS.iter().any(contains)
}

/// Errors that are permanent despite a retryable status.
///
/// - OpenAI's 429 for an account without money.
/// - llama.cpp's 500 for a conversation that is too long. The agent has to shorten it.
const PERMANENT_ERRORS: [&[u8]; 2] = [b"insufficient_quota", b"Context size has been exceeded"];

/// Returns the delay that the provider requests: seconds, milliseconds (OpenAI's own header) or a
/// date.
pub(super) fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = after.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = jiff::fmt::rfc2822::parse(after).ok()?.timestamp();
    Some(Duration::try_from(date.duration_since(jiff::Timestamp::now())).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TimeSpan;

    const OPTIONS: RetryConfig = RetryConfig {
        max_attempts: 4,
        base: TimeSpan(Duration::from_millis(100)),
        max: TimeSpan(Duration::from_millis(250)),
    };

    #[test]
    fn backoff_doubles_up_to_the_limit() {
        fn check(attempt: u32, asked_ms: Option<u64>, jitter: f64, expected_ms: Option<u64>) {
            let delay = backoff(&OPTIONS, attempt, asked_ms.map(Duration::from_millis), jitter);
            assert_eq!(delay, expected_ms.map(Duration::from_millis), "attempt {attempt}");
        }
        check(1, None, 1.0, Some(100));
        check(1, None, 0.0, Some(50));
        check(2, None, 1.0, Some(200));
        check(3, None, 1.0, Some(250));
        check(4, None, 1.0, None);
        check(1, Some(240), 0.0, Some(240));
        check(1, Some(0), 1.0, Some(50));
        check(1, Some(251), 0.0, None);
        check(4, Some(1), 0.0, None);
    }

    #[test]
    fn temporary_failures_are_retryable() {
        fn check(status: u16, should_retry: Option<&'static str>, body: &str, expected: bool) {
            let mut headers = HeaderMap::new();
            if let Some(value) = should_retry {
                headers.insert(SHOULD_RETRY, value.parse().expect("a header value"));
            }
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_retryable(status, &headers, body.as_bytes()), expected, "{status}");
        }
        for status in [429, 500, 502, 503, 504, 529] {
            check(status, None, "", true);
            check(status, Some("false"), "", false);
        }
        for status in [302, 400, 401, 402, 403, 404, 413, 422] {
            check(status, Some("true"), "", false);
        }
        check(429, None, r#"{"error":{"code":"insufficient_quota"}}"#, false);
        check(500, None, r#"{"error":{"message":"Context size has been exceeded."}}"#, false);
    }

    #[test]
    fn requested_delay_is_read_from_headers() {
        fn check(name: &'static str, value: &'static str, expected: Option<Duration>) {
            let headers = HeaderMap::from_iter([(name.parse().expect("a name"), value.parse().expect("a value"))]);
            assert_eq!(requested_delay(&headers), expected, "{value}");
        }
        check("retry-after", "7", Some(Duration::from_secs(7)));
        check("retry-after", "0.5", Some(Duration::from_millis(500)));
        check("retry-after-ms", "250", Some(Duration::from_millis(250)));
        check("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT", Some(Duration::ZERO));
        check("retry-after", "soon", None);
        check("retry-after", "-3", None);
        check("date", "7", None);
    }
}
