//! Asks a provider, again where it is worth it, until the first byte of its answer is here.

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
    GatewayNotice, ProviderKey, SessionAccount,
    error_response::{self, EndpointError, describe_rejection, provider_name},
    headers,
    meter::UsageMeter,
    options::{GatewayOptions, TimeoutOptions},
    retry,
    route::GatewayRoute,
};

/// The most of a provider's error that is passed on.
const MAX_ERROR_BYTES: usize = 1024 * 1024;

/// How long an error's text may take to follow its status.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// One request, as the provider shall get it.
pub(super) struct UpstreamRequest {
    pub(super) route: GatewayRoute,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) streaming: bool,
    /// As the provider names it; empty where the request names none.
    pub(super) model: String,
    /// What `headers` hold, so that it can be taken out of errors.
    pub(super) key: Option<ProviderKey>,
}

/// A provider's answer, whose first byte is here.
pub(super) struct UpstreamResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Whether it is a stream of server-sent events.
    pub(super) is_stream: bool,
    pub(super) body: UpstreamBody,
}

/// The pieces of an answer; an error is for a person, and the last item. Dropping it ends the request.
pub(super) type UpstreamBody = BoxStream<'static, Result<Bytes, String>>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum UpstreamError {
    /// The provider answered with a status that is no success, or with an error as its stream's first event.
    Rejected { status: StatusCode, headers: HeaderMap, body: Bytes },
    /// No connection, or one that broke before the answer began.
    Unreachable {
        why: String,
        /// There was one, over which it may have the whole request.
        connection_broke: bool,
    },
    /// Nothing came in time.
    TimedOut { waited: Duration },
}

/// Asks until there is an answer, or a refusal that is worth no further attempt. `is_owed`, also when this is dropped: a provider
/// has begun something.
pub(super) async fn send_with_retries(
    client: &Client,
    options: &GatewayOptions,
    ask: &UpstreamRequest,
    account: &dyn SessionAccount,
    is_owed: &mut bool,
) -> Result<UpstreamResponse, UpstreamError> {
    let (mut attempt, mut may_work) = (1, false);
    loop {
        *is_owed = true;
        let failure = match send_once(client, &options.timeouts, ask).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        // Whoever says no, or was not reached, has begun nothing. One whose time was up, or whose connection broke, may work on.
        may_work |= matches!(
            failure,
            UpstreamError::TimedOut { .. } | UpstreamError::Unreachable { connection_broke: true, .. }
        );
        *is_owed = may_work;
        let Some(wait) = failure.retry_delay(options, attempt, ask.streaming) else { return Err(failure) };
        attempt += 1;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        account.notify(GatewayNotice::Retrying { attempt, wait_ms, why: failure.describe(ask) });
        tokio::time::sleep(wait).await;
    }
}

async fn send_once(
    client: &Client,
    timeouts: &TimeoutOptions,
    ask: &UpstreamRequest,
) -> Result<UpstreamResponse, UpstreamError> {
    let request = client.request(ask.method.clone(), &ask.url).headers(ask.headers.clone()).body(ask.body.clone());
    let limit = timeouts.first_byte(ask.streaming);
    match timeout(limit, read_first_piece(request.send(), ask, timeouts.idle())).await {
        Ok(result) => result,
        Err(_) => Err(UpstreamError::TimedOut { waited: limit }),
    }
}

