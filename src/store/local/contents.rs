//! Large contents: a file each, in a directory per session.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use ulid::Ulid;

use crate::store::{Part, SessionId};

#[derive(Debug, Clone)]
pub(super) struct Contents {
    dir: PathBuf,
}

/// Marks a file that is not whole yet.
const UNFINISHED: &str = ".part";
/// Marks a content of which not all pieces have come. That may go on after a restart; after so long it will not.
const GROWING: &str = ".growing";
const GIVEN_UP_AFTER: Duration = Duration::from_secs(24 * 3600);

impl Contents {
    /// In `dir`, which is there.
    pub(super) fn new(dir: PathBuf) -> Contents {
        Contents { dir }
    }

    /// Durable when it returns, also the directory entries that lead there.
    pub(super) fn put(&self, session: SessionId, name: Ulid, content: &[u8]) -> io::Result<()> {
        let dir = self.make(session)?;
        let name = name.to_string();
        let unfinished = dir.join(format!("{name}{UNFINISHED}"));
        let written =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished).and_then(
                |mut file| {
                    file.write_all(content)?;
                    file.sync_all()?;
                    fs::rename(&unfinished, dir.join(&name))?;
                    File::open(&dir)?.sync_all()
                },
            );
        if written.is_err() {
            // The room is wanted; where it fails, the next start sweeps it.
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    pub(super) fn get(&self, session: SessionId, name: &str, from: u64, len: usize) -> io::Result<Option<Part>> {
        // Names are ULIDs of ours, so no other name can lead out of the directory.
        let Ok(name) = name.parse::<Ulid>() else { return Ok(None) };
        let mut file = match File::open(self.of(session).join(name.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let total = file.metadata()?.len();
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::with_capacity(total.saturating_sub(from).min(len as u64) as usize);
        file.take(len as u64).read_to_end(&mut bytes)?;
        Ok(Some(Part { bytes: bytes.into(), total }))
    }

    /// Adds a piece to what will be a content; durable when it returns.
    pub(super) fn extend(&self, session: SessionId, name: Ulid, offset: u64, piece: &[u8]) -> io::Result<()> {
        let dir = self.make(session)?;
        let path = growing(&dir, name);
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.write_all_at(piece, offset)?;
        file.sync_all()?;
        if is_new { File::open(&dir)?.sync_all() } else { Ok(()) }
    }

    /// Makes a content of its pieces, unless it is one already. Whether there is one then.
    pub(super) fn finish(&self, session: SessionId, name: Ulid) -> io::Result<bool> {
        let dir = self.of(session);
        let (pieces, whole) = (growing(&dir, name), dir.join(name.to_string()));
        match renameat_with(CWD, &pieces, CWD, &whole, RenameFlags::NOREPLACE) {
            Err(Errno::NOENT) => return Ok(whole.exists()),
            // What events refer to already does not change any more.
            Err(Errno::EXIST) => fs::remove_file(pieces)?,
            renamed => renamed?,
        }
        File::open(&dir)?.sync_all()?;
        Ok(true)
    }

    /// The directory of a session, made where it is missing.
    fn make(&self, session: SessionId) -> io::Result<PathBuf> {
        let dir = self.of(session);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => File::open(&self.dir)?.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Ok(dir)
    }

    pub(super) fn forget(&self, session: SessionId) -> io::Result<()> {
        match fs::remove_dir_all(self.of(session)) {
            Ok(()) => File::open(&self.dir)?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes what a crash left: contents of sessions that are gone, and files that never became whole.
    pub(super) fn sweep(&self, is_kept: impl Fn(SessionId) -> bool) -> io::Result<()> {
        for entry in self.dir.read_dir()? {
            let entry = entry?;
            let session = entry.file_name().to_str().and_then(|name| name.parse().ok());
            match session {
                Some(session) if is_kept(session) => sweep_unfinished(&entry.path())?,
                Some(_) => fs::remove_dir_all(entry.path())?,
                None => {}
            }
        }
        Ok(())
    }

    fn of(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }
}

fn growing(dir: &Path, name: Ulid) -> PathBuf {
    dir.join(format!("{name}{GROWING}"))
}

fn sweep_unfinished(dir: &Path) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let ends_with = |suffix| name.to_str().is_some_and(|name| name.ends_with(suffix));
        let age = || entry.metadata().and_then(|metadata| metadata.modified()).map(|at| at.elapsed());
        let is_given_up = || matches!(age(), Ok(Ok(age)) if age > GIVEN_UP_AFTER);
        if ends_with(UNFINISHED) || (ends_with(GROWING) && is_given_up()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
