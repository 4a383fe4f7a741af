//! Compaction: closed segments become archives, and the data of purged sessions is removed.
//!
//! An archive is written beside its segment, read back, synced and then named. Only then is the
//! segment removed. A crash leaves an unnamed file, or both files. The next start cleans that up.
//!
//! A reader searches an archive by session and number. The index therefore keeps only where each
//! session begins in an archive; after a crash it may keep all locations. An archive must therefore
//! hold at most one event per number. A segment that the disk could not return for a while may hold
//! numbers that were given again later. Only the locations state which event counts, so such a
//! segment is not archived.
//!
//! The id of a purged session stays, so an old copy of the index cannot bring the session back.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::{self, File},
    io,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    archive::{ArchiveWriter, SegmentArchive, WrittenArchive},
    commit_queue::{CommitQueue, JournalRequest},
    event_locations::EventLocation,
    frame::{FrameHeader, FrameKind},
    scan::{ScanError, ScanItem, ScanUntil, scan},
    segment::{self, LogPosition, SEGMENT_HEADER_LEN, Segment, SegmentFileKind, SegmentHeader},
    shared::SharedJournal,
};
use crate::store::{CompactionStats, SessionId, StoreError};

/// Extension of an incomplete archive.
pub(super) const UNFINISHED_EXTENSION: &str = "part";
/// Bytes of log that one run reads, so a sweep ends.
const MAX_BYTES_PER_RUN: u64 = 512 << 20;
/// Bytes that a failed segment counts for: those of a whole segment.
const FAILED_SEGMENT_COST: u64 = 64 << 20;
/// Time after which the current segment is closed because data in it was purged.
///
/// A large segment is closed earlier. Closing small segments all the time would gain nothing.
const CLOSE_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Compactor {
    shared: Arc<SharedJournal>,
    queue: Arc<CommitQueue>,
    /// Size in bytes from which a segment with purged data is closed.
    close_bytes: u32,
    /// Held during a compaction.
    cache: Mutex<CompactionCache>,
    stopping: AtomicBool,
}

/// Results that spare a second look.
#[derive(Debug, Default)]
struct CompactionCache {
    /// Segments that cannot be archived, with the sessions that each names as forgotten.
    ///
    /// Some of their frames cannot be read, or do not count.
    unreadable: HashMap<u32, HashSet<SessionId>>,
    /// Segments that failed in the last run. Skipped once, so later segments get their turn.
    failed: HashSet<u32>,
    /// Sessions in each archive, and sessions that it names as forgotten.
    archives: HashMap<u32, ArchiveSummary>,
}

#[derive(Debug, Clone, Default)]
struct ArchiveSummary {
    sessions: HashSet<SessionId>,
    forgotten: HashSet<SessionId>,
}

impl Compactor {
    pub(super) fn new(shared: Arc<SharedJournal>, queue: Arc<CommitQueue>, close_bytes: u32) -> Compactor {
        Compactor { shared, queue, close_bytes, cache: Mutex::default(), stopping: AtomicBool::new(false) }
    }

    /// Runs one compaction. Blocks until it ends.
    pub(super) fn run(&self) -> Result<CompactionStats, StoreError> {
        let mut cache = self.cache();
        self.shared.flush_index()?;
        if self.should_close_segment() {
            match self.close_segment() {
                Ok(()) => self.shared.flush_index()?,
                // The closed segments can still free space, perhaps the space that was missing
                // here.
                Err(error) => tracing::warn!("cannot close the journal's last segment to free purged data: {error}"),
            }
        }
        // The index still needs the log of later segments.
        let closed = ..self.shared.state().flushed_to.segment;
        let numbers = self.shared.segments.numbers()?;
        let mut done = CompactionStats::default();
        let mut forgotten_later = HashSet::new();
        let mut bytes_read = 0;
        for number in numbers.range(closed).rev() {
            let may_work = bytes_read < MAX_BYTES_PER_RUN && !self.stopping.load(Ordering::Relaxed);
            let worked = match self.compact_segment(*number, &forgotten_later, &mut cache, may_work) {
                Err(_) if self.stopping.load(Ordering::Relaxed) => break,
                Err(error) => {
                    // Other segments can still free the space of purged sessions.
                    tracing::warn!("cannot compact segment {number} of the journal: {error}");
                    if let Ok(segment) = self.shared.segments.open(*number) {
                        forgotten_later.extend(forgotten_in(&segment));
                    }
                    cache.failed.insert(*number);
                    bytes_read += FAILED_SEGMENT_COST;
                    continue;
                }
                Ok(worked) => worked,
            };
            bytes_read += worked.read;
            done.segments += usize::from(worked.freed.is_some());
            done.freed += worked.freed.unwrap_or(0);
            forgotten_later.extend(worked.forgotten);
        }
        cache.archives.retain(|number, _| numbers.contains(number));
        Ok(done)
    }

