//! Sessions over REST: make, list, look, change, end; and what a person can wish of one.

use actix::Addr;
use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web::{Data, Json},
};
use greenroom_protocol::{action::MessageMode, client::ClientRequest, observation::AgentState};
use serde::{Deserialize, Serialize};

use super::{
    WebServices,
    error::{ApiError, ApiResult, ErrorAnswer},
    request::{IdempotencyKeyHeader, QueryParams, SessionPath},
};
use crate::{
    directory::{self, NewSession},
    frontend,
    session::{
        self, Session, SessionRequest, SessionView, check_name, check_title,
        messages::{self, Relay, RequestAccepted},
    },
    store::{self, Seq, SessionId, SessionSnapshot},
};

/// Which sessions to list.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SessionsQuery {
    /// Part of the title or the id.
    q: Option<String>,
    #[param(value_type = Option<String>, example = "idle")]
    state: Option<AgentState>,
    archived: Option<bool>,
    /// At most 500; 50 if not given.
    #[serde(default)]
    limit: usize,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A page of sessions, newest activity first.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Page)]
pub(super) struct SessionPage {
    items: Vec<SessionView>,
    /// `null` on the last page.
    next_cursor: Option<String>,
    /// How many match in all.
    total: usize,
}

/// What a person may change. What is left out stays as it is.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Change)]
pub(super) struct SessionUpdate {
    title: Option<String>,
    archived: Option<bool>,
    model: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EndQuery {
    /// Remove every trace: sandbox, workspace, journal.
    #[serde(default)]
    purge: bool,
}

/// A message for the agent.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    content: String,
    /// `queue` (default), `steer` or `interrupt`: when it reaches an agent that works.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "queue")]
    mode: MessageMode,
    /// Paths of uploaded files.
    #[serde(default)]
    attachments: Vec<String>,
}

/// A wish was carried out, and is in the journal.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Receipt {
    /// The first event that it led to.
    seq: Option<Seq>,
    /// The state after it.
    #[schema(value_type = String, example = "running")]
    state: AgentState,
}

/// Make a session; with a `task` it begins to work at once.
#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = NewSession,
    params(("Idempotency-Key" = Option<String>, Header, description = "the same key with the same wish again answers with the same session")),
    responses((status = 201, body = SessionView), (status = 200, body = SessionView, description = "this key had made it before"),
        (status = 409, body = ErrorAnswer, description = "this key made a session for another wish"),
        (status = 429, body = ErrorAnswer, description = "too many sandboxes wait for their start; `Retry-After` says when to ask again")))]
pub(super) async fn create(parts: Data<WebServices>, new: Json<NewSession>, key: IdempotencyKeyHeader) -> ApiResult {
    let new = new.into_inner();
    let key = key.0.map(|key| directory::idempotency_key(&key, &new));
    if key.is_none() {
        // Only the Directory knows a key. For all others this is known here, too: a crowd that is turned away does not stand before
        // those who want something else of the Directory.
        parts.start_limiter.admit(1)?;
    }
    let created =
        parts.directory.send(directory::Create { new, key, dedup_key: None, preferred_thread: None }).await??;
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let address = format!("/api/sessions/{}", created.view.id);
    Ok(HttpResponse::build(status).insert_header((header::LOCATION, address)).json(created.view))
}

/// List sessions, newest activity first.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(SessionsQuery), responses((status = 200, body = SessionPage)))]
pub(super) async fn list(parts: Data<WebServices>, QueryParams(which): QueryParams<SessionsQuery>) -> ApiResult {
    let SessionsQuery { q, state, archived, limit, cursor } = which;
    let limit = limit.min(500);
    let listing = parts.store.list(store::SessionQuery { text: q, state, archived, limit, cursor }).await?;
    let items = listing.items.iter().map(|snapshot| parts.view(snapshot)).collect();
    Ok(HttpResponse::Ok().json(SessionPage { items, next_cursor: listing.next_cursor, total: listing.total }))
}

/// Look at a session.
#[utoipa::path(get, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = SessionView), (status = 404, body = ErrorAnswer)))]
pub(super) async fn look(parts: Data<WebServices>, id: SessionPath) -> ApiResult {
    let snapshot = parts.snapshot(id.0).await?;
    Ok(HttpResponse::Ok().json(parts.view(&snapshot)))
}

/// Rename, archive, or change the model.
#[utoipa::path(patch, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path)),
    request_body = SessionUpdate, responses((status = 200, body = SessionView)))]
