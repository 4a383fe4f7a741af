//! Forks of sessions: a new session with the conversation up to an event.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
    web::{Data, Json},
};

use crate::{
    directory::{self, Fork, ForkError, ForkRequest},
    session::SessionView,
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{IdempotencyKeyHeader, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![fork_session];

/// Forks a session: creates a new one with its conversation up to an event, and its files.
///
/// Works in every state of the session, also while a turn runs. The new session has a sandbox, a
/// budget and rules of its own. Without a `message` it is stopped.
#[utoipa::path(post, path = "/api/sessions/{id}/fork", tag = "sessions", request_body = ForkRequest,
    params(SessionPath, IdempotencyKeyHeader),
    responses((status = 201, body = SessionView, description = "The new session."),
        (status = 200, body = SessionView, description = "The session that an earlier request with the key created."),
        (status = 400, body = ErrorAnswer, description = "There is no such event, the event is inside a turn, or \
            sessions have no checkpoints (`invalid_args`)."),
        (status = 409, body = ErrorAnswer, description = "No sound checkpoint is kept for the event \
            (`no_checkpoint`), or the session is not completely imported (`conflict`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn fork_session(
    services: Data<WebServices>,
    id: SessionPath,
    request: Json<ForkRequest>,
    key: IdempotencyKeyHeader,
) -> ApiResult {
    let (from, request) = (id.0, request.into_inner());
    let key = key.0.map(|key| directory::fork_key(&key, from, &request));
    let created = services.directory.send(Fork { from, request, key }).await??;
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let address = format!("{}/api/sessions/{}", services.config.server.base_path.as_str(), created.view.id);
    Ok(HttpResponse::build(status).insert_header((header::LOCATION, address)).json(created.view))
}

impl From<ForkError> for ApiError {
    fn from(error: ForkError) -> ApiError {
        match error {
            ForkError::Request(error) => error.into(),
            ForkError::NoCheckpoint(_) => ApiError::new(StatusCode::CONFLICT, "no_checkpoint", error.to_string()),
            ForkError::Files(error) => error.into(),
        }
    }
}
