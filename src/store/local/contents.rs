//! Large contents: one file each in a directory per session, with the checksums of its blocks
//! beside it.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};
use ulid::Ulid;

use crate::store::{ContentSlice, SessionId, StoreError};

#[derive(Debug, Clone)]
pub(super) struct ContentStore {
    dir: PathBuf,
    stopped_sessions: Arc<Mutex<StoppedSessions>>,
    leftovers: Arc<LeftoverContents>,
}

/// Contents that earlier runs left.
///
/// There may be very many files, so the start reads none of them. The sweep handles them. A writer
/// handles those of its session first, so nothing written in this run ever counts as a leftover.
#[derive(Debug, Default)]
struct LeftoverContents {
    unswept: Mutex<UnsweptSessions>,
    session_swept: Condvar,
}

#[derive(Debug, Default)]
struct UnsweptSessions {
    /// Retention as of the start.
    sessions: BTreeMap<SessionId, ContentRetention>,
    /// Session that is being swept.
    current: Option<SessionId>,
}

/// Stopped sessions, whose unfinished contents will not be continued: since the last sweep, and
/// before.
///
/// The last reports of an agent may still be in flight when its session stops. Unfinished contents
/// therefore stay until the second sweep.
#[derive(Debug, Default)]
struct StoppedSessions {
    since_last_sweep: HashSet<SessionId>,
    before_last_sweep: HashSet<SessionId>,
}

/// Suffix of a content's checksums: CRC-32, little-endian, of each block.
///
/// A content without checksums is served unchecked. A crash may have left it so, or an earlier
/// version.
const SUMS_SUFFIX: &str = ".sums";
/// Bytes that one checksum covers.
const BLOCK_BYTES: usize = 64 * 1024;
/// Suffix of a file that is not completely written.
const UNFINISHED_SUFFIX: &str = ".part";
/// Suffix of a content whose pieces have not all arrived. May continue after a restart.
const GROWING_SUFFIX: &str = ".growing";

/// Contents of a session that the sweep after a start keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentRetention {
    /// Includes unfinished ones: the agent may continue them, however long its sandbox was paused.
    All,
    Finished,
    Nothing,
}

impl ContentStore {
    /// Uses `dir`, which must exist.
    pub(super) fn new(dir: PathBuf) -> ContentStore {
        ContentStore { dir, stopped_sessions: Arc::default(), leftovers: Arc::default() }
    }

    /// Writes a content. Durable on return, including the directory entries.
    pub(super) fn put(&self, session: SessionId, name: Ulid, content: &[u8]) -> io::Result<()> {
        self.sweep_leftovers_of(session);
        let dir = self.make_session_dir(session)?;
        // Checksums of an earlier content of that name do not match this one.
        remove(&sums_path(&dir, name))?;
        write(&dir.join(name.to_string()), content)?;
        write(&sums_path(&dir, name), &block_checksums(content)?)?;
        File::open(&dir)?.sync_all()
    }

