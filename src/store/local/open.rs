//! Opening a directory: alone, with its torn tail cut and its index complete.

use std::{
    collections::HashMap,
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Instant,
};

use super::{
    catalog::{Catalog, CatalogError, Known},
    compaction::UNFINISHED,
    frame::{self, HEADER, Kind, NoHeader},
    log::{Log, SegmentSizes},
    places::Places,
    recent::Recent,
    replay::Replay,
    segment::{self, FileKind, PREFACE, Position, Preface, Segment, Segments},
    shared::{Ground, Shared, State},
};
use crate::store::{SessionId, StoreError, ledger::Entry};

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("`{path}` is in use by another server; stop that one, or give this one a directory of its own with --data")]
    InUse { path: PathBuf },
    #[error(
        "`{path}` was written by a newer version; start that version, or give this one another directory with --data"
    )]
    Newer { path: PathBuf },
    #[error("cannot use `{path}`: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Whether the disk takes no writes any more.
    pub fn is_read_only(&self) -> bool {
        matches!(self, OpenError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// How many frames of a commit that is cut are named.
const NAMED: usize = 20;

/// The extension of a file that is a segment of another number.
const MISNAMED: &str = "misnamed";

/// What a directory consists of that is opened for reading alone.
pub(super) struct Readable {
    pub(super) shared: Shared,
    pub(super) lock: File,
    pub(super) contents: PathBuf,
}

/// What an opened directory consists of.
pub(super) struct Opened {
    pub(super) shared: Shared,
    pub(super) log: Log,
    /// Held for as long as the directory is used.
    pub(super) lock: File,
    pub(super) contents: PathBuf,
}

pub(super) fn open(dir: &Path, sizes: SegmentSizes) -> Result<Opened, OpenError> {
    let [log_dir, catalog_dir, contents] = ["log", "index", "contents"].map(|name| dir.join(name));
    make_dir(dir)?;
    let lock = lock(&dir.join("lock"), OpenOptions::new().write(true).create(true).truncate(false))?;
    make_dir(&log_dir)?;
    make_dir(&contents)?;

    settle(&log_dir).map_err(|source| OpenError::Io { path: log_dir.clone(), source })?;
    let (number, file) = last_segment(&log_dir)?;
    let segments = Segments::new(log_dir.clone());
    let path = segment::path(&log_dir, number, FileKind::Log);
    let failed = |source: io::Error| OpenError::Io { path: path.clone(), source };
    let (ground, known) = open_catalog(&catalog_dir);
    let known = known.map(|known| (reach(&segments, known.end), known)).filter(|(reach, _)| *reach != Reach::Beyond);
    let (ground, reach, known) = match known {
        Some((reach, known)) => (ground, reach, known),
        None => {
            let (ground, known) = renew_catalog(&catalog_dir, ground);
            (ground, Reach::Whole, known)
        }
    };

    let mut replay = Replay::new(known.sessions);
    replay.name_missing(&segments)?;
    let behind = match reach {
        Reach::Short => replay.name_lost(&segments, known.end)?,
        Reach::Whole | Reach::Beyond => Vec::new(),
    };
    let end = replay.rest(&segments, known.end)?;
    name_damage(&mut replay, &log_dir);
    let log = match reach {
        Reach::Whole | Reach::Beyond => go_on(log_dir, number, file, end, sizes),
        Reach::Short => go_on_behind(log_dir, &file, end, sizes),
    };
    let mut log = log.map_err(failed)?;
    if let Err(error) = say_again(&mut log, &behind, &replay.sessions) {
        tracing::warn!("what the journal `{}` lost of its end, its index alone knows: {error}", path.display());
    }
    let end = log.end().map_err(failed)?;
    let is_whole = remember(dir, &replay.damage, known.end == Position::START);
    let Replay { sessions, places, touched, .. } = replay;
    let state = State {
        sessions,
        recent: Recent::default(),
        fresh: places,
        changed: touched,
        end,
        // What stands there was not read, but for its end.
        purged: (end.offset > PREFACE as u32).then(Instant::now),
        moving: None,
        moved: known.end,
    };
    let shared = Shared::new(state, ground, segments, catalog_dir, is_whole);
    Ok(Opened { shared, log, lock, contents })
}

/// Reads all of the log and does without an index, which sled opens for writing only.
pub(super) fn open_to_read(dir: &Path) -> Result<Readable, OpenError> {
    let [log_dir, catalog_dir, contents] = ["log", "index", "contents"].map(|name| dir.join(name));
    let lock = lock(&dir.join("lock"), OpenOptions::new().read(true))?;
    let segments = Segments::new(log_dir.clone());
    let mut replay = Replay::default();
    replay.name_missing(&segments)?;
    let end = replay.rest(&segments, Position::START)?;
    name_damage(&mut replay, &log_dir);
    let state = State {
        sessions: replay.sessions,
        recent: Recent::default(),
        fresh: replay.places,
        changed: replay.touched,
        end,
        purged: None,
        moving: None,
        moved: Position::START,
    };
    let shared = Shared::new(state, Ground::Memory(Places::default()), segments, catalog_dir, false);
    Ok(Readable { shared, lock, contents })
}

fn name_damage(replay: &mut Replay, log_dir: &Path) {
    for damage in &replay.damage {
        tracing::warn!("damaged in the journal `{}`: {damage}", log_dir.display());
    }
    for mended in &replay.mended {
        tracing::warn!("a header in the journal `{}` is damaged, and read from its copy: {mended}", log_dir.display());
    }
    if !replay.cut.is_empty() {
        let count = replay.cut.len();
        replay.cut.truncate(NAMED);
        tracing::warn!(
            "the last commit of the journal does not hold and is cut from there on, {count} frames that are there: {}. It was \
             never acknowledged if the power went while it was written; if it did not, the disk has lost it since",
            replay.cut.join(", ")
        );
    }
}

/// Whether no session may be in the log that nobody knows: not even one that an earlier start found damaged, which is looked
/// through no more once the index is beyond. A file remembers that, until all of the log was read and is whole.
fn remember(dir: &Path, damage: &[String], read_all: bool) -> bool {
    let mark = dir.join("incomplete");
    if !damage.is_empty() {
        let text = format!(
            "What is left of sessions that are not known is kept while this file is here. Once the files beside it are whole \
             again, remove `index` while no server runs: the next start reads all of them. Damaged:\n{}\n",
            damage.join("\n")
        );
        if let Err(error) = std::fs::write(&mark, text) {
            tracing::warn!("that the journal is damaged is not remembered in `{}`: {error}", mark.display());
        }
        return false;
    }
    if read_all {
        let _there_is_none = std::fs::remove_file(&mark);
    }
    !mark.exists()
}

/// The log, without what lies behind its end.
fn go_on(dir: PathBuf, number: u32, file: File, end: Position, sizes: SegmentSizes) -> io::Result<Log> {
    let end = u64::from(end.offset);
    let length = file.metadata()?.len();
    if length > end {
        if !segment::is_blank(&file, end)? {
            tracing::info!("cutting {} bytes behind the last commit that holds", length - end);
        }
        file.set_len(end)?;
    }
    // What a killed server had written and not synced is served from now on, so it must be on disk.
    file.sync_all()?;
    Log::new(dir, number, file, end, sizes)
}

/// The log in a new segment, where `last` lacks what the index has places of: nothing else may come to stand there.
fn go_on_behind(dir: PathBuf, last: &File, end: Position, sizes: SegmentSizes) -> io::Result<Log> {
    last.sync_all()?;
    let next = Preface { number: end.segment + 1, previous_end: u64::from(end.offset) };
    let file = segment::create(&dir, next)?;
    Log::new(dir, next.number, file, PREFACE as u64, sizes)
}

/// Writes how these sessions stand, where the log itself has lost it: so their numbers stay given also without the index.
fn say_again(log: &mut Log, behind: &[SessionId], sessions: &HashMap<SessionId, Entry>) -> Result<(), StoreError> {
    let Some(first) = behind.first() else { return Ok(()) };
    let mut commit = Vec::new();
    for session in behind {
        if let Some(entry) = sessions.get(session) {
            let payload = frame::encode_payload(entry.mark.as_ref(), Some(&entry.record), &[]);
            frame::put(&mut commit, 0, Kind::Put, *session, Some(entry), 0, &payload);
        }
    }
    log.make_room(commit.len())?;
    log.commit(&commit).map_err(|failure| failure.for_record(*first))
}

fn make_dir(path: &Path) -> Result<(), OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dir(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        Ok(()) | Err(_) => {}
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)
}

fn lock(path: &Path, how: &mut OpenOptions) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let file = how.mode(0o600).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.parent().unwrap_or(path).to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Puts what is a segment of another number aside, a copy for instance: nothing in it counts, and nothing is written there.
fn set_aside(dir: &Path, kind: FileKind) -> io::Result<()> {
    for number in segment::numbers(dir, kind)? {
        let path = segment::path(dir, number, kind);
        // What cannot be read is damage, of which whoever reads it speaks.
        let preface = File::open(&path).and_then(|file| Preface::read(&file, kind));
        let Ok(Ok(Preface { number: own, .. })) = preface else { continue };
        if own != number {
            // Never over another that was put aside: it may be the only one of its number.
            let aside = path.with_added_extension(format!("{MISNAMED}-{}", ulid::Ulid::generate()));
            tracing::warn!(
                "`{}` is segment {own} by what it says itself; it is left out, and called `{}`",
                path.display(),
                aside.display()
            );
            std::fs::rename(&path, &aside)?;
        }
    }
    Ok(())
}

/// Completes what a killed compaction began.
fn settle(dir: &Path) -> io::Result<()> {
    [FileKind::Log, FileKind::Archive].into_iter().try_for_each(|kind| set_aside(dir, kind))?;
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == UNFINISHED) {
            std::fs::remove_file(path)?;
        }
    }
    let logs = segment::numbers(dir, FileKind::Log)?;
    for archived in logs.intersection(&segment::numbers(dir, FileKind::Archive)?) {
        // An archive gets its name when it is whole and on disk.
        std::fs::remove_file(segment::path(dir, *archived, FileKind::Log))?;
    }
    Ok(())
}

