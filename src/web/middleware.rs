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
    cookie::Cookie,
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode, Uri,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web::{Bytes, Data, Payload},
};
use percent_encoding::percent_decode_str;

use super::{
    assets,
    auth::{Auth, AuthDecision, AuthError, ClientProof, RequestAccess, RequestBodyKind, RequestFacts, RouteClass},
    client_facts::{ClientFacts, is_https},
    error::{ApiError, bad_handshake, check_handshake},
    request::{SignInLink, accepts, single_header},
    shell::{is_navigation_head, preferences},
    tickets::without_ticket,
};
use crate::{
    data::AccessGrant,
    frontend,
    net::{ActiveResponse, UnparsedAnswer, UnparsedAnswers, apply_body_timeout},
    telemetry::metrics::{METRICS, OTHER},
};

/// Passes an authorized request on, or answers it. A rejected request reaches no handler.
pub(super) async fn authorize(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let auth = req.app_data::<Data<Auth>>().expect("`register` adds `Auth` as application data").clone();
    apply_body_timeout(&mut req);
    let (decision, grant) = decide(&auth, &req);
    match decision {
        AuthDecision::Pass(proof) => {
            admit(&auth, &mut req, proof, grant);
            Ok(next.call(req).await?.map_into_boxed_body())
        }
        AuthDecision::PassCrossOrigin(origin, proof) => {
            admit(&auth, &mut req, proof, grant);
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
            req.extensions_mut().insert(SignInLink);
            Ok(next.call(req).await?.map_into_boxed_body())
        }
        AuthDecision::Reject(error) => reject(&auth, req, error).await,
        AuthDecision::RejectCrossOrigin(origin, error) => {
            let mut response = reject(&auth, req, error).await?;
            allow_origin(response.headers_mut(), &origin);
            Ok(response)
        }
    }
}

/// Hands an admitted client's name, proof and grant to the handlers. No handler sees a ticket.
fn admit(auth: &Auth, req: &mut ServiceRequest, proof: ClientProof, grant: AccessGrant) {
    let mut extensions = req.extensions_mut();
    extensions.insert(grant);
    extensions.insert(proof);
    if let Some(name) = auth.name_of(proof) {
        extensions.insert(name);
    }
    drop(extensions);
    if proof == ClientProof::Ticket
        && let Ok(address) = without_ticket(&address_of(req)).parse::<Uri>()
    {
        req.head_mut().uri = address;
    }
}

async fn reject(auth: &Auth, req: ServiceRequest, error: AuthError) -> Result<ServiceResponse<BoxBody>, Error> {
    if let (AuthError::WrongToken, Some(address)) = (&error, ClientFacts::of(req.request()).address()) {
        auth.wrong_tokens().hold_back(address).await;
    }
    // A person who mistypes an address is not asked for a token.
    let is_missing = error.is_unauthenticated() && is_page_navigation(&req) && req.match_pattern().is_none();
    match error {
        error if is_missing && error != AuthError::WrongToken => {
            let not_found = ApiError::of_status(StatusCode::NOT_FOUND, req.method().as_str(), req.path());
            Ok(req.error_response(not_found))
        }
        error if error.is_unauthenticated() && is_socket_handshake(&req) && !reads_status(&req) => {
            let (req, mut payload) = req.into_parts();
            let body = Payload::from_request(&req, &mut payload).await?;
            let socket = check_handshake(&req)
                .and_then(|()| frontend::reject(&req, body, 4401, &error.to_string()).map_err(bad_handshake));
            let response = socket.unwrap_or_else(|e| e.error_response());
            Ok(ServiceResponse::new(req, response))
        }
        error => Ok(req.error_response(ApiError::from(error))),
    }
}

