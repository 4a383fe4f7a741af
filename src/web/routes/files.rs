//! Files of a session's workspace over REST: uploads.

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

use crate::{
    sandbox::{ExistingFilePolicy, InnerPath, UploadOutcome},
    session::RequestError,
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![put];

/// Uploaded file.
#[derive(Serialize, utoipa::ToSchema)]
struct Uploaded {
    /// Path inside the workspace, as a message's `attachments` name it.
    path: String,
    bytes: u64,
}

/// Uploads a file into the workspace.
///
/// The body is the file. Missing directories are created. `If-None-Match: *` keeps a file that
/// already exists.
#[utoipa::path(put, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "path inside the workspace, such as `uploads/plan.pdf`"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: upload only if the path does not exist")),
    responses((status = 201, body = Uploaded), (status = 200, body = Uploaded, description = "replaced an existing file"),
        (status = 412, body = ErrorAnswer, description = "the path already exists"),
        (status = 413, body = ErrorAnswer, description = "the file is larger than `server.max_upload`")))]
async fn put(
    services: Data<WebServices>,
    id: SessionPath,
    path: Path<(String, String)>,
    req: HttpRequest,
    mut body: Payload,
) -> ApiResult {
    let (_, path) = path.into_inner();
    let inner: InnerPath =
        path.parse().map_err(|e: crate::sandbox::InvalidInnerPath| ApiError::invalid(e.to_string()))?;
    let existing = existing(&req)?;
    let limit = services.config.server.max_upload.as_u64();
    if content_length(&req).is_some_and(|bytes| bytes > limit) {
        return Err(too_large(limit));
    }
    if services.snapshot(id.0).await?.record.state == AgentState::Ended {
        return Err(RequestError::Ended.into());
    }
    let failed = |e: io::Error| write_error(&path, &e);
    let incoming = services.workspaces.receive(id.0, &inner).map_err(failed)?;
    let mut file = tokio::fs::File::from_std(incoming.file.try_clone().map_err(failed)?);
    let mut bytes = 0_u64;
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(|e| ApiError::invalid(format!("the upload was interrupted: {e}")))?;
        bytes += chunk.len() as u64;
        if bytes > limit {
            return Err(too_large(limit));
        }
        file.write_all(&chunk).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let status = match incoming.finish(existing).map_err(failed)? {
        UploadOutcome::Created => StatusCode::CREATED,
        UploadOutcome::Replaced => StatusCode::OK,
        UploadOutcome::Skipped => {
            let message = format!("`{path}` already exists; leave `If-None-Match` out to replace it");
            return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "exists", message));
        }
    };
    Ok(HttpResponse::build(status).json(Uploaded { path, bytes }))
}

fn existing(req: &HttpRequest) -> Result<ExistingFilePolicy, ApiError> {
    match req.headers().get(header::IF_NONE_MATCH).map(|value| value.as_bytes()) {
        None => Ok(ExistingFilePolicy::Replace),
        Some(b"*") => Ok(ExistingFilePolicy::Keep),
        Some(_) => Err(ApiError::invalid("`If-None-Match` must be `*` or absent")),
    }
}

fn content_length(req: &HttpRequest) -> Option<u64> {
    req.headers().get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: u64) -> ApiError {
    let message = format!("the file is larger than {limit} bytes, which is `server.max_upload`");
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn write_error(path: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotADirectory => ApiError::new(
            StatusCode::CONFLICT,
            "conflict",
            format!("a parent of `{path}` is not a directory; links are not followed"),
        ),
        io::ErrorKind::IsADirectory => {
            ApiError::new(StatusCode::CONFLICT, "conflict", format!("`{path}` is a directory"))
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk_full",
            format!("no space is left for `{path}`; no partial file is kept"),
        ),
        _ => ApiError::unavailable(format!("`{path}` cannot be written: {error}")),
    }
}