/// The segment that the log goes on in; made where there is none.
fn last_segment(dir: &Path) -> Result<(u32, File), OpenError> {
    let failed = |source| OpenError::Io { path: dir.to_owned(), source };
    let mut numbers = segment::numbers(dir, FileKind::Log).map_err(failed)?;
    let archived = segment::numbers(dir, FileKind::Archive).map_err(failed)?.last().copied().unwrap_or(0);
    while let Some(number) = numbers.pop_last().filter(|number| *number > archived) {
        let path = segment::path(dir, number, FileKind::Log);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        let begun = match Preface::read(&file, FileKind::Log).map_err(failed)? {
            Ok(_) => true,
            Err(NoHeader::Newer) => return Err(OpenError::Newer { path }),
            Err(NoHeader::Damaged) => file.metadata().map_err(failed)?.len() > PREFACE as u64,
        };
        if begun {
            return Ok((number, file));
        }
        // A crash came before the segment was begun; nothing can be in it.
        std::fs::remove_file(&path).map_err(failed)?;
    }
    // Archives know their ends themselves.
    let next = Preface { number: archived + 1, previous_end: 0 };
    Ok((next.number, segment::create(dir, next).map_err(failed)?))
}

/// How the log stands to where the catalog ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It can be gone on with from there.
    Whole,
    /// It ends before, so it was lost in part: the catalog alone knows the numbers that were given.
    Short,
    /// The catalog is an old one: only what it had in whole was archived, and it says otherwise.
    Beyond,
}