    pub(super) fn get(
        &self,
        session: SessionId,
        name: &str,
        from: u64,
        len: usize,
    ) -> Result<Option<ContentSlice>, StoreError> {
        // Names are ULIDs, so no name leads out of the directory.
        let Ok(ulid) = name.parse::<Ulid>() else { return Ok(None) };
        let dir = self.session_dir(session);
        let mut file = match File::open(dir.join(ulid.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let total = file.metadata()?.len();
        let end = from.saturating_add(len as u64).min(total);
        // Checksums cover whole blocks, so whole blocks are read.
        let begin = from.min(end) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let read = (end.next_multiple_of(BLOCK_BYTES as u64).min(total) - begin) as usize;
        let mut bytes = Vec::with_capacity(if end > from { read } else { 0 });
        if end > from {
            file.seek(SeekFrom::Start(begin))?;
            file.take(read as u64).read_to_end(&mut bytes)?;
        }
        if let Some(sums) = read_sums(&sums_path(&dir, ulid))? {
            if sums.len() as u64 != total.div_ceil(BLOCK_BYTES as u64) {
                return Err(StoreError::DamagedContent { session, name: name.to_owned(), at: total });
            }
            let first = (begin / BLOCK_BYTES as u64) as usize;
            let wrong =
                bytes.chunks(BLOCK_BYTES).zip(first..).find(|(block, n)| sums.get(*n) != Some(&crc32fast::hash(block)));
            if let Some((_, n)) = wrong {
                let at = (n * BLOCK_BYTES) as u64;
                return Err(StoreError::DamagedContent { session, name: name.to_owned(), at });
            }
        }
        let range = (from.min(end) - begin) as usize..(end - begin).min(bytes.len() as u64) as usize;
        Ok(Some(ContentSlice { bytes: Bytes::from(bytes).slice(range.start.min(range.end)..range.end), total }))
    }

    /// Adds a piece to an unfinished content. Durable on return.
    ///
    /// A piece that leaves a hole is dropped, and the pieces before it with it. With a hole, the
    /// content would pass for complete. Such a content is never finished.
    pub(super) fn extend(&self, session: SessionId, name: Ulid, offset: u64, piece: &[u8]) -> io::Result<()> {
        self.sweep_leftovers_of(session);
        let is_first = offset == 0;
        let dir = if is_first { self.make_session_dir(session)? } else { self.session_dir(session) };
        let path = growing_path(&dir, name);
        let file = OpenOptions::new().write(true).create(is_first).truncate(false).mode(0o600).open(&path);
        let file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.warn_of_hole(session, name, offset),
            opened => opened?,
        };
        if file.metadata()?.len() < offset {
            remove(&path)?;
            return self.warn_of_hole(session, name, offset);
        }
        file.write_all_at(piece, offset)?;
        file.sync_all()?;
        // A sender that was cut off before this repeats the first piece. No piece follows before
        // the first is acknowledged.
        if is_first { File::open(&dir)?.sync_all() } else { Ok(()) }
    }

    fn warn_of_hole(&self, session: SessionId, name: Ulid, offset: u64) -> io::Result<()> {
        // A piece of a finished content may be repeated.
        if !self.session_dir(session).join(name.to_string()).try_exists()? {
            tracing::warn!("session `{session}`: content `{name}` lacks bytes before byte {offset} and is dropped");
        }
        Ok(())
    }

    /// Completes a content from its pieces, unless it exists. Returns if it exists then, durably.
    pub(super) fn finish(&self, session: SessionId, name: Ulid) -> io::Result<bool> {
        self.sweep_leftovers_of(session);
        let dir = self.session_dir(session);
        let (pieces, finished) = (growing_path(&dir, name), dir.join(name.to_string()));
        match renameat_with(CWD, &pieces, CWD, &finished, RenameFlags::NOREPLACE) {
            // A crash right after the rename leaves a content without checksums.
            Err(Errno::NOENT) if finished.try_exists()? => {}
            Err(Errno::NOENT) => return Ok(false),
            // Events may refer to the content already, so it stays unchanged.
            Err(Errno::EXIST) => fs::remove_file(pieces)?,
            renamed => renamed?,
        }
        let sums = sums_path(&dir, name);
        if !sums.try_exists()? {
            write(&sums, &block_checksums(File::open(&finished)?)?)?;
        }
        File::open(&dir)?.sync_all()?;
        Ok(true)
    }

    /// Drops the unfinished contents of a session.
    pub(super) fn drop_unfinished(&self, session: SessionId) -> io::Result<()> {
        match remove_with_suffixes(&self.session_dir(session), &[GROWING_SUFFIX]) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(super) fn note_stopped(&self, session: SessionId) {
        let mut stopped = self.stopped_sessions.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.since_last_sweep.insert(session);
        // The session ran in between, so its agent may still send reports.
        stopped.before_last_sweep.remove(&session);
    }

    /// Drops the unfinished contents of sessions that have been stopped since before the last
    /// sweep.
    pub(super) fn drop_unfinished_of_stopped(&self, is_stopped: impl Fn(SessionId) -> bool) {
        let due = {
            let mut stopped = self.stopped_sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let recent = std::mem::take(&mut stopped.since_last_sweep);
            std::mem::replace(&mut stopped.before_last_sweep, recent)
        };
        for session in due.into_iter().filter(|session| is_stopped(*session)) {
            if let Err(error) = self.drop_unfinished(session) {
                // The sweep after the next start removes them, or the purge of the session.
                tracing::warn!("session `{session}`: cannot remove its unfinished contents: {error}");
            }
        }
    }

    /// Returns the directory of a session, and creates it if it is missing.
    ///
    /// Syncs the parent in any case: a run that was cut off may have created the directory
    /// unsynced.
    fn make_session_dir(&self, session: SessionId) -> io::Result<PathBuf> {
        let dir = self.session_dir(session);
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => File::open(&self.dir)?.sync_all()?,
        }
        Ok(dir)
    }

    pub(super) fn forget(&self, session: SessionId) -> io::Result<()> {
        self.sweep_leftovers_of(session);
        match fs::remove_dir_all(self.session_dir(session)) {
            Ok(()) => File::open(&self.dir)?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Notes the sessions with leftovers and their retention. Reads no session's directory.
    pub(super) fn note_leftovers(&self, keep: impl Fn(SessionId) -> ContentRetention) {
        let entries = match self.dir.read_dir() {
            Ok(entries) => entries,
            Err(error) => return warn_not_swept(&self.dir, &error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return warn_not_swept(&self.dir, &error),
            };
            let Some(session) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            self.unswept().sessions.insert(session, keep(session));
        }
    }

    /// Removes leftovers of earlier runs: contents of gone sessions, and files that stay
    /// incomplete.
    ///
    /// A writer meanwhile waits only for its own session.
    pub(super) fn sweep(&self) {
        loop {
            // Another sweep may be running.
            let mut unswept = self.wait_for_sweep(|now| now.is_some());
            let Some((session, keep)) = unswept.sessions.pop_first() else { return };
            unswept.current = Some(session);
            drop(unswept);
            self.sweep_one(session, keep);
            self.unswept().current = None;
            self.leftovers.session_swept.notify_all();
        }
    }

    /// Removes the leftovers of one session, once. Returns when they are gone.
    fn sweep_leftovers_of(&self, session: SessionId) {
        let mut unswept = self.wait_for_sweep(|now| now == Some(session));
        if let Some(keep) = unswept.sessions.remove(&session) {
            // Holds the lock meanwhile: of two writers of one session, neither may sweep the
            // other's files.
            self.sweep_one(session, keep);
        }
    }

    /// Stops the sweep. Returns when no leftover is being removed any more.
    pub(super) fn stop(&self) {
        self.unswept().sessions.clear();
        drop(self.wait_for_sweep(|now| now.is_some()));
    }

    /// Sweeps one session. Reports what cannot be removed, and leaves it.
    fn sweep_one(&self, session: SessionId, keep: ContentRetention) {
        let path = self.session_dir(session);
        let swept = match keep {
            ContentRetention::All => remove_with_suffixes(&path, &[UNFINISHED_SUFFIX]),
            ContentRetention::Finished => remove_with_suffixes(&path, &[UNFINISHED_SUFFIX, GROWING_SUFFIX]),
            ContentRetention::Nothing => fs::remove_dir_all(&path),
        };
        if let Err(error) = swept {
            warn_not_swept(&path, &error);
        }
    }

    fn unswept(&self) -> MutexGuard<'_, UnsweptSessions> {
        self.leftovers.unswept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the sweep has left the session that the caller waits for.
    fn wait_for_sweep(&self, is_waited_for: impl Fn(Option<SessionId>) -> bool) -> MutexGuard<'_, UnsweptSessions> {
        let waited = self.leftovers.session_swept.wait_while(self.unswept(), |unswept| is_waited_for(unswept.current));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn session_dir(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }
}

fn warn_not_swept(path: &Path, error: &io::Error) {
    tracing::warn!("cannot remove leftovers in `{}`, which stay: {error}", path.display());
}

fn growing_path(dir: &Path, name: Ulid) -> PathBuf {
    dir.join(format!("{name}{GROWING_SUFFIX}"))
}

fn sums_path(dir: &Path, name: Ulid) -> PathBuf {
    dir.join(format!("{name}{SUMS_SUFFIX}"))
}

fn block_checksums(mut content: impl Read) -> io::Result<Vec<u8>> {
    let mut sums = Vec::new();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    while content.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut block)? > 0 {
        sums.extend(crc32fast::hash(&block).to_le_bytes());
        block.clear();
    }
    Ok(sums)
}

fn read_sums(path: &Path) -> io::Result<Option<Vec<u32>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes.as_chunks().0.iter().map(|sum| u32::from_le_bytes(*sum)).collect())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes a file completely or not at all. The caller syncs its directory.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished).and_then(
        |mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&unfinished, path)
        },
    );
    if written.is_err() {
        // Frees the space. If the removal fails, the sweep after the next start repeats it.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Removes the files in `dir` with one of these suffixes.
fn remove_with_suffixes(dir: &Path, suffixes: &[&str]) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| suffixes.iter().any(|suffix| name.ends_with(suffix))) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
