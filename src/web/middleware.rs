//! The gate that every request passes: asks [`super::judge`], and dresses every answer with the headers that keep a browser in bounds.

use actix_web::{
    Error, FromRequest, HttpMessage, HttpResponse, ResponseError,
    body::{BoxBody, MessageBody},
    cookie::{Cookie, SameSite, time::Duration},
    dev::{ServiceRequest, ServiceResponse},
    http::{
        Method, StatusCode,
        header::{self, HeaderMap, HeaderName, HeaderValue},
    },
    middleware::Next,
    web::{Data, Payload},
};

use super::{
    assets,
    auth::{Auth, AuthDecision, AuthError, RequestAccess, RequestBodyKind, RequestFacts, RouteClass},
    body_timeout,
    error::{ApiError, bad_handshake},
    idle_timeout::ActiveResponse,
    request::accepts,
};
use crate::{frontend, telemetry};

/// On a request for a page: whoever asks may see what is inside.
#[derive(Clone, Copy)]
pub(super) struct AuthenticatedRequest;

/// Lets a request through, or answers it. Nothing behind it has heard of one that it refuses.
pub(super) async fn authorize(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let auth = req.app_data::<Data<Auth>>().expect("the application is built with it").clone();
    let pass = auth.pass();
    body_timeout::apply_body_timeout(&mut req);
    match decide(&auth, &req) {
        verdict @ (AuthDecision::Pass | AuthDecision::PassAuthenticated) => {
            req.extensions_mut().insert(pass);
            if verdict == AuthDecision::PassAuthenticated {
                req.extensions_mut().insert(AuthenticatedRequest);
            }
            Ok(next.call(req).await?.map_into_boxed_body())
        }
        AuthDecision::PassCrossOrigin(origin) => {
            req.extensions_mut().insert(pass);
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
        AuthDecision::Reject(denial) => reject(req, denial).await,
        AuthDecision::RejectCrossOrigin(origin, denial) => {
            let mut response = reject(req, denial).await?;
            allow_origin(response.headers_mut(), &origin);
            Ok(response)
        }
    }
}

async fn reject(req: ServiceRequest, denial: AuthError) -> Result<ServiceResponse<BoxBody>, Error> {
    match denial {
        AuthError::NoToken | AuthError::WrongToken if is_socket_handshake(&req) => {
            let (req, mut payload) = req.into_parts();
            let body = Payload::from_request(&req, &mut payload).await?;
            let socket = frontend::reject(&req, body, 4401, &denial.to_string());
            let response = socket.unwrap_or_else(|e| bad_handshake(&e).error_response());
            Ok(ServiceResponse::new(req, response))
        }
        AuthError::Host(_)
        | AuthError::Origin(_)
        | AuthError::NoToken
        | AuthError::WrongToken
        | AuthError::CookieAlone
        | AuthError::NotJson => Ok(req.error_response(ApiError::from(denial))),
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
        bearer: optional_header(req.headers(), header::AUTHORIZATION)
            .map(|value| value.strip_prefix("Bearer ").unwrap_or_default().trim()),
        query: query.as_deref(),
        cookie: cookie.as_ref().map(|cookie| cookie.value()),
        body: body_kind(req.method(), req.headers()),
    })
}

/// A script in a browser sees the code that closes a socket, and never the status of a handshake that failed.
fn is_socket_handshake(req: &ServiceRequest) -> bool {
    let upgrades = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    route_class(req) == RouteClass::Socket && req.headers().get(header::UPGRADE).is_some_and(upgrades)
}

/// Somebody opens an address in a browser. A script of the page takes anything, and gets JSON as every other client.
fn is_page_navigation(req: &ServiceRequest) -> bool {
    let path = req.match_info().as_str();
    let is_for_clients = path == "/api" || path.starts_with("/api/") || route_class(req) == RouteClass::Socket;
    matches!(*req.method(), Method::GET | Method::HEAD) && !is_for_clients && accepts(req.headers(), "text/html")
}

/// By the decoded path, which is what the router goes by. What is no page is the API's, so a new route is closed until
/// somebody opens it.
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

