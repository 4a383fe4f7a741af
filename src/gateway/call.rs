//! Call handler: carries a request to an endpoint from its head to the start of its response.

use std::{
    convert::Infallible,
    fmt::Display,
    future::pending,
    panic::resume_unwind,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use greenroom_protocol::link::ProviderApi;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body, Incoming},
    header::{CONTENT_TYPE, HeaderValue},
    http::request::Parts,
};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    GatewayNotice, ModelCallDenied, SessionAccount, body_filter,
    catalog::{self, DEMO},
    demo,
    endpoint::EndpointContext,
    error_response::{self, EndpointError},
    headers, meter,
    relay::{InputEstimate, RelayBody, ResponseRelay, UsageRecorder},
    request_body,
    request_rewrite::ProxiedRequest,
    reservation::{CallReservation, InputBound, OutputLimits},
    route::{self, GatewayRoute, RoutedPath},
    upstream::{self, UpstreamError, UpstreamRequest, UpstreamResponse},
};

/// Largest request body that is parsed on the session's own thread, bytes. Takes a millisecond or
/// two.
const INLINE_BODY_LIMIT: usize = 1024 * 1024;

/// Held while a larger body is parsed and rewritten.
static LARGE_BODY: Mutex<()> = Mutex::new(());

/// Rejection of a call, by its source.
pub(super) enum RejectedCall {
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
    let (head, mut body) = request.into_parts();
    if matches!(head.method, Method::GET | Method::HEAD) && route::is_root(head.uri.path()) {
        return Ok(full_response(StatusCode::OK, HeaderMap::new(), Bytes::new()));
    }
    let api = route::api_of_path(head.uri.path());
    let result = answer(context, &head, &mut body).await;
    request_body::discard(body);
    Ok(match result {
        Ok(response) => response,
        Err(RejectedCall::Gateway(error)) => full_response(error.status, json_header(), error.body(api)),
        Err(RejectedCall::Provider { status, headers, body }) => full_response(status, headers, body),
    })
}

/// Answers a request, until an interrupt or the end of the endpoint.
pub(super) async fn answer<B>(
    context: &Arc<EndpointContext>,
    head: &Parts,
    body: &mut B,
) -> Result<Response<RelayBody>, RejectedCall>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let abort = context.current_abort_token();
    tokio::select! {
        biased;
        () = abort.cancelled() => Err(EndpointError::interrupted().into()),
        result = serve(context, head, body, abort.clone()) => result,
    }
}

async fn serve<B>(
    context: &Arc<EndpointContext>,
    head: &Parts,
    body: &mut B,
    abort: CancellationToken,
) -> Result<Response<RelayBody>, RejectedCall>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    let path = RoutedPath::find(&head.method, head.uri.path()).ok_or_else(|| unknown_path(head))?;
    let route = path.route;
    let permit = context.calls.clone().acquire_owned().await.expect("the call semaphore is never closed");
    context.account.wait_until_caught_up().await;
    check_permission(context, route)?;

    let (proxied, body_permit) = if route.has_body() {
        let (body, body_permit) = request_body::read(&context.bodies, body).await?;
        let (gateway, path, models) = (context.gateway.clone(), path.clone(), context.account.models());
        let read = run_blocking_if_large(body.len(), move || {
            let filtered = body_filter::filter(route, gateway.allow(), body)?;
            let mut proxied = ProxiedRequest::read(&path, filtered.body)?;
            let admitted = gateway.options().admit(route, &proxied.model, &models);
            let admitted = admitted.map(|model| proxied.set_model(&model));
            Ok::<_, String>((proxied, filtered.removed, body_permit, admitted))
        });
        let (proxied, removed, body_permit, admitted) = read.await.map_err(EndpointError::invalid)?;
        context.log_removed(route, removed);
        admitted.map_err(|reason| payment_required(context, reason))?;
        (Some(proxied), Some(body_permit))
    } else {
        (None, None)
    };
    let input =
        proxied.as_ref().map_or(Ok(InputEstimate::default()), |proxied| estimate_input(context, route, proxied))?;
    let (proxied, reservation) = match proxied {
        Some(proxied) if route.is_metered() => {
            let (proxied, reservation) = reserve(context, route, proxied, input).await?;
            // The reservation may have waited for other calls, and the turn may be over.
            check_permission(context, route)?;
            (Some(proxied), reservation)
        }
        proxied => (proxied, CallReservation::none()),
    };
    let (model, request_bytes) =
        proxied.as_ref().map_or(Default::default(), |proxied| (proxied.model.clone(), proxied.body.len()));

    // From here on, dropping the recorder books the usage: after a hang-up or an interrupt too.
    let mut recorder = UsageRecorder::new(context.clone(), route, model, input, reservation);
    let listed = if proxied.is_none() { listed_models(context, route.api()) } else { None };
    let answered = match proxied {
        Some(proxied) if proxied.model == DEMO => {
            recorder.may_be_billed = true;
            let pace = context.gateway.options().demo_tokens_per_second;
            let (response, _) =
                run_blocking_if_large(request_bytes, move || (demo::respond(route, &proxied, pace), body_permit)).await;
            response.map_err(RejectedCall::from)
        }
        None if listed.is_some() => {
            let (options, api) = (context.gateway.options(), route.api());
            let id = path.model.as_deref().map(|id| options.upstream_name(api, id));
            demo::models(api, &listed.unwrap_or_default(), id).map_err(RejectedCall::from)
        }
        proxied => {
            let response = call_provider(context, &path, head, proxied, &mut recorder.may_be_billed).await;
            drop(body_permit);
            response
        }
    };
    recorder.has_failed = answered.is_err();
    let upstream_response = answered?;
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

