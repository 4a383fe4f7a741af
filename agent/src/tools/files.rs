//! Files as the tools read and write them: whole, as text, within limits.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FallocateFlags, fallocate, listxattr},
    io::Errno,
};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::ToolError;

/// First character of some text files. It is no part of the text.
pub(super) const BYTE_ORDER_MARK: char = '\u{feff}';

/// Largest file that is read as text, in bytes.
const READ_LIMIT: u64 = 16 * 1024 * 1024;

/// Resolves a tool's `path`: relative to `directory`, or absolute.
pub(super) fn locate(directory: &Path, path: &str) -> Result<PathBuf, ToolError> {
    if path.is_empty() {
        return Err(ToolError::Failed("`path` is empty; name a file".into()));
    }
    Ok(directory.join(path))
}

/// Reads a whole text file. `path` is the caller's name for it.
pub(crate) fn read_text(file: &Path, path: &str) -> Result<String, ToolError> {
    let metadata = fs::metadata(file).map_err(|error| unreadable(file, path, &error))?;
    if metadata.is_dir() {
        let mut names: Vec<String> = fs::read_dir(file)
            .map_err(|error| unreadable(file, path, &error))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names.truncate(100);
        return Err(ToolError::Failed(format!("`{path}` is a directory; it holds {}", list(&names))));
    }
    if !metadata.is_file() {
        return Err(ToolError::Failed(format!("`{path}` is not a regular file; use `run` to look at it")));
    }
    if metadata.len() > READ_LIMIT {
        let size = metadata.len();
        return Err(ToolError::Failed(format!(
            "`{path}` has {size} bytes, too many to read whole; use `run` with sed or head"
        )));
    }
    let bytes = read_bytes(file, metadata.len()).map_err(|error| unreadable(file, path, &error))?;
    if bytes.len() as u64 > READ_LIMIT {
        return Err(ToolError::Failed(format!("`{path}` has no end, or grows; use `run` with head")));
    }
    if bytes.contains(&0) {
        let size = bytes.len();
        return Err(ToolError::Failed(format!(
            "`{path}` is binary ({size} bytes); use `run` with `file` or `xxd` to look at it"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        ToolError::Failed(format!("`{path}` is not UTF-8 text: {}; use `run` with `iconv`", error.utf8_error()))
    })
}

/// Reads a file of about `size` bytes, and at most one byte beyond the limit. Files that the kernel
/// generates report a size of 0, and may exceed the memory.
fn read_bytes(file: &Path, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size.min(READ_LIMIT) as usize + 1);
    File::open(file)?.take(READ_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// New content for a file.
pub(super) struct FileReplacement<'a> {
    pub(super) file: &'a Path,
    /// Caller's name of the file, for errors.
    pub(super) path: &'a str,
    pub(super) content: &'a str,
    /// Text that the new content was made from. A file with other content by now is left alone: the
    /// user or a command changed it.
    pub(super) before: Option<&'a str>,
}

impl FileReplacement<'_> {
    /// Replaces the file by a rename if that keeps all of it: permissions, owner, attributes and
    /// every name. Otherwise writes in place, as a shell does, also if the directory cannot be
    /// written or the file is a mount point.
    ///
    /// Before the file changes, a stop leaves everything as it was, however long the file system
    /// took. The user who stopped may have written something newer since.
    pub(super) fn write(&self, stop: &CancellationToken) -> Result<(), ToolError> {
        let FileReplacement { file, path, content, .. } = *self;
        let failed = |error: io::Error| ToolError::Failed(format!("`{path}` cannot be written: {error}"));
        // A link stays a link. Its target is replaced, or created if missing.
        let target =
            || file.parent().unwrap_or(Path::new("/")).join(fs::read_link(file).unwrap_or_else(|_| file.to_owned()));
        let file = fs::canonicalize(file).unwrap_or_else(|_| target());
        let old = fs::metadata(&file).ok();
        match &old {
            Some(old) if old.is_dir() => {
                return Err(ToolError::Failed(format!("`{path}` is a directory; name a file in it")));
            }
            Some(old) if !old.is_file() => {
                return Err(ToolError::Failed(format!("`{path}` is not a regular file; use `run` to write to it")));
            }
            Some(_) | None => {}
        }
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        let error = match TemporaryFile::beside(&file, content, old.as_ref()) {
            Ok(temporary) => {
                self.check_current(&file, stop)?;
                match fs::rename(&temporary.0, &file) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        let disk_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if old.is_none() || disk_full {
            return Err(failed(error));
        }
        self.check_current(&file, stop)?;
        write_in_place(&file, content).map_err(failed)
    }

    fn check_current(&self, file: &Path, stop: &CancellationToken) -> Result<(), ToolError> {
        let path = self.path;
        if self.before.is_some_and(|before| !has_content(file, before)) {
            return Err(ToolError::Failed(format!("`{path}` was changed at the same time; read it again")));
        }
        if stop.is_cancelled() {
            return Err(ToolError::Stopped { what: format!("the change of `{path}`"), partial_result: None });
        }
        Ok(())
    }
}

/// File beside its target. Removed unless it was renamed.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// Writes the file.
    ///
    /// # Errors
    /// Also fails if a rename would change more of the target `old` than its content.
    fn beside(target: &Path, content: &str, old: Option<&Metadata>) -> io::Result<TemporaryFile> {
        if old.is_some_and(|old| old.nlink() > 1) || has_attributes(target) {
            return Err(io::Error::other("it has several names, or attributes"));
        }
        // A unique name: a fixed one may belong to another file, or to a pipe that would block.
        let temporary = TemporaryFile(target.with_file_name(format!(".{}.new", Ulid::generate())));
        let mut options = File::options();
        options.write(true).create_new(true);
        if old.is_some() {
            options.mode(0o600);
        }
        let mut new = options.open(&temporary.0)?;
        new.write_all(content.as_bytes())?;
        if let Some(old) = old {
            let made = new.metadata()?;
            if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
                return Err(io::Error::other("it belongs to another user or group"));
            }
            new.set_permissions(old.permissions())?;
        }
        Ok(temporary)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // After a rename nothing has this name. Otherwise the file is of no use any more, and a
        // failure to remove it changes nothing.
        let _ = fs::remove_file(&self.0);
    }
}

/// Returns `true` if the file has an access list, a capability or another attribute. The label that
/// SELinux gives to each file does not count: a new file gets its own.
fn has_attributes(file: &Path) -> bool {
    let mut names = [0_u8; 4096];
    match listxattr(file, &mut names) {
        Ok(length) => {
            names[..length].split(|byte| *byte == 0).any(|name| !name.is_empty() && name != b"security.selinux")
        }
        Err(error) => error == Errno::RANGE,
    }
}

/// Replaces the content of an existing file. A full disk leaves the file as it was.
fn write_in_place(file: &Path, content: &str) -> io::Result<()> {
    let mut file = File::options().write(true).open(file)?;
    let (before, after) = (file.metadata()?.len(), content.len() as u64);
    if after > before
        && let Err(error @ (Errno::NOSPC | Errno::DQUOT)) =
            fallocate(&file, FallocateFlags::empty(), before, after - before)
    {
        file.set_len(before)?;
        return Err(error.into());
    }
    file.write_all(content.as_bytes())?;
    file.set_len(after)
}

fn has_content(file: &Path, content: &str) -> bool {
    read_bytes(file, content.len() as u64).is_ok_and(|bytes| bytes == content.as_bytes())
}

fn unreadable(file: &Path, path: &str, error: &io::Error) -> ToolError {
    if error.kind() != io::ErrorKind::NotFound {
        return ToolError::Failed(format!("`{path}` cannot be read: {error}"));
    }
    let wanted = file.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let similar: Vec<String> = file
        .parent()
        .and_then(|parent| fs::read_dir(parent).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.to_lowercase().contains(&wanted) || wanted.contains(&name.to_lowercase()))
        .take(5)
        .collect();
    match similar.as_slice() {
        [] => ToolError::Failed(format!("there is no `{path}`")),
        similar => ToolError::Failed(format!("there is no `{path}`; its directory has {}", list(similar))),
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn put(file: &Path, content: &str) -> Result<(), ToolError> {
        FileReplacement { file, path: "it", content, before: None }.write(&CancellationToken::new())
    }

    /// Counts temporary files that are still there.
    fn left_behind(dir: &Path) -> usize {
        let left = fs::read_dir(dir).expect("the directory is readable").flatten();
        left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".new")).count()
    }

    #[test]
    fn stopped_or_outdated_replacement_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = &dir.path().join("file");
        put(file, "newer").expect("the file is writable");
        let (going, stopped) = (CancellationToken::new(), CancellationToken::new());
        stopped.cancel();
        let replacement = |before| FileReplacement { file, path: "file", content: "mine", before };
        let late = replacement(Some("newer")).write(&stopped);
        assert!(matches!(late, Err(ToolError::Stopped { partial_result: None, .. })), "{late:?}");
        let overtaken = replacement(Some("older")).write(&going);
        assert!(matches!(overtaken, Err(ToolError::Failed(_))), "{overtaken:?}");
        assert_eq!(fs::read_to_string(file).expect("the file exists"), "newer");
        assert_eq!(left_behind(dir.path()), 0);
        replacement(Some("newer")).write(&going).expect("the file is writable");
        assert_eq!(fs::read_to_string(file).expect("the file exists"), "mine");
    }

    /// The file has a quarter of a terabyte and reports a size of 0.
    #[test]
    fn endless_file_is_rejected() {
        let path = "/proc/self/pagemap";
        // The text of the error may differ: the kernel also rejects reads of a single byte from
        // this file.
        assert!(matches!(read_text(Path::new(path), path), Err(ToolError::Failed(_))));
    }

    #[test]
    fn replacement_keeps_any_name_and_links() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let long = "x".repeat(255);
        for name in [long.as_str(), "a/b/c", "plain"] {
            for content in ["first", "second"] {
                put(&at(name), content).expect("the file is writable");
                assert_eq!(fs::read_to_string(at(name)).expect("the file exists"), content);
            }
        }
        symlink("not/yet", at("link")).expect("a symlink");
        for content in ["first", "second"] {
            put(&at("link"), content).expect("the file is writable");
            assert_eq!(fs::read_to_string(at("not/yet")).expect("the file exists"), content);
            assert!(at("link").is_symlink());
        }
        assert_eq!(left_behind(dir.path()), 0);
    }

    #[test]
    fn every_name_and_permission_of_a_file_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for (name, other) in [("one", "two"), ("longer", "x")] {
            put(&at(name), "first").expect("the file is writable");
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o640)).expect("the file is the user's");
            fs::hard_link(at(name), at(other)).expect("a second name");
            for content in ["second, which is longer", "3rd", ""] {
                put(&at(name), content).expect("the file is writable");
                assert_eq!(fs::read_to_string(at(other)).expect("the file exists"), content);
            }
            assert_eq!(fs::metadata(at(name)).expect("the file exists").mode() & 0o7777, 0o640);
        }
        assert_eq!(left_behind(dir.path()), 0);
    }

    #[test]
    fn attributes_of_a_file_stay() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("file");
        put(&file, "first").expect("the file is writable");
        if rustix::fs::setxattr(&file, "user.origin", b"here", rustix::fs::XattrFlags::empty()).is_err() {
            // The file system of the test has no attributes.
            return;
        }
        put(&file, "second").expect("the file is writable");
        let mut value = [0_u8; 16];
        let length = rustix::fs::getxattr(&file, "user.origin", &mut value).expect("the attribute stays");
        assert_eq!(
            (&value[..length], fs::read(&file).expect("the file exists").as_slice()),
            (&b"here"[..], &b"second"[..])
        );
    }

    #[test]
    fn pipe_is_not_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        let written = put(&pipe, "x");
        assert!(
            matches!(&written, Err(ToolError::Failed(detail)) if detail.contains("not a regular file")),
            "{written:?}"
        );
        assert!(!fs::metadata(&pipe).expect("the pipe stays").is_file());
    }
}
