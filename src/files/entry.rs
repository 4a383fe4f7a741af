//! Entries of a directory, as clients read them.

use rustix::fs::{FileType, Stat};
use serde::Serialize;

use super::path::{InnerPath, PathText};

/// File, directory or other entry of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FileEntry {
    /// Last part of `path`.
    pub name: String,
    /// Path inside the workspace.
    pub path: String,
    /// True if `name` and `path` are percent-encoded, because the name is no UTF-8 or has control
    /// characters. A request for this entry says `encoded=true`.
    pub encoded: bool,
    pub kind: FileKind,
    /// Size of a regular file. 0 for other entries.
    pub bytes: u64,
    /// Time of the last change of the content, RFC 3339. `null` if the time has no such form.
    pub modified: Option<String>,
    /// True for a file that somebody may execute.
    pub executable: bool,
    /// True for a name that begins with a dot.
    pub hidden: bool,
    /// Tag of a regular file, as downloads and uploads name it. `null` for other entries.
    pub etag: Option<String>,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    File,
    Directory,
    Link,
    /// Device, FIFO or socket.
    Other,
}

impl FileKind {
    pub(crate) fn of(stat: &Stat) -> FileKind {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => FileKind::File,
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Link,
            _ => FileKind::Other,
        }
    }
}

impl FileEntry {
    pub(super) fn new(path: &InnerPath, stat: &Stat) -> FileEntry {
        let kind = FileKind::of(stat);
        let is_file = kind == FileKind::File;
        let PathText { text, encoded } = path.text();
        // No name contains a slash, encoded or not.
        let name = text.rsplit('/').next().unwrap_or_default().to_owned();
        FileEntry {
            name,
            path: text,
            encoded,
            kind,
            bytes: if is_file { stat.st_size.try_into().unwrap_or(0) } else { 0 },
            modified: modified(stat),
            executable: is_file && stat.st_mode & 0o111 != 0,
            hidden: path.name().starts_with(b"."),
            etag: is_file.then(|| etag(stat)),
        }
    }
}

fn modified(stat: &Stat) -> Option<String> {
    let nanoseconds = stat.st_mtime_nsec.try_into().ok()?;
    Some(jiff::Timestamp::new(stat.st_mtime, nanoseconds).ok()?.to_string())
}

/// Returns the tag of a file's content: inode, size and time of the last change in nanoseconds.
///
/// Source: the same form as `actix_files::NamedFile`, which answers downloads.
pub fn etag(stat: &Stat) -> String {
    format!("\"{:x}:{:x}:{:x}:{:x}\"", stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
}
