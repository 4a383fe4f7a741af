//! Sessions over REST: create, list, read, update, end, and the client requests to a session.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web::{Data, Json},
};
use greenroom_protocol::{
    action::{ApprovalDecision, EffortChoice, MessageMode},
    approval::ApprovalMode,
    client::ClientRequest,
    observation::AgentState,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    api_schema::{
        AgentStateSchema, ApprovalDecisionSchema, ApprovalModeSchema, EffortChoiceSchema, FilledTextSchema,
        MessageModeSchema, api_schema, text,
    },
    directory::{self, NewSession},
    session::{
        ModelNameSchema, NameSchema, SessionRequest, SessionView, TitleSchema, check_name, check_title,
        messages::{self, Relay, RequestAccepted},
    },
    store::{self, ArchiveFilter, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Seq, SessionId},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{IdempotencyKeyHeader, QueryNumber, QueryParams, RequestedBy, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![create, list, look, change, end, message, confirm, interrupt, pause, resume, stop];

api_schema! {
    PageSizeSchema as "PageSize" = QueryNumber::schema()
        .description(Some(format!("0 counts as {DEFAULT_PAGE_SIZE}, and more than {MAX_PAGE_SIZE} as {MAX_PAGE_SIZE}.")))
        .default(Some(DEFAULT_PAGE_SIZE.into()));
    CursorSchema as "Cursor" = text().pattern(Some("_[0-7][0-9A-HJKMNP-TV-Z]{25}$"));
}

/// Filter and page for the list of sessions.
#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SessionsQuery {
    /// Text that the title or the id must contain.
    q: Option<String>,
    /// State of the sessions. Default: any.
    #[param(value_type = Option<AgentStateSchema>)]
    state: Option<AgentState>,
    /// Archived sessions, instead of the others.
    archived: Option<bool>,
    /// Page size.
    #[param(inline, value_type = Option<PageSizeSchema>)]
    limit: Option<QueryNumber>,
    /// `next_cursor` of the previous page.
    #[param(inline, value_type = Option<CursorSchema>)]
    cursor: Option<String>,
}

/// Page of sessions, newest activity first.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = SessionPage)]
struct SessionPage {
    items: Vec<SessionView>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
    /// Number of sessions that match, over all pages.
    total: usize,
}

/// Changes of a session's metadata. Absent fields stay unchanged.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct SessionUpdate {
    #[schema(value_type = Option<TitleSchema>)]
    title: Option<String>,
    archived: Option<bool>,
    #[schema(value_type = Option<ModelNameSchema>)]
    model: Option<String>,
    /// Reasoning effort. `default` is the model's own.
    #[schema(value_type = Option<EffortChoiceSchema>)]
    effort: Option<EffortChoice>,
    /// Mode of approvals.
    #[schema(value_type = Option<ApprovalModeSchema>)]
    mode: Option<ApprovalMode>,
    /// Security analyzer, from `GET /api/options`: `analyzers`.
    #[schema(value_type = Option<NameSchema>)]
    analyzer: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EndQuery {
    /// Remove all traces of the session: sandbox, workspace, journal.
    #[serde(default)]
    #[param(default = false)]
    purge: bool,
}

/// Message for the agent.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewMessage {
    #[schema(value_type = FilledTextSchema)]
    content: String,
    /// Delivery to a working agent. Default: `queue`.
    #[serde(default)]
    #[schema(value_type = MessageModeSchema)]
    mode: MessageMode,
    /// Paths of uploaded files in the workspace.
    #[serde(default)]
    attachments: Vec<String>,
}

/// Decision on an approval request.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewApprovalAnswer {
    /// Approval request, from the observation `confirm` or from `GET /api/sessions/{id}/security`.
    request: String,
    #[schema(value_type = ApprovalDecisionSchema)]
    decision: ApprovalDecision,
    /// Reason for the agent.
    reason: Option<String>,
    /// Id of one of the request's choices. Default: the first of the decision's kind.
    choice: Option<String>,
    /// Arguments that replace those of the tool call, if the request is editable.
    input: Option<Map<String, Value>>,
}

