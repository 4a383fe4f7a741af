//! Files as the tools read and write them: whole, as text, within limits, replaced atomically.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::ToolError;

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
pub(super) fn read_text(file: &Path, path: &str) -> Result<String, ToolError> {
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
    /// Replaces the file in one step and keeps its permissions. Before that step, a stop leaves
    /// everything as it was, however long the file system took. The user who stopped may have
    /// written something newer since.
    pub(super) fn write(&self, stop: &CancellationToken) -> Result<(), ToolError> {
        let FileReplacement { file, path, content, before } = *self;
        let failed = |error: io::Error| ToolError::Failed(format!("`{path}` cannot be written: {error}"));
        if file.is_dir() {
            return Err(ToolError::Failed(format!("`{path}` is a directory; name a file in it")));
        }
        // A link stays a link. Its target is replaced, or created if missing.
        let target =
            || file.parent().unwrap_or(Path::new("/")).join(fs::read_link(file).unwrap_or_else(|_| file.to_owned()));
        let file = fs::canonicalize(file).unwrap_or_else(|_| target());
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        // A unique name: a fixed one may belong to another file, or to a pipe that would block.
        let temporary = file.with_file_name(format!(".{}.new", Ulid::generate()));
        let mut new = File::create_new(&temporary).map_err(failed)?;
        let written = new.write_all(content.as_bytes()).map_err(failed).and_then(|()| {
            if let Ok(old) = fs::metadata(&file) {
                fs::set_permissions(&temporary, old.permissions()).map_err(failed)?;
            }
            if before.is_some_and(|before| !has_content(&file, before)) {
                return Err(ToolError::Failed(format!("`{path}` was changed at the same time; read it again")));
            }
            if stop.is_cancelled() {
                return Err(ToolError::Stopped { what: format!("the change of `{path}`"), partial_result: None });
            }
            fs::rename(&temporary, &file).map_err(failed)
        });
        written.inspect_err(|_| {
            // The temporary file is of no use any more; a failure to remove it changes nothing.
            let _ = fs::remove_file(&temporary);
        })
    }
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
    use std::os::unix::fs::symlink;

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
}
