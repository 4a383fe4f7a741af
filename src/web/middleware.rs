//! Middleware for all requests: authorization by [`super::auth`], and security headers and error
//! forms for answers.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpResponse, ResponseError,
    body::{BodySize, BoxBody, MessageBody},
    cookie::{Cookie, SameSite, time::Duration},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web::{Bytes, Data, Payload},
};
use percent_encoding::percent_decode_str;

use super::{
    assets,
    auth::{Auth, AuthDecision, AuthError, RequestAccess, RequestBodyKind, RequestFacts, RouteClass},
    error::{ApiError, bad_handshake, check_handshake},
    request::{AuthenticatedRequest, accepts},
};
use crate::{
    frontend,
    net::{ActiveResponse, UnparsedAnswer, apply_body_timeout},
    telemetry::metrics::{METRICS, OTHER},
};

/// Passes an authorized request on, or answers it. A rejected request reaches no handler.
pub(super) async fn authorize(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let auth = req.app_data::<Data<Auth>>().expect("`register` adds `Auth` as application data").clone();
    let grant = auth.grant();
    apply_body_timeout(&mut req);
    match decide(&auth, &req) {
        decision @ (AuthDecision::Pass | AuthDecision::PassAuthenticated) => {
            req.extensions_mut().insert(grant);
            if decision == AuthDecision::PassAuthenticated {
                req.extensions_mut().insert(AuthenticatedRequest);
            }
            Ok(next.call(req).await?.map_into_boxed_body())
        }
        AuthDecision::PassCrossOrigin(origin) => {
            req.extensions_mut().insert(grant);
            let mut response = next.call(req).await?.map_into_boxed_body();
            allow_origin(response.headers_mut(), &origin);
            Ok(response)
        }
        AuthDecision::AnswerPreflight(origin) => {
            let mut response = HttpResponse::NoContent().finish();
            allow_origin(response.headers_mut(), &origin);
            for (name, value) in PREFLIGHT_HEADERS {
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            Ok(req.into_response(response))
        }
        AuthDecision::SignIn => {
            let response = sign_in(&auth, &req);
            Ok(req.into_response(response))
        }
        AuthDecision::Reject(error) => reject(&auth, req, error).await,
        AuthDecision::RejectCrossOrigin(origin, error) => {
            let mut response = reject(&auth, req, error).await?;
            allow_origin(response.headers_mut(), &origin);
            Ok(response)
        }
    }
}

async fn reject(auth: &Auth, req: ServiceRequest, error: AuthError) -> Result<ServiceResponse<BoxBody>, Error> {
    if let (AuthError::WrongToken, Some(peer)) = (&error, req.peer_addr()) {
        auth.wrong_tokens().hold_back(peer.ip()).await;
    }
    match error {
        AuthError::NoToken | AuthError::WrongToken if is_socket_handshake(&req) && !reads_status(&req) => {
            let (req, mut payload) = req.into_parts();
            let body = Payload::from_request(&req, &mut payload).await?;
            let socket = check_handshake(&req)
                .and_then(|()| frontend::reject(&req, body, 4401, &error.to_string()).map_err(bad_handshake));
            let response = socket.unwrap_or_else(|e| e.error_response());
            Ok(ServiceResponse::new(req, response))
        }
        AuthError::Host(_)
        | AuthError::Origin(_)
        | AuthError::NoToken
        | AuthError::WrongToken
        | AuthError::CookieAlone
        | AuthError::NotJson => Ok(req.error_response(ApiError::from(error))),
    }
}

fn decide(auth: &Auth, req: &ServiceRequest) -> AuthDecision {
    let cookie = req.cookie(&auth.cookie_name());
    let query = query_token(req.query_string());
    let host = single_header(req.headers(), header::HOST);
    auth.authorize(&RequestFacts {
        route: route_class(req),
        access: match *req.method() {
            Method::GET | Method::HEAD => RequestAccess::Read,
            Method::OPTIONS => RequestAccess::Preflight,
            _ => RequestAccess::Write,
        },
        host,
        origin: optional_header(req.headers(), header::ORIGIN),
        fetch_site: optional_header(req.headers(), HeaderName::from_static("sec-fetch-site")),
        bearer: optional_header(req.headers(), header::AUTHORIZATION).map(bearer_token),
        query: query.as_deref(),
        cookie: cookie.as_ref().map(|cookie| cookie.value()),
        body: if is_file_form(req) { RequestBodyKind::File } else { body_kind(req.method(), req.headers()) },
    })
}

/// Returns true for a WebSocket handshake. A script in a browser sees the close code of a socket,
/// but never the status of a failed handshake.
fn is_socket_handshake(req: &ServiceRequest) -> bool {
    let upgrades = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    route_class(req) == RouteClass::Socket && req.headers().get(header::UPGRADE).is_some_and(upgrades)
}

/// Returns true for a chat socket of a client that is no page. Such a client reads the status of a
/// failed handshake, and gives up at a 401.
fn reads_status(req: &ServiceRequest) -> bool {
    req.match_info().as_str() != "/ws" && !req.headers().contains_key(header::ORIGIN)
}

/// Returns true if a person opens an address in a browser. Scripts of the page accept any type and
/// get JSON.
fn is_page_navigation(req: &ServiceRequest) -> bool {
    let path = req.match_info().as_str();
    let is_for_clients = path == "/api" || path.starts_with("/api/") || route_class(req) == RouteClass::Socket;
    matches!(*req.method(), Method::GET | Method::HEAD) && !is_for_clients && accepts(req.headers(), "text/html")
}

/// Returns the class of the decoded path, which the router matches too.
///
/// A path that is not a page belongs to the API. So a new route is closed by default.
fn route_class(req: &ServiceRequest) -> RouteClass {
    let path = req.match_info().as_str();
    match path {
        "/healthz" => RouteClass::Health,
        "/ws" => RouteClass::Socket,
        path if path.starts_with("/ws/") => RouteClass::Socket,
        path if assets::is_page(path) => RouteClass::Page,
        _ => RouteClass::Api,
    }
}

/// Returns the value of a header. `None` if the header is missing, not text, or repeated.
fn single_header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name);
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// Returns the value of an optional header. A repeated or non-text header yields an empty value,
/// which matches nothing.
fn optional_header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.contains_key(&name).then(|| single_header(headers, name).unwrap_or_default())
}

