//! Provider client: sends a request, with retries, until the first byte of the response is here.

use std::{
    collections::hash_map::RandomState,
    error::Error,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};
use hyper::{HeaderMap, Method, StatusCode, header};
use reqwest::{Client, Response};
use tokio::time::timeout;

use super::{
    GatewayNotice, SessionAccount,
    error_response::{self, EndpointError, describe_rejection, provider_name},
    headers,
    meter::UsageMeter,
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

/// Response of a provider whose first byte has arrived.
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
    /// The provider answered with a status that is no success, or with an error as the first event
    /// of its stream.
    Rejected { status: StatusCode, headers: HeaderMap, body: Bytes },
    /// No connection, or a connection that broke before the response started.
    Unreachable {
        why: String,
        /// True if a connection existed. The provider may have received the whole request.
        connection_broke: bool,
    },
    /// No first byte within the time limit.
    TimedOut { waited: Duration },
}

/// Sends `request` until a response arrives or a failure is not worth another attempt.
///
/// `may_be_billed` is true while a provider may have started work, also if this future is dropped.
pub(super) async fn send_with_retries(
    client: &Client,
    options: &ModelConfig,
    request: &UpstreamRequest,
    account: &dyn SessionAccount,
    may_be_billed: &mut bool,
) -> Result<UpstreamResponse, UpstreamError> {
    let (mut attempt, mut may_work) = (1, false);
    loop {
        *may_be_billed = true;
        let failure = match send_once(client, &options.timeouts, request).await {
            Ok(response) => return Ok(response),
            Err(failure) => failure,
        };
        // A provider that rejects or is unreachable has started nothing. After a timeout or a
        // broken connection it may work on.
        may_work |= matches!(
            failure,
            UpstreamError::TimedOut { .. } | UpstreamError::Unreachable { connection_broke: true, .. }
        );
        *may_be_billed = may_work;
        let Some(wait) = failure.retry_delay(options, attempt, request.streaming) else { return Err(failure) };
        attempt += 1;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        account.notify(GatewayNotice::Retrying { attempt, wait_ms, why: failure.describe(request) });
        tokio::time::sleep(wait).await;
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
    match timeout(limit, read_first_piece(sending.send(), request, timeouts.idle.0)).await {
        Ok(result) => result,
        Err(_) => Err(UpstreamError::TimedOut { waited: limit }),
    }
}

async fn read_first_piece(
    response: impl Future<Output = reqwest::Result<Response>>,
    request: &UpstreamRequest,
    idle: Duration,
) -> Result<UpstreamResponse, UpstreamError> {
    let route = request.route;
    let mut response = response.await.map_err(unreachable)?;
    let (status, headers) = (response.status(), headers::to_client(response.headers(), request.key.expose()));
    if !status.is_success() {
        return Err(UpstreamError::Rejected {
            status,
            headers,
            body: error_response::scrub(error_body(response).await, request.key.expose()),
        });
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_stream = content_type.starts_with("text/event-stream");
    let first = response.chunk().await.map_err(unreachable)?.unwrap_or_default();
    if is_stream && let Some(error) = error_in_first_event(route, &first, request.key.expose()) {
        return Err(error);
    }
    let rest = stream::unfold(Some(response), move |response| next_piece(response, route, idle));
    let body = stream::iter([Ok(first)]).chain(rest).boxed();
    Ok(UpstreamResponse { status, headers, is_stream, body })
}

/// Returns the error if the first event of a stream is an error. Providers under load answer 200
/// and then send one. Nothing has been passed on yet, so the call may be retried.
fn error_in_first_event(route: GatewayRoute, first: &Bytes, key: Option<&str>) -> Option<UpstreamError> {
    let mut meter = UsageMeter::new(route);
    meter.read_lines(first);
    let error = meter.error()?;
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let message = error_response::scrubbed(&error.message, key);
    let body = EndpointError::new(status, error_response::kind_of_status(error.status), message).body(route.api());
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"))]);
    Some(UpstreamError::Rejected { status, headers, body })
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
    fn retry_delay(&self, options: &ModelConfig, attempt: u32, streaming: bool) -> Option<Duration> {
        let requested_delay = match self {
            UpstreamError::Rejected { status, headers, body } if retry::is_retryable(*status, headers, body) => {
                retry::requested_delay(headers)
            }
            UpstreamError::Rejected { .. } => return None,
            UpstreamError::Unreachable { .. } => None,
            // A retry of a response in one piece would take, and cost, as much again.
            UpstreamError::TimedOut { .. } if streaming => None,
            UpstreamError::TimedOut { .. } => return None,
        };
        retry::backoff(&options.retry, attempt, requested_delay, jitter())
    }

    pub(super) fn describe(&self, request: &UpstreamRequest) -> String {
        let (api, provider) = (request.route.api(), provider_name(request.route.api()));
        match self {
            UpstreamError::Rejected { status, body, .. } => {
                describe_rejection(api, &request.model, status.as_u16(), body)
            }
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
