//! Opening a directory: takes its lock, cuts the torn tail and completes the index.

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
    replay::LogReplay,
    segment::{self, LogPosition, SEGMENT_HEADER_LEN, Segment, SegmentCache, SegmentFileKind, SegmentHeader},
    shared::{BaseIndex, JournalState, SharedJournal},
};
use crate::store::{OpenError, SessionId, StoreError, session_change::SessionEntry};

/// Most frames of a cut commit that are named in the log message.
const MAX_NAMED_FRAMES: usize = 20;

/// Extension of a segment file whose header states another number.
const MISNAMED_EXTENSION: &str = "misnamed";

/// Parts of a directory that is opened for reading only.
pub(super) struct ReadOnlyJournal {
    pub(super) shared: SharedJournal,
    pub(super) lock: File,
    pub(super) contents: PathBuf,
}

/// Parts of an opened directory.
pub(super) struct OpenedJournal {
    pub(super) shared: SharedJournal,
    pub(super) log: LogWriter,
    /// Held while the directory is in use.
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
    let (base_index, known) = open_catalog(&catalog_dir);
    let known = known
        .map(|known| (log_reach(&segments, known.end), known))
        .filter(|(reach, _)| *reach != LogReach::CatalogOutdated);
    let (base_index, reach, known) = match known {
        Some((reach, known)) => (base_index, reach, known),
        None => {
            let (base_index, known) = recreate_catalog(&catalog_dir, base_index);
            (base_index, LogReach::Covers, known)
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
        tracing::warn!(
            "the journal `{}` lost its end, and its records cannot be rewritten from the index: {error}",
            path.display()
        );
    }
    let end = log.end().map_err(failed)?;
    let is_complete = record_damage(dir, &replay.damage, known.end == LogPosition::START);
    let LogReplay { sessions, locations, touched, .. } = replay;
    let state = JournalState {
        sessions,
        unflushed: locations,
        changed_sessions: touched,
        end,
        // The last segment was not read, except its end.
        purged_since: (end.offset > SEGMENT_HEADER_LEN as u32).then(Instant::now),
        flushing: None,
        flushed_to: known.end,
    };
    let shared = SharedJournal::new(state, base_index, segments, catalog_dir, is_complete);
    Ok(OpenedJournal { shared, log, lock, contents })
}

/// Reads the whole log instead of the index: sled opens its files for writing only.
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
        tracing::warn!("the journal `{}` is damaged: {damage}", log_dir.display());
    }
    for recovered in &replay.recovered {
        tracing::warn!(
            "the journal `{}` has a damaged header, which was read from its footer: {recovered}",
            log_dir.display()
        );
    }
    if !replay.cut_frames.is_empty() {
        let count = replay.cut_frames.len();
        replay.cut_frames.truncate(MAX_NAMED_FRAMES);
        tracing::warn!(
            "the last commit of the journal is incomplete and is cut, with {count} frames that are complete: {}. If the \
             power failed during the write, it was never acknowledged; otherwise the disk lost part of it later",
            replay.cut_frames.join(", ")
        );
    }
}

/// Records damage in the file `incomplete`. Returns if the log can hold no unknown session.
///
/// Later starts do not read a damaged part again once the index covers it. The file therefore stays
/// until the whole log was read and is sound.
fn record_damage(dir: &Path, damage: &[String], read_all: bool) -> bool {
    let mark = dir.join("incomplete");
    if !damage.is_empty() {
        let text = format!(
            "Data of unknown sessions is kept while this file exists. Once the files beside it are whole again, stop the \
             server and remove `index`: the next start reads all of them. Damaged:\n{}\n",
            damage.join("\n")
        );
        if let Err(error) = std::fs::write(&mark, text) {
            tracing::warn!(
                "the journal is damaged, and `{}` cannot be written to record that: {error}",
                mark.display()
            );
        }
        return false;
    }
    if read_all {
        let _there_is_none = std::fs::remove_file(&mark);
    }
    !mark.exists()
}