/// Receipt of an accepted request, which is persisted in the journal.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Receipt {
    /// Number of the first event that the request caused.
    seq: Option<Seq>,
    /// State of the session after the request.
    #[schema(value_type = AgentStateSchema)]
    state: AgentState,
}

/// Creates a session. With a `task` the agent starts working at once.
#[utoipa::path(post, path = "/api/sessions", tag = "sessions", request_body = NewSession,
    params(IdempotencyKeyHeader),
    responses((status = 201, body = SessionView, description = "The new session."),
        (status = 200, body = SessionView, description = "The session that an earlier request with the key created.")))]
async fn create(services: Data<WebServices>, new: Json<NewSession>, key: IdempotencyKeyHeader) -> ApiResult {
    let new = new.into_inner();
    let key = key.0.map(|key| directory::idempotency_key(&key, &new));
    if key.is_none() {
        // Only the Directory can resolve a key. Requests without a key are rejected here under
        // overload, so they do not delay other requests to the Directory.
        services.start_limiter.admit(1)?;
    }
    let created =
        services.directory.send(directory::Create { new, key, dedup_key: None, preferred_thread: None }).await??;
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let address = format!("{}/api/sessions/{}", services.config.server.base_path.as_str(), created.view.id);
    Ok(HttpResponse::build(status).insert_header((header::LOCATION, address)).json(created.view))
}

/// Lists sessions, newest activity first.
#[utoipa::path(get, path = "/api/sessions", tag = "sessions", params(SessionsQuery),
    responses((status = 200, body = SessionPage, description = "Page of the sessions that match.")))]
async fn list(services: Data<WebServices>, QueryParams(query): QueryParams<SessionsQuery>) -> ApiResult {
    let SessionsQuery { q, state, archived, limit, cursor } = query;
    let limit = limit.map_or(0, QueryNumber::as_usize);
    let archived = if archived == Some(true) { ArchiveFilter::Archived } else { ArchiveFilter::Active };
    let listing = services.store.list(store::SessionQuery { text: q, state, archived, limit, cursor }).await?;
    let items = listing.items.iter().map(|snapshot| services.view(snapshot)).collect();
    Ok(HttpResponse::Ok().json(SessionPage { items, next_cursor: listing.next_cursor, total: listing.total }))
}

/// Returns a session.
#[utoipa::path(get, path = "/api/sessions/{id}", tag = "sessions", params(SessionPath),
    responses((status = 200, body = SessionView, description = "The session.")))]
async fn look(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    let snapshot = services.snapshot(id.0).await?;
    Ok(HttpResponse::Ok().json(services.view(&snapshot)))
}

/// Updates title, model, effort, mode, analyzer or the archived mark of a session.
#[utoipa::path(patch, path = "/api/sessions/{id}", tag = "sessions", params(SessionPath),
    request_body = SessionUpdate, responses((status = 200, body = SessionView, description = "The changed session.")))]
async fn change(services: Data<WebServices>, id: SessionPath, change: Json<SessionUpdate>) -> ApiResult {
    let SessionUpdate { title, archived, model, effort, mode, analyzer } = change.into_inner();
    check_title(title.as_deref())?;
    check_name("model", model.as_deref().unwrap_or_default())?;
    let update = messages::UpdateMetadata { title, archived, model, effort, mode, analyzer };
    services.send_to_session(id.0, update).await??;
    look(services, id).await
}

/// Ends a session for good.
///
/// The session stays readable. With `purge` all traces of it are removed.
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "sessions", params(SessionPath, EndQuery, IdempotencyKeyHeader),
    responses((status = 200, body = Receipt, description = "The session has ended."),
        (status = 204, description = "All traces of the session are removed.")))]
async fn end(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<EndQuery>,
    key: IdempotencyKeyHeader,
) -> ApiResult {
    if !query.purge {
        return send_request(&services, id.0, messages::End { idempotency_key: key.0 }).await;
    }
    services.snapshot(id.0).await?;
    services.directory.send(directory::Purge { id: id.0 }).await??;
    Ok(HttpResponse::NoContent().finish())
}

