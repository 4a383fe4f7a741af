//! Checkpoints of a workspace: list, differences, patches, files and restores.
//!
//! Works in every state of the session. The files of an ended session cannot be restored.

use std::future::{Ready, ready};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse, ResponseError, dev,
    http::{
        StatusCode,
        header::{self, HeaderValue},
    },
    web::{Data, Json},
};
use greenroom_protocol::{
    checkpoint::{CheckpointKind, LeftOutEntry},
    tool::FileChangeKind,
};
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        Required,
        path::{Parameter, ParameterBuilder, ParameterIn},
    },
};

use super::files::{CONTENT_POLICY, attachment, path_or_root};
use crate::{
    api_schema::{BinarySchema, CheckpointKindSchema, FileChangeKindSchema, LeftOutEntrySchema, api_schema, text},
    checkpoints::{
        CheckpointError, CompletedRestore, DiffRange, DiffedFile, ListedCheckpoint, RestoreRequest, RestoredFiles,
        TakenCheckpoint, WorkspaceDiff,
    },
    files::PathText,
    session::{BeginRestore, CaptureEnded, RequestError, report_capture_end},
    store::SessionId,
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        request::{FilePath, QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![list_checkpoints, diff_workspace, patch_workspace, get_checkpoint_file, restore_checkpoint];

/// Longest name of a checkpoint, bytes.
const NAME_BYTES: usize = 64;
/// Other name of `start` in a workspace that is a clone.
const BASE: &str = "base";

api_schema! {
    CheckpointNameSchema as "CheckpointName" = text()
        .description(Some("Checkpoint by its name, such as `turn-3` or `start`."))
        .pattern(Some(format!("^[A-Za-z0-9-]{{1,{NAME_BYTES}}}$")));
}

/// Checkpoint that the path names.
struct CheckpointPath(String);

impl FromRequest for CheckpointPath {
    type Error = ApiError;
    type Future = Ready<Result<CheckpointPath, ApiError>>;

    fn from_request(req: &HttpRequest, _: &mut dev::Payload) -> Self::Future {
        let name = req.match_info().query("checkpoint");
        ready(match is_name(name) {
            true => Ok(CheckpointPath(name.to_owned())),
            false => Err(ApiError::not_found(format!("`{name}` is not the name of a checkpoint"))),
        })
    }
}

impl IntoParams for CheckpointPath {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let name = ParameterBuilder::new()
            .name("checkpoint")
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some("Checkpoint, by its name."))
            .schema(Some(CheckpointNameSchema::schema()));
        vec![name.build()]
    }
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DiffQuery {
    /// Older end: a checkpoint. Default: `start`, also named `base`.
    #[param(value_type = Option<CheckpointNameSchema>)]
    from: Option<String>,
    /// Newer end: a checkpoint, or `now`, the default.
    #[param(value_type = Option<CheckpointNameSchema>)]
    to: Option<String>,
    /// File, or directory with all files below. Absent or empty: all files.
    path: Option<String>,
    /// `true`: `path` is percent-encoded, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    encoded: bool,
}

impl DiffQuery {
    fn range(self) -> Result<DiffRange, ApiError> {
        let end = |name: Option<String>, default: &str| match name {
            None => Ok(default.to_owned()),
            // The commit that the workspace of a repository began with.
            Some(name) if name == BASE => Ok("start".to_owned()),
            Some(name) if is_name(&name) => Ok(name),
            Some(name) => Err(ApiError::invalid(format!("`{name}` is not the name of a checkpoint, `start` or `now`"))),
        };
        let scope = path_or_root(self.path.as_deref(), self.encoded)?;
        Ok(DiffRange { from: end(self.from, "start")?, to: end(self.to, "now")?, scope })
    }
}

/// Checkpoints of a session, oldest first.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Checkpoints)]
struct CheckpointsAnswer {
    /// False if sessions have no checkpoints.
    offered: bool,
    /// Reason why sessions have no checkpoints.
    reason: Option<String>,
    items: Vec<CheckpointRow>,
    /// Size on disk.
    stored_bytes: u64,
    /// Limit on the size on disk.
    limit_bytes: u64,
    /// Description of damaged files of the store.
    damage: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Checkpoint)]
