//! Files as tools read and write them: whole, as text, within limits, replaced atomically.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use ulid::Ulid;

use super::Fault;

/// The largest file that is read as text, in bytes.
const READ_LIMIT: u64 = 16 * 1024 * 1024;

/// `path` as the tools mean it: relative to `directory`, or absolute.
pub(super) fn locate(directory: &Path, path: &str) -> Result<PathBuf, Fault> {
    if path.is_empty() {
        return Err(Fault::Failed("`path` is empty; name a file".into()));
    }
    Ok(directory.join(path))
}

/// The whole of a text file. `path` is how the caller named it.
pub(super) fn read_text(file: &Path, path: &str) -> Result<String, Fault> {
    let about = fs::metadata(file).map_err(|error| unreadable(file, path, &error))?;
    if about.is_dir() {
        let mut names: Vec<String> = fs::read_dir(file)
            .map_err(|error| unreadable(file, path, &error))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names.truncate(100);
        return Err(Fault::Failed(format!("`{path}` is a directory; it holds {}", list(&names))));
    }
    if !about.is_file() {
        return Err(Fault::Failed(format!("`{path}` is not a regular file; use `run` to look at it")));
    }
    if about.len() > READ_LIMIT {
        let size = about.len();
        return Err(Fault::Failed(format!(
            "`{path}` has {size} bytes, too many to read whole; use `run` with sed or head"
        )));
    }
    let bytes = fs::read(file).map_err(|error| unreadable(file, path, &error))?;
    if bytes.contains(&0) {
        let size = bytes.len();
        return Err(Fault::Failed(format!(
            "`{path}` is binary ({size} bytes); use `run` with `file` or `xxd` to look at it"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        Fault::Failed(format!("`{path}` is not UTF-8 text: {}; use `run` with `iconv`", error.utf8_error()))
    })
}

/// Replaces `file` by `content` in one step, and keeps its permissions.
pub(super) fn replace(file: &Path, path: &str, content: &str) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::Failed(format!("`{path}` cannot be written: {error}"));
    if file.is_dir() {
        return Err(Fault::Failed(format!("`{path}` is a directory; name a file in it")));
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
    let written = new.write_all(content.as_bytes()).and_then(|()| {
        if let Ok(old) = fs::metadata(&file) {
            fs::set_permissions(&beside, old.permissions())?;
        }
        fs::rename(&beside, &file)
    });
    written.map_err(|error| {
        // What could not be put in place is of no use to anybody.
        let _ = fs::remove_file(&beside);
        failed(error)
    })
}

fn unreadable(file: &Path, path: &str, error: &io::Error) -> Fault {
    if error.kind() != io::ErrorKind::NotFound {
        return Fault::Failed(format!("`{path}` cannot be read: {error}"));
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
        [] => Fault::Failed(format!("there is no `{path}`")),
        near => Fault::Failed(format!("there is no `{path}`; beside it there is {}", list(near))),
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

    #[test]
    fn a_file_may_have_any_name_and_a_link_stays_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let long = "x".repeat(255);
        for name in [long.as_str(), "a/b/c", "plain"] {
            for content in ["first", "second"] {
                replace(&at(name), name, content).expect("it is written");
                assert_eq!(fs::read_to_string(at(name)).expect("it is there"), content);
            }
        }
        symlink("not/yet", at("link")).expect("it is made");
        for content in ["first", "second"] {
            replace(&at("link"), "link", content).expect("it is written");
            assert_eq!(fs::read_to_string(at("not/yet")).expect("it is there"), content);
            assert!(at("link").is_symlink());
        }
        let left = fs::read_dir(dir.path()).expect("it can be read").flatten();
        assert_eq!(left.filter(|entry| entry.file_name().to_string_lossy().ends_with(".new")).count(), 0);
    }
}
