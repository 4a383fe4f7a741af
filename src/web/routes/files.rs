//! Files of a session's workspace over REST: uploads and downloads.

use std::{
    fs::File,
    future::{Ready, ready},
    io,
    os::unix::fs::FileExt,
};

use actix_files::NamedFile;
use actix_web::{
    FromRequest, HttpRequest, HttpResponse, dev,
    http::{
        StatusCode,
        header::{self, DispositionType, HeaderValue},
    },
    web::{Data, Payload},
};
use futures::StreamExt;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use utoipa::{
    IntoParams,
    openapi::path::{Parameter, ParameterIn},
};

use crate::{
    api_schema::{BinarySchema, text},
    sandbox::{ExistingFilePolicy, UploadOutcome},
    session::RequestError,
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{FilePath, SessionPath, header_parameter},
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
    params(SessionPath, FilePath),
    responses(
        (status = 200, description = "The file.", content((BinarySchema = "application/octet-stream"),
            (BinarySchema = "image/png"), (BinarySchema = "image/jpeg"), (BinarySchema = "image/gif"),
            (BinarySchema = "image/webp"))),
        (status = 206, description = "The part of the file that `Range` asks for.",
            content((BinarySchema = "application/octet-stream"), (BinarySchema = "image/png"),
                (BinarySchema = "image/jpeg"), (BinarySchema = "image/gif"), (BinarySchema = "image/webp"))),
        (status = 304, description = "The file is the one that `If-None-Match` names."),
        (status = 409, description = "The path is a directory, a link or no regular file (`conflict`).",
            body = ErrorAnswer),
        (status = 412, description = "The file is not the one that `If-Match` names.", body = ErrorAnswer),
        (status = 416, description = "The file has no such part (`invalid_args`).", body = ErrorAnswer)))]
async fn get(services: Data<WebServices>, id: SessionPath, file_path: FilePath, req: HttpRequest) -> ApiResult {
    let FilePath { text: path, inner } = file_path;
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
/// The body is the file, of any content type. An empty file needs a `Content-Type`: without body
/// and type, the request is rejected. Missing directories are created. `If-None-Match: *` keeps a
/// file that already exists.
#[utoipa::path(put, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(SessionPath, FilePath, ExistingFileHeader),
    request_body(content = BinarySchema, content_type = "application/octet-stream", description = "The file."),
    responses((status = 201, body = Uploaded, description = "The file is new."),
        (status = 200, body = Uploaded, description = "The file replaced an existing one."),
        (status = 412, body = ErrorAnswer, description = "The path already exists (`exists`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn put(
    services: Data<WebServices>,
    id: SessionPath,
    file_path: FilePath,
    existing: ExistingFileHeader,
    req: HttpRequest,
    mut body: Payload,
) -> ApiResult {
    let FilePath { text: path, inner } = file_path;
    if !has_body(&req) {
        return Err(ApiError::invalid(
            "the body is missing; to upload an empty file, send `Content-Type: application/octet-stream`",
        ));
    }
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
    let status = match incoming.finish(existing.0).map_err(failed)? {
        UploadOutcome::Created => StatusCode::CREATED,
        UploadOutcome::Replaced => StatusCode::OK,
        UploadOutcome::Skipped => {
            let message = format!("`{path}` already exists; leave `If-None-Match` out to replace it");
            return Err(ApiError::new(StatusCode::PRECONDITION_FAILED, "exists", message));
        }
    };
    Ok(HttpResponse::build(status).json(Uploaded { path, bytes }))
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

/// `If-None-Match` header of an upload.
struct ExistingFileHeader(ExistingFilePolicy);

impl FromRequest for ExistingFileHeader {
    type Error = ApiError;
    type Future = Ready<Result<ExistingFileHeader, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        ready(match req.headers().get(header::IF_NONE_MATCH).map(|value| value.as_bytes()) {
            None => Ok(ExistingFileHeader(ExistingFilePolicy::Replace)),
            Some(b"*") => Ok(ExistingFileHeader(ExistingFilePolicy::Keep)),
            Some(_) => Err(ApiError::invalid("`If-None-Match` must be `*` or absent")),
        })
    }
}

impl IntoParams for ExistingFileHeader {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let description = "`*`: upload only if the path does not exist.";
        vec![header_parameter("If-None-Match", description, text().enum_values(Some(["*"])))]
    }
}

/// Returns false for a request without a body. An empty body with a type is an empty file. Many
/// clients send `Content-Length: 0` for an absent body.
fn has_body(req: &HttpRequest) -> bool {
    let headers = req.headers();
    headers.contains_key(header::CONTENT_TYPE)
        || headers.contains_key(header::TRANSFER_ENCODING)
        || content_length(req).is_some_and(|bytes| bytes > 0)
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