struct CheckpointRow {
    #[schema(value_type = CheckpointNameSchema)]
    checkpoint: String,
    #[schema(value_type = CheckpointKindSchema)]
    kind: CheckpointKind,
    /// Checkpoint that a restore went back to.
    of: Option<String>,
    /// RFC 3339, UTC, milliseconds.
    at: String,
    /// Number of files.
    files: u64,
    /// Size of the files.
    bytes: u64,
    /// Later changes may be part of the checkpoint.
    partial: bool,
    /// Entries that are not part of the checkpoint, at most 100.
    #[schema(value_type = Vec<LeftOutEntrySchema>)]
    left_out: Vec<LeftOutEntry>,
    /// Number of further such entries.
    left_out_more: u64,
    /// `HEAD` of the workspace's own repository.
    head: Option<String>,
}

impl From<ListedCheckpoint> for CheckpointRow {
    fn from(listed: ListedCheckpoint) -> CheckpointRow {
        let ListedCheckpoint { checkpoint, kind, of, at, files, bytes, partial, left_out, left_out_more, head } =
            listed;
        CheckpointRow { checkpoint, kind, of, at, files, bytes, partial, left_out, left_out_more, head }
    }
}

/// Difference between two points.
#[derive(Serialize, utoipa::ToSchema)]
struct Difference {
    from: String,
    to: String,
    /// Changed files in the order of their paths, at most 1,000.
    files: Vec<FileDifference>,
    /// Number of further files.
    more: u64,
    /// Added lines of the listed files.
    added: u64,
    /// Removed lines of the listed files.
    removed: u64,
    /// Entries that are not compared, at most 100.
    #[schema(value_type = Vec<LeftOutEntrySchema>)]
    left_out: Vec<LeftOutEntry>,
    /// Number of further such entries.
    left_out_more: u64,
}

/// Changed file.
#[derive(Serialize, utoipa::ToSchema)]
struct FileDifference {
    path: String,
    /// True if `path` is percent-encoded.
    encoded: bool,
    #[schema(value_type = FileChangeKindSchema)]
    change: FileChangeKind,
    /// Old path of a moved file.
    from: Option<String>,
    /// True if `from` is percent-encoded.
    from_encoded: bool,
    /// Mode as git writes it: `100644`, `100755` or `120000`.
    old_mode: Option<&'static str>,
    new_mode: Option<&'static str>,
    /// True for a file without a difference by lines.
    binary: bool,
    /// Added lines. `null` for a binary file.
    added: Option<u64>,
    /// Removed lines. `null` for a binary file.
    removed: Option<u64>,
    old_bytes: Option<u64>,
    new_bytes: Option<u64>,
    /// Hunks of a unified diff, from the first `@@` on.
    diff: Option<String>,
    /// True if the answer has no room for `diff`.
    truncated: bool,
}

impl From<DiffedFile> for FileDifference {
    fn from(file: DiffedFile) -> FileDifference {
        let PathText { text: path, encoded } = file.path;
        let from_encoded = file.from.as_ref().is_some_and(|from| from.encoded);
        FileDifference {
            path,
            encoded,
            change: file.change,
            from: file.from.map(|from| from.text),
            from_encoded,
            old_mode: file.old_mode,
            new_mode: file.new_mode,
            binary: file.binary,
            added: file.added,
            removed: file.removed,
            old_bytes: file.old_bytes,
            new_bytes: file.new_bytes,
            diff: file.diff,
            truncated: file.truncated,
        }
    }
}

/// Part of the workspace that is restored.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct RestoreScope {
    /// File, or directory with all files below. Absent or empty: all files.
    #[serde(default)]
    path: Option<String>,
    /// True if `path` is percent-encoded, as lists return it.
    #[serde(default)]
    encoded: bool,
}

/// Completed restore.
#[derive(Serialize, utoipa::ToSchema)]
struct Restored {
    /// New checkpoint.
    checkpoint: String,
    /// Checkpoint that takes the restore back.
    before: String,
    /// Number of written files.
    restored: u64,
    /// Number of removed files.
    removed: u64,
    /// Paths that could not be restored, at most 100.
    failed: Vec<FailedRestore>,
}

/// Path that could not be restored.
#[derive(Serialize, utoipa::ToSchema)]
struct FailedRestore {
    path: String,
    encoded: bool,
    /// Reason in words.
    reason: String,
}

