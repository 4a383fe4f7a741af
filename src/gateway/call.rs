//! Call handler: carries a request to an endpoint from its head to the start of its response.

use std::{convert::Infallible, future::pending, panic::resume_unwind, sync::Arc};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    http::request::Parts,
};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use super::{
    GatewayNotice, SessionAccount,
    catalog::{self, DEMO},
    demo,
    endpoint::{EndpointContext, MAX_BODY_BYTES},
    error_response::{self, EndpointError},
    headers,
    meter::{self, UsageMeter},
    relay::{InputEstimate, RelayBody, ResponseRelay, UsageRecorder},
    request_rewrite::ProxiedRequest,
    route::{self, GatewayRoute},
    upstream::{self, UpstreamError, UpstreamRequest, UpstreamResponse},
};

/// Largest request body that is parsed on the session's own thread, bytes. Takes a millisecond or
/// two.
const INLINE_BODY_LIMIT: usize = 1024 * 1024;

/// Rejection of a call, by its source.
enum RejectedCall {
    Gateway(EndpointError),
    Provider { status: StatusCode, headers: HeaderMap, body: Bytes },
}

impl From<EndpointError> for RejectedCall {
    fn from(error: EndpointError) -> RejectedCall {
        RejectedCall::Gateway(error)
    }
}

/// Handles one request. Errors become responses in the format of the provider that the path names.
pub(super) async fn handle(
    context: &Arc<EndpointContext>,
    request: Request<Incoming>,
) -> Result<Response<RelayBody>, Infallible> {
    let abort = context.current_abort_token();
    let api = route::api_of_path(request.uri().path());
    let result = tokio::select! {
        biased;
        () = abort.cancelled() => Err(EndpointError::interrupted().into()),
        result = serve(context, request, abort.clone()) => result,
    };
    Ok(match result {
        Ok(response) => response,
        Err(RejectedCall::Gateway(error)) => full_response(error.status, json_header(), error.body(api)),
        Err(RejectedCall::Provider { status, headers, body }) => full_response(status, headers, body),
    })
}

async fn serve(
    context: &Arc<EndpointContext>,
    request: Request<Incoming>,
    abort: CancellationToken,
) -> Result<Response<RelayBody>, RejectedCall> {
    let (head, body) = request.into_parts();
    let route = GatewayRoute::find(&head.method, head.uri.path()).ok_or_else(|| unknown_path(&head))?;
    let permit = context.calls.clone().acquire_owned().await.expect("the call semaphore is never closed");
    context.account.wait_until_caught_up().await;
    context.account.may_call().map_err(EndpointError::forbidden)?;

    let (proxied, body_permit) = if route.has_body() {
        let (body, body_permit) = read_body(context, body).await?;
        let gateway = context.gateway.clone();
        let read = run_blocking_if_large(body.len(), move || {
            let mut proxied = ProxiedRequest::read(route, body)?;
            let name = gateway.options().upstream_name(route.api(), &proxied.model).to_owned();
            proxied.set_model(&name);
            Ok::<_, String>((proxied, body_permit))
        });
        let (proxied, body_permit) = read.await.map_err(EndpointError::invalid)?;
        (Some(proxied), Some(body_permit))
    } else {
        (None, None)
    };
    let (model, request_bytes) =
        proxied.as_ref().map_or(Default::default(), |proxied| (proxied.model.clone(), proxied.body.len()));
    let input = proxied.as_ref().map_or(Ok(InputEstimate::default()), |proxied| estimate_input(context, proxied))?;

    // From here on, dropping the recorder books the usage: after a hang-up or an interrupt too.
    let meter = UsageMeter::new(route);
    let mut recorder = UsageRecorder { context: context.clone(), route, model, input, meter, may_be_billed: false };
    let upstream_response = match proxied {
        Some(proxied) if proxied.model == DEMO => {
            recorder.may_be_billed = true;
            let pace = context.gateway.options().demo_tokens_per_second;
            let (response, _) =
                run_blocking_if_large(request_bytes, move || (demo::respond(route, &proxied, pace), body_permit)).await;
            response?
        }
        None if !context.gateway.options().usable(route.api()) => demo::models(route.api()),
        proxied => {
            let response = call_provider(context, route, &head, proxied, &mut recorder.may_be_billed).await?;
            drop(body_permit);
            response
        }
    };
    let relay = ResponseRelay {
        route,
        is_stream: upstream_response.is_stream,
        abort_token: abort,
        usage_recorder: recorder,
        call_permit: permit,
    };
    let mut response = Response::new(relay.start(upstream_response.body));
    *response.status_mut() = upstream_response.status;
    *response.headers_mut() = upstream_response.headers;
    Ok(response)
}

