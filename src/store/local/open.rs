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
    catalog::{Catalog, CatalogError, CatalogSnapshot},
    compaction::UNFINISHED_EXTENSION,
    event_locations::EventLocations,
    frame::{self, FRAME_HEADER_LEN, FrameKind, HeaderError},
    log_writer::{LogWriter, SegmentSizes},
    recent_events::RecentEvents,
    replay::LogReplay,
    segment::{self, LogPosition, SEGMENT_HEADER_LEN, Segment, SegmentCache, SegmentFileKind, SegmentHeader},
    shared::{BaseIndex, JournalState, SharedJournal},
};
use crate::store::{SessionId, StoreError, session_change::SessionEntry};

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
const MAX_NAMED_FRAMES: usize = 20;

/// The extension of a file that is a segment of another number.
const MISNAMED_EXTENSION: &str = "misnamed";

/// What a directory consists of that is opened for reading alone.
pub(super) struct ReadOnlyJournal {
    pub(super) shared: SharedJournal,
    pub(super) lock: File,
    pub(super) contents: PathBuf,
}

/// What an opened directory consists of.
pub(super) struct OpenedJournal {
    pub(super) shared: SharedJournal,
    pub(super) log: LogWriter,
    /// Held for as long as the directory is used.
    pub(super) lock: File,
    pub(super) contents: PathBuf,
}

pub(super) fn open(dir: &Path, sizes: SegmentSizes) -> Result<OpenedJournal, OpenError> {
    let [log_dir, catalog_dir, contents] = ["log", "index", "contents"].map(|name| dir.join(name));
    make_dir(dir)?;
    let lock = lock(&dir.join("lock"), OpenOptions::new().write(true).create(true).truncate(false))?;
    make_dir(&log_dir)?;
    make_dir(&contents)?;

    finish_compaction(&log_dir).map_err(|source| OpenError::Io { path: log_dir.clone(), source })?;
    let (number, file) = last_segment(&log_dir)?;
    let segments = SegmentCache::new(log_dir.clone());
    let path = segment::path(&log_dir, number, SegmentFileKind::Log);
    let failed = |source: io::Error| OpenError::Io { path: path.clone(), source };
    let (ground, known) = open_catalog(&catalog_dir);
    let known = known
        .map(|known| (log_reach(&segments, known.end), known))
        .filter(|(reach, _)| *reach != LogReach::CatalogOutdated);
    let (ground, reach, known) = match known {
        Some((reach, known)) => (ground, reach, known),
        None => {
            let (ground, known) = recreate_catalog(&catalog_dir, ground);
            (ground, LogReach::Covers, known)
        }
    };

    let mut replay = LogReplay::new(known.sessions);
    replay.report_missing_segments(&segments)?;
    let behind = match reach {
        LogReach::EndsBefore => replay.report_lost_events(&segments, known.end)?,
        LogReach::Covers | LogReach::CatalogOutdated => Vec::new(),
    };
    let end = replay.replay_from(&segments, known.end)?;
    warn_of_damage(&mut replay, &log_dir);
    let log = match reach {
        LogReach::Covers | LogReach::CatalogOutdated => continue_log(log_dir, number, file, end, sizes),
        LogReach::EndsBefore => continue_in_new_segment(log_dir, &file, end, sizes),
    };
    let mut log = log.map_err(failed)?;
    if let Err(error) = rewrite_records(&mut log, &behind, &replay.sessions) {
        tracing::warn!("what the journal `{}` lost of its end, its index alone knows: {error}", path.display());
    }
    let end = log.end().map_err(failed)?;
    let is_whole = record_damage(dir, &replay.damage, known.end == LogPosition::START);
    let LogReplay { sessions, locations: places, touched, .. } = replay;
    let state = JournalState {
        sessions,
        recent: RecentEvents::default(),
        unflushed: places,
        changed_sessions: touched,
        end,
        // What stands there was not read, but for its end.
        purged_since: (end.offset > SEGMENT_HEADER_LEN as u32).then(Instant::now),
        flushing: None,
        flushed_to: known.end,
    };
    let shared = SharedJournal::new(state, ground, segments, catalog_dir, is_whole);
    Ok(OpenedJournal { shared, log, lock, contents })
}