/// Lists the checkpoints, oldest first.
#[utoipa::path(get, path = "/api/sessions/{id}/checkpoints", tag = "checkpoints", params(SessionPath),
    responses((status = 200, body = CheckpointsAnswer, description = "The checkpoints that are kept.")))]
async fn list_checkpoints(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    services.snapshot(id.0).await?;
    let list = services.checkpoints.list(id.0).await?;
    let reason = services.checkpoints.check_offered().err().map(|reason| reason.to_string());
    Ok(HttpResponse::Ok().json(CheckpointsAnswer {
        offered: reason.is_none(),
        reason,
        items: list.items.into_iter().map(CheckpointRow::from).collect(),
        stored_bytes: list.stored_bytes,
        limit_bytes: list.limit_bytes,
        damage: list.damage,
    }))
}

/// Compares two checkpoints, or a checkpoint and the present workspace.
///
/// The answer has at most 1,000 files and 1 MiB of hunks. A file without hunks for lack of room is
/// marked `truncated`; its own `path` returns them.
#[utoipa::path(get, path = "/api/sessions/{id}/diff", tag = "checkpoints", params(SessionPath, DiffQuery),
    responses((status = 200, body = Difference, description = "The changed files."),
        (status = 409, body = ErrorAnswer, description = "Sessions have no checkpoints (`conflict`)."),
        (status = 500, body = ErrorAnswer, description = "A checkpoint is damaged (`damaged`).")))]
async fn diff_workspace(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<DiffQuery>,
) -> ApiResult {
    let range = query.range()?;
    services.snapshot(id.0).await?;
    let diff = services.checkpoints.diff(id.0, range).await?;
    let WorkspaceDiff { from, to, files, more, added, removed, left_out, left_out_more } = diff;
    let files = files.into_iter().map(FileDifference::from).collect();
    Ok(HttpResponse::Ok().json(Difference { from, to, files, more, added, removed, left_out, left_out_more }))
}

/// Downloads a difference as a patch that `git apply` takes.
///
/// The patch has whole binary files, modes, links and moves. If a file cannot be read, the
/// connection breaks off.
#[utoipa::path(get, path = "/api/sessions/{id}/patch", tag = "checkpoints", params(SessionPath, DiffQuery),
    responses((status = 200, description = "The patch.", content((BinarySchema = "text/x-patch"))),
        (status = 409, body = ErrorAnswer, description = "Sessions have no checkpoints (`conflict`)."),
        (status = 500, body = ErrorAnswer, description = "A checkpoint is damaged (`damaged`).")))]
async fn patch_workspace(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<DiffQuery>,
) -> ApiResult {
    let range = query.range()?;
    services.snapshot(id.0).await?;
    let name = format!("{}-{}.patch", range.from, range.to);
    let patch = services.checkpoints.patch(id.0, range).await?;
    Ok(HttpResponse::Ok()
        .content_type("text/x-patch")
        .insert_header(attachment(name))
        .insert_header((header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)))
        .streaming(patch))
}

/// Downloads a file as it was. The content of a link is its target.
#[utoipa::path(get, path = "/api/sessions/{id}/checkpoints/{checkpoint}/files/{path}", tag = "checkpoints",
    params(SessionPath, CheckpointPath, FilePath, CheckpointFileQuery),
    responses((status = 200, description = "The file.", content((BinarySchema = "application/octet-stream"))),
        (status = 409, body = ErrorAnswer, description = "Sessions have no checkpoints (`conflict`)."),
        (status = 500, body = ErrorAnswer, description = "The checkpoint is damaged (`damaged`).")))]
async fn get_checkpoint_file(
    services: Data<WebServices>,
    id: SessionPath,
    checkpoint: CheckpointPath,
    FilePath(path): FilePath,
    _: QueryParams<CheckpointFileQuery>,
) -> ApiResult {
    services.snapshot(id.0).await?;
    let name = PathText::of(path.name()).text;
    let content = services.checkpoints.file(id.0, checkpoint.0, path).await?;
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header(attachment(name))
        .insert_header((header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_POLICY)))
        .body(content))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CheckpointFileQuery {
    /// `true`: the path is percent-encoded inside its segments, as lists return it.
    #[serde(default)]
    #[param(default = false)]
    #[expect(dead_code, reason = "`FilePath` reads the mark")]
    encoded: bool,
}

