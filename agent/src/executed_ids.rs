//! Which turns, and which acts of the user, were begun, over all starts of the agent in one home.
//!
//! A server that is killed before it knows that the agent took one gives it again, and an agent that is killed meanwhile
//! knows nothing of it any more. So it is written down before it begins. What a command in the sandbox does to the file concerns
//! that sandbox alone.

use std::{
    collections::HashSet,
    fs::{File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

/// How much of it is read, bytes: the newest acts, some forty thousand. What comes again is one of the last.
const LIMIT: u64 = 2 << 20;

/// The turns and acts that were begun.
#[derive(Debug)]
pub struct ExecutedIds {
    ids: HashSet<String>,
    /// `None` where it cannot be written: then acts are known within one start.
    file: Option<File>,
}

impl ExecutedIds {
    /// As this file has it, which is made where it is missing.
    pub fn open(path: &Path) -> ExecutedIds {
        match read(path) {
            Ok((acts, file)) => ExecutedIds { ids: acts, file: Some(file) },
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "acts that were begun are not remembered over a restart");
                ExecutedIds { ids: HashSet::new(), file: None }
            }
        }
    }

    /// Whether this turn, or act, is begun for the first time. From now on it was. Its name alone would not do: a server whose
    /// journal was damaged, or brought back from a backup, counts from an earlier one on.
    pub fn insert_if_new(&mut self, name: &str, words: &str) -> bool {
        let mut hasher = DefaultHasher::new();
        words.hash(&mut hasher);
        let act = format!("{name} {:016x}", hasher.finish());
        if !self.ids.insert(act.clone()) {
            return false;
        }
        // The line's end comes first: one that was cut short by a full disk spoils no other.
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(format!("\n{act}").as_bytes())
        {
            tracing::warn!(%error, act, "that this act was begun is not remembered over a restart");
        }
        true
    }
}

fn read(path: &Path) -> io::Result<(HashSet<String>, File)> {
    // Nothing that lies there may keep the agent waiting.
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits();
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).custom_flags(flags.cast_signed());
    let file = options.open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    }
    let start = about.len().saturating_sub(LIMIT);
    (&file).seek(SeekFrom::Start(start))?;
    let mut text = Vec::new();
    (&file).take(LIMIT).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    // The first line may be the end of a longer one, and name no act that was.
    let whole = if start == 0 { &*text } else { text.split_once('\n').map_or("", |(_, whole)| whole) };
    let acts = whole.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Ok((acts, file))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn an_act_is_begun_once_over_all_starts() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        let mut begun = ExecutedIds::open(&path);
        assert!(begun.insert_if_new("act-1", "ls"));
        assert!(!begun.insert_if_new("act-1", "ls"));
        assert!(begun.insert_if_new("act-2", "ls"));
        assert!(begun.insert_if_new("act-1", "pwd"), "it has a name that was given once more");
        let mut again = ExecutedIds::open(&path);
        assert!(!again.insert_if_new("act-1", "ls") && !again.insert_if_new("act-2", "ls"));
        assert!(again.insert_if_new("act-3", "ls"));
    }

    #[test]
    fn a_line_that_was_cut_short_spoils_no_other() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        assert!(ExecutedIds::open(&path).insert_if_new("act-1", "ls"));
        let whole = fs::read_to_string(&path).expect("it is there");
        fs::write(&path, whole + "\nact-2").expect("there is room");
        assert!(ExecutedIds::open(&path).insert_if_new("act-2", "ls"));
        let mut again = ExecutedIds::open(&path);
        assert!(!again.insert_if_new("act-1", "ls") && !again.insert_if_new("act-2", "ls"));
    }

    #[test]
    fn of_a_long_list_the_newest_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("acts");
        let old = "\nact 0123456789";
        fs::write(&path, old.repeat(LIMIT as usize / 10)).expect("there is room");
        assert!(ExecutedIds::open(&path).insert_if_new("act-1", "ls"));
        let mut again = ExecutedIds::open(&path);
        assert_ne!((fs::metadata(&path).expect("it is there").len() - LIMIT) % old.len() as u64, 0, "a line is cut");
        assert_eq!(again.ids.len(), 2, "and its end is no act");
        assert!(!again.insert_if_new("act-1", "ls"));
    }

    #[test]
    fn what_is_no_file_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe");
        for path in [dir.path(), &pipe] {
            let mut begun = ExecutedIds::open(path);
            assert!(begun.insert_if_new("act-1", "ls"));
            assert!(!begun.insert_if_new("act-1", "ls"), "within one start it is known all the same");
        }
    }
}
