//! Failures of work on files, with the path in the client's spelling.

use std::io;

use rustix::io::Errno;

use super::path::InnerPath;

/// Failure of work on a file. The text is shown to the user.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("there is no `{0}` in the workspace")]
    Missing(InnerPath),
    #[error("a parent of `{0}` is not a directory; links are not followed")]
    ParentNotDirectory(InnerPath),
    #[error("`{0}` is a directory")]
    IsDirectory(InnerPath),
    #[error("`{0}` is a directory with content; to remove it with its content, add `recursive=true`")]
    HasContent(InnerPath),
    #[error("`{0}` is not a directory; links are not followed")]
    NotADirectory(InnerPath),
    #[error("`{0}` is a link or a special file; only regular files are sent")]
    NotRegular(InnerPath),
    #[error("`{0}` has several names; replace it alone, with `PUT`")]
    SeveralNames(InnerPath),
    #[error("`{0}` already exists; choose another name, or replace it on purpose")]
    Exists(InnerPath),
    #[error("`{path}` is not as `If-Match` names it; read it again, and repeat the change")]
    Changed {
        path: InnerPath,
        /// Tag of the present file. `None` if there is no file.
        etag: Option<String>,
    },
    #[error("`{0}` was changed meanwhile, so it stays as it is; repeat the request to replace it")]
    ChangedMeanwhile(InnerPath),
    #[error("`{0}` cannot be moved into itself")]
    IntoItself(InnerPath),
    #[error("`{0}` is a directory with content; remove it first")]
    NotEmpty(InnerPath),
    #[error("`{0}` cannot be accessed; its permissions deny it")]
    Denied(InnerPath),
    #[error("the path of `{0}` is too long; use shorter names")]
    TooLong(InnerPath),
    #[error("no space is left for `{0}`; nothing of it is kept")]
    DiskFull(InnerPath),
    #[error("`{0}` has too many entries to be read in {1} s")]
    TooSlow(InnerPath, u64),
    #[error("`{0}` has more entries than a zip archive may have here ({max}); use `format=tar.gz`", max = super::MAX_ZIP_ENTRIES)]
    TooManyForZip(InnerPath),
    #[error("the server works on {0} requests of this kind, which is its limit; repeat the request")]
    Busy(usize),
    #[error("`{path}`: {source}")]
    Io {
        path: InnerPath,
        #[source]
        source: io::Error,
    },
}

impl FileError {
    /// Returns the failure of a call of the kernel on `path`.
    pub fn of(path: &InnerPath, error: impl Into<io::Error>) -> FileError {
        let (path, source) = (path.clone(), error.into());
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT) => FileError::Missing(path),
            Some(Errno::NOTDIR | Errno::LOOP) => FileError::ParentNotDirectory(path),
            Some(Errno::ISDIR) => FileError::IsDirectory(path),
            Some(Errno::EXIST) => FileError::Exists(path),
            Some(Errno::NOTEMPTY) => FileError::NotEmpty(path),
            Some(Errno::ACCESS | Errno::PERM) => FileError::Denied(path),
            Some(Errno::NAMETOOLONG) => FileError::TooLong(path),
            Some(Errno::NOSPC | Errno::DQUOT) => FileError::DiskFull(path),
            _ => FileError::Io { path, source },
        }
    }
}