fn body_kind(method: &Method, headers: &HeaderMap) -> RequestBodyKind {
    let sized = |value: &HeaderValue| value.as_bytes() != b"0";
    let has_body =
        headers.get(header::CONTENT_LENGTH).is_some_and(sized) || headers.contains_key(header::TRANSFER_ENCODING);
    match optional_header(headers, header::CONTENT_TYPE) {
        None if !has_body => RequestBodyKind::None,
        Some(kind) if kind.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) => {
            RequestBodyKind::Json
        }
        None | Some(_) if *method == Method::PUT => RequestBodyKind::File,
        None | Some(_) => RequestBodyKind::Other,
    }
}

/// Returns true for an upload of several files, which is a form.
fn is_file_form(req: &ServiceRequest) -> bool {
    let kind = optional_header(req.headers(), header::CONTENT_TYPE).unwrap_or_default();
    let is_form = kind.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case("multipart/form-data"));
    let path = req.match_info().as_str();
    is_form && *req.method() == Method::POST && path.starts_with("/api/sessions/") && path.ends_with("/files")
}

/// Returns the token of an `Authorization` header. Another scheme yields an empty token.
fn bearer_token(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
        Some(_) | None => "",
    }
}

fn query_token(query: &str) -> Option<String> {
    query_pairs(query).find(|(name, _)| *name == "token").map(|(_, value)| value.to_owned())
}

fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Exchanges the token in the address for the cookie.
fn sign_in(auth: &Auth, req: &ServiceRequest) -> HttpResponse {
    let host = single_header(req.headers(), header::HOST).unwrap_or_default();
    let cookie = Cookie::build(auth.cookie_name(), auth.cookie_value())
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(auth.is_tls(host))
        .max_age(Duration::days(400))
        .finish();
    let query: Vec<_> =
        req.query_string().split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("token=")).collect();
    // The path begins with exactly one slash. `//evil.test` is not a page, so the router does not
    // send it here.
    let address = match query.is_empty() {
        true => req.path().to_owned(),
        false => format!("{}?{}", req.path(), query.join("&")),
    };
    HttpResponse::SeeOther().insert_header((header::LOCATION, address)).cookie(cookie).finish()
}