/// The value of a header that must come once; `None` where it is missing or comes twice.
fn single_header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name);
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

/// The value of a header that may be missing. One that comes twice, or is no text, is there and matches nothing.
fn optional_header(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.contains_key(&name).then(|| single_header(headers, name).unwrap_or_default())
}

fn body_kind(method: &Method, headers: &HeaderMap) -> RequestBodyKind {
    let sized = |value: &HeaderValue| value.as_bytes() != b"0";
    let has_one =
        headers.get(header::CONTENT_LENGTH).is_some_and(sized) || headers.contains_key(header::TRANSFER_ENCODING);
    match optional_header(headers, header::CONTENT_TYPE) {
        None if !has_one => RequestBodyKind::None,
        Some(kind) if kind.split(';').next().is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) => {
            RequestBodyKind::Json
        }
        None | Some(_) if *method == Method::PUT => RequestBodyKind::File,
        None | Some(_) => RequestBodyKind::Other,
    }
}

fn query_token(query: &str) -> Option<String> {
    query_pairs(query).find(|(name, _)| *name == "token").map(|(_, value)| value.to_owned())
}

fn query_pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Trades the token in the address for the cookie.
fn sign_in(auth: &Auth, req: &ServiceRequest) -> HttpResponse {
    let host = single_header(req.headers(), header::HOST).unwrap_or_default();
    let cookie = Cookie::build(auth.cookie_name(), auth.cookie_value())
        .path("/")
        .http_only(true)
        .same_site(SameSite::Strict)
        .secure(auth.is_tls(host))
        .max_age(Duration::days(400))
        .finish();
    let rest: Vec<_> =
        req.query_string().split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("token=")).collect();
    // The path as it was asked for begins with one slash: `//evil.test` is no page, so it does not get here.
    let address = match rest.is_empty() {
        true => req.path().to_owned(),
        false => format!("{}?{}", req.path(), rest.join("&")),
    };
    HttpResponse::SeeOther().insert_header((header::LOCATION, address)).cookie(cookie).finish()
}

const PREFLIGHT_HEADERS: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, idempotency-key, if-none-match, last-event-id",
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

/// What stays of the head of an answer whose body is written anew.
const PRESERVED_HEADERS: [HeaderName; 4] =
    [header::ALLOW, header::ACCESS_CONTROL_ALLOW_ORIGIN, header::ACCESS_CONTROL_EXPOSE_HEADERS, header::VARY];

/// What a browser may do with anything that comes from here (FAULTS: scripts, frames and images of strangers).
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

/// Outermost: gives every answer its headers, and every error the one form, also those that the framework made itself.
pub(super) async fn security_headers(
    req: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let answer = ActiveResponse::begin();
    let (method, path, is_a_person) = (req.method().clone(), req.path().to_owned(), is_page_navigation(&req));
    let mut response = next.call(req).await?.map_into_boxed_body();
    let status = response.status();
    if (status.is_client_error() || status.is_server_error()) && !is_json(response.headers()) {
        response = with_error_body(response, &method, &path);
    }
    if is_a_person {
        response = with_error_page(response);
    }
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    count_request(&method, status);
    Ok(match answer {
        Some(answer) => answer.track_body(response),
        None => response,
    })
}

fn with_error_body(response: ServiceResponse<BoxBody>, method: &Method, path: &str) -> ServiceResponse<BoxBody> {
    let mut ours = HttpResponse::from_error(ApiError::of_status(response.status(), method.as_str(), path));
    for name in PRESERVED_HEADERS {
        for value in response.headers().get_all(&name) {
            ours.headers_mut().append(name.clone(), value.clone());
        }
    }
    response.into_response(ours)
}

/// A failure as a page; anything else as it is.
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

/// Methods that a client invented count as one, so that nobody fills the memory with new ones.
fn count_request(method: &Method, status: StatusCode) {
    let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];
    let method = if known.contains(method) { method.as_str() } else { "other" };
    telemetry::HTTP_REQUESTS.with_label_values(&[method, status.as_str()]).inc();
}
