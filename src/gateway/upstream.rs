//! Provider client: sends a request, with retries, until the first real piece of the
//! answer.

use std::{
    collections::hash_map::RandomState,
    error::Error,
    hash::{BuildHasher, Hasher},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use greenroom_protocol::{RetryFrame, RetryFrameKind};
use greenroom_provider::{AnswerFraming, ProviderError, error::ErrorClass, verdict::NextStep};
use hyper::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, Response};
use tokio::time::timeout;

use super::{
    GatewayNotice, RetryOutcome, SessionAccount,
    error_response::{self, EndpointError, describe_rejection, provider_name},
    headers,
    hold_back::{self, FailedStart},
    retry,
    route::GatewayRoute,
};
use crate::config::{ModelConfig, SecretString, TimeSpan, TimeoutConfig};

/// Limit of a provider's error body that is passed on, bytes.
const MAX_ERROR_BYTES: usize = 1024 * 1024;

/// Time limit for reading the body of an error response.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Request to a provider.
pub(super) struct UpstreamRequest {
    pub(super) route: GatewayRoute,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) streaming: bool,
    /// Model name used by the provider. Empty if the request names none.
    pub(super) model: String,
    /// Key inside `headers`. Removed from error texts.
    pub(super) key: SecretString,
}

/// Response of a provider whose first real piece has arrived.
pub(super) struct UpstreamResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// True for a stream of server-sent events.
    pub(super) is_stream: bool,
    pub(super) body: UpstreamBody,
}

/// Chunks of a response. An error is for the user, and is the last item. Dropping the body ends the
/// request.
pub(super) type UpstreamBody = BoxStream<'static, Result<Bytes, String>>;

/// Reason for a missing response.
#[derive(Debug)]
pub(super) enum UpstreamError {
    /// The provider answered with a status that is no success, or with an error before the first
    /// real piece of its answer.
    Rejected { status: StatusCode, headers: HeaderMap, body: Bytes, error: ProviderError },
    /// The answer ended, or its connection broke, before its first real piece.
    /// `is_stream` is false for an answer in one piece.
    Cut { why: String, is_stream: bool },
    /// No connection, or a connection that broke before the response started.
    Unreachable {
        why: String,
        /// True if a connection existed. The provider may have received the whole request.
        connection_broke: bool,
    },
    /// No first byte within the time limit.
    TimedOut { waited: Duration },
}

/// Number of the next call, for [`RetryFrame::call`].
static NEXT_CALL: AtomicU64 = AtomicU64::new(1);

/// Retries of one call. Dropping them reports their end to the session.
struct CallRetries<'a> {
    account: &'a dyn SessionAccount,
    call: u64,
    provider: &'static str,
    /// Number of the coming attempt.
    attempt: u32,
    waited_ms: u64,
    /// Newest failure, in words.
    why: String,
    succeeded: bool,
}

impl CallRetries<'_> {
    /// Reports a further attempt, and waits for it.
    async fn wait(&mut self, wait: Duration, max_attempts: u32, why: String) {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        self.attempt += 1;
        self.waited_ms = self.waited_ms.saturating_add(wait_ms);
        self.why.clone_from(&why);
        self.account.notify(GatewayNotice::Retrying(RetryFrame {
            kind: RetryFrameKind::Retry,
            call: self.call,
            provider: self.provider.to_owned(),
            attempt: self.attempt,
            max_attempts,
            wait_ms,
            why,
        }));
        tokio::time::sleep(wait).await;
    }
}

impl Drop for CallRetries<'_> {
    fn drop(&mut self) {
        if self.attempt == 1 {
            return;
        }
        let CallRetries { call, attempt: attempts, waited_ms, .. } = *self;
        let outcome = self.succeeded.then(|| RetryOutcome { attempts, waited_ms, why: std::mem::take(&mut self.why) });
        self.account.notify(GatewayNotice::RetriesEnded { call, outcome });
    }
}