/// Reads all of the log and does without an index, which sled opens for writing only.
pub(super) fn open_to_read(dir: &Path) -> Result<ReadOnlyJournal, OpenError> {
    let [log_dir, catalog_dir, contents] = ["log", "index", "contents"].map(|name| dir.join(name));
    let lock = lock(&dir.join("lock"), OpenOptions::new().read(true))?;
    let segments = SegmentCache::new(log_dir.clone());
    let mut replay = LogReplay::default();
    replay.report_missing_segments(&segments)?;
    let end = replay.replay_from(&segments, LogPosition::START)?;
    warn_of_damage(&mut replay, &log_dir);
    let state = JournalState {
        sessions: replay.sessions,
        recent: RecentEvents::default(),
        unflushed: replay.locations,
        changed_sessions: replay.touched,
        end,
        purged_since: None,
        flushing: None,
        flushed_to: LogPosition::START,
    };
    let shared =
        SharedJournal::new(state, BaseIndex::InMemory(EventLocations::default()), segments, catalog_dir, false);
    Ok(ReadOnlyJournal { shared, lock, contents })
}

fn warn_of_damage(replay: &mut LogReplay, log_dir: &Path) {
    for damage in &replay.damage {
        tracing::warn!("damaged in the journal `{}`: {damage}", log_dir.display());
    }
    for mended in &replay.recovered {
        tracing::warn!("a header in the journal `{}` is damaged, and read from its copy: {mended}", log_dir.display());
    }
    if !replay.cut_frames.is_empty() {
        let count = replay.cut_frames.len();
        replay.cut_frames.truncate(MAX_NAMED_FRAMES);
        tracing::warn!(
            "the last commit of the journal does not hold and is cut from there on, {count} frames that are there: {}. It was \
             never acknowledged if the power went while it was written; if it did not, the disk has lost it since",
            replay.cut_frames.join(", ")
        );
    }
}

