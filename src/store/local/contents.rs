//! Large contents: a file each, in a directory per session, and beside it the checksums of its blocks.

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

/// What earlier lives left. There may be very many files, so the start looks at none of them: the sweep does, and where somebody
/// is about to write for a session before that, he does. So nothing that is written in this life is ever taken for a leftover.
#[derive(Debug, Default)]
struct LeftoverContents {
    unswept: Mutex<UnsweptSessions>,
    session_swept: Condvar,
}

#[derive(Debug, Default)]
struct UnsweptSessions {
    /// As it was at the start.
    sessions: BTreeMap<SessionId, ContentRetention>,
    /// The one that the sweep is at.
    current: Option<SessionId>,
}

/// Sessions that came to rest, whose unfinished contents nobody goes on with: since the last sweep, and before it. The last
/// words of an agent may still be on their way when its session rests, so what is unfinished has until the sweep after that.
#[derive(Debug, Default)]
struct StoppedSessions {
    since_last_sweep: HashSet<SessionId>,
    before_last_sweep: HashSet<SessionId>,
}

/// Marks the checksums of a content: CRC-32, little-endian, of each of its blocks. A content that a crash left without them, or
/// that is older than they are, is served as it is.
const SUMS_SUFFIX: &str = ".sums";
/// How much of a content has one checksum, bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// Marks a file that is not whole yet.
const UNFINISHED_SUFFIX: &str = ".part";
/// Marks a content of which not all pieces have come. That may go on after a restart.
const GROWING_SUFFIX: &str = ".growing";

/// What the sweep after a start leaves of a session's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContentRetention {
    /// Also those whose agent may go on with them, however long it was frozen.
    All,
    Finished,
    Nothing,
}

impl ContentStore {
    /// In `dir`, which is there.
    pub(super) fn new(dir: PathBuf) -> ContentStore {
        ContentStore { dir, stopped_sessions: Arc::default(), leftovers: Arc::default() }
    }

