//! Download, upload and removal of a file.

use std::future::{Ready, ready};

use actix_files::NamedFile;
use actix_web::{
    FromRequest, HttpRequest, HttpResponse, ResponseError, dev,
    http::{
        StatusCode,
        header::{self, DispositionType, HeaderValue},
    },
    web::{Data, Payload},
};
use serde::Deserialize;
use utoipa::{
    IntoParams,
    openapi::path::{Parameter, ParameterIn},
};

use super::{CONTENT_POLICY, Uploaded, check_writable, incoming_body::UploadLimits, plan::record_plan, target};
use crate::{
    api_schema::{BinarySchema, text},
    files::{DownloadType, FileError, PathText, RemovalScope, WriteCondition},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{FilePath, QueryParams, SessionPath, header_parameter},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![get, put, remove_file];

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DownloadQuery {
    /// Present, with any value: the answer is an attachment in any case.
    download: Option<String>,
    /// `true`: the path is percent-encoded inside its segments, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    #[expect(dead_code, reason = "`FilePath` reads the mark")]
    encoded: bool,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UploadQuery {
    /// `true`: the path is percent-encoded inside its segments, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    #[expect(dead_code, reason = "`FilePath` reads the mark")]
    encoded: bool,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemovalQuery {
    /// `true`: removes a directory with its content.
    #[serde(default)]
    #[param(default = false)]
    recursive: bool,
    /// `true`: the path is percent-encoded inside its segments, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    #[expect(dead_code, reason = "`FilePath` reads the mark")]
    encoded: bool,
}

/// Downloads a file of the workspace.
///
/// The answer is an attachment. A PNG, JPEG, GIF or WebP picture may be shown in place; other
/// content is plain text or bytes. Supports `Range`, `If-Range`, `If-None-Match` and `If-Match`.
/// Works in every state of the session.
#[utoipa::path(get, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(SessionPath, FilePath, DownloadQuery),
    responses(
        (status = 200, description = "The file.", content((BinarySchema = "application/octet-stream"),
            (BinarySchema = "text/plain"), (BinarySchema = "image/png"), (BinarySchema = "image/jpeg"),
            (BinarySchema = "image/gif"), (BinarySchema = "image/webp"))),
        (status = 206, description = "The part of the file that `Range` asks for.",
            content((BinarySchema = "application/octet-stream"), (BinarySchema = "text/plain"),
                (BinarySchema = "image/png"), (BinarySchema = "image/jpeg"), (BinarySchema = "image/gif"),
                (BinarySchema = "image/webp"))),
        (status = 304, description = "The file is the one that `If-None-Match` names."),
        (status = 409, description = "The path is a directory, a link or no regular file (`conflict`).",
            body = ErrorAnswer),
        (status = 412, description = "The file is not the one that `If-Match` names.", body = ErrorAnswer),
        (status = 416, description = "The file has no such part (`invalid_args`).", body = ErrorAnswer)))]
async fn get(
    services: Data<WebServices>,
    id: SessionPath,
    FilePath(path): FilePath,
    QueryParams(query): QueryParams<DownloadQuery>,
    req: HttpRequest,
) -> ApiResult {
    services.snapshot(id.0).await?;
    let name = PathText::of(path.name()).text;
    let (file, head) = services.files.open_file(target(id.0, path.clone())).await?;
    let content = DownloadType::of(&head);
    let file =
        NamedFile::from_file(file, name).map_err(|e| ApiError::unavailable(format!("`{path}` cannot be read: {e}")))?;
    let mut disposition = file.content_disposition().clone();
    // An agent's file must never run as a page of this origin.
    disposition.disposition = match (content, query.download) {
        (DownloadType::Picture(_), None) => DispositionType::Inline,
        (DownloadType::Picture(_) | DownloadType::Text | DownloadType::Binary, _) => DispositionType::Attachment,
    };
    let content_type = content.media_type().parse().expect("each type is valid");
    let file = file.set_content_type(content_type).set_content_disposition(disposition);
    let mut response = file.into_response(&req);
    let headers = response.headers_mut();
    // The agent may change the file at any time, so a cached copy is revalidated.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY));
    Ok(response)
}

/// Uploads a file into the workspace.
///
/// The body is the file, of any content type. An empty file needs a `Content-Type`: without body
/// and type, the request is rejected. Missing directories are created. `If-None-Match: *` keeps a
/// file that already exists, and `If-Match` replaces only the file with that tag. A failed upload
/// changes nothing. An upload of the agent's plan is also recorded, as a `plan` of the user.
#[utoipa::path(put, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(SessionPath, FilePath, UploadQuery, ConditionHeaders),
    request_body(content = BinarySchema, content_type = "application/octet-stream", description = "The file."),
    responses((status = 201, body = Uploaded, description = "The file is new.",
            headers(("ETag" = String, description = "Tag of the new content."))),
        (status = 200, body = Uploaded, description = "The file replaced an existing one.",
            headers(("ETag" = String, description = "Tag of the new content."))),
        (status = 412, body = ErrorAnswer,
            description = "The path already exists (`exists`), or is not the file that `If-Match` names (`changed`).",
            headers(("ETag" = String, description = "Tag of the present file, if there is one."))),
        (status = 415, body = ErrorAnswer, description = "The configuration denies this type (`type_denied`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn put(
    services: Data<WebServices>,
    id: SessionPath,
    FilePath(path): FilePath,
    _: QueryParams<UploadQuery>,
    ConditionHeaders(condition): ConditionHeaders,
    req: HttpRequest,
    body: Payload,
) -> ApiResult {
    if !has_body(&req) {
        return Err(ApiError::invalid(
            "the body is missing; to upload an empty file, send `Content-Type: application/octet-stream`",
        ));
    }
    let limits = UploadLimits::new(&services.config);
    if content_length(&req).is_some_and(|bytes| bytes > limits.file_bytes()) {
        return Err(limits.too_large(&path));
    }
    check_writable(&services, id.0).await?;
    limits.check_name(&path)?;
    let incoming = services.files.receive(target(id.0, path)).await?;
    limits.receive(&incoming, body).await?;
    let placed = match services.files.place(id.0, vec![incoming], condition).await {
        Ok(placed) => placed.into_iter().next().expect("one file was placed"),
        Err(error) => return rejected(error),
    };
    record_plan(&services, id.0, &placed).await;
    let status = if placed.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let uploaded = Uploaded::from(placed);
    Ok(HttpResponse::build(status).insert_header((header::ETAG, uploaded.etag.clone())).json(uploaded))
}

/// Removes a file, a link or a directory of the workspace.
///
/// A directory with content needs `recursive=true`. It loses its name at once.
#[utoipa::path(delete, path = "/api/sessions/{id}/files/{path}", tag = "files",
    params(SessionPath, FilePath, RemovalQuery),
    responses((status = 204, description = "The entry is removed.")))]
