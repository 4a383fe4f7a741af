//! One request to an endpoint, from its head to the beginning of its answer.

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

/// The longest request that is read on the session's own thread, bytes: within a millisecond or two.
const INLINE_BODY_LIMIT: usize = 1024 * 1024;

/// Who said no.
enum RejectedCall {
    Gateway(EndpointError),
    Provider { status: StatusCode, headers: HeaderMap, body: Bytes },
}

impl From<EndpointError> for RejectedCall {
    fn from(refusal: EndpointError) -> RejectedCall {
        RejectedCall::Gateway(refusal)
    }
}

/// Always answers; what goes wrong is told in the shape of the provider that the path names.
pub(super) async fn handle(
    door: &Arc<EndpointContext>,
    request: Request<Incoming>,
) -> Result<Response<RelayBody>, Infallible> {
    let cut = door.current_abort_token();
    let api = route::api_of_path(request.uri().path());
    let answered = tokio::select! {
        biased;
        () = cut.cancelled() => Err(EndpointError::interrupted().into()),
        answered = serve(door, request, cut.clone()) => answered,
    };
    Ok(match answered {
        Ok(response) => response,
        Err(RejectedCall::Gateway(refusal)) => full_response(refusal.status, json_header(), refusal.body(api)),
        Err(RejectedCall::Provider { status, headers, body }) => full_response(status, headers, body),
    })
}

async fn serve(
    door: &Arc<EndpointContext>,
    request: Request<Incoming>,
    cut: CancellationToken,
) -> Result<Response<RelayBody>, RejectedCall> {
    let (head, body) = request.into_parts();
    let route = GatewayRoute::find(&head.method, head.uri.path()).ok_or_else(|| unknown_path(&head))?;
    let place = door.calls.clone().acquire_owned().await.expect("the semaphore of calls is never closed");
    door.account.wait_until_caught_up().await;
    door.account.may_call().map_err(EndpointError::forbidden)?;

    let (envelope, room) = if route.has_body() {
        let (body, room) = read_body(door, body).await?;
        let gateway = door.gateway.clone();
        let read = run_blocking_if_large(body.len(), move || {
            let mut envelope = ProxiedRequest::read(route, body)?;
            let name = gateway.options().upstream_name(route.api(), &envelope.model).to_owned();
            envelope.set_model(&name);
            Ok::<_, String>((envelope, room))
        });
        let (envelope, room) = read.await.map_err(EndpointError::invalid)?;
        (Some(envelope), Some(room))
    } else {
        (None, None)
    };
    let (model, request_bytes) =
        envelope.as_ref().map_or(Default::default(), |envelope| (envelope.model.clone(), envelope.body.len()));
    let input = envelope.as_ref().map_or(Ok(InputEstimate::default()), |envelope| estimate_input(door, envelope))?;

    // From here on, whoever hangs up or is interrupted has caused what it books when it is dropped.
    let meter = UsageMeter::new(route);
    let mut tally = UsageRecorder { context: door.clone(), route, model, input, meter, may_be_billed: false };
    let answer = match envelope {
        Some(envelope) if envelope.model == DEMO => {
            tally.may_be_billed = true;
            let pace = door.gateway.options().demo_tokens_per_second;
            let (answer, _) =
                run_blocking_if_large(request_bytes, move || (demo::respond(route, &envelope, pace), room)).await;
            answer?
        }
        None if !door.gateway.options().usable(route.api()) => demo::models(route.api()),
        envelope => {
            let answer = call_provider(door, route, &head, envelope, &mut tally.may_be_billed).await?;
            drop(room);
            answer
        }
    };
    let relay = ResponseRelay {
        route,
        is_stream: answer.is_stream,
        abort_token: cut,
        usage_recorder: tally,
        call_permit: place,
    };
    let mut response = Response::new(relay.start(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    Ok(response)
}

/// How many tokens a request is thought to have, for where its provider does not come to tell. What it points at is taken for all
/// that the model can read: it would be read for next to nothing otherwise by whoever hangs up in time.
fn estimate_input(door: &EndpointContext, envelope: &ProxiedRequest) -> Result<InputEstimate, EndpointError> {
    let sent = meter::estimate_tokens(envelope.body.len());
    let model = &envelope.model;
    // Without a price it costs an unknown amount, however much it is.
    let price = door.gateway.options().price_of(model).filter(|_| envelope.has_external_refs);
    match price.map(|price| price.context_limit) {
        Some(Some(most)) => Ok(InputEstimate { by_bytes: sent, upper_bound: most }),
        None => Ok(InputEstimate { by_bytes: sent, upper_bound: sent }),
        Some(None) if !door.account.has_budget() => Ok(InputEstimate { by_bytes: sent, upper_bound: sent }),
        Some(None) => Err(EndpointError::invalid(format!(
            "`previous_response_id`, `conversation`, `prompt` and references in `input` point at what is kept elsewhere, which \
             cannot be metered without a `context_limit` in the price of `{model}`; leave them out, or set that"
        ))),
    }
}

/// What takes a moment for many bytes is done beside the thread, which the session shares with others. It is done to its end
/// though nobody may wait for it any more, so the bytes' room goes with it.
async fn run_blocking_if_large<T: Send + 'static>(bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
    if bytes <= INLINE_BODY_LIMIT {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => match e.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The server ends.
            Err(_) => pending().await,
        },
    }
}

