//! Work off the runtime's threads, and the errors of failed work.

use std::{io, sync::Arc};

use super::KERNEL_TIMEOUT;
use crate::sandbox::SandboxError;

/// Returns a conversion of an I/O error into the error of operation `what`.
pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> SandboxError {
    move |e| match e.kind() {
        io::ErrorKind::PermissionDenied => SandboxError::Forbidden { what: what.into(), detail: e.to_string() },
        io::ErrorKind::TimedOut => SandboxError::Deadline { what, seconds: KERNEL_TIMEOUT.as_secs() },
        _ => SandboxError::Io { what, source: Arc::new(e) },
    }
}

/// Converts the error of a failed inspection.
///
/// The sandbox's state is unknown, and it may still work. A cause is a lack of descriptors or
/// memory.
pub(super) fn inconclusive(e: io::Error) -> SandboxError {
    SandboxError::Inconclusive { what: "report its state", detail: e.to_string() }
}

/// Runs an inspection off the runtime's threads. A failure is inconclusive.
pub(super) async fn inspect_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(inconclusive)
}

/// Runs work on files and `/proc` off the runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, SandboxError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(failed(what))
}
