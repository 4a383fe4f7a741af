//! Files of a session's workspace over REST: uploads and downloads.

use std::{fs::File, io, os::unix::fs::FileExt};

use actix_files::NamedFile;
use actix_web::{
    HttpRequest, HttpResponse,
    http::{
        StatusCode,
        header::{self, DispositionType, HeaderValue},
    },
    web::{Data, Path, Payload},
};
use futures::StreamExt;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use crate::{
    sandbox::{ExistingFilePolicy, InnerPath, InvalidInnerPath, UploadOutcome},
    session::RequestError,
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![get, put];

/// Formats of pictures that a browser may show: the first bytes, and the bytes after the eighth.
///
/// Source: the specifications of PNG, JPEG, GIF and WebP. A picture cannot run scripts in these
/// formats, unlike SVG.
const PICTURES: [(&str, &[u8], &[u8]); 5] = [
    ("image/png", b"\x89PNG\r\n\x1a\n", b""),
    ("image/jpeg", b"\xff\xd8\xff", b""),
    ("image/gif", b"GIF87a", b""),
    ("image/gif", b"GIF89a", b""),
    ("image/webp", b"RIFF", b"WEBP"),
];

/// Uploaded file.
#[derive(Serialize, utoipa::ToSchema)]
struct Uploaded {
    /// Path inside the workspace, as a message's `attachments` name it.
    path: String,
    bytes: u64,
}

/// Downloads a file of the workspace.
///
/// The answer is an attachment. A PNG, JPEG, GIF or WebP picture may be shown in place. Supports
/// `Range` and `If-None-Match`. Works in every state of the session.
#[utoipa::path(get, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(("id" = String, Path), ("path" = String, Path, description = "path inside the workspace, such as `uploads/plan.pdf`")),
    responses((status = 200, body = Vec<u8>), (status = 404, body = ErrorAnswer),
        (status = 409, body = ErrorAnswer, description = "the path is a directory, a link or no regular file")))]
async fn get(
    services: Data<WebServices>,
    id: SessionPath,
    path: Path<(String, String)>,
    req: HttpRequest,
) -> ApiResult {
    let (_, path) = path.into_inner();
    let inner = inner_path(&path)?;
    services.snapshot(id.0).await?;
    let failed = |e: io::Error| read_error(&path, &e);
    let file = services.workspaces.open(id.0, &inner).map_err(failed)?;
    let picture = picture_type(&file).map_err(failed)?;
    let file = NamedFile::from_file(file, inner.name()).map_err(failed)?;
    let mut disposition = file.content_disposition().clone();
    // An agent's file must never run as a page of this origin.
    disposition.disposition = if picture.is_some() { DispositionType::Inline } else { DispositionType::Attachment };
    let content_type = picture.unwrap_or("application/octet-stream").parse().expect("each type is valid");
    let file = file.set_content_type(content_type).set_content_disposition(disposition);
    let mut response = file.into_response(&req);
    // The agent may change the file at any time, so a cached copy is revalidated.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok(response)
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
    let inner = inner_path(&path)?;
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

fn inner_path(path: &str) -> Result<InnerPath, ApiError> {
    path.parse().map_err(|e: InvalidInnerPath| ApiError::invalid(e.to_string()))
}

/// Returns the media type of a picture that a browser may show, judged by its content.
fn picture_type(file: &File) -> io::Result<Option<&'static str>> {
    let mut head = [0; 12];
    let length = file.read_at(&mut head, 0)?;
    let head = &head[..length];
    let found = PICTURES.iter().find(|(_, start, form)| {
        head.starts_with(start) && (form.is_empty() || head.get(8..).is_some_and(|rest| rest.starts_with(form)))
    });
    Ok(found.map(|(media_type, ..)| *media_type))
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

fn read_error(path: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotFound => ApiError::not_found(format!("there is no file `{path}` in the workspace")),
        io::ErrorKind::NotADirectory => not_a_directory(path),
        io::ErrorKind::IsADirectory => conflict(format!("`{path}` is a directory")),
        io::ErrorKind::InvalidInput => {
            conflict(format!("`{path}` is a link or a special file; only regular files are sent"))
        }
        io::ErrorKind::PermissionDenied => conflict(format!("`{path}` is not readable; its permissions deny access")),
        _ => ApiError::unavailable(format!("`{path}` cannot be read: {error}")),
    }
}

fn not_a_directory(path: &str) -> ApiError {
    conflict(format!("a parent of `{path}` is not a directory; links are not followed"))
}

fn conflict(message: String) -> ApiError {
    ApiError::new(StatusCode::CONFLICT, "conflict", message)
}

fn write_error(path: &str, error: &io::Error) -> ApiError {
    match error.kind() {
        io::ErrorKind::NotADirectory => not_a_directory(path),
        io::ErrorKind::IsADirectory => conflict(format!("`{path}` is a directory")),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ApiError::new(
            StatusCode::INSUFFICIENT_STORAGE,
            "disk_full",
            format!("no space is left for `{path}`; no partial file is kept"),
        ),
        _ => ApiError::unavailable(format!("`{path}` cannot be written: {error}")),
    }
}