    /// Durable when it returns, also the directory entries that lead there.
    pub(super) fn put(&self, session: SessionId, name: Ulid, content: &[u8]) -> io::Result<()> {
        self.sweep_leftovers_of(session);
        let dir = self.make_session_dir(session)?;
        // Those of a content of that name would not be those of this one.
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
        // Names are ULIDs of ours, so no other name can lead out of the directory.
        let Ok(ulid) = name.parse::<Ulid>() else { return Ok(None) };
        let dir = self.session_dir(session);
        let mut file = match File::open(dir.join(ulid.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let total = file.metadata()?.len();
        let end = from.saturating_add(len as u64).min(total);
        // Whole blocks, of which the checksums are.
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
        let wanted = (from.min(end) - begin) as usize..(end - begin).min(bytes.len() as u64) as usize;
        Ok(Some(ContentSlice { bytes: Bytes::from(bytes).slice(wanted.start.min(wanted.end)..wanted.end), total }))
    }

    /// Adds a piece to what will be a content; durable when it returns.
    ///
    /// A piece that does not follow on what is here is not kept, and what is here goes: with a hole in it, it would be served
    /// as what was said. No such content is ever finished.
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
        // Whoever was cut off before this says the first piece again, and nothing follows it before it is taken.
        if is_first { File::open(&dir)?.sync_all() } else { Ok(()) }
    }

    fn warn_of_hole(&self, session: SessionId, name: Ulid, offset: u64) -> io::Result<()> {
        // A piece of what is whole already may come once more.
        if !self.session_dir(session).join(name.to_string()).try_exists()? {
            tracing::warn!("session `{session}`: content `{name}` lacks what comes before byte {offset} and is let go");
        }
        Ok(())
    }

    /// Makes a content of its pieces, unless it is one already. Whether there is one then, on disk with all that leads there.
    pub(super) fn finish(&self, session: SessionId, name: Ulid) -> io::Result<bool> {
        self.sweep_leftovers_of(session);
        let dir = self.session_dir(session);
        let (pieces, whole) = (growing_path(&dir, name), dir.join(name.to_string()));
        match renameat_with(CWD, &pieces, CWD, &whole, RenameFlags::NOREPLACE) {
            // It may be whole and no more: whoever made it so was perhaps cut off right behind that.
            Err(Errno::NOENT) if whole.try_exists()? => {}
            Err(Errno::NOENT) => return Ok(false),
            // What events refer to already does not change any more.
            Err(Errno::EXIST) => fs::remove_file(pieces)?,
            renamed => renamed?,
        }
        let sums = sums_path(&dir, name);
        if !sums.try_exists()? {
            write(&sums, &block_checksums(File::open(&whole)?)?)?;
        }
        File::open(&dir)?.sync_all()?;
        Ok(true)
    }

    /// Lets go of what is not whole.
    pub(super) fn drop_unfinished(&self, session: SessionId) -> io::Result<()> {
        match remove_with_suffixes(&self.session_dir(session), &[GROWING_SUFFIX]) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    pub(super) fn note_stopped(&self, session: SessionId) {
        let mut resting = self.stopped_sessions.lock().unwrap_or_else(PoisonError::into_inner);
        resting.since_last_sweep.insert(session);
        // It has been awake in between: its agent may have more to tell.
        resting.before_last_sweep.remove(&session);
    }

    /// Lets go of what is not whole of sessions that have been at rest since the last time.
    pub(super) fn drop_unfinished_of_stopped(&self, is_at_rest: impl Fn(SessionId) -> bool) {
        let due = {
            let mut resting = self.stopped_sessions.lock().unwrap_or_else(PoisonError::into_inner);
            let lately = std::mem::take(&mut resting.since_last_sweep);
            std::mem::replace(&mut resting.before_last_sweep, lately)
        };
        for session in due.into_iter().filter(|session| is_at_rest(*session)) {
            if let Err(error) = self.drop_unfinished(session) {
                // It goes with the sweep after the next start, or with the session.
                tracing::warn!("session `{session}`: its unfinished contents cannot be removed: {error}");
            }
        }
    }

    /// The directory of a session, made where it is missing. One that is there may have been made by somebody who was cut off
    /// before it was on disk.
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

    /// Notes of which sessions earlier lives left contents, and what is to stay of them. Looks into none.
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

    /// Removes what earlier lives left: contents of sessions that are gone, and files that will not become whole. Whoever writes
    /// meanwhile waits for no session but his own.
    pub(super) fn sweep(&self) {
        loop {
            // Another may be at it already.
            let mut unswept = self.wait_for_sweep(|now| now.is_some());
            let Some((session, keep)) = unswept.sessions.pop_first() else { return };
            unswept.current = Some(session);
            drop(unswept);
            self.sweep_one(session, keep);
            self.unswept().current = None;
            self.leftovers.session_swept.notify_all();
        }
    }

    /// What an earlier life left of this session is gone when it returns, and is not looked for again.
    fn sweep_leftovers_of(&self, session: SessionId) {
        let mut unswept = self.wait_for_sweep(|now| now == Some(session));
        if let Some(keep) = unswept.sessions.remove(&session) {
            // The others wait: two that write for one session must not sweep away what the other writes.
            self.sweep_one(session, keep);
        }
    }

    /// Returns when nothing that earlier lives left is being removed any more, and nothing will be.
    pub(super) fn stop(&self) {
        self.unswept().sessions.clear();
        drop(self.wait_for_sweep(|now| now.is_some()));
    }

    /// What cannot be removed stays and is named: nobody is kept from his work by it.
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

    /// What is left once the sweep is no longer at a session that is waited for.
    fn wait_for_sweep(&self, is_waited_for: impl Fn(Option<SessionId>) -> bool) -> MutexGuard<'_, UnsweptSessions> {
        let waited = self.leftovers.session_swept.wait_while(self.unswept(), |unswept| is_waited_for(unswept.current));
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn session_dir(&self, session: SessionId) -> PathBuf {
        self.dir.join(session.to_string())
    }
}

fn warn_not_swept(path: &Path, error: &io::Error) {
    tracing::warn!("`{}` cannot be swept and stays as it is: {error}", path.display());
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

/// Writes a file that is there whole or not at all. Its directory is the caller's to sync.
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
        // The room is wanted; where it fails, the sweep after the next start has it.
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

/// Removes the files in `dir` whose names end so.
fn remove_with_suffixes(dir: &Path, suffixes: &[&str]) -> io::Result<()> {
    for entry in dir.read_dir()? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| suffixes.iter().any(|suffix| name.ends_with(suffix))) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