/// Estimates the input tokens of a request, for a provider that does not get to report them.
///
/// External references count as the model's whole context. Otherwise a client that hangs up in time
/// would read them for next to nothing.
///
/// # Errors
/// Rejects external references if the session has a budget and the model's price has no
/// `context_limit`.
fn estimate_input(context: &EndpointContext, proxied: &ProxiedRequest) -> Result<InputEstimate, EndpointError> {
    let sent = meter::estimate_tokens(proxied.body.len());
    let model = &proxied.model;
    // A model without a price has an unknown cost, whatever the size.
    let price = context.gateway.options().price_of(model).filter(|_| proxied.has_external_refs);
    match price.map(|price| price.context_limit) {
        Some(Some(limit)) => Ok(InputEstimate { by_bytes: sent, upper_bound: limit }),
        None => Ok(InputEstimate { by_bytes: sent, upper_bound: sent }),
        Some(None) if !context.account.has_budget() => Ok(InputEstimate { by_bytes: sent, upper_bound: sent }),
        Some(None) => Err(EndpointError::invalid(format!(
            "`previous_response_id`, `conversation`, `prompt` and references in `input` point at external content, which \
             cannot be metered without a `context_limit` in the price of `{model}`; leave them out, or set the limit"
        ))),
    }
}

/// Runs `work` on a blocking thread if `bytes` is above [`INLINE_BODY_LIMIT`]. Other sessions share
/// the session's thread.
///
/// `work` runs to its end even if the caller is dropped. The permit of the body therefore moves
/// into `work`.
async fn run_blocking_if_large<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= INLINE_BODY_LIMIT {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => pending().await,
        },
    }
}

fn unknown_path(head: &Parts) -> EndpointError {
    let message =
        format!("there is no `{} {}` here; the routes are: {}", head.method, head.uri.path(), route::list_routes());
    EndpointError::new(StatusCode::NOT_FOUND, "not_found_error", message)
}

/// Reads a request's body. Its space is reserved first, so that no session exceeds its share.
///
/// The read has no time limit, because a paused sandbox sends nothing. A slow client occupies only
/// permits of its own session.
///
/// # Errors
/// Returns an error if the body is larger than [`MAX_BODY_BYTES`] or breaks off.
async fn read_body(context: &EndpointContext, body: Incoming) -> Result<(Bytes, OwnedSemaphorePermit), EndpointError> {
    let limit = MAX_BODY_BYTES as u64;
    let announced = body.size_hint().exact().unwrap_or(limit);
    if announced > limit {
        return Err(too_large());
    }
    let body_permit = context.bodies.clone().acquire_many_owned(announced as u32).await;
    let mut body_permit = body_permit.expect("the body semaphore is never closed");
    let body = match collect_body(Limited::new(body, MAX_BODY_BYTES)).await {
        Ok(body) => body,
        Err(e) if e.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Err(e) => return Err(EndpointError::invalid(format!("the request body ended early: {e}"))),
    };
    // A body of unknown length had reserved all the space.
    drop(body_permit.split(announced as usize - body.len()));
    Ok((body, body_permit))
}