/// Sends `request` until an answer begins or a failure is not worth another attempt.
///
/// `may_be_billed` is true while a provider may have started work, also if this future is dropped.
pub(super) async fn send_with_retries(
    client: &Client,
    options: &ModelConfig,
    request: &UpstreamRequest,
    account: &dyn SessionAccount,
    may_be_billed: &mut bool,
) -> Result<UpstreamResponse, UpstreamError> {
    let call = NEXT_CALL.fetch_add(1, Ordering::Relaxed);
    let provider = provider_name(request.route.api());
    let mut retries =
        CallRetries { account, call, provider, attempt: 1, waited_ms: 0, why: String::new(), succeeded: false };
    let mut may_work = false;
    loop {
        *may_be_billed = true;
        let failure = match send_once(client, &options.timeouts, request).await {
            Ok(response) => {
                retries.succeeded = true;
                return Ok(response);
            }
            Err(failure) => failure,
        };
        // A provider that rejects or is unreachable has started nothing. After a timeout or a
        // broken connection it may work on.
        may_work |= failure.may_be_billed();
        *may_be_billed = may_work;
        let Some(wait) = failure.retry_delay(options, retries.attempt, request.streaming) else { return Err(failure) };
        retries.wait(wait, options.retry.max_attempts, failure.describe(request)).await;
    }
}

async fn send_once(
    client: &Client,
    timeouts: &TimeoutConfig,
    request: &UpstreamRequest,
) -> Result<UpstreamResponse, UpstreamError> {
    let sending = client
        .request(request.method.clone(), &request.url)
        .headers(request.headers.clone())
        .body(request.body.clone());
    let TimeSpan(limit) = if request.streaming { timeouts.first_byte } else { timeouts.whole_answer };
    let response = match timeout(limit, read_first_chunk(sending.send(), request, timeouts.idle.0)).await {
        Ok(response) => response?,
        Err(_) => return Err(UpstreamError::TimedOut { waited: limit }),
    };
    let UpstreamResponse { status, headers, is_stream, body } = response;
    match hold_back::read_start(body, request.route, is_stream).await {
        Ok(body) => Ok(UpstreamResponse { status, headers, is_stream, body }),
        Err(FailedStart::Error(error)) => Err(rejection_in_answer(request, headers, error)),
        Err(FailedStart::Cut { why, is_stream }) => Err(UpstreamError::Cut { why, is_stream }),
    }
}

