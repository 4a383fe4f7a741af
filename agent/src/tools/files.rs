//! Files as tools read and write them: whole, as text, within limits, replaced atomically.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::ToolError;

/// The largest file that is read as text, in bytes.
const READ_LIMIT: u64 = 16 * 1024 * 1024;

/// `path` as the tools mean it: relative to `directory`, or absolute.
pub(super) fn locate(directory: &Path, path: &str) -> Result<PathBuf, ToolError> {
    if path.is_empty() {
        return Err(ToolError::Failed("`path` is empty; name a file".into()));
    }
    Ok(directory.join(path))
}

/// The whole of a text file. `path` is how the caller named it.
pub(super) fn read_text(file: &Path, path: &str) -> Result<String, ToolError> {
    let about = fs::metadata(file).map_err(|error| unreadable(file, path, &error))?;
    if about.is_dir() {
        let mut names: Vec<String> = fs::read_dir(file)
            .map_err(|error| unreadable(file, path, &error))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names.truncate(100);
        return Err(ToolError::Failed(format!("`{path}` is a directory; it holds {}", list(&names))));
    }
    if !about.is_file() {
        return Err(ToolError::Failed(format!("`{path}` is not a regular file; use `run` to look at it")));
    }
    if about.len() > READ_LIMIT {
        let size = about.len();
        return Err(ToolError::Failed(format!(
            "`{path}` has {size} bytes, too many to read whole; use `run` with sed or head"
        )));
    }
    let bytes = read_bytes(file, about.len()).map_err(|error| unreadable(file, path, &error))?;
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

/// What is in a file of about that size, and no more than one byte beyond the limit: what the kernel makes up says that it has
/// no bytes, and may have more than there is memory.
fn read_bytes(file: &Path, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(size.min(READ_LIMIT) as usize + 1);
    File::open(file)?.take(READ_LIMIT + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A file that is to have other content.
pub(super) struct FileReplacement<'a> {
    pub(super) file: &'a Path,
    /// How the caller named it.
    pub(super) path: &'a str,
    pub(super) content: &'a str,
    /// What the content was made of. A file that has something else by now is left alone: the user, or a command, changed it.
    pub(super) before: Option<&'a str>,
}

impl FileReplacement<'_> {
    /// Puts it in place in one step, with the permissions of what was there. Until that step a stop leaves all as it was, however
    /// long the file system kept us waiting: whoever stopped it has gone on, and may have written something newer.
    pub(super) fn write(&self, stop: &CancellationToken) -> Result<(), ToolError> {
        let FileReplacement { file, path, content, before } = *self;
        let failed = |error: io::Error| ToolError::Failed(format!("`{path}` cannot be written: {error}"));
        if file.is_dir() {
            return Err(ToolError::Failed(format!("`{path}` is a directory; name a file in it")));
        }
        // A link stays a link; what it points at is replaced, or made where it is not there yet.
        let pointed_at =
            || file.parent().unwrap_or(Path::new("/")).join(fs::read_link(file).unwrap_or_else(|_| file.to_owned()));
        let file = fs::canonicalize(file).unwrap_or_else(|_| pointed_at());
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        // A name of our own: another one may be taken by a file of somebody's, or by a pipe that would have us wait.
        let beside = file.with_file_name(format!(".{}.new", Ulid::generate()));
        let mut new = File::create_new(&beside).map_err(failed)?;
        let written = new.write_all(content.as_bytes()).map_err(failed).and_then(|()| {
            if let Ok(old) = fs::metadata(&file) {
                fs::set_permissions(&beside, old.permissions()).map_err(failed)?;
            }
            if before.is_some_and(|before| !has_content(&file, before)) {
                return Err(ToolError::Failed(format!("`{path}` was changed at the same time; read it again")));
            }
            if stop.is_cancelled() {
                return Err(ToolError::Stopped { what: format!("the change of `{path}`"), partial_result: None });
            }
            fs::rename(&beside, &file).map_err(failed)
        });
        written.inspect_err(|_| {
            // What was not put in place is of no use to anybody.
            let _ = fs::remove_file(&beside);
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
    let near: Vec<String> = file
        .parent()
        .and_then(|parent| fs::read_dir(parent).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name.to_lowercase().contains(&wanted) || wanted.contains(&name.to_lowercase()))
        .take(5)
        .collect();
    match near.as_slice() {
        [] => ToolError::Failed(format!("there is no `{path}`")),
        near => ToolError::Failed(format!("there is no `{path}`; beside it there is {}", list(near))),
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

    /// How many files were made to be put in place, and are still there.
    fn left_behind(dir: &Path) -> usize {
        let left = fs::read_dir(dir).expect("it can be read").flatten();
        left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".new")).count()
    }

    #[test]
    fn what_was_stopped_or_made_of_something_older_is_not_put_in_place() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = &dir.path().join("file");
        put(file, "newer").expect("it is written");
        let (going, stopped) = (CancellationToken::new(), CancellationToken::new());
        stopped.cancel();
        let replacement = |before| FileReplacement { file, path: "file", content: "mine", before };
        let late = replacement(Some("newer")).write(&stopped);
        assert!(matches!(late, Err(ToolError::Stopped { partial_result: None, .. })), "{late:?}");
        let overtaken = replacement(Some("older")).write(&going);
        assert!(matches!(overtaken, Err(ToolError::Failed(_))), "{overtaken:?}");
        assert_eq!(fs::read_to_string(file).expect("it is there"), "newer");
        assert_eq!(left_behind(dir.path()), 0);
        replacement(Some("newer")).write(&going).expect("it is written");
        assert_eq!(fs::read_to_string(file).expect("it is there"), "mine");
    }

    /// A quarter of a terabyte, of which its size says nothing.
    #[test]
    fn a_file_without_an_end_is_not_read_to_its_end() {
        let path = "/proc/self/pagemap";
        // Its own words may be others: this one also refuses to be read by a single byte.
        assert!(matches!(read_text(Path::new(path), path), Err(ToolError::Failed(_))));
    }

    #[test]
    fn a_file_may_have_any_name_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let long = "x".repeat(255);
        for name in [long.as_str(), "a/b/c", "plain"] {
            for content in ["first", "second"] {
                put(&at(name), content).expect("it is written");
                assert_eq!(fs::read_to_string(at(name)).expect("it is there"), content);
            }
        }
        symlink("not/yet", at("link")).expect("it is made");
        for content in ["first", "second"] {
            put(&at("link"), content).expect("it is written");
            assert_eq!(fs::read_to_string(at("not/yet")).expect("it is there"), content);
            assert!(at("link").is_symlink());
        }
        assert_eq!(left_behind(dir.path()), 0);
    }
}