pub(super) async fn change(parts: Data<WebServices>, id: SessionPath, change: Json<SessionUpdate>) -> ApiResult {
    let SessionUpdate { title, archived, model } = change.into_inner();
    check_title(title.as_deref())?;
    check_name("model", model.as_deref().unwrap_or_default())?;
    parts.send_to_session(id.0, messages::UpdateMetadata { title, archived, model }).await??;
    look(parts, id).await
}

/// End a session for good; it stays readable. With `purge` nothing of it stays.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "sessions", params(("id" = String, Path), EndQuery),
    responses((status = 200, body = Receipt), (status = 204, description = "purged")))]
pub(super) async fn end(
    parts: Data<WebServices>,
    id: SessionPath,
    QueryParams(ending): QueryParams<EndQuery>,
    key: IdempotencyKeyHeader,
) -> ApiResult {
    if !ending.purge {
        return parts.send_request(id.0, messages::End { idempotency_key: key.0 }).await;
    }
    parts.snapshot(id.0).await?;
    parts.directory.send(directory::Purge { id: id.0 }).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Say something to the agent.
#[utoipa::path(post, path = "/api/sessions/{id}/messages", tag = "sessions", request_body = NewMessage,
    params(("id" = String, Path),
        ("Idempotency-Key" = Option<String>, Header, description = "the same message with the same key again acts once")),
    responses((status = 202, body = Receipt),
        (status = 409, body = ErrorAnswer, description = "the session has ended, or the key was given to another wish")))]
pub(super) async fn message(
    parts: Data<WebServices>,
    id: SessionPath,
    message: Json<NewMessage>,
    key: IdempotencyKeyHeader,
) -> ApiResult {
    let NewMessage { content, mode, attachments } = message.into_inner();
    if content.trim().is_empty() {
        return Err(ApiError::invalid("`content` is empty"));
    }
    let wish = ClientRequest::Message { content, mode, attachments };
    let accepted = parts.send_to_session(id.0, Relay { request: wish, idempotency_key: key.0 }).await??;
    Ok(HttpResponse::Accepted().json(Receipt::from(accepted)))
}

/// Stop whatever runs. A second time takes the agent away.
#[utoipa::path(post, path = "/api/sessions/{id}/interrupt", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn interrupt(parts: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    parts.send_request(id.0, messages::Interrupt { idempotency_key: key.0 }).await
}

/// Freeze the sandbox where it stands.
#[utoipa::path(post, path = "/api/sessions/{id}/pause", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn pause(parts: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    parts.send_request(id.0, messages::Pause { idempotency_key: key.0 }).await
}

/// Go on after a pause, or start a stopped sandbox again.
#[utoipa::path(post, path = "/api/sessions/{id}/resume", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn resume(parts: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    parts.send_request(id.0, messages::Resume { idempotency_key: key.0 }).await
}

/// Stop the sandbox, which frees its memory; any message brings it back.
#[utoipa::path(post, path = "/api/sessions/{id}/stop", tag = "sessions", params(("id" = String, Path)),
    responses((status = 200, body = Receipt), (status = 409, body = ErrorAnswer)))]
pub(super) async fn stop(parts: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    parts.send_request(id.0, messages::Stop { idempotency_key: key.0, reason: None }).await
}

impl WebServices {
    pub(super) async fn session(&self, id: SessionId) -> Result<Addr<Session>, ApiError> {
        Ok(self.directory.send(directory::Open { id }).await??)
    }

    /// A session as the journal has it. Its actor is not woken for that.
    pub(super) async fn snapshot(&self, id: SessionId) -> Result<SessionSnapshot, ApiError> {
        self.store.get(id).await?.ok_or_else(|| crate::store::StoreError::NoSession(id).into())
    }

    pub(super) fn view(&self, snapshot: &SessionSnapshot) -> SessionView {
        SessionView::new(snapshot, frontend::attached_clients(&self.actor_registry, snapshot.record.id))
    }

    async fn send_to_session<M: SessionRequest>(&self, id: SessionId, message: M) -> Result<M::Result, ApiError> {
        session::request_with_retry(async || self.session(id).await, message).await
    }

    async fn send_request(
        &self,
        id: SessionId,
        wish: impl SessionRequest<Result = messages::RequestResult>,
    ) -> ApiResult {
        let accepted = self.send_to_session(id, wish).await??;
        Ok(HttpResponse::Ok().json(Receipt::from(accepted)))
    }
}

impl From<RequestAccepted> for Receipt {
    fn from(accepted: RequestAccepted) -> Receipt {
        Receipt { seq: accepted.seq, state: accepted.state }
    }
}