/// Goes back to a checkpoint, as a whole or with one path.
///
/// Captured files that the checkpoint does not have are removed. What checkpoints leave out stays.
/// The state before is a checkpoint too. The restore is completed even if the client leaves.
#[utoipa::path(post, path = "/api/sessions/{id}/checkpoints/{checkpoint}/restore", tag = "checkpoints",
    params(SessionPath, CheckpointPath), request_body = RestoreScope,
    responses((status = 200, body = Restored, description = "The workspace is restored."),
        (status = 409, body = ErrorAnswer, description = "A turn or another restore runs (`busy`), the session has \
            ended (`ended`), or sessions have no checkpoints (`conflict`)."),
        (status = 500, body = ErrorAnswer, description = "The checkpoint is damaged (`damaged`)."),
        (status = 507, body = ErrorAnswer, description = "The disk is full (`disk_full`).")))]
async fn restore_checkpoint(
    services: Data<WebServices>,
    id: SessionPath,
    checkpoint: CheckpointPath,
    scope: Json<RestoreScope>,
) -> ApiResult {
    let scope = path_or_root(scope.path.as_deref(), scope.encoded)?;
    services.checkpoints.check_offered()?;
    let key = ulid::Ulid::generate();
    let (name, before) = (format!("restore-{key}"), format!("before-restore-{key}"));
    let request = RestoreRequest { of: checkpoint.0, name: name.clone(), before: before.clone(), scope };
    // A task of its own: a client that leaves must not end the restore half-way.
    let restoring = actix_web::rt::spawn(restore_and_report(services, id.0, request));
    let restored = restoring.await.map_err(|_| ApiError::unavailable("the restore was interrupted"));
    let files = restored??;
    let failed = files.failed.into_iter().map(|failed| {
        let PathText { text: path, encoded } = failed.path;
        FailedRestore { path, encoded, reason: failed.reason }
    });
    Ok(HttpResponse::Ok().json(Restored {
        checkpoint: name,
        before,
        restored: files.restored,
        removed: files.removed,
        failed: failed.collect(),
    }))
}

/// Restores, and reports the end to the session, whose next turn waits for that. Runs to its end:
/// a client that leaves after the beginning must not hold the session's queue.
async fn restore_and_report(
    services: Data<WebServices>,
    id: SessionId,
    request: RestoreRequest,
) -> Result<RestoredFiles, ApiError> {
    let checkpoint = request.name.clone();
    services.send_to_session(id, BeginRestore { checkpoint: checkpoint.clone() }).await??;
    let (files, taken) = match services.checkpoints.restore(id, request).await {
        Ok(CompletedRestore { files, taken }) => (files, taken),
        Err(error) => (Err(error), Vec::new()),
    };
    let observations = taken.into_iter().flat_map(TakenCheckpoint::observations).collect();
    report_capture_end(CaptureEnded { checkpoint, observations }, async |end| {
        match services.send_to_session(id, end).await {
            Ok(answer) => Some(answer),
            Err(error) if error.status_code() == StatusCode::NOT_FOUND => None,
            Err(error) => Some(Err(RequestError::Unavailable(error.to_string()))),
        }
    })
    .await;
    Ok(files?)
}

impl From<CheckpointError> for ApiError {
    fn from(error: CheckpointError) -> ApiError {
        let (status, code) = match error {
            CheckpointError::Workspace(error) => return error.into(),
            CheckpointError::NotOffered(_) | CheckpointError::NowTooLarge(_) => (StatusCode::CONFLICT, "conflict"),
            CheckpointError::NoCheckpoint(_) | CheckpointError::NoFile { .. } => (StatusCode::NOT_FOUND, "not_found"),
            CheckpointError::Damaged(_) => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            CheckpointError::DiskFull | CheckpointError::OverLimit(_) | CheckpointError::OverBudget => {
                (StatusCode::INSUFFICIENT_STORAGE, "disk_full")
            }
            CheckpointError::Cancelled
            | CheckpointError::Busy(_)
            | CheckpointError::NowTooSlow(_)
            | CheckpointError::Io(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        ApiError::new(status, code, error.to_string())
    }
}
