//! Failures of clones and pushes, in words for the user.

use std::io;

use rustix::io::Errno;

use crate::files::FileError;

/// Failure of a clone, a read or a push. No text contains a credential.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error("{0}")]
    BadAddress(String),
    #[error(
        "`{0}` is no name of a branch, tag or commit; it has no spaces, control characters, `..`, `~^:?*[\\` and does not \
         begin with `-`, `/` or `.`"
    )]
    BadReference(String),
    #[error("the repository has no branch, tag or reachable commit `{0}`; leave `ref` out for the default branch")]
    NoReference(String),
    #[error("the repository has no commit yet; push a first one, and send a message to try again")]
    NoCommit,
    #[error("this session has no repository; create one with `repo`")]
    NoRepository,
    #[error("the repository is not cloned yet; wait for the clone, or send a message to try it again")]
    NotCloned,
    #[error(
        "`{host}` asks for a credential and there is none; add an entry to `repositories.credentials`, or set up a \
         credential helper for the server's user"
    )]
    NoCredentials { host: String },
    #[error("`{host}` rejects the credential; check its entry in `repositories.credentials`, or the credential helper")]
    CredentialsRejected { host: String },
    #[error("the server has no program `git`; install git 2.40 or later")]
    NoGit,
    #[error("git did not end within {0} s, the limit `repositories.clone_timeout`")]
    TimedOut(u64),
    #[error("the repository needs more than {0}, the limit `repositories.max_bytes`")]
    TooLarge(bytesize::ByteSize),
    #[error("no space left on device: free space there")]
    DiskFull,
    #[error("git failed: {0}")]
    Git(String),
    #[error("the workspace's repository cannot be read: {0}")]
    Workspace(String),
    #[error(
        "the workspace has `{0}` already, which the repository has too; remove it, and send a message to try again"
    )]
    NameTaken(String),
    #[error(
        "branch `{0}` has commits in the repository that this session does not have; push to another branch, merge them, \
         or set `force`"
    )]
    NotFastForward(String),
    #[error("the repository rejects the push: {0}")]
    PushRejected(String),
    #[error("the server is shutting down")]
    Closing,
    #[error("the repository's files cannot be read or written: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for RepositoryError {
    fn from(source: io::Error) -> RepositoryError {
        match Errno::from_io_error(&source) {
            Some(Errno::NOSPC | Errno::DQUOT) => RepositoryError::DiskFull,
            _ => RepositoryError::Io(source),
        }
    }
}

impl From<FileError> for RepositoryError {
    fn from(error: FileError) -> RepositoryError {
        RepositoryError::Workspace(error.to_string())
    }
}