fn unknown_path(head: &Parts) -> EndpointError {
    let message =
        format!("there is no `{} {}` here (there is: {})", head.method, head.uri.path(), route::list_routes());
    EndpointError::new(StatusCode::NOT_FOUND, "not_found_error", message)
}

/// Reads a request's body into room that is set aside for it first, so that no session keeps more than its share. It may
/// come as slowly as it likes: a frozen sandbox sends nothing either, and who dawdles takes up only places of its own session.
async fn read_body(door: &EndpointContext, body: Incoming) -> Result<(Bytes, OwnedSemaphorePermit), EndpointError> {
    let largest = MAX_BODY_BYTES as u64;
    let announced = body.size_hint().exact().unwrap_or(largest);
    if announced > largest {
        return Err(too_large());
    }
    let room = door.bodies.clone().acquire_many_owned(announced as u32).await;
    let mut room = room.expect("the semaphore of bodies is never closed");
    let body = match collect_body(Limited::new(body, MAX_BODY_BYTES)).await {
        Ok(body) => body,
        Err(e) if e.is::<http_body_util::LengthLimitError>() => return Err(too_large()),
        Err(e) => return Err(EndpointError::invalid(format!("the request's body broke off: {e}"))),
    };
    // A body of unknown length was given all the room that there is.
    drop(room.split(announced as usize - body.len()));
    Ok((body, room))
}

/// Copied as it comes: each piece is a part of a larger block of the HTTP library, and would keep it.
async fn collect_body<B: hyper::body::Body<Data = Bytes> + Unpin>(mut body: B) -> Result<Bytes, B::Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data() {
            whole.extend_from_slice(&piece);
        }
    }
    Ok(whole.freeze())
}

fn too_large() -> EndpointError {
    let message = format!("the request is larger than {} MiB, which is the most that passes", MAX_BODY_BYTES >> 20);
    EndpointError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

async fn call_provider(
    door: &EndpointContext,
    route: GatewayRoute,
    head: &Parts,
    envelope: Option<ProxiedRequest>,
    is_owed: &mut bool,
) -> Result<UpstreamResponse, RejectedCall> {
    let (options, api) = (door.gateway.options(), route.api());
    let provider = options.provider(api);
    if !options.usable(api) {
        let why = format!("{} needs a key: set `{}`", error_response::provider_name(api), catalog::key_variable(api));
        let refusal = EndpointError::new(StatusCode::FORBIDDEN, "permission_error", why);
        door.account.notify(GatewayNotice::Rejected { status: refusal.status.as_u16(), why: refusal.message.clone() });
        return Err(refusal.into());
    }
    let mut url = catalog::upstream_url(api, &provider.base_url, route.upstream_path());
    if let Some(query) = head.uri.query() {
        url = format!("{url}?{query}");
    }
    let key = provider.api_key.clone();
    let headers = headers::to_provider(&head.headers, api, key.as_ref());
    let (body, streaming, model) =
        envelope.map_or_else(Default::default, |envelope| (envelope.body, envelope.streaming, envelope.model));
    let ask = UpstreamRequest { route, method: head.method.clone(), url, headers, body, streaming, model, key };
    upstream::send_with_retries(door.gateway.client(), options, &ask, &*door.account, is_owed)
        .await
        .map_err(|failure| report_failure(&*door.account, failure, &ask))
}

/// Tells the session in words, and the agent in the provider's own. Its SDK need not try again: that was done here.
fn report_failure(account: &dyn SessionAccount, failure: UpstreamError, ask: &UpstreamRequest) -> RejectedCall {
    let why = failure.describe(ask);
    let of_our_own = |status: StatusCode| {
        let refusal = EndpointError::new(status, error_response::kind_of_status(status.as_u16()), why.as_str());
        (status, json_header(), refusal.body(ask.route.api()))
    };
    let (status, mut headers, body) = match failure {
        UpstreamError::Rejected { status, headers, body } => (status, headers, body),
        UpstreamError::Unreachable { .. } => of_our_own(StatusCode::BAD_GATEWAY),
        UpstreamError::TimedOut { .. } => of_our_own(StatusCode::GATEWAY_TIMEOUT),
    };
    headers.insert(headers::SHOULD_RETRY, HeaderValue::from_static("false"));
    account.notify(GatewayNotice::Rejected { status: status.as_u16(), why });
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

    /// Eight bytes of which one is read.
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
    async fn a_body_that_comes_byte_by_byte_keeps_no_blocks() {
        let dropped = Arc::new(AtomicUsize::new(0));
        let pieces: Vec<Result<_, Infallible>> =
            (0..100).map(|_| Ok(Frame::data(Bytes::from_owner(CallBodyBlock(dropped.clone())).slice(..1)))).collect();
        let body = collect_body(StreamBody::new(stream::iter(pieces))).await.expect("it comes whole");
        assert_eq!(body, "x".repeat(100));
        assert_eq!(dropped.load(Ordering::Relaxed), 100);
    }
}