/// Sends a message to the agent.
#[utoipa::path(post, path = "/api/sessions/{id}/messages", tag = "sessions", request_body = NewMessage,
    params(SessionPath, IdempotencyKeyHeader),
    responses((status = 202, body = Receipt, description = "The message is in the journal.")))]
async fn message(
    services: Data<WebServices>,
    id: SessionPath,
    message: Json<NewMessage>,
    key: IdempotencyKeyHeader,
    by: RequestedBy,
) -> ApiResult {
    let NewMessage { content, mode, attachments } = message.into_inner();
    if content.trim().is_empty() {
        return Err(ApiError::invalid("`content` is empty"));
    }
    let request = ClientRequest::Message { content, mode, attachments };
    let relay = Relay { request, idempotency_key: key.0, requested_by: by.0 };
    let accepted = services.send_to_session(id.0, relay).await??;
    Ok(HttpResponse::Accepted().json(Receipt::from(accepted)))
}

/// Answers an approval request. The first answer counts; a later one gets `no_request`.
#[utoipa::path(post, path = "/api/sessions/{id}/confirm", tag = "approvals", request_body = NewApprovalAnswer,
    params(SessionPath, IdempotencyKeyHeader),
    responses((status = 200, body = Receipt, description = "The decision is in the journal."),
        (status = 404, body = ErrorAnswer, description = "No such request is open (`no_request`).")))]
async fn confirm(
    services: Data<WebServices>,
    id: SessionPath,
    answer: Json<NewApprovalAnswer>,
    key: IdempotencyKeyHeader,
    by: RequestedBy,
) -> ApiResult {
    let NewApprovalAnswer { request, decision, reason, choice, input } = answer.into_inner();
    let request = ClientRequest::Confirm { request, decision, reason, choice, input: input.map(Value::Object) };
    send_request(&services, id.0, Relay { request, idempotency_key: key.0, requested_by: by.0 }).await
}

/// Interrupts all work. A second interrupt restarts the agent.
#[utoipa::path(post, path = "/api/sessions/{id}/interrupt", tag = "sessions",
    params(SessionPath, IdempotencyKeyHeader), responses((status = 200, body = Receipt, description = "The interrupt is in the journal.")))]
async fn interrupt(services: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    send_request(&services, id.0, messages::Interrupt { idempotency_key: key.0 }).await
}

/// Pauses the sandbox: freezes all its processes.
#[utoipa::path(post, path = "/api/sessions/{id}/pause", tag = "sessions",
    params(SessionPath, IdempotencyKeyHeader), responses((status = 200, body = Receipt, description = "The session is paused.")))]
async fn pause(services: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    send_request(&services, id.0, messages::Pause { idempotency_key: key.0 }).await
}

/// Resumes a paused session, or restarts a stopped sandbox.
#[utoipa::path(post, path = "/api/sessions/{id}/resume", tag = "sessions",
    params(SessionPath, IdempotencyKeyHeader), responses((status = 200, body = Receipt, description = "The session continues.")))]
async fn resume(services: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    send_request(&services, id.0, messages::Resume { idempotency_key: key.0 }).await
}

/// Stops the sandbox, which frees its memory. The next message starts it again.
#[utoipa::path(post, path = "/api/sessions/{id}/stop", tag = "sessions",
    params(SessionPath, IdempotencyKeyHeader), responses((status = 200, body = Receipt, description = "The session is stopped.")))]
async fn stop(services: Data<WebServices>, id: SessionPath, key: IdempotencyKeyHeader) -> ApiResult {
    send_request(&services, id.0, messages::Stop { idempotency_key: key.0, reason: None }).await
}

async fn send_request(
    services: &WebServices,
    id: SessionId,
    request: impl SessionRequest<Result = messages::RequestResult>,
) -> ApiResult {
    let accepted = services.send_to_session(id, request).await??;
    Ok(HttpResponse::Ok().json(Receipt::from(accepted)))
}

impl From<RequestAccepted> for Receipt {
    fn from(accepted: RequestAccepted) -> Receipt {
        Receipt { seq: accepted.seq, state: accepted.state }
    }
}
