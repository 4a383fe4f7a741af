//! Directories: lists, searches and uploads of several files.

use std::collections::HashSet;

use actix_multipart::{Field, Multipart};
use actix_web::{
    HttpRequest, HttpResponse,
    http::StatusCode,
    web::{Data, Payload},
};
use futures::StreamExt;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::{Deserialize, Serialize};

use super::{Uploaded, check_writable, incoming_body::UploadLimits, path_or_root, target};
use crate::{
    api_schema::{BinarySchema, api_schema},
    files::{FileEntry, FileQuery, InnerPath, NamePattern, PathForm, PathText, WriteCondition},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{QueryNumber, QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![list_files, upload_files];

/// Entries of a page unless the client names another number.
const DEFAULT_LIMIT: usize = 200;
/// Highest number of entries of a page.
const MAX_LIMIT: usize = 1000;

api_schema! {
    FileLimitSchema as "FileLimit" = QueryNumber::schema()
        .description(Some(format!("0 counts as {DEFAULT_LIMIT}, and more than {MAX_LIMIT} as {MAX_LIMIT}.")));
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct FilesQuery {
    /// Directory. Absent or empty: the workspace.
    path: Option<String>,
    /// `true`: `path` is percent-encoded, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    encoded: bool,
    /// `true`: the entries of all directories below, too. An answer after 2 s may have few entries
    /// or none, and a cursor.
    #[serde(default)]
    #[param(default = false)]
    recursive: bool,
    /// Part of the name, or a glob with `*`, `?`, `[` or `{`. With `/`: of the path below the
    /// directory.
    q: Option<String>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
    /// Entries of the page, at most 1,000. Default: 200.
    #[param(inline, value_type = Option<FileLimitSchema>)]
    limit: Option<QueryNumber>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct UploadsQuery {
    /// Directory. Absent or empty: the workspace.
    path: Option<String>,
    /// `true`: `path` is percent-encoded, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    encoded: bool,
    /// `true`: existing files are replaced.
    #[serde(default)]
    #[param(default = false)]
    overwrite: bool,
}

/// Page of entries, in the order of their names. A directory comes before its entries.
#[derive(Serialize, utoipa::ToSchema)]
struct FileList {
    /// Directory, as the request names it. Empty: the workspace.
    path: String,
    /// True if `path` is percent-encoded.
    encoded: bool,
    /// True if all sessions have this workspace.
    shared: bool,
    items: Vec<FileEntry>,
    /// Cursor of the next page. `null`: this is the last page.
    next_cursor: Option<String>,
}

/// Files of an upload.
#[derive(Serialize, utoipa::ToSchema)]
struct UploadedFiles {
    files: Vec<Uploaded>,
}

/// Form with files. The name of each field is ignored, and `filename` is the path below `path`.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "the type describes the form in the OpenAPI document")]
struct FileForm {
    file: Vec<BinarySchema>,
}

/// Lists a directory, or searches it and all directories below.
///
/// A link is an entry of its own and is not followed. Works in every state of the session.
#[utoipa::path(get, path = "/api/sessions/{id}/files", tag = "files", params(SessionPath, FilesQuery),
    responses((status = 200, body = FileList, description = "Page of the entries."),
        (status = 409, body = ErrorAnswer, description = "The path is no directory, or is closed (`conflict`).")))]
async fn list_files(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<FilesQuery>,
) -> ApiResult {
    let directory = path_or_root(query.path.as_deref(), query.encoded)?;
    let pattern = query.q.filter(|text| !text.is_empty()).map(|text| NamePattern::parse(&text)).transpose();
    let cursor = query.cursor.map(|text| {
        let cursor = FileQuery::parse_cursor(&text).filter(|last| last.parts_below(&directory).is_some());
        cursor.ok_or_else(|| ApiError::invalid("`cursor` is not one of this directory; leave it out to begin again"))
    });
    let limit = match query.limit.map_or(0, QueryNumber::as_usize) {
        0 => DEFAULT_LIMIT,
        limit => limit.min(MAX_LIMIT),
    };
    let file_query = FileQuery {
        directory: directory.clone(),
        recursive: query.recursive,
        pattern: pattern.map_err(|e| ApiError::invalid(e.to_string()))?,
        cursor: cursor.transpose()?,
        limit,
    };
    services.snapshot(id.0).await?;
    let page = services.files.list(id.0, file_query).await?;
    let PathText { text, encoded } = directory.text();
    let cursor_text = |last: InnerPath| percent_encode(last.as_bytes(), NON_ALPHANUMERIC).to_string();
    Ok(HttpResponse::Ok().json(FileList {
        path: text,
        encoded,
        shared: services.files.is_shared(),
        items: page.entries,
        next_cursor: page.next_cursor.map(cursor_text),
    }))
}

/// Uploads several files into a directory: all, or none.
///
/// The body is a form of `multipart/form-data`. The `filename` of each part is a path below the
/// directory, and missing directories are created. Without `overwrite=true`, each path must be
/// free.
#[utoipa::path(post, path = "/api/sessions/{id}/files", tag = "files", params(SessionPath, UploadsQuery),
    request_body(content = FileForm, content_type = "multipart/form-data", description = "The files."),
    responses((status = 201, body = UploadedFiles, description = "The files are in the workspace."),
        (status = 412, body = ErrorAnswer, description = "A path already exists (`exists`)."),
        (status = 413, body = ErrorAnswer, description = "A file is too large (`too_large`), or there are too many \
            (`too_many_files`)."),
        (status = 415, body = ErrorAnswer, description = "The body is no such form (`not_multipart`), or the \
            configuration denies the type of a file (`type_denied`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn upload_files(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<UploadsQuery>,
    req: HttpRequest,
    body: Payload,
) -> ApiResult {
    let directory = path_or_root(query.path.as_deref(), query.encoded)?;
    check_writable(&services, id.0).await?;
    let limits = UploadLimits::new(&services.config);
    let _permit = services.files.admit_upload()?;
    let mut form = Multipart::new(req.headers(), body);
    let (mut incoming, mut paths) = (Vec::new(), HashSet::new());
    while let Some(field) = form.next().await {
        let field = field.map_err(bad_form)?;
        let path = path_of_part(&directory, &field)?;
        limits.check_count(incoming.len() + 1)?;
        limits.check_name(&path)?;
        if !paths.insert(path.as_bytes().to_vec()) {
            return Err(ApiError::invalid(format!("the form has two files `{path}`; give each a name of its own")));
        }
        let file = services.files.receive(target(id.0, path)).await?;
        limits.receive(&file, field).await?;
        incoming.push(file);
    }
    if incoming.is_empty() {
        return Err(ApiError::invalid("the form has no files; send each as a part with a `filename`"));
    }
    let condition = if query.overwrite { WriteCondition::Any } else { WriteCondition::Free };
    let placed = services.files.place(id.0, incoming, condition).await?;
    Ok(HttpResponse::Created().json(UploadedFiles { files: placed.into_iter().map(Uploaded::from).collect() }))
}

/// Returns the path of a part of the form.
fn path_of_part(directory: &InnerPath, field: &Field) -> Result<InnerPath, ApiError> {
    let disposition = field.content_disposition();
    let extended = disposition.and_then(|it| it.get_filename_ext()).map(|name| String::from_utf8_lossy(&name.value));
    let name = match (extended, disposition.and_then(|it| it.get_filename())) {
        (Some(name), _) => name.into_owned(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => {
            return Err(ApiError::invalid("a part of the form is no file; give each part a `filename`"));
        }
    };
    let below = InnerPath::parse(&name, PathForm::Plain)?;
    let path = directory.join(below.as_bytes());
    path.ok_or_else(|| ApiError::invalid(format!("the path of `{below}` is too long; use shorter names")))
}

fn bad_form(error: actix_multipart::MultipartError) -> ApiError {
    use actix_multipart::MultipartError;
    match error {
        MultipartError::ContentTypeMissing
        | MultipartError::ContentTypeParse
        | MultipartError::ContentTypeIncompatible
        | MultipartError::BoundaryMissing => {
            let message =
                "the body must be a form with files; send `Content-Type: multipart/form-data` with a boundary";
            ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_multipart", message)
        }
        error => ApiError::invalid(format!("the upload was interrupted, or is no valid form: {error}")),
    }
}
