//! Large contents: a file each, in a directory per session.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
};

use bytes::Bytes;
use ulid::Ulid;

use crate::store::SessionId;

#[derive(Debug, Clone)]
pub(super) struct Contents {
    dir: PathBuf,
}

/// Marks a file that is not whole yet.
const UNFINISHED: &str = ".part";

impl Contents {
    /// In `dir`, which is there.
    pub(super) fn new(dir: PathBuf) -> Contents {
        Contents { dir }
    }

    /// Durable when it returns, also the directory entries that lead there.
    pub(super) fn put(&self, session: SessionId, name: Ulid, content: &[u8]) -> io::Result<()> {
        let dir = self.of(session);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => File::open(&self.dir)?.sync_all()?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
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

    pub(super) fn get(&self, session: SessionId, name: &str) -> io::Result<Option<Bytes>> {
        // Names are ULIDs of ours, so no other name can lead out of the directory.
        let Ok(name) = name.parse::<Ulid>() else { return Ok(None) };
        match fs::read(self.of(session).join(name.to_string())) {
            Ok(content) => Ok(Some(content.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
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

fn sweep_unfinished(dir: &std::path::Path) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.ends_with(UNFINISHED)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