/// Checks that the session may call, and that a metered call has a cause.
fn check_permission(context: &EndpointContext, route: GatewayRoute) -> Result<(), EndpointError> {
    context.account.may_call().map_err(EndpointError::forbidden)?;
    if route.is_metered() { context.account.has_cause().map_err(EndpointError::forbidden) } else { Ok(()) }
}

/// Returns the model list that the gateway itself makes. `None`: the provider's list passes.
fn listed_models(context: &EndpointContext, api: ProviderApi) -> Option<Vec<String>> {
    let options = context.gateway.options();
    match options.permitted(api, &context.account.models()) {
        Some(permitted) => Some(permitted.into_iter().map(str::to_owned).collect()),
        None => (!options.usable(api)).then(|| vec![DEMO.to_owned()]),
    }
}

/// Reserves the worst case of a call, and limits its answer to what is left.
///
/// # Errors
/// Rejects a model without a price if the session has a budget, and a call beyond a budget.
async fn reserve(
    context: &Arc<EndpointContext>,
    route: GatewayRoute,
    mut proxied: ProxiedRequest,
    input: InputEstimate,
) -> Result<(ProxiedRequest, CallReservation), EndpointError> {
    let (options, api, account) = (context.gateway.options(), route.api(), &context.account);
    let bytes = proxied.body.len();
    // A picture has many bytes and few tokens, so such a body does not tell the ratio of texts.
    let is_text = !proxied.has_external_refs && !holds_media(&proxied.body);
    let body_bytes = is_text.then_some(bytes as u64);
    let price = context.gateway.price_of(api, &proxied.model);
    if !account.has_budget() {
        // Reserved all the same, and without a limit granted: a budget may be set while the call
        // runs.
        let input = InputBound { estimated: bytes as u64, largest: bytes as u64 };
        let demand = price.map(|price| OutputLimits::default().demand(route, &price, input)).unwrap_or_default();
        let grant = account.reserve(demand).await.map_err(|denied| budget_denied(context, denied))?;
        return Ok((proxied, CallReservation::new(account.clone(), grant, body_bytes)));
    }
    let Some(price) = price else {
        let reason = format!("the model `{}` has no price; set its price, or remove the budget", proxied.model);
        return Err(payment_required(context, reason));
    };
    let body = proxied.body.clone();
    let read = run_blocking_if_large(bytes, move || OutputLimits::read(route, &body));
    let limits = read.await.map_err(EndpointError::invalid)?;
    let input = if proxied.has_external_refs {
        InputBound { estimated: input.upper_bound, largest: input.upper_bound }
    } else {
        InputBound { estimated: account.estimate_input(bytes as u64), largest: bytes as u64 }
    };
    let demand = limits.demand(route, &price, input);
    let grant = account.reserve(demand).await.map_err(|denied| budget_denied(context, denied))?;
    let reservation = CallReservation::new(account.clone(), grant, body_bytes);
    // A free answer needs no limit.
    if price.output > 0.0 {
        let (body, field) = (proxied.body.clone(), options.output_limit_field(route));
        let apply = move || limits.apply(&body, grant.output_tokens, field).unwrap_or(body);
        proxied.body = run_blocking_if_large(bytes, apply).await;
    }
    Ok((proxied, reservation))
}