    /// Stops the compaction. Returns when no file is being written any more.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.cache());
    }

    fn cache(&self) -> MutexGuard<'_, CompactionCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn should_close_segment(&self) -> bool {
        // On a nearly full disk, the next segment might fail to begin. Commits that fit in this one
        // would then be rejected.
        if !self.shared.has_room() {
            return false;
        }
        let state = self.shared.state();
        let since = state.purged_since.map(|since| since.elapsed());
        since.is_some_and(|since| since >= CLOSE_AFTER || state.end.offset >= self.close_bytes)
    }

    fn close_segment(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let closed = || io::Error::other("the journal is closed");
        self.queue.push(JournalRequest::CloseSegment(reply)).map_err(|_| closed())?;
        Ok(answer.blocking_recv().map_err(|_| closed())??)
    }

    fn compact_segment(
        &self,
        number: u32,
        forgotten_later: &HashSet<SessionId>,
        cache: &mut CompactionCache,
        may_work: bool,
    ) -> Result<CompactedSegment, StoreError> {
        let is_dead = |session: SessionId| {
            forgotten_later.contains(&session)
                || self.shared.is_complete && !self.shared.state().sessions.contains_key(&session)
        };
        if let Some(forgotten) = cache.unreadable.get(&number) {
            return Ok(CompactedSegment { forgotten: forgotten.clone(), ..CompactedSegment::default() });
        }
        let may_work = may_work && !cache.failed.remove(&number);
        if let Some(ArchiveSummary { sessions, forgotten }) = cache.archives.get(&number)
            && (!may_work || !sessions.iter().any(|session| is_dead(*session)))
        {
            return Ok(CompactedSegment { forgotten: forgotten.clone(), ..CompactedSegment::default() });
        }
        if !may_work {
            return Ok(CompactedSegment::default());
        }
        let segment = self.shared.segments.open(number)?;
        let job = CompactionJob { shared: &self.shared, number, is_dead: &is_dead, stopping: &self.stopping };
        let worked = match &segment {
            Segment::Log(file) => job.archive_log(file),
            Segment::Archive(archive) => job.rewrite_archive(archive),
        }?;
        let Some((worked, summary)) = worked else {
            tracing::warn!("segment {number} of the journal is or was damaged and is not archived");
            let forgotten = forgotten_in(&segment);
            cache.unreadable.insert(number, forgotten.clone());
            return Ok(CompactedSegment { forgotten, ..CompactedSegment::default() });
        };
        cache.archives.insert(number, summary);
        if matches!(segment, Segment::Log(_))
            && let Err(error) = self.shared.drop_archived_locations(number)
        {
            tracing::warn!("cannot drop locations of segment {number} from the journal's index: {error}");
        }
        Ok(worked)
    }
}

/// Result for one segment.
#[derive(Debug, Default)]
struct CompactedSegment {
    /// Bytes of log that were read.
    read: u64,
    /// Bytes that the disk got back; `None` if the segment was left unchanged.
    freed: Option<u64>,
    forgotten: HashSet<SessionId>,
}

/// Compaction of one segment.
struct CompactionJob<'a> {
    shared: &'a SharedJournal,
    number: u32,
    is_dead: &'a dyn Fn(SessionId) -> bool,
    stopping: &'a AtomicBool,
}

/// Content of a segment.
#[derive(Default)]
struct SegmentSurvey {
    /// Frames that count.
    frames_by_session: BTreeMap<SessionId, SessionFrames>,
    forgotten: HashSet<SessionId>,
}

/// Frames of one session, in the order of the log.
#[derive(Default)]
struct SessionFrames {
    frames: Vec<FrameSpan>,
    /// First and last location with events.
    ends: Option<[EventLocation; 2]>,
}

/// Frame that is copied. Small, because a segment may have a million frames.
struct FrameSpan {
    offset: u32,
    size: u32,
}

/// Result of one job. `None` if the segment cannot be read completely.
type CompactionOutcome = Result<Option<(CompactedSegment, ArchiveSummary)>, StoreError>;

