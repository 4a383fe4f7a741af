//! Content of an upload, on its way to the disk.

use std::fmt::Display;

use actix_web::http::StatusCode;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::io::AsyncWriteExt;

use crate::{
    config::{Config, FilesConfig},
    files::{FileError, HEAD_BYTES, IncomingFile, InnerPath, check_content, check_extension},
    web::error::ApiError,
};

/// Limits of the configuration for uploads.
pub(super) struct UploadLimits<'a> {
    max_upload: u64,
    files: &'a FilesConfig,
}

impl<'a> UploadLimits<'a> {
    pub(super) fn new(config: &'a Config) -> UploadLimits<'a> {
        UploadLimits { max_upload: config.server.max_upload.as_u64(), files: &config.files }
    }

    /// Returns the limit on the size of a file, bytes.
    pub(super) fn file_bytes(&self) -> u64 {
        self.max_upload
    }

    pub(super) fn check_name(&self, path: &InnerPath) -> Result<(), ApiError> {
        Ok(check_extension(self.files, &String::from_utf8_lossy(path.name()))?)
    }

    /// Rejects a file beyond the limit on files of one upload.
    pub(super) fn check_count(&self, files: usize) -> Result<(), ApiError> {
        let limit = self.files.max_files;
        if files <= limit {
            return Ok(());
        }
        let message = format!(
            "the upload has more than {limit} files, which is `files.max_files`; send several uploads, or raise the limit"
        );
        Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_files", message))
    }

    pub(super) fn too_large(&self, path: &InnerPath) -> ApiError {
        let limit = self.max_upload;
        let message = format!(
            "`{path}` is larger than {limit} bytes, which is `server.max_upload`; send a smaller file, or raise the limit"
        );
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    /// Writes the content of a file. Checks its size and its type on the way.
    ///
    /// # Errors
    /// The client is gone, the content breaks a limit, or the disk is full.
    pub(super) async fn receive<E: Display>(
        &self,
        incoming: &IncomingFile,
        mut content: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<(), ApiError> {
        let path = incoming.path();
        let failed = |e: std::io::Error| ApiError::from(FileError::of(path, e));
        let name = String::from_utf8_lossy(path.name());
        let mut file = tokio::fs::File::from_std(incoming.writer().map_err(failed)?);
        let (mut bytes, mut head) = (0_u64, Vec::new());
        while let Some(chunk) = content.next().await {
            let chunk = chunk.map_err(|e| ApiError::invalid(format!("the upload was interrupted: {e}")))?;
            bytes += chunk.len() as u64;
            if bytes > self.max_upload {
                return Err(self.too_large(path));
            }
            if head.len() < HEAD_BYTES {
                head.extend_from_slice(&chunk[..chunk.len().min(HEAD_BYTES - head.len())]);
                if head.len() == HEAD_BYTES {
                    check_content(self.files, &name, &head)?;
                }
            }
            file.write_all(&chunk).await.map_err(failed)?;
        }
        if head.len() < HEAD_BYTES {
            check_content(self.files, &name, &head)?;
        }
        file.flush().await.map_err(failed)
    }
}
