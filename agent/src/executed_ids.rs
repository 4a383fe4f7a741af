//! Ids of the turns and user actions that were begun, over all starts of the agent in one home.
//!
//! - A server that is killed before the agent's receipt arrives sends a turn or user action again.
//! - An agent that is killed meanwhile has lost its memory of that turn or user action.
//! - So the id is written to a file before the work begins.
//!
//! A command in the sandbox may change the file; this affects only the sandbox itself.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// Size limit for reading the file, in bytes: about the newest 40,000 ids. An id that comes again
/// is among the last.
const LIMIT: u64 = 2 << 20;

/// Set of the turns and user actions that were begun.
#[derive(Debug)]
pub struct ExecutedIds {
    ids: HashSet<String>,
    /// `None` if the file cannot be opened. Ids then hold for one start only.
    file: Option<File>,
}

impl ExecutedIds {
    /// Reads the ids from the file at `path`, and creates the file if it is missing. On failure,
    /// logs a warning and keeps the ids in memory only.
    pub fn open(path: &Path) -> ExecutedIds {
        match read(path) {
            Ok((ids, file)) => ExecutedIds { ids, file: Some(file) },
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "executed ids cannot be stored; a restarted agent may repeat work");
                ExecutedIds { ids: HashSet::new(), file: None }
            }
        }
    }

    /// Records `id` together with a hash of `content`. Returns `true` if the pair is new.
    ///
    /// The id alone is not enough: a server whose journal was damaged, or restored from a backup,
    /// gives earlier ids again.
    pub fn insert_if_new(&mut self, id: &str, content: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let entry = format!("{id} {:016x}", hasher.finish());
        if !self.ids.insert(entry.clone()) {
            return false;
        }
        // The line break comes first, so a line cut short by a full disk spoils no other line.
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(format!("\n{entry}").as_bytes())
        {
            tracing::warn!(%error, entry, "this id cannot be stored; a restarted agent may repeat its work");
        }
        true
    }
}

fn read(path: &Path) -> io::Result<(HashSet<String>, File)> {
    // A pipe or a link at this path must not block the agent.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let start = metadata.len().saturating_sub(LIMIT);
    (&file).seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    (&file).take(LIMIT).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // The first line may be the end of a longer one, and then is no valid id.
    let whole = if start == 0 { &*text } else { text.split_once('\n').map_or("", |(_, whole)| whole) };
    let ids = whole.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Ok((ids, file))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn id_is_new_once_over_all_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        let mut executed = ExecutedIds::open(&path);
        assert!(executed.insert_if_new("act-1", "ls"));
        assert!(!executed.insert_if_new("act-1", "ls"));
        assert!(executed.insert_if_new("act-2", "ls"));
        assert!(executed.insert_if_new("act-1", "pwd"), "same id, other content");
        let mut again = ExecutedIds::open(&path);
        assert!(!again.insert_if_new("act-1", "ls") && !again.insert_if_new("act-2", "ls"));
        assert!(again.insert_if_new("act-3", "ls"));
    }

    #[test]
    fn truncated_line_spoils_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        assert!(ExecutedIds::open(&path).insert_if_new("act-1", "ls"));
        let whole = fs::read_to_string(&path).expect("the file exists");
        fs::write(&path, whole + "\nact-2").expect("the disk has room");
        assert!(ExecutedIds::open(&path).insert_if_new("act-2", "ls"));
        let mut again = ExecutedIds::open(&path);
        assert!(!again.insert_if_new("act-1", "ls") && !again.insert_if_new("act-2", "ls"));
    }

    #[test]
    fn long_file_keeps_newest_ids() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        let old = "\nact 0123456789";
        fs::write(&path, old.repeat(LIMIT as usize / 10)).expect("the disk has room");
        assert!(ExecutedIds::open(&path).insert_if_new("act-1", "ls"));
        let mut again = ExecutedIds::open(&path);
        assert_ne!(
            (fs::metadata(&path).expect("the file exists").len() - LIMIT) % old.len() as u64,
            0,
            "the file is read from the middle of a line"
        );
        assert_eq!(again.ids.len(), 2, "the rest of the cut line is no id");
        assert!(!again.insert_if_new("act-1", "ls"));
    }

    #[test]
    fn pipe_or_directory_does_not_block() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        for path in [dir.path(), &pipe] {
            let mut executed = ExecutedIds::open(path);
            assert!(executed.insert_if_new("act-1", "ls"));
            assert!(!executed.insert_if_new("act-1", "ls"), "known within one start");
        }
    }
}