/// Headers of the answer to a preflight.
const PREFLIGHT_HEADERS: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, idempotency-key, if-match, if-none-match, last-event-id",
    ),
    (header::ACCESS_CONTROL_MAX_AGE, "600"),
];

fn allow_origin(headers: &mut HeaderMap, origin: &str) {
    if let Ok(origin) = HeaderValue::from_str(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("location, retry-after"));
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
}

/// Headers that stay when an answer's body is replaced.
const PRESERVED_HEADERS: [HeaderName; 4] =
    [header::ALLOW, header::ACCESS_CONTROL_ALLOW_ORIGIN, header::ACCESS_CONTROL_EXPOSE_HEADERS, header::VARY];

/// Restrictions for a browser on all answers: foreign scripts, frames and images. See
/// docs/faults.md.
const SECURITY_HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// Outermost middleware: adds the security headers to each answer, and gives each error the common
/// form.
///
/// Errors that the framework creates are included.
pub(super) async fn security_headers(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let active = ActiveResponse::begin();
    let (method, path, wants_page) = (req.method().clone(), req.path().to_owned(), is_page_navigation(&req));
    let mut response = next.call(req).await?.map_into_boxed_body();
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && !is_json(response.headers()) {
        response = with_error_body(response, &method, &path);
    }
    if wants_page {
        response = with_error_page(response);
    }
    add_security_headers(response.headers_mut());
    count_request(Some(&method), status);
    if method == Method::HEAD {
        response = response.map_body(|_, body| BoxBody::new(HeadBody(body.size())));
    }
    Ok(match active {
        Some(active) => active.track_body(response),
        None => response,
    })
}

fn add_security_headers(headers: &mut HeaderMap) {
    // A browser enforces each of several policies, so an answer can be restricted further.
    let own_policy = headers.remove(header::CONTENT_SECURITY_POLICY).next();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if let Some(policy) = own_policy {
        headers.append(header::CONTENT_SECURITY_POLICY, policy);
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}

/// Answers a request that cannot be parsed. No other middleware sees such a request.
pub(super) fn answer_unparsed(status: StatusCode) -> UnparsedAnswer {
    count_request(None, status);
    let mut response = ApiError::unparsed(status).error_response();
    add_security_headers(response.headers_mut());
    let headers = response.headers().clone();
    UnparsedAnswer { headers, body: response.into_body().try_into_bytes().unwrap_or_default() }
}

/// Innermost middleware: rejects addresses that are not UTF-8.
///
/// The router replaces such bytes, so that two addresses would name one thing.
pub(super) async fn require_utf8(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let is_utf8 = |text: &str| percent_decode_str(text).decode_utf8().is_ok();
    match is_utf8(req.path()) && is_utf8(req.query_string()) {
        true => Ok(next.call(req).await?.map_into_boxed_body()),
        false => Ok(req.error_response(ApiError::invalid("the address is not UTF-8; encode names as UTF-8"))),
    }
}

/// Body of the answer to a `HEAD` request: has the size of the answer to `GET`, and no bytes.
///
/// The body for `GET` is dropped unread. Otherwise it would be produced for nobody, and an event
/// stream without end.
struct HeadBody(BodySize);

impl MessageBody for HeadBody {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        self.0
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        Poll::Ready(None)
    }
}

fn with_error_body(response: ServiceResponse<BoxBody>, method: &Method, path: &str) -> ServiceResponse<BoxBody> {
    let mut replacement = HttpResponse::from_error(ApiError::of_status(response.status(), method.as_str(), path));
    for name in PRESERVED_HEADERS {
        for value in response.headers().get_all(&name) {
            replacement.headers_mut().append(name.clone(), value.clone());
        }
    }
    response.into_response(replacement)
}

/// Replaces the body of a failure by an HTML page. Other answers stay unchanged.
fn with_error_page(response: ServiceResponse<BoxBody>) -> ServiceResponse<BoxBody> {
    let Some(page) = response.response().error().and_then(|error| error.as_error()).map(ApiError::error_page) else {
        return response;
    };
    response.map_body(|head, _| {
        head.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        BoxBody::new(page)
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"))
}

/// Counts a request. The method of a request that cannot be parsed is not known.
fn count_request(method: Option<&Method>, status: StatusCode) {
    METRICS.count_request(method.map_or(OTHER, Method::as_str), status.as_str());
}