async fn read_first_chunk(
    response: impl Future<Output = reqwest::Result<Response>>,
    request: &UpstreamRequest,
    idle: Duration,
) -> Result<UpstreamResponse, UpstreamError> {
    let route = request.route;
    let mut response = response.await.map_err(unreachable)?;
    let (status, headers) = (response.status(), headers::to_client(response.headers(), request.key.expose()));
    if !status.is_success() {
        let sent = response.headers().clone();
        let body = error_response::scrub(error_body(response).await, request.key.expose());
        let error = rejection(status, &sent, &body);
        return Err(UpstreamError::Rejected { status, headers, body, error });
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_stream = AnswerFraming::of_content_type(content_type) == AnswerFraming::EventStream;
    let first = response.chunk().await.map_err(unreachable)?;
    let rest = stream::unfold(Some(response), move |response| next_piece(response, route, idle));
    let body = stream::iter(first.map(Ok)).chain(rest).boxed();
    Ok(UpstreamResponse { status, headers, is_stream, body })
}

/// Reads the error of a response whose status is no success.
fn rejection(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ProviderError {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let error = ProviderError::of_response(status.as_u16(), header, body);
    if status.is_client_error() || status.is_server_error() {
        return error;
    }
    // A redirect is not followed, so the next attempt ends here too.
    ProviderError { status: status.as_u16(), class: ErrorClass::Permanent, ..error }
}

/// Returns the rejection for an error in place of an answer. Providers under load answer 200 and
/// then send an error.
fn rejection_in_answer(request: &UpstreamRequest, mut headers: HeaderMap, error: ProviderError) -> UpstreamError {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let message = error_response::scrubbed(&error.message, request.key.expose());
    let kind = match error.kind.as_str() {
        "" => error_response::kind_of_status(error.status).to_owned(),
        kind => error_response::scrubbed(kind, request.key.expose()),
    };
    let body = EndpointError::new(status, kind, message.as_str()).body(request.route.api());
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    headers.remove(header::CONTENT_LENGTH);
    UpstreamError::Rejected { status, headers, body, error: ProviderError { message, ..error } }
}

/// Reads the next chunk. The time limit applies only while a chunk is awaited: a full buffer does
/// not count as provider silence.
async fn next_piece(
    response: Option<Response>,
    route: GatewayRoute,
    idle: Duration,
) -> Option<(Result<Bytes, String>, Option<Response>)> {
    let mut response = response?;
    let provider = provider_name(route.api());
    match timeout(idle, response.chunk()).await {
        Ok(Ok(Some(chunk))) => Some((Ok(chunk), Some(response))),
        Ok(Ok(None)) => None,
        Ok(Err(e)) => Some((Err(format!("the connection to {provider} broke: {}", root_cause(&e))), None)),
        Err(_) => Some((Err(format!("{provider} sent nothing for {} s", idle.as_secs_f64())), None)),
    }
}

async fn error_body(mut response: Response) -> Bytes {
    let mut body = BytesMut::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await {
            let room = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // On timeout, the part that has arrived is used.
    let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
    body.freeze()
}

fn unreachable(error: reqwest::Error) -> UpstreamError {
    UpstreamError::Unreachable { why: root_cause(&error), connection_broke: !error.is_connect() }
}

/// Returns the innermost cause. The outer errors only report that a request failed, and repeat the
/// address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl UpstreamError {
    /// Returns true if the provider may have started work.
    fn may_be_billed(&self) -> bool {
        match self {
            UpstreamError::Rejected { .. } => false,
            UpstreamError::Unreachable { connection_broke, .. } => *connection_broke,
            UpstreamError::Cut { .. } | UpstreamError::TimedOut { .. } => true,
        }
    }

    fn retry_delay(&self, options: &ModelConfig, attempt: u32, streaming: bool) -> Option<Duration> {
        let requested_delay = match self {
            UpstreamError::Rejected { error, .. } if error.class.next_step() == NextStep::Retry => error.retry_after,
            UpstreamError::Rejected { .. } => return None,
            UpstreamError::Unreachable { .. } | UpstreamError::Cut { is_stream: true, .. } => None,
            // A retry of a response in one piece would take, and cost, as much again.
            UpstreamError::Cut { is_stream: false, .. } => return None,
            UpstreamError::TimedOut { .. } if streaming => None,
            UpstreamError::TimedOut { .. } => return None,
        };
        retry::backoff(&options.retry, attempt, requested_delay, jitter())
    }

    pub(super) fn describe(&self, request: &UpstreamRequest) -> String {
        let (api, provider) = (request.route.api(), provider_name(request.route.api()));
        match self {
            UpstreamError::Rejected { error, .. } => describe_rejection(api, &request.model, error),
            UpstreamError::Cut { why, .. } => why.clone(),
            UpstreamError::Unreachable { why, .. } => format!("{provider} cannot be reached: {why}"),
            UpstreamError::TimedOut { waited } => {
                format!("{provider} did not answer within {} s", waited.as_secs_f64())
            }
        }
    }
}

/// Returns a random number between 0 and 1. Each `RandomState` has a random seed.
fn jitter() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_rejections_are_retried() {
        fn check(status: u16, header: Option<(&'static str, &'static str)>, body: &str, expected: bool) {
            let headers = header
                .map(|(name, value)| (header::HeaderName::from_static(name), header::HeaderValue::from_static(value)));
            let status = StatusCode::from_u16(status).expect("a status");
            let error = rejection(status, &headers.into_iter().collect(), body.as_bytes());
            assert_eq!(error.class.next_step() == NextStep::Retry, expected, "{status} {body}");
        }
        for status in [429, 500, 502, 503, 504, 529] {
            check(status, None, "", true);
            check(status, Some(("x-should-retry", "false")), "", false);
        }
        for status in [302, 400, 401, 402, 403, 404, 413, 422] {
            check(status, Some(("x-should-retry", "true")), "", false);
        }
        check(307, None, r#"{"error":{"code":429}}"#, false);
        check(429, None, r#"{"error":{"code":"insufficient_quota"}}"#, false);
        check(500, None, r#"{"error":{"message":"Context size has been exceeded."}}"#, false);
    }

    #[test]
    fn requested_delay_is_read_from_headers() {
        fn check(name: &'static str, value: &'static str, expected: Option<Duration>) {
            let headers =
                [(header::HeaderName::from_static(name), value), (header::DATE, "Fri, 31 Dec 1999 23:59:50 GMT")];
            let headers = headers.map(|(name, value)| (name, header::HeaderValue::from_static(value)));
            let error = rejection(StatusCode::TOO_MANY_REQUESTS, &headers.into_iter().collect(), b"");
            assert_eq!(error.retry_after, expected, "{value}");
        }
        check("retry-after", "7", Some(Duration::from_secs(7)));
        check("retry-after", "0.5", Some(Duration::from_millis(500)));
        check("retry-after-ms", "250", Some(Duration::from_millis(250)));
        check("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT", Some(Duration::from_secs(9)));
        check("retry-after", "soon", None);
        check("retry-after", "-3", None);
        check("x-other", "7", None);
    }
}
