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
    Account, Notice, Secret, headers,
    meter::Meter,
    options::{GatewayOptions, TimeoutOptions},
    refusal::{self, Refusal, in_words, provider_name},
    retry,
    route::Route,
};

/// The most of a provider's error that is passed on.
const LARGEST_ERROR: usize = 1024 * 1024;

/// How long an error's text may take to follow its status.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// One request, as the provider shall get it.
pub(super) struct Ask {
    pub(super) route: Route,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) streaming: bool,
    /// As the provider names it; empty where the request names none.
    pub(super) model: String,
    /// What `headers` hold, so that it can be taken out of errors.
    pub(super) key: Option<Secret>,
}

/// A provider's answer, whose first byte is here.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// Whether it is a stream of server-sent events.
    pub(super) is_stream: bool,
    pub(super) body: Source,
}

/// The pieces of an answer; an error is for a person, and the last item. Dropping it ends the request.
pub(super) type Source = BoxStream<'static, Result<Bytes, String>>;

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The provider answered with a status that is no success, or with an error as its stream's first event.
    Refused { status: StatusCode, headers: HeaderMap, body: Bytes },
    /// No connection, or one that broke before the answer began.
    Unreachable {
        why: String,
        /// There was one, over which it may have the whole request.
        broke: bool,
    },
    /// Nothing came in time.
    Late { waited: Duration },
}

/// Asks until there is an answer, or a refusal that is worth no further attempt. `is_owed`, also when this is dropped: a provider
/// has begun something.
pub(super) async fn ask(
    client: &Client,
    options: &GatewayOptions,
    ask: &Ask,
    account: &dyn Account,
    is_owed: &mut bool,
) -> Result<Answer, Failure> {
    let (mut attempt, mut may_work) = (1, false);
    loop {
        *is_owed = true;
        let failure = match once(client, &options.timeouts, ask).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        // Whoever says no, or was not reached, has begun nothing. One whose time was up, or whose connection broke, may work on.
        may_work |= matches!(failure, Failure::Late { .. } | Failure::Unreachable { broke: true, .. });
        *is_owed = may_work;
        let Some(wait) = failure.wait(options, attempt, ask.streaming) else { return Err(failure) };
        attempt += 1;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        account.notice(Notice::Retrying { attempt, wait_ms, why: failure.in_words(ask) });
        tokio::time::sleep(wait).await;
    }
}

async fn once(client: &Client, timeouts: &TimeoutOptions, ask: &Ask) -> Result<Answer, Failure> {
    let request = client.request(ask.method.clone(), &ask.url).headers(ask.headers.clone()).body(ask.body.clone());
    let limit = timeouts.first_byte(ask.streaming);
    match timeout(limit, begin(request.send(), ask, timeouts.idle())).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Late { waited: limit }),
    }
}

async fn begin(
    response: impl Future<Output = reqwest::Result<Response>>,
    ask: &Ask,
    idle: Duration,
) -> Result<Answer, Failure> {
    let route = ask.route;
    let mut response = response.await.map_err(unreachable)?;
    let (status, headers) = (response.status(), headers::to_client(response.headers(), ask.key.as_ref()));
    if !status.is_success() {
        let key = ask.key.as_ref().map(Secret::expose);
        return Err(Failure::Refused { status, headers, body: refusal::scrub(error_body(response).await, key) });
    }
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_stream = content_type.starts_with("text/event-stream");
    let first = response.chunk().await.map_err(unreachable)?.unwrap_or_default();
    if is_stream && let Some(refusal) = refused_at_once(route, &first, ask.key.as_ref()) {
        return Err(refusal);
    }
    let rest = stream::unfold(Some(response), move |response| next_piece(response, route, idle));
    let body = stream::iter([Ok(first)]).chain(rest).boxed();
    Ok(Answer { status, headers, is_stream, body })
}

/// Providers under load say 200, and then an error as the first event. Nothing was passed on yet, so it may be retried.
fn refused_at_once(route: Route, first: &Bytes, key: Option<&Secret>) -> Option<Failure> {
    let mut meter = Meter::new(route);
    meter.lines(first);
    let mishap = meter.error()?;
    let status = StatusCode::from_u16(mishap.status).unwrap_or(StatusCode::BAD_GATEWAY);
    let message = refusal::scrubbed(&mishap.message, key);
    let body = Refusal::new(status, refusal::kind_of_status(mishap.status), message).body(route.api());
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"))]);
    Some(Failure::Refused { status, headers, body })
}

/// The clock runs only while a piece is waited for: a buffer that is full is not the provider's silence.
async fn next_piece(
    response: Option<Response>,
    route: Route,
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
            let room = LARGEST_ERROR - body.len();
            body.extend_from_slice(&piece[..piece.len().min(room)]);
            if body.len() == LARGEST_ERROR {
                break;
            }
        }
    };
    // What has come until then is better than nothing.
    let _ = timeout(ERROR_BODY_TIMEOUT, reading).await;
    body.freeze()
}

fn unreachable(error: reqwest::Error) -> Failure {
    Failure::Unreachable { why: root_cause(&error), broke: !error.is_connect() }
}

/// The innermost reason: the outer ones only say that a request failed, and repeat the address.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl Failure {
    fn wait(&self, options: &GatewayOptions, attempt: u32, streaming: bool) -> Option<Duration> {
        let asked = match self {
            Failure::Refused { status, headers, body } if retry::is_worth_it(*status, headers, body) => {
                retry::asked_for(headers)
            }
            Failure::Refused { .. } => return None,
            Failure::Unreachable { .. } => None,
            // An answer in one piece that took too long would take, and cost, as much again.
            Failure::Late { .. } if streaming => None,
            Failure::Late { .. } => return None,
        };
        retry::wait(&options.retry, attempt, asked, jitter())
    }

    pub(super) fn in_words(&self, ask: &Ask) -> String {
        let (api, provider) = (ask.route.api(), provider_name(ask.route.api()));
        match self {
            Failure::Refused { status, body, .. } => in_words(api, &ask.model, status.as_u16(), body),
            Failure::Unreachable { why, .. } => format!("{provider} cannot be reached: {why}"),
            Failure::Late { waited } => format!("{provider} did not answer within {} s", waited.as_secs()),
        }
    }
}

/// Between 0 and 1. The standard library seeds each hasher of this kind at random.
fn jitter() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}