fn reach(segments: &Segments, end: Position) -> Reach {
    match segments.open(end.segment) {
        Ok(Segment::Log(file)) => {
            let is_there = file.metadata().is_ok_and(|metadata| metadata.len() >= u64::from(end.offset));
            match is_there && (end.offset as usize <= PREFACE || holds(&file, u64::from(end.offset))) {
                true => Reach::Whole,
                false => Reach::Short,
            }
        }
        Ok(Segment::Archive(_)) if end == Position::START => Reach::Whole,
        Ok(Segment::Archive(_)) => Reach::Beyond,
        Err(_) => Reach::Short,
    }
}

/// Whether something was written right before `end`, and not only prepared.
fn holds(file: &File, end: u64) -> bool {
    let mut last = [0; HEADER];
    let from = end.saturating_sub(last.len() as u64);
    file.read_exact_at(&mut last, from).is_ok() && last.iter().any(|byte| *byte != 0)
}

fn open_catalog(dir: &Path) -> (Ground, Option<Known>) {
    match Catalog::open(dir) {
        Ok((catalog, known)) => match catalog.slimmed(dir) {
            Ok(catalog) => (Ground::Catalog(catalog), Some(known)),
            Err(error) => made_anew(dir, &error),
        },
        Err(error) => made_anew(dir, &error),
    }
}

fn made_anew(dir: &Path, error: &CatalogError) -> (Ground, Option<Known>) {
    tracing::warn!("the journal's index `{}` is made anew from the log: {error}", dir.display());
    (Ground::Memory(Places::default()), None)
}

/// An empty catalog; where not even that can be had, memory does its work until the next start.
fn renew_catalog(dir: &Path, old: Ground) -> (Ground, Known) {
    if let Ground::Catalog(catalog) = old {
        catalog.close();
    }
    // What cannot be removed cannot be opened either, or shows in its checkpoint.
    let _ = std::fs::remove_dir_all(dir);
    match open_catalog(dir) {
        (ground, Some(known)) if known.end == Position::START => (ground, known),
        (ground, _) => {
            if let Ground::Catalog(catalog) = ground {
                catalog.close();
            }
            let known = Known { sessions: Default::default(), end: Position::START };
            (Ground::Memory(Places::default()), known)
        }
    }
}
