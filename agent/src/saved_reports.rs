//! File with the unacknowledged reports of an agent that ended without a server. The next start of
//! the agent sends them, under the boot id that they belong to, before it does anything else.
//!
//! The first line holds the boot id, each further line one report frame. A command in the sandbox
//! can write reports into it that the server rejects, with each connection. So a start renames the
//! file before it reads it. A renamed file that was not delivered is dropped by the next start.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use greenroom_protocol::link::FromAgent;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::outbox;

/// Size limit for reading the file, in bytes. A full outbox fits, with the end of interrupted work.
const LIMIT: u64 = 8 * outbox::LIMIT as u64;

/// Reports of one boot, oldest first.
#[derive(Debug, PartialEq, Eq)]
pub struct SavedReports {
    pub boot: String,
    /// Report frames with their numbers, which follow each other.
    pub frames: Vec<(u64, Utf8Bytes)>,
}

#[derive(Serialize, Deserialize)]
struct SavedReportsHeader {
    boot: String,
}

impl SavedReports {
    /// Takes the file at `path`. Returns `None` if it is missing, or holds no reports. An invalid
    /// file is logged and ignored.
    pub fn take(path: &Path) -> Option<SavedReports> {
        SavedReports::remove(path);
        let taken = taken_path(path);
        match fs::rename(path, &taken).and_then(|()| read_text(&taken)).and_then(|text| parse(&text)) {
            Ok(saved) => Some(saved).filter(|saved| !saved.frames.is_empty()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the reports of an earlier start cannot be read and are lost");
                None
            }
        }
    }

    /// Writes the file at `path`, durably.
    ///
    /// # Errors
    /// Fails if the disk takes no more. The earlier file then stays.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let draft = path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(NO_LINK_NOR_PIPE);
        let mut file = BufWriter::new(options.open(&draft)?);
        serde_json::to_writer(&mut file, &SavedReportsHeader { boot: self.boot.clone() })?;
        for (_, frame) in &self.frames {
            write!(file, "\n{frame}")?;
        }
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(draft, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }

    /// Removes the file that was taken from `path`. A missing file is no error.
    pub fn remove(path: &Path) {
        let taken = taken_path(path);
        if let Err(error) = fs::remove_file(&taken)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %taken.display(), "taken reports cannot be removed");
        }
    }
}

fn taken_path(path: &Path) -> PathBuf {
    path.with_extension("taken")
}

/// A link or a pipe at the path must not block the agent.
const NO_LINK_NOR_PIPE: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits().cast_signed();

fn read_text(path: &Path) -> io::Result<String> {
    let file = OpenOptions::new().read(true).custom_flags(NO_LINK_NOR_PIPE).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut text = String::new();
    file.take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(text: &str) -> io::Result<SavedReports> {
    let mut lines = text.lines();
    let SavedReportsHeader { boot } = serde_json::from_str(lines.next().unwrap_or_default())?;
    let mut frames: Vec<(u64, Utf8Bytes)> = Vec::new();
    for line in lines {
        let n = match serde_json::from_str(line)? {
            FromAgent::Report { n, .. } if frames.last().is_none_or(|(last, _)| n == last + 1) => n,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is not the next report")),
        };
        frames.push((n, line.into()));
    }
    Ok(SavedReports { boot, frames })
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::link::{AgentReport, WorkOutcome};

    use super::*;
    use crate::outgoing::frame;

    fn report(n: u64) -> (u64, Utf8Bytes) {
        let report = AgentReport::TurnEnded { turn: format!("line\nbreak {n}"), outcome: WorkOutcome::Done };
        (n, frame(&FromAgent::Report { n, report }))
    }

    #[test]
    fn saved_reports_are_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("reports");
        assert_eq!(SavedReports::take(&path), None);
        let saved = SavedReports { boot: "b".into(), frames: [31, 32].map(report).into() };
        saved.write(&path).expect("the disk has room");
        assert_eq!(SavedReports::take(&path), Some(saved));
        SavedReports::remove(&path);
        assert_eq!(SavedReports::take(&path), None);
    }

    #[test]
    fn invalid_file_is_ignored() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("reports");
        let gap = SavedReports { boot: "b".into(), frames: [1, 3].map(report).into() };
        gap.write(&path).expect("the disk has room");
        assert_eq!(SavedReports::take(&path), None);
        for text in ["", "{", "{\"boot\":\"b\"}", "{\"boot\":\"b\"}\n{\"frame\":\"hello\"}"] {
            fs::write(&path, text).expect("the disk has room");
            assert_eq!(SavedReports::take(&path), None, "{text}");
        }
        fs::create_dir(&path).expect("the path is free");
        assert_eq!(SavedReports::take(&path), None);
    }

    /// Covers a file that makes the server close each connection.
    #[test]
    fn file_is_taken_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("reports");
        let saved = SavedReports { boot: "b".into(), frames: [1].map(report).into() };
        saved.write(&path).expect("the disk has room");
        assert_eq!(SavedReports::take(&path), Some(saved));
        assert_eq!(SavedReports::take(&path), None);
        assert_eq!(fs::read_dir(dir.path()).expect("the directory is there").count(), 0);
    }
}