impl CompactionJob<'_> {
    fn archive_log(&self, file: &File) -> CompactionOutcome {
        let Ok(header) = SegmentHeader::read(file, SegmentFileKind::Log)? else { return Ok(None) };
        let Some(end) = self.segment_end()? else { return Ok(None) };
        let Some(SegmentSurvey { mut frames_by_session, forgotten }) = survey_segment(file, self.number, end)? else {
            return Ok(None);
        };
        frames_by_session.retain(|session, _| !(self.is_dead)(*session));
        for (session, session_frames) in &frames_by_session {
            if self.has_superseded_events(*session, session_frames)? {
                return Ok(None);
            }
        }

        let read = file.metadata()?.len();
        let sessions = frames_by_session.keys().copied().collect();
        let freed = self.replace(read, header, |writer| {
            forgotten.iter().try_for_each(|session| writer.forgotten(*session))?;
            let mut bytes = Vec::new();
            for FrameSpan { offset, size } in
                frames_by_session.into_values().flat_map(|session_frames| session_frames.frames)
            {
                self.check_not_stopping()?;
                bytes.resize(size as usize, 0);
                // Bytes that the disk lost stay damaged, and the rest is archived.
                segment::read_exact_past_lost(file, &mut bytes, offset.into())?;
                let (header, payload) = FrameHeader::split(&bytes).ok_or(io::ErrorKind::InvalidData)?;
                writer.frame(header, payload)?;
            }
            Ok(())
        })?;
        let worked = CompactedSegment { read, freed: Some(freed), forgotten: forgotten.clone() };
        Ok(Some((worked, ArchiveSummary { sessions, forgotten })))
    }

    /// Reports if the index leads to a session's first events here, but elsewhere for the last.
    ///
    /// The disk did not return these events when the index was built. Their numbers were then given
    /// again in a later segment, or will be.
    fn has_superseded_events(&self, session: SessionId, session_frames: &SessionFrames) -> Result<bool, StoreError> {
        let Some([first, last]) = session_frames.ends else { return Ok(false) };
        let is_elsewhere = |location: EventLocation| -> Result<bool, StoreError> {
            let known = self.shared.locate(session, location.first)?;
            Ok(known.first().is_some_and(|known| known.at.is_some() && *known != location))
        };
        Ok(is_elsewhere(last)? && !is_elsewhere(first)?)
    }

    /// Returns the end of this segment as the next segment states it.
    fn segment_end(&self) -> io::Result<Option<u64>> {
        let next = match self.shared.segments.open(self.number + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            next => next?.header()?,
        };
        Ok(next.ok().filter(|next| next.number == self.number + 1).map(|next| next.previous_end))
    }

    /// Rewrites an archive without the sessions that are gone.
    fn rewrite_archive(&self, archive: &SegmentArchive) -> CompactionOutcome {
        let Ok(header) = SegmentHeader::read(archive.file(), SegmentFileKind::Archive)? else { return Ok(None) };
        if !archive.is_fully_readable() {
            return Ok(None);
        }
        let of = |is_forgotten: bool| -> HashSet<SessionId> {
            let blocks = archive.blocks().iter().filter(|block| block.forgotten == is_forgotten);
            blocks.map(|block| block.session).collect()
        };
        let (forgotten, sessions) = (of(true), of(false));
        let (dead, alive): (HashSet<_>, HashSet<_>) =
            sessions.into_iter().partition(|session| (self.is_dead)(*session));
        let summary = ArchiveSummary { sessions: alive, forgotten: forgotten.clone() };
        if dead.is_empty() {
            return Ok(Some((CompactedSegment { forgotten, ..CompactedSegment::default() }, summary)));
        }
        let read = archive.file().metadata()?.len();
        let freed = self.replace(read, header, |writer| {
            for block in archive.blocks().iter().filter(|block| block.forgotten || !dead.contains(&block.session)) {
                self.check_not_stopping()?;
                // Copied byte for byte: a damaged block stays damaged, and its readers report it.
                writer.block(block, &archive.compressed(block)?)?;
            }
            Ok(())
        })?;
        Ok(Some((CompactedSegment { read, freed: Some(freed), forgotten }, summary)))
    }

    fn check_not_stopping(&self) -> io::Result<()> {
        match self.stopping.load(Ordering::Relaxed) {
            true => Err(io::Error::other("the journal is being closed")),
            false => Ok(()),
        }
    }

    /// Replaces the segment by an archive. Returns the number of bytes that this frees.
    fn replace(
        &self,
        size: u64,
        header: SegmentHeader,
        write: impl FnOnce(&mut ArchiveWriter) -> io::Result<()>,
    ) -> Result<u64, StoreError> {
        let dir = self.shared.segments.dir();
        let target = segment::path(dir, self.number, SegmentFileKind::Archive);
        let unfinished = target.with_extension(UNFINISHED_EXTENSION);
        let written = write_verified(&unfinished, header, write).and_then(|size| {
            fs::rename(&unfinished, &target)?;
            File::open(dir)?.sync_all()?;
            Ok(size)
        });
        let new_size = written.inspect_err(|_| {
            // Frees the space. If the removal fails, the next start repeats it.
            let _ = fs::remove_file(&unfinished);
        })?;
        match fs::remove_file(segment::path(dir, self.number, SegmentFileKind::Log)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
        self.shared.segments.evict(self.number);
        Ok(size.saturating_sub(new_size))
    }
}