/// Returns true if the body holds a picture or another file, in any format.
fn holds_media(body: &[u8]) -> bool {
    [&b"base64"[..], b"inlineData", b"inline_data"].into_iter().any(|mark| body.windows(mark.len()).any(|w| w == mark))
}

fn budget_denied(context: &EndpointContext, denied: ModelCallDenied) -> EndpointError {
    if let ModelCallDenied::BudgetSpent(why) = &denied {
        context.account.notify(GatewayNotice::BudgetSpent { why: why.clone() });
    }
    EndpointError::forbidden(denied)
}

/// Rejects a call with 402, and reports the reason to the session.
fn payment_required(context: &EndpointContext, reason: String) -> EndpointError {
    let error = EndpointError::forbidden(ModelCallDenied::Reason(reason.clone()));
    context.account.notify(GatewayNotice::Rejected { status: error.status.as_u16(), why: reason });
    error
}

/// Estimates the input tokens of a request, for a provider that does not get to report them.
///
/// External references count as the model's whole context. Otherwise a client that hangs up in time
/// would read them for next to nothing.
///
/// # Errors
/// Rejects external references if the session has a budget and the model's price has no
/// `context_limit`.
fn estimate_input(
    context: &EndpointContext,
    route: GatewayRoute,
    proxied: &ProxiedRequest,
) -> Result<InputEstimate, EndpointError> {
    let sent = meter::estimate_tokens(proxied.body.len());
    let model = &proxied.model;
    // A model without a price has an unknown cost, whatever the size.
    let price = context.gateway.price_of(route.api(), model);
    let price = price.filter(|price| proxied.has_external_refs && !price.is_free());
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
    // One at a time, because a rewritten body exists twice for a moment.
    let alone = move || {
        let _alone = LARGE_BODY.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    };
    match spawn_blocking(alone).await {
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

async fn call_provider(
    context: &EndpointContext,
    path: &RoutedPath,
    head: &Parts,
    proxied: Option<ProxiedRequest>,
    may_be_billed: &mut bool,
) -> Result<UpstreamResponse, RejectedCall> {
    let (options, route, api) = (context.gateway.options(), path.route, path.route.api());
    let provider = options.provider(api);
    if !options.usable(api) {
        let reason =
            format!("{} needs a key: set `{}`", error_response::provider_name(api), catalog::key_variable(api));
        let error = EndpointError::new(StatusCode::FORBIDDEN, "permission_error", reason);
        context.account.notify(GatewayNotice::Rejected { status: error.status.as_u16(), why: error.message.clone() });
        return Err(error.into());
    }
    let mut removed = Vec::new();
    let key = provider.api_key.clone();
    let headers = headers::to_provider(&head.headers, api, key.expose(), context.gateway.allow(), &mut removed);
    let query = headers::passing_query(head.uri.query().unwrap_or_default(), context.gateway.allow(), &mut removed);
    context.log_removed(route, removed);
    let (body, streaming, model) =
        proxied.map_or_else(Default::default, |proxied| (proxied.body, proxied.streaming, proxied.model));
    let named = if model.is_empty() { path.model.as_deref().unwrap_or_default() } else { &model };
    let mut url = catalog::upstream_url(api, &provider.base_url, &path.upstream_path(named));
    if !query.is_empty() {
        url = format!("{url}?{query}");
    }
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