/// Decides on a request. The grant ends with what admitted the client.
fn decide(auth: &Auth, req: &ServiceRequest) -> (AuthDecision, AccessGrant) {
    let of_token = auth.token_grant();
    let client = ClientFacts::of(req.request());
    let is_https = is_https(auth, req.request());
    let cookie = browser_cookie(auth, req, is_https);
    let address = address_of(req);
    let secret_header = HeaderName::from_static(SECRET_HEADER);
    let secret = optional_header(req.headers(), secret_header).or_else(|| socket_secret(req));
    let facts = RequestFacts {
        route: if client.is_open_monitoring(req.request()) { RouteClass::Health } else { route_class(req) },
        access: match *req.method() {
            Method::GET | Method::HEAD => RequestAccess::Read,
            Method::OPTIONS => RequestAccess::Preflight,
            _ => RequestAccess::Write,
        },
        host: client.host(),
        is_https,
        origin: optional_header(req.headers(), header::ORIGIN),
        fetch_site: optional_header(req.headers(), HeaderName::from_static("sec-fetch-site")),
        bearer: optional_header(req.headers(), header::AUTHORIZATION).map(bearer_token),
        query: query_value(req.query_string(), "token"),
        cookie: cookie.as_ref().map(|cookie| cookie.value()),
        secret,
        ticket: query_value(req.query_string(), "ticket").filter(|_| *req.method() == Method::GET),
        address: &address,
        body: if is_file_form(req) { RequestBodyKind::File } else { body_kind(req.method(), req.headers()) },
    };
    let decision = auth.authorize(&facts);
    let proof = match &decision {
        AuthDecision::Pass(proof) | AuthDecision::PassCrossOrigin(_, proof) => *proof,
        AuthDecision::AnswerPreflight(_)
        | AuthDecision::SignIn
        | AuthDecision::Reject(_)
        | AuthDecision::RejectCrossOrigin(..) => ClientProof::None,
    };
    match auth.grant_of(proof, &facts, of_token.clone()) {
        Ok(grant) => (decision, grant),
        Err(error) => (AuthDecision::Reject(error), of_token),
    }
}

/// Returns the cookie of a browser.
///
/// A page of another port can add a cookie of the same name with a longer path. A browser sends
/// that cookie first, so a recognised one is preferred.
fn browser_cookie(auth: &Auth, req: &ServiceRequest, is_https: bool) -> Option<Cookie<'static>> {
    let name = auth.cookie_name(is_https);
    let cookies = req.cookies().ok()?;
    let mut named: Vec<_> = cookies.iter().filter(|cookie| cookie.name() == name).collect();
    if named.len() > 1 {
        named.sort_by_key(|cookie| !auth.browsers().recognizes(cookie.value()));
    }
    named.first().map(|cookie| (*cookie).clone())
}

/// Header with the secret of the page's browser.
const SECRET_HEADER: &str = "x-greenroom-secret";

/// Returns the secret among the protocols that a socket's handshake offers: `secret.VALUE`. A page
/// can set no header of a handshake.
fn socket_secret(req: &ServiceRequest) -> Option<&str> {
    let offered = optional_header(req.headers(), header::SEC_WEBSOCKET_PROTOCOL)?;
    let is_socket = route_class(req) == RouteClass::Socket;
    offered.split(',').filter(|_| is_socket).find_map(|protocol| protocol.trim().strip_prefix("secret."))
}

/// Returns path and query of a request.
fn address_of(req: &ServiceRequest) -> String {
    req.uri().path_and_query().map_or_else(String::new, |address| address.as_str().to_owned())
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
    // Only a browser that follows a link has a ticket.
    let is_for_clients = is_for_clients && query_value(req.query_string(), "ticket").is_none();
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
        "/api/sign-in" => RouteClass::SignIn,
        path if path.starts_with("/ws/") => RouteClass::Socket,
        path if assets::is_page(path) => RouteClass::Page,
        _ => RouteClass::Api,
    }
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

/// Returns the first value of this name in a query.
fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
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

/// Returns the answers to requests that cannot be parsed.
pub(super) fn unparsed_answers() -> UnparsedAnswers {
    UnparsedAnswers { is_navigation: is_navigation_head, answer: answer_unparsed }
}

/// Answers a request that cannot be parsed. No other middleware sees such a request.
fn answer_unparsed(status: StatusCode, is_navigation: bool) -> UnparsedAnswer {
    count_request(None, status);
    let error = ApiError::unparsed(status);
    let mut response = error.error_response();
    if is_navigation {
        response = response.set_body(BoxBody::new(error.error_page("", "")));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    }
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
    let base_path = ClientFacts::of(response.request()).base_path().to_owned();
    let preferences = preferences(response.request());
    let error = response.response().error().and_then(|error| error.as_error());
    let Some(page) = error.map(|error: &ApiError| error.error_page(&base_path, &preferences)) else { return response };
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
