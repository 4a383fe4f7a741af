//! New directories, and moves.

use actix_web::{
    HttpResponse,
    http::StatusCode,
    web::{Data, Json},
};
use serde::Deserialize;

use super::{check_writable, path_of, target};
use crate::{
    files::{FileEntry, MoveTarget},
    web::{
        error::{ApiResult, ErrorAnswer},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![make_directory, move_file];

/// New directory.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct NewDirectory {
    path: String,
    /// True if `path` is percent-encoded, as lists return it.
    #[serde(default)]
    encoded: bool,
}

/// Move of an entry inside its workspace.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct FileMove {
    from: String,
    /// New path, in an existing directory.
    to: String,
    /// True if `from` is percent-encoded, as lists return it.
    #[serde(default)]
    from_encoded: bool,
    /// True if `to` is percent-encoded.
    #[serde(default)]
    to_encoded: bool,
    /// True: a file at `to` is replaced.
    #[serde(default)]
    overwrite: bool,
}

/// Creates a directory, and the missing directories on the way.
#[utoipa::path(post, path = "/api/sessions/{id}/files:mkdir", tag = "files", params(SessionPath),
    request_body = NewDirectory,
    responses((status = 201, body = FileEntry, description = "The directory is new."),
        (status = 200, body = FileEntry, description = "The directory exists already."),
        (status = 412, body = ErrorAnswer, description = "The path belongs to a file (`exists`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn make_directory(services: Data<WebServices>, id: SessionPath, directory: Json<NewDirectory>) -> ApiResult {
    let path = path_of(&directory.path, directory.encoded)?;
    check_writable(&services, id.0).await?;
    let (entry, is_new) = services.files.make_dir(target(id.0, path)).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(HttpResponse::build(status).json(entry))
}

/// Moves or renames a file, a link or a directory inside the workspace, in one step.
#[utoipa::path(post, path = "/api/sessions/{id}/files:move", tag = "files", params(SessionPath),
    request_body = FileMove,
    responses((status = 200, body = FileEntry, description = "The entry, at its new path."),
        (status = 412, body = ErrorAnswer, description = "`to` exists already (`exists`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn move_file(services: Data<WebServices>, id: SessionPath, change: Json<FileMove>) -> ApiResult {
    let from = path_of(&change.from, change.from_encoded)?;
    let to = path_of(&change.to, change.to_encoded)?;
    check_writable(&services, id.0).await?;
    let free = if change.overwrite { MoveTarget::MayBeReplaced } else { MoveTarget::MustBeFree };
    let entry = services.files.move_entry(target(id.0, from), to, free).await?;
    Ok(HttpResponse::Ok().json(entry))
}