async fn read_first_piece(
    response: impl Future<Output = reqwest::Result<Response>>,
    ask: &UpstreamRequest,
    idle: Duration,
) -> Result<UpstreamResponse, UpstreamError> {
    let route = ask.route;
    let mut response = response.await.map_err(unreachable)?;
    let (status, headers) = (response.status(), headers::to_client(response.headers(), ask.key.as_ref()));
    if !status.is_success() {
        let key = ask.key.as_ref().map(ProviderKey::expose);
        return Err(UpstreamError::Rejected {
            status,
            headers,
            body: error_response::scrub(error_body(response).await, key),
        });
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_stream = content_type.starts_with("text/event-stream");
    let first = response.chunk().await.map_err(unreachable)?.unwrap_or_default();
    if is_stream && let Some(refusal) = error_in_first_event(route, &first, ask.key.as_ref()) {
        return Err(refusal);
    }
    let rest = stream::unfold(Some(response), move |response| next_piece(response, route, idle));
    let body = stream::iter([Ok(first)]).chain(rest).boxed();
    Ok(UpstreamResponse { status, headers, is_stream, body })
}

/// Providers under load say 200, and then an error as the first event. Nothing was passed on yet, so it may be retried.
fn error_in_first_event(route: GatewayRoute, first: &Bytes, key: Option<&ProviderKey>) -> Option<UpstreamError> {
    let mut meter = UsageMeter::new(route);
    meter.read_lines(first);
    let mishap = meter.error()?;
    let status = StatusCode::from_u16(mishap.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let message = error_response::scrubbed(&mishap.message, key);
    let body = EndpointError::new(status, error_response::kind_of_status(mishap.status), message).body(route.api());
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"))]);
    Some(UpstreamError::Rejected { status, headers, body })
}

/// The clock runs only while a piece is waited for: a buffer that is full is not the provider's silence.
async fn next_piece(
    response: Option<Response>,
    route: GatewayRoute,
    idle: Duration,
) -> Option<(Result<Bytes, String>, Option<Response>)> {
    let mut response = response?;
    let provider = provider_name(route.api());
    match timeout(idle, response.chunk()).await {
        Ok(Ok(Some(piece))) => Some((Ok(piece), Some(response))),
        Ok(Ok(None)) => None,
        Ok(Err(e)) => Some((Err(format!("the connection to {provider} broke: {}", root_cause(&e))), None)),
        Err(_) => Some((Err(format!("{provider} sent nothing for {} s", idle.as_secs())), None)),
    }
}

async fn error_body(mut response: Response) -> Bytes {
    let mut body = BytesMut::new();
    let reading = async {
        while let Ok(Some(piece)) = response.chunk().await {
            let room = MAX_ERROR_BYTES - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == MAX_ERROR_BYTES {
                break;
            }
        }
    };
    // What has come until then is better than nothing.
    let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
    body.freeze()
}

fn unreachable(error: reqwest::Error) -> UpstreamError {
    UpstreamError::Unreachable { why: root_cause(&error), connection_broke: !error.is_connect() }
}

/// The innermost reason: the outer ones only say that a request failed, and repeat the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl UpstreamError {
    fn retry_delay(&self, options: &GatewayOptions, attempt: u32, streaming: bool) -> Option<Duration> {
        let asked = match self {
            UpstreamError::Rejected { status, headers, body } if retry::is_retryable(*status, headers, body) => {
                retry::requested_delay(headers)
            }
            UpstreamError::Rejected { .. } => return None,
            UpstreamError::Unreachable { .. } => None,
            // An answer in one piece that took too long would take, and cost, as much again.
            UpstreamError::TimedOut { .. } if streaming => None,
            UpstreamError::TimedOut { .. } => return None,
        };
        retry::backoff(&options.retry, attempt, asked, jitter())
    }

    pub(super) fn describe(&self, ask: &UpstreamRequest) -> String {
        let (api, provider) = (ask.route.api(), provider_name(ask.route.api()));
        match self {
            UpstreamError::Rejected { status, body, .. } => describe_rejection(api, &ask.model, status.as_u16(), body),
            UpstreamError::Unreachable { why, .. } => format!("{provider} cannot be reached: {why}"),
            UpstreamError::TimedOut { waited } => format!("{provider} did not answer within {} s", waited.as_secs()),
        }
    }
}

/// Between 0 and 1. The standard library seeds each hasher of this kind at random.
fn jitter() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}
