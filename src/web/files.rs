//! Files of a session's workspace over REST: so far, how one is put there.

use std::io;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{StatusCode, header},
    web::{Data, Path, Payload},
};
use futures::StreamExt;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::{
    WebServices,
    error::{ApiError, ApiResult, ErrorAnswer},
    request::SessionPath,
};
use crate::{
    sandbox::{ExistingFilePolicy, InnerPath, UploadOutcome},
    session::RequestError,
};

/// A file that has come.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct Uploaded {
    /// Inside the workspace: what a message's `attachments` name.
    path: String,
    bytes: u64,
}

/// Put a file into the workspace. The body is the file; directories on the way are made. `If-None-Match: *` leaves a file
/// that is there as it is.
#[utoipa::path(put, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "inside the workspace, such as `uploads/plan.pdf`"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only where nothing has that name")),
    responses((status = 201, body = Uploaded), (status = 200, body = Uploaded, description = "took the place of another"),
        (status = 412, body = ErrorAnswer, description = "the name is taken"),
        (status = 413, body = ErrorAnswer, description = "larger than `server.max_upload`")))]
pub(super) async fn put(
    parts: Data<WebServices>,
    id: SessionPath,
    path: Path<(String, String)>,
    req: HttpRequest,
    mut body: Payload,
) -> ApiResult {
    let (_, path) = path.into_inner();
    let inner: InnerPath =
        path.parse().map_err(|e: crate::sandbox::InvalidInnerPath| ApiError::invalid(e.to_string()))?;
    let existing = existing(&req)?;
    let limit = parts.config.server.max_upload.as_u64();
    if content_length(&req).is_some_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    if parts.snapshot(id.0).await?.record.state == AgentState::Ended {
        return Err(RequestError::Ended.into());
    }
    let failed = |e: io::Error| write_error(&path, &e);
    let incoming = parts.workspaces.receive(id.0, &inner).map_err(failed)?;
    let mut file = tokio::fs::File::from_std(incoming.file.try_clone().map_err(failed)?);
    let mut bytes = 0_u64;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(|e| ApiError::invalid(format!("the upload broke off: {e}")))?;
        bytes += piece.len() as u64;
        if bytes > limit {
            return Err(too_large(limit));
        }
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let status = match incoming.finish(existing).map_err(failed)? {
        UploadOutcome::Created => StatusCode::CREATED,
        UploadOutcome::Replaced => StatusCode::OK,
        UploadOutcome::Skipped => {
            let why = format!("`{path}` is there already; leave `If-None-Match` out to replace it");
            return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "exists", why));
        }
    };
    Ok(HttpResponse::build(status).json(Uploaded { path, bytes }))
}

fn existing(req: &HttpRequest) -> Result<ExistingFilePolicy, ApiError> {
    match req.headers().get(header::IF_NONE_MATCH).map(|value| value.as_bytes()) {
        None => Ok(ExistingFilePolicy::Replace),
        Some(b"*") => Ok(ExistingFilePolicy::Keep),
        Some(_) => Err(ApiError::invalid("`If-None-Match` is `*` here, or left out")),
    }
}

fn content_length(req: &HttpRequest) -> Option<u64> {
    req.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: u64) -> ApiError {
    let why = format!("the file is larger than {limit} bytes, which is `server.max_upload`");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
}

fn write_error(path: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotADirectory => ApiError::new(
            StatusCode::CONFLICT,
            "conflict",
            format!("something on the way to `{path}` is no directory; links are not followed"),
        ),
        io::ErrorKind::IsADirectory => {
            ApiError::new(StatusCode::CONFLICT, "conflict", format!("`{path}` is a directory"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk_full",
            format!("there is no space left for `{path}`; nothing of it is kept"),
        ),
        _ => ApiError::unavailable(format!("`{path}` cannot be written: {error}")),
    }
}