/// Writes an archive, and reads it back before it replaces anything.
fn write_verified(
    path: &Path,
    header: SegmentHeader,
    write: impl FnOnce(&mut ArchiveWriter) -> io::Result<()>,
) -> io::Result<u64> {
    let mut writer = ArchiveWriter::create(path, header)?;
    write(&mut writer)?;
    let WrittenArchive { size, blocks, sums } = writer.finish()?;
    let archive = SegmentArchive::open(path)?;
    if archive.blocks() != blocks {
        return Err(io::Error::other("an archive reads back differently from what was written"));
    }
    for (block, sum) in blocks.iter().zip(sums) {
        if !archive.reads_as_written(block, sum)? {
            return Err(io::Error::other("a block of an archive reads back differently from what was written"));
        }
    }
    Ok(size)
}

/// Returns the sessions that a segment names as forgotten, as far as it can be read.
fn forgotten_in(segment: &Segment) -> HashSet<SessionId> {
    let mut forgotten = HashSet::new();
    let mut visit = |found: ScanItem<'_>| {
        if let ScanItem::Frame { header, .. } | ScanItem::Damaged { header, .. } = found
            && header.kind == FrameKind::Forget
        {
            forgotten.insert(header.session);
        }
    };
    // Unreadable parts name no session.
    let _ = match segment {
        Segment::Log(file) => scan(file, SEGMENT_HEADER_LEN as u64, ScanUntil::FileEnd, &mut visit).map(drop),
        Segment::Archive(archive) => archive.scan(&mut visit).map_err(ScanError::Io),
    };
    forgotten
}

/// Returns the content of segment `number` up to `end`.
///
/// `None` if a frame cannot be read, or if numbers were given again.
fn survey_segment(file: &File, number: u32, end: u64) -> Result<Option<SegmentSurvey>, StoreError> {
    let mut survey = SegmentSurvey::default();
    let mut complete = true;
    let mut visit = |found: ScanItem<'_>| match found {
        // The header holds everything that such a frame states.
        ScanItem::Frame { header: FrameHeader { kind: FrameKind::Forget, session, .. }, .. }
        | ScanItem::Damaged { header: FrameHeader { kind: FrameKind::Forget, session, .. }, .. } => {
            survey.frames_by_session.remove(&session);
            survey.forgotten.insert(session);
        }
        ScanItem::Frame { offset, header, .. } | ScanItem::Damaged { offset, header } => {
            match (u32::try_from(offset), u32::try_from(header.size())) {
                (Ok(offset), Ok(size)) => {
                    let session_frames = survey.frames_by_session.entry(header.session).or_default();
                    session_frames.frames.push(FrameSpan { offset, size });
                    if header.count > 0 {
                        let location =
                            EventLocation { first: header.seq, at: Some(LogPosition { segment: number, offset }) };
                        complete &= session_frames.ends.is_none_or(|[_, last]| last.first < location.first);
                        session_frames.ends =
                            Some([session_frames.ends.map_or(location, |[first, _]| first), location]);
                    }
                }
                // No segment is that long, see [`MAX_BATCH_BYTES`](super::MAX_BATCH_BYTES).
                _ => complete = false,
            }
        }
        ScanItem::RecoveredHeader { .. } => {}
        ScanItem::Unreadable { .. } | ScanItem::Cut { .. } => complete = false,
    };
    match scan(file, SEGMENT_HEADER_LEN as u64, ScanUntil::Offset(end), &mut visit) {
        Err(ScanError::Io(error)) => return Err(error.into()),
        // The start rejects a newer version.
        Err(ScanError::Newer) => return Ok(None),
        Ok(scanned) => complete &= scanned == end,
    }
    Ok(complete.then_some(survey))
}
