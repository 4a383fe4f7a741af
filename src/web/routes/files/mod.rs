//! Files of a session's workspace over REST.
//!
//! Works in every state of the session. The files of an ended session cannot be changed.

use actix_web::http::StatusCode;
use greenroom_protocol::observation::AgentState;
use serde::Serialize;

use crate::{
    files::{FileError, FileTarget, InnerPath, InvalidInnerPath, PathForm, PathText, PlacedFile, TypeDenied},
    session::RequestError,
    store::SessionId,
    web::{error::ApiError, route_table::DocumentedRoutes, state::WebServices},
};

mod archive;
mod changes;
mod content;
mod directory;
mod incoming_body;
mod plan;

pub(super) use archive::attachment;

/// Policy of an answer with content that an agent wrote, in addition to that of all answers.
pub(super) const CONTENT_POLICY: &str = "default-src 'none'; sandbox";

/// Returns the documented routes of files.
pub(in crate::web) fn documented() -> DocumentedRoutes {
    content::documented().merge(directory::documented()).merge(changes::documented()).merge(archive::documented())
}

/// Uploaded file.
#[derive(Serialize, utoipa::ToSchema)]
struct Uploaded {
    /// Path inside the workspace, as a message's `attachments` name it.
    path: String,
    /// True if `path` is percent-encoded.
    encoded: bool,
    bytes: u64,
    /// Tag of the new content, for `If-Match`.
    etag: String,
}

impl From<PlacedFile> for Uploaded {
    fn from(PlacedFile { path, bytes, etag, .. }: PlacedFile) -> Uploaded {
        let PathText { text, encoded } = path.text();
        Uploaded { path: text, encoded, bytes, etag }
    }
}

/// Checks that the session exists and its files may be changed.
async fn check_writable(services: &WebServices, id: SessionId) -> Result<(), ApiError> {
    match services.snapshot(id).await?.record.state {
        AgentState::Ended => Err(RequestError::Ended.into()),
        _ => Ok(()),
    }
}

/// Returns the path of a query or a body. An absent path is the workspace itself.
pub(super) fn path_or_root(text: Option<&str>, encoded: bool) -> Result<InnerPath, ApiError> {
    InnerPath::parse_or_root(text.unwrap_or_default(), PathForm::of(encoded)).map_err(ApiError::from)
}

fn path_of(text: &str, encoded: bool) -> Result<InnerPath, ApiError> {
    InnerPath::parse(text, PathForm::of(encoded)).map_err(ApiError::from)
}

fn target(session: SessionId, path: InnerPath) -> FileTarget {
    FileTarget { session, path }
}

impl From<InvalidInnerPath> for ApiError {
    fn from(invalid: InvalidInnerPath) -> ApiError {
        ApiError::invalid(invalid.to_string())
    }
}

impl From<TypeDenied> for ApiError {
    fn from(denied: TypeDenied) -> ApiError {
        ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "type_denied", denied.to_string())
    }
}

impl From<FileError> for ApiError {
    fn from(error: FileError) -> ApiError {
        let (status, code) = match &error {
            FileError::Missing(_) => (StatusCode::NOT_FOUND, "not_found"),
            FileError::ParentNotDirectory(_)
            | FileError::IsDirectory(_)
            | FileError::HasContent(_)
            | FileError::NotADirectory(_)
            | FileError::NotRegular(_)
            | FileError::SeveralNames(_)
            | FileError::ChangedMeanwhile(_)
            | FileError::IntoItself(_)
            | FileError::NotEmpty(_)
            | FileError::Denied(_)
            | FileError::TooManyForZip(_) => (StatusCode::CONFLICT, "conflict"),
            FileError::Exists(_) => (StatusCode::PRECONDITION_FAILED, "exists"),
            FileError::Changed { .. } => (StatusCode::PRECONDITION_FAILED, "changed"),
            FileError::TooLong(_) => (StatusCode::BAD_REQUEST, "invalid_args"),
            FileError::DiskFull(_) => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
            FileError::TooSlow(..) | FileError::Busy(_) | FileError::Io { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
            }
        };
        ApiError::new(status, code, error.to_string())
    }
}
