//! Sign-in and sign-out of browsers, and tickets for links that a browser follows itself.

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::StatusCode,
    web::{Data, Json, Path},
};
use serde::{Deserialize, Serialize};

use crate::{
    api_schema::{api_schema, text},
    clock,
    data::{AccessGrant, BrowserId},
    web::{
        auth::{Auth, AuthError, ClientProof},
        client_facts::{ClientFacts, is_https},
        error::{ApiError, ApiResult, ErrorAnswer},
        route_table::documented_routes,
        sign_in::{removed_cookie, sign_in as sign_in_browser},
        tickets::{TICKET_LIFETIME, takes_ticket},
    },
};

documented_routes![sign_in, sign_out, browsers, sign_out_browser, create_ticket];

/// Longest address of a ticket, bytes.
const MAX_TICKET_PATH: usize = 4096;

api_schema! {
    TicketPathSchema as "TicketPath" = text()
        .description(Some("Path and query of an export, a content, a file, an archive or a patch of a session."))
        .max_length(Some(MAX_TICKET_PATH))
        .pattern(Some(r"^/api/sessions/[!-.0->@-~]+/((export|archive|patch)(\?[!-~]*)?|(contents|files)/[!->@-~][!-~]*)$"));
}

/// Sign-in with the token.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct SignInRequest {
    token: String,
}

/// Secret of a browser that has signed in. The cookie comes with the answer.
#[derive(Serialize, utoipa::ToSchema)]
struct SignInAnswer {
    /// Belongs into the header `X-Greenroom-Secret`, or the WebSocket protocol `secret.VALUE`.
    secret: String,
}

/// Signed-in browsers, newest use first.
#[derive(Serialize, utoipa::ToSchema)]
struct BrowserList {
    items: Vec<BrowserRow>,
}

/// Signed-in browser.
#[derive(Serialize, utoipa::ToSchema)]
struct BrowserRow {
    id: String,
    /// Program and system, from the header `User-Agent`.
    name: String,
    created_at: String,
    last_seen_at: String,
    /// True for the browser that asks.
    current: bool,
}

/// Address that a browser will open by itself.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTicket {
    #[schema(value_type = TicketPathSchema)]
    path: String,
}

/// Ticket for one address.
#[derive(Serialize, utoipa::ToSchema)]
struct IssuedTicket {
    /// Belongs into the query of the address: `?ticket=`.
    ticket: String,
    expires_at: String,
}

/// Signs a browser in with the token. The answer sets the cookie.
#[utoipa::path(post, path = "/api/sign-in", tag = "access", security(()), request_body = SignInRequest,
    responses((status = 200, body = SignInAnswer, description = "The browser is signed in."),
        (status = 401, body = ErrorAnswer, description = "The token is wrong (`unauthenticated`)."),
        (status = 503, body = ErrorAnswer, description = "A part of the server does not answer now (`unavailable`).")))]
async fn sign_in(auth: Data<Auth>, req: HttpRequest, request: Json<SignInRequest>) -> ApiResult {
    if !auth.is_token(request.token.trim()) {
        if let Some(address) = ClientFacts::of(&req).address() {
            auth.wrong_tokens().hold_back(address).await;
        }
        return Err(AuthError::WrongToken.into());
    }
    let (secret, cookie) = sign_in_browser(&auth, &req).await?;
    Ok(HttpResponse::Ok().cookie(cookie).json(SignInAnswer { secret }))
}

/// Signs out the browser that asks. Its sockets and event streams end.
#[utoipa::path(post, path = "/api/sign-out", tag = "access",
    responses((status = 204, description = "The browser is signed out."),
        (status = 409, body = ErrorAnswer, description = "The request comes from no browser (`conflict`).")))]
async fn sign_out(auth: Data<Auth>, req: HttpRequest) -> ApiResult {
    let Some(id) = current_browser(&req) else {
        let message = "the request comes from no signed-in browser; `DELETE /api/browsers/{id}` signs out another";
        return Err(ApiError::new(StatusCode::CONFLICT, "conflict", message));
    };
    forget(&auth, id).await?;
    Ok(HttpResponse::NoContent().cookie(removed_cookie(&auth, is_https(&auth, &req))).finish())
}

/// Lists the signed-in browsers, newest use first.
#[utoipa::path(get, path = "/api/browsers", tag = "access",
    responses((status = 200, body = BrowserList, description = "The browsers.")))]
async fn browsers(auth: Data<Auth>, req: HttpRequest) -> ApiResult {
    let current = current_browser(&req);
    let rows = auth.browsers().list().into_iter().map(|browser| BrowserRow {
        id: browser.id.to_string(),
        name: browser.name,
        created_at: clock::rfc3339(browser.created_ms),
        last_seen_at: clock::rfc3339(browser.last_seen_ms),
        current: Some(browser.id) == current,
    });
    Ok(HttpResponse::Ok().json(BrowserList { items: rows.collect() }))
}

/// Signs out one browser. Its sockets and event streams end.
#[utoipa::path(delete, path = "/api/browsers/{id}", tag = "access",
    params(("id" = String, Path, description = "Browser, by its id in the list.")),
    responses((status = 204, description = "The browser is signed out.")))]
async fn sign_out_browser(auth: Data<Auth>, id: Path<String>) -> ApiResult {
    let not_found = || ApiError::not_found(format!("no browser `{id}` is signed in; `GET /api/browsers` lists them"));
    match id.parse::<BrowserId>() {
        Ok(browser) if forget(&auth, browser).await? => Ok(HttpResponse::NoContent().finish()),
        Ok(_) | Err(()) => Err(not_found()),
    }
}

/// Issues a ticket for an address that the browser opens by itself. Valid for `GET`, for 60 s.
#[utoipa::path(post, path = "/api/tickets", tag = "access", request_body = NewTicket,
    responses((status = 201, body = IssuedTicket, description = "The ticket.")))]
async fn create_ticket(auth: Data<Auth>, req: HttpRequest, new: Json<NewTicket>) -> ApiResult {
    let path = &new.path;
    let is_address = path.len() <= MAX_TICKET_PATH && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !is_address || !takes_ticket(path) {
        return Err(ApiError::invalid(
            "`path` must be the address of an export, a content, a file or an archive of a session, such as \
             `/api/sessions/ID/export`",
        ));
    }
    let grant = req.extensions().get::<AccessGrant>().cloned();
    let grant = grant.ok_or_else(|| ApiError::unavailable("the server is closing"))?;
    let ticket = auth.tickets().issue(path, grant);
    let ticket = ticket.map_err(|e| ApiError::unavailable(format!("no random numbers: {e}; try again")))?;
    let lifetime_ms = i64::try_from(TICKET_LIFETIME.as_millis()).unwrap_or(i64::MAX);
    let expires_at = clock::rfc3339(clock::now_ms().saturating_add(lifetime_ms));
    Ok(HttpResponse::Created().json(IssuedTicket { ticket, expires_at }))
}

/// Returns the browser whose cookie and secret admitted the request.
fn current_browser(req: &HttpRequest) -> Option<BrowserId> {
    match req.extensions().get::<ClientProof>()? {
        ClientProof::Browser(id) => Some(*id),
        ClientProof::None | ClientProof::Token | ClientProof::Ticket => None,
    }
}

/// Signs a browser out. Returns false if there is no such browser.
async fn forget(auth: &Auth, id: BrowserId) -> Result<bool, ApiError> {
    auth.browsers().sign_out(id).await.map_err(|e| {
        ApiError::unavailable(format!(
            "the browser is signed out, but the disk did not take it ({e}); a restart of the server would admit it again"
        ))
    })
}
