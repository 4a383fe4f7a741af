//! Failures of checkpoints, in words for the user.

use std::io;

use rustix::io::Errno;

use crate::files::{FileError, InnerPath};

/// Failure of a capture, a read, a diff or a restore.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("checkpoints are off: {0}")]
    NotOffered(&'static str),
    #[error("there is no checkpoint `{0}`; `GET …/checkpoints` lists those that are kept")]
    NoCheckpoint(String),
    #[error("checkpoint `{checkpoint}` has no file `{path}`; `GET …/diff?from=start&to={checkpoint}` lists its files")]
    NoFile { checkpoint: String, path: InnerPath },
    /// Contents of the store that are not as they were written.
    #[error("the checkpoints of this session are damaged: {0}; later checkpoints are not affected")]
    Damaged(String),
    #[error("the checkpoint needs more than {0}, the limit `checkpoints.disk`; raise it or exclude files")]
    OverLimit(bytesize::ByteSize),
    #[error(
        "the changed files need more than one capture may read; capture the rest with further turns, or raise \
         `checkpoints.max_bytes` and `checkpoints.max_time`"
    )]
    OverBudget,
    #[error("the workspace could not be read within {0} s; compare checkpoints instead of `now`")]
    NowTooSlow(u64),
    #[error("the workspace has more than {0} of changes that no checkpoint has; compare checkpoints instead of `now`")]
    NowTooLarge(bytesize::ByteSize),
    #[error("no space left on device: free space there")]
    DiskFull,
    #[error("the session is being removed or the server is shutting down")]
    Cancelled,
    #[error("{0} diffs and restores are in progress; try again in a moment")]
    Busy(usize),
    #[error(transparent)]
    Workspace(#[from] FileError),
    #[error("the checkpoints cannot be read or written: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for CheckpointError {
    fn from(source: io::Error) -> CheckpointError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => CheckpointError::DiskFull,
            _ => CheckpointError::Io(source),
        }
    }
}