/// Continues the log at `end`, and cuts the bytes behind it.
fn continue_log(dir: PathBuf, number: u32, file: File, end: LogPosition, sizes: SegmentSizes) -> io::Result<LogWriter> {
    let end = u64::from(end.offset);
    let length = file.metadata()?.len();
    if length > end {
        if !segment::is_blank(&file, end)? {
            tracing::info!("cutting {} bytes behind the last complete commit", length - end);
        }
        file.set_len(end)?;
    }
    // Frames that a killed server wrote without a sync are served from now on, so they must be on
    // disk.
    file.sync_all()?;
    LogWriter::new(dir, number, file, end, sizes)
}

/// Continues the log in a new segment, because `last` lacks bytes that the index has locations of.
///
/// No other bytes may take their place.
fn continue_in_new_segment(dir: PathBuf, last: &File, end: LogPosition, sizes: SegmentSizes) -> io::Result<LogWriter> {
    last.sync_all()?;
    let next = SegmentHeader { number: end.segment + 1, previous_end: u64::from(end.offset) };
    let file = segment::create(&dir, next)?;
    LogWriter::new(dir, next.number, file, SEGMENT_HEADER_LEN as u64, sizes)
}

/// Writes the state of sessions that the log itself has lost.
///
/// Their numbers then stay given even without the index.
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

fn lock(path: &Path, options: &mut OpenOptions) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { path: path.to_owned(), source };
    let file = options.mode(0o600).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.parent().unwrap_or(path).to_owned() }),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Renames segment files whose header states another number, for example copies.
///
/// Their frames do not count, and the log does not continue in them.
fn set_aside_misnamed(dir: &Path, kind: SegmentFileKind) -> io::Result<()> {
    for number in segment::numbers(dir, kind)? {
        let path = segment::path(dir, number, kind);
        // A header that cannot be read is damage. Its readers report it.
        let header = File::open(&path).and_then(|file| SegmentHeader::read(&file, kind));
        let Ok(Ok(SegmentHeader { number: own, .. })) = header else { continue };
        if own != number {
            // A file set aside earlier may be the only one of its number, so each gets a unique
            // name.
            let aside = path.with_added_extension(format!("{MISNAMED_EXTENSION}-{}", ulid::Ulid::generate()));
            tracing::warn!(
                "`{}` is segment {own} by its header; it is ignored and renamed to `{}`",
                path.display(),
                aside.display()
            );
            std::fs::rename(&path, &aside)?;
        }
    }
    Ok(())
}

/// Completes or removes what a killed compaction left.
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
        // An archive has its final name only once it is complete and on disk.
        std::fs::remove_file(segment::path(dir, *archived, SegmentFileKind::Log))?;
    }
    Ok(())
}

/// Returns the segment in which the log continues, and creates it if there is none.
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
        // A crash interrupted the creation of this segment, so it holds no frame.
        std::fs::remove_file(&path).map_err(failed)?;
    }
    // Archives state their own end.
    let next = SegmentHeader { number: archived + 1, previous_end: 0 };
    Ok((next.number, segment::create(dir, next).map_err(failed)?))
}

/// Relation of the log to the end of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogReach {
    /// The log can continue from the end of the catalog.
    Covers,
    /// The log ends before the catalog, so part of it is lost. Only the catalog has the given
    /// numbers.
    EndsBefore,
    /// The catalog is an old copy: its end is in an archived segment.
    ///
    /// A segment is archived only once the catalog covers it.
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

/// Reports if a frame was written right before `end`, and not only zeros.
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
    tracing::warn!("the journal's index `{}` is rebuilt from the log: {error}", dir.display());
    (BaseIndex::InMemory(EventLocations::default()), None)
}

/// Creates an empty catalog. If that fails, an index in memory serves until the next start.
fn recreate_catalog(dir: &Path, old: BaseIndex) -> (BaseIndex, CatalogSnapshot) {
    if let BaseIndex::Catalog(catalog) = old {
        catalog.close();
    }
    // A catalog that cannot be removed cannot be opened either, or its checkpoint shows it.
    let _ = std::fs::remove_dir_all(dir);
    match open_catalog(dir) {
        (base_index, Some(known)) if known.end == LogPosition::START => (base_index, known),
        (base_index, _) => {
            if let BaseIndex::Catalog(catalog) = base_index {
                catalog.close();
            }
            let known = CatalogSnapshot { sessions: Default::default(), end: LogPosition::START };
            (BaseIndex::InMemory(EventLocations::default()), known)
        }
    }
}