/// Whether no session may be in the log that nobody knows: not even one that an earlier start found damaged, which is looked
/// through no more once the index is beyond. A file remembers that, until all of the log was read and is whole.
fn record_damage(dir: &Path, damage: &[String], read_all: bool) -> bool {
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
fn continue_log(dir: PathBuf, number: u32, file: File, end: LogPosition, sizes: SegmentSizes) -> io::Result<LogWriter> {
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
    LogWriter::new(dir, number, file, end, sizes)
}

/// The log in a new segment, where `last` lacks what the index has places of: nothing else may come to stand there.
fn continue_in_new_segment(dir: PathBuf, last: &File, end: LogPosition, sizes: SegmentSizes) -> io::Result<LogWriter> {
    last.sync_all()?;
    let next = SegmentHeader { number: end.segment + 1, previous_end: u64::from(end.offset) };
    let file = segment::create(&dir, next)?;
    LogWriter::new(dir, next.number, file, SEGMENT_HEADER_LEN as u64, sizes)
}

/// Writes how these sessions stand, where the log itself has lost it: so their numbers stay given also without the index.
fn rewrite_records(
    log: &mut LogWriter,
    behind: &[SessionId],
    sessions: &HashMap<SessionId, SessionEntry>,
) -> Result<(), StoreError> {
    let Some(first) = behind.first() else { return Ok(()) };
    let mut commit = Vec::new();
    for session in behind {
        if let Some(entry) = sessions.get(session) {
            let payload = frame::encode_payload(entry.mark.as_ref(), Some(&entry.record), &[]);
            frame::put_frame(&mut commit, 0, FrameKind::Put, *session, Some(entry), 0, &payload);
        }
    }
    log.make_room(commit.len())?;
    log.commit(&commit).map_err(|failure| failure.into_store_error(*first))
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
fn set_aside_misnamed(dir: &Path, kind: SegmentFileKind) -> io::Result<()> {
    for number in segment::numbers(dir, kind)? {
        let path = segment::path(dir, number, kind);
        // What cannot be read is damage, of which whoever reads it speaks.
        let preface = File::open(&path).and_then(|file| SegmentHeader::read(&file, kind));
        let Ok(Ok(SegmentHeader { number: own, .. })) = preface else { continue };
        if own != number {
            // Never over another that was put aside: it may be the only one of its number.
            let aside = path.with_added_extension(format!("{MISNAMED_EXTENSION}-{}", ulid::Ulid::generate()));
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
fn finish_compaction(dir: &Path) -> io::Result<()> {
    [SegmentFileKind::Log, SegmentFileKind::Archive].into_iter().try_for_each(|kind| set_aside_misnamed(dir, kind))?;
    for entry in dir.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == UNFINISHED_EXTENSION) {
            std::fs::remove_file(path)?;
        }
    }
    let logs = segment::numbers(dir, SegmentFileKind::Log)?;
    for archived in logs.intersection(&segment::numbers(dir, SegmentFileKind::Archive)?) {
        // An archive gets its name when it is whole and on disk.
        std::fs::remove_file(segment::path(dir, *archived, SegmentFileKind::Log))?;
    }
    Ok(())
}

/// The segment that the log goes on in; made where there is none.
fn last_segment(dir: &Path) -> Result<(u32, File), OpenError> {
    let failed = |source| OpenError::Io { path: dir.to_owned(), source };
    let mut numbers = segment::numbers(dir, SegmentFileKind::Log).map_err(failed)?;
    let archived = segment::numbers(dir, SegmentFileKind::Archive).map_err(failed)?.last().copied().unwrap_or(0);
    while let Some(number) = numbers.pop_last().filter(|number| *number > archived) {
        let path = segment::path(dir, number, SegmentFileKind::Log);
        let failed = |source| OpenError::Io { path: path.clone(), source };
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
        let begun = match SegmentHeader::read(&file, SegmentFileKind::Log).map_err(failed)? {
            Ok(_) => true,
            Err(HeaderError::Newer) => return Err(OpenError::Newer { path }),
            Err(HeaderError::Damaged) => file.metadata().map_err(failed)?.len() > SEGMENT_HEADER_LEN as u64,
        };
        if begun {
            return Ok((number, file));
        }
        // A crash came before the segment was begun; nothing can be in it.
        std::fs::remove_file(&path).map_err(failed)?;
    }
    // Archives know their ends themselves.
    let next = SegmentHeader { number: archived + 1, previous_end: 0 };
    Ok((next.number, segment::create(dir, next).map_err(failed)?))
}

/// How the log stands to where the catalog ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogReach {
    /// It can be gone on with from there.
    Covers,
    /// It ends before, so it was lost in part: the catalog alone knows the numbers that were given.
    EndsBefore,
    /// The catalog is an old one: only what it had in whole was archived, and it says otherwise.
    CatalogOutdated,
}

fn log_reach(segments: &SegmentCache, end: LogPosition) -> LogReach {
    match segments.open(end.segment) {
        Ok(Segment::Log(file)) => {
            let is_there = file.metadata().is_ok_and(|metadata| metadata.len() >= u64::from(end.offset));
            match is_there
                && (end.offset as usize <= SEGMENT_HEADER_LEN || is_written_before(&file, u64::from(end.offset)))
            {
                true => LogReach::Covers,
                false => LogReach::EndsBefore,
            }
        }
        Ok(Segment::Archive(_)) if end == LogPosition::START => LogReach::Covers,
        Ok(Segment::Archive(_)) => LogReach::CatalogOutdated,
        Err(_) => LogReach::EndsBefore,
    }
}

/// Whether something was written right before `end`, and not only prepared.
fn is_written_before(file: &File, end: u64) -> bool {
    let mut last = [0; FRAME_HEADER_LEN];
    let from = end.saturating_sub(last.len() as u64);
    file.read_exact_at(&mut last, from).is_ok() && last.iter().any(|byte| *byte != 0)
}

fn open_catalog(dir: &Path) -> (BaseIndex, Option<CatalogSnapshot>) {
    match Catalog::open(dir) {
        Ok((catalog, known)) => match catalog.slim(dir) {
            Ok(catalog) => (BaseIndex::Catalog(catalog), Some(known)),
            Err(error) => discard_catalog(dir, &error),
        },
        Err(error) => discard_catalog(dir, &error),
    }
}

fn discard_catalog(dir: &Path, error: &CatalogError) -> (BaseIndex, Option<CatalogSnapshot>) {
    tracing::warn!("the journal's index `{}` is made anew from the log: {error}", dir.display());
    (BaseIndex::InMemory(EventLocations::default()), None)
}

/// An empty catalog; where not even that can be had, memory does its work until the next start.
fn recreate_catalog(dir: &Path, old: BaseIndex) -> (BaseIndex, CatalogSnapshot) {
    if let BaseIndex::Catalog(catalog) = old {
        catalog.close();
    }
    // What cannot be removed cannot be opened either, or shows in its checkpoint.
    let _ = std::fs::remove_dir_all(dir);
    match open_catalog(dir) {
        (ground, Some(known)) if known.end == LogPosition::START => (ground, known),
        (ground, _) => {
            if let BaseIndex::Catalog(catalog) = ground {
                catalog.close();
            }
            let known = CatalogSnapshot { sessions: Default::default(), end: LogPosition::START };
            (BaseIndex::InMemory(EventLocations::default()), known)
        }
    }
}