async fn remove_file(
    services: Data<WebServices>,
    id: SessionPath,
    FilePath(path): FilePath,
    QueryParams(query): QueryParams<RemovalQuery>,
) -> ApiResult {
    check_writable(&services, id.0).await?;
    let scope = if query.recursive { RemovalScope::Tree } else { RemovalScope::Single };
    services.files.remove(target(id.0, path), scope).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Returns the answer to a rejected upload. If `If-Match` names another file, the answer has the
/// present tag.
fn rejected(error: FileError) -> ApiResult {
    let tag = match &error {
        FileError::Changed { etag: Some(etag), .. } => HeaderValue::from_str(etag).ok(),
        _ => None,
    };
    let error = ApiError::from(error);
    let Some(tag) = tag else { return Err(error) };
    let mut response = error.error_response();
    response.headers_mut().insert(header::ETAG, tag);
    Ok(response)
}

/// `If-None-Match` and `If-Match` headers of an upload.
struct ConditionHeaders(WriteCondition);

impl FromRequest for ConditionHeaders {
    type Error = ApiError;
    type Future = Ready<Result<ConditionHeaders, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let value = |name| req.headers().get(name).map(HeaderValue::as_bytes);
        let condition = match (value(header::IF_NONE_MATCH), value(header::IF_MATCH)) {
            (None, None) => Ok(WriteCondition::Any),
            (Some(b"*"), None) => Ok(WriteCondition::Free),
            (Some(_), None) => Err("`If-None-Match` must be `*` or absent"),
            (None, Some(b"*")) => Ok(WriteCondition::AnyFile),
            (None, Some(tags)) => match entity_tags(tags) {
                Some(tags) => Ok(WriteCondition::Tags(tags)),
                None => Err("`If-Match` must be `*`, or tags in double quotes, such as an answer's `ETag`"),
            },
            (Some(_), Some(_)) => Err("`If-Match` and `If-None-Match` exclude each other; send one"),
        };
        ready(condition.map(ConditionHeaders).map_err(ApiError::invalid))
    }
}

/// Pattern of a list of tags. Source: RFC 9110, section 8.8.3, without weak tags.
const TAG_LIST: &str = r#"^(\*|"[!#-~]*"( *, *"[!#-~]*")*)$"#;

fn entity_tags(value: &[u8]) -> Option<Vec<String>> {
    let tags = std::str::from_utf8(value).ok()?.split(',').map(|tag| {
        let tag = tag.trim_matches(' ');
        let inner = tag.strip_prefix('"')?.strip_suffix('"')?;
        let is_valid = tag.len() >= 2 && inner.bytes().all(|byte| byte == b'!' || (b'#'..=b'~').contains(&byte));
        is_valid.then(|| tag.to_owned())
    });
    tags.collect()
}

impl IntoParams for ConditionHeaders {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let if_none = "`*`: upload only if the path does not exist.";
        let if_match = "Tags of which the present file must have one. `*`: any file.";
        vec![
            header_parameter("If-None-Match", if_none, text().enum_values(Some(["*"]))),
            header_parameter("If-Match", if_match, text().pattern(Some(TAG_LIST))),
        ]
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