/// Collects the chunks of `body` into one copy. Each chunk is part of a larger block of the HTTP
/// library and would keep that block allocated.
async fn collect_body<B: hyper::body::Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, B::Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(chunk) = frame?.into_data() {
            whole.extend_from_slice(&chunk);
        }
    }
    Ok(whole.freeze())
}

fn too_large() -> EndpointError {
    let message = format!("the request is larger than {} MiB, which is the limit", MAX_BODY_BYTES >> 20);
    EndpointError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

async fn call_provider(
    context: &EndpointContext,
    route: GatewayRoute,
    head: &Parts,
    proxied: Option<ProxiedRequest>,
    may_be_billed: &mut bool,
) -> Result<UpstreamResponse, RejectedCall> {
    let (options, api) = (context.gateway.options(), route.api());
    let provider = options.provider(api);
    if !options.usable(api) {
        let reason =
            format!("{} needs a key: set `{}`", error_response::provider_name(api), catalog::key_variable(api));
        let error = EndpointError::new(StatusCode::FORBIDDEN, "permission_error", reason);
        context.account.notify(GatewayNotice::Rejected { status: error.status.as_u16(), why: error.message.clone() });
        return Err(error.into());
    }
    let mut url = catalog::upstream_url(api, &provider.base_url, route.upstream_path());
    if let Some(query) = head.uri.query() {
        url = format!("{url}?{query}");
    }
    let key = provider.api_key.clone();
    let headers = headers::to_provider(&head.headers, api, key.expose());
    let (body, streaming, model) =
        proxied.map_or_else(Default::default, |proxied| (proxied.body, proxied.streaming, proxied.model));
    let request = UpstreamRequest { route, method: head.method.clone(), url, headers, body, streaming, model, key };
    upstream::send_with_retries(context.gateway.client(), options, &request, &*context.account, may_be_billed)
        .await
        .map_err(|failure| report_failure(&*context.account, failure, &request))
}

/// Reports a failed call to the session in words, and returns the response for the agent in the
/// provider's format. The SDK must not retry: the gateway has done so.
fn report_failure(account: &dyn SessionAccount, failure: UpstreamError, request: &UpstreamRequest) -> RejectedCall {
    let reason = failure.describe(request);
    let gateway_error = |status: StatusCode| {
        let error = EndpointError::new(status, error_response::kind_of_status(status.as_u16()), reason.as_str());
        (status, json_header(), error.body(request.route.api()))
    };
    let (status, mut headers, body) = match failure {
        UpstreamError::Rejected { status, headers, body, .. } => (status, headers, body),
        UpstreamError::Unreachable { .. } | UpstreamError::Cut { .. } => gateway_error(StatusCode::BAD_GATEWAY),
        UpstreamError::TimedOut { .. } => gateway_error(StatusCode::GATEWAY_TIMEOUT),
    };
    headers.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
    account.notify(GatewayNotice::Rejected { status: status.as_u16(), why: reason });
    RejectedCall::Provider { status, headers, body }
}

fn json_header() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))])
}

fn full_response(status: StatusCode, headers: HeaderMap, body: Bytes) -> Response<RelayBody> {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    /// Block of eight bytes, one of which is read.
    struct CallBodyBlock(Arc<AtomicUsize>);

    impl AsRef<[u8]> for CallBodyBlock {
        fn as_ref(&self) -> &[u8] {
            b"x       "
        }
    }

    impl Drop for CallBodyBlock {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn body_sent_byte_by_byte_keeps_no_blocks() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let chunks: Vec<Result<_, Infallible>> =
            (0..100).map(|_| Ok(Frame::data(Bytes::from_owner(CallBodyBlock(dropped.clone())).slice(..1)))).collect();
        let body = collect_body(StreamBody::new(stream::iter(chunks))).await.expect("the body is complete");
        assert_eq!(body, "x".repeat(100));
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }
}
