//! Gives the disk its space back: closed segments become archives, and what purged sessions left goes for good.
//!
//! An archive is written beside its segment, read back, synced, and gets its name; only then the segment goes. A crash
//! leaves a file without a name, or both, which the next start settles. A reader that finds an archive looks for the event by
//! its session and number, so of the places in it the index keeps only where each session begins, or all of them after a crash.
//! So of each number an archive has one event at most. A segment that the disk did not give for a while may have those that were
//! given anew since, too: which of them counts only the places say, so it stays as it is.
//!
//! What stays of a purged session is that it was: an older copy of the index must not bring it back.

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

/// The extension of an archive that is not whole yet.
pub(super) const UNFINISHED_EXTENSION: &str = "part";
/// How much of the log one call works through, so that a sweep ends.
const MAX_BYTES_PER_RUN: u64 = 512 << 20;
/// What a segment counts for that could not be done: as much as a whole one.
const FAILED_SEGMENT_COST: u64 = 64 << 20;
/// The segment that is being written is closed early for what was purged in it: when it is large enough, or after so long.
/// Small segments for ever would be no gain either.
const CLOSE_AFTER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Compactor {
    shared: Arc<SharedJournal>,
    queue: Arc<CommitQueue>,
    /// From how many bytes on a segment is closed for what was purged in it.
    close_bytes: u32,
    /// Held by the one that compacts.
    cache: Mutex<CompactionCache>,
    stopping: AtomicBool,
}

/// What need not be looked at again.
#[derive(Debug, Default)]
struct CompactionCache {
    /// Segments that cannot be archived, because not all in them can be read, or not all that can counts; and whom each says
    /// to be forgotten.
    unreadable: HashMap<u32, HashSet<SessionId>>,
    /// Segments that failed when they were tried last. They are left out once, so that those behind them have their turn.
    failed: HashSet<u32>,
    /// Whom each archive is about, and whom it says to be forgotten.
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

    /// Blocks for as long as it takes.
    pub(super) fn run(&self) -> Result<CompactionStats, StoreError> {
        let mut kept = self.cache();
        let old = self.shared.state_mut().recent.age();
        loop {
            // Freed when nobody waits for the state.
            let some = self.shared.state_mut().recent.take_old(old);
            if some.is_empty() {
                break;
            }
        }
        self.shared.flush_index()?;
        if self.should_close_segment() {
            match self.close_segment() {
                Ok(()) => self.shared.flush_index()?,
                // What the closed ones have to give back is no less to be had, and may be the room that this wanted.
                Err(error) => tracing::warn!("the journal's last segment keeps space that it does not need: {error}"),
            }
        }
        // Beyond, the index still needs the log itself.
        let closed = ..self.shared.state().flushed_to.segment;
        let numbers = self.shared.segments.numbers()?;
        let mut done = CompactionStats::default();
        let mut forgotten_later = HashSet::new();
        let mut looked_through = 0;
        for number in numbers.range(closed).rev() {
            let may_work = looked_through < MAX_BYTES_PER_RUN && !self.stopping.load(Ordering::Relaxed);
            let worked = match self.compact_segment(*number, &forgotten_later, &mut kept, may_work) {
                Err(_) if self.stopping.load(Ordering::Relaxed) => break,
                Err(error) => {
                    // What purged sessions left in the others is no less to be had back.
                    tracing::warn!("segment {number} of the journal keeps space that it does not need: {error}");
                    if let Ok(segment) = self.shared.segments.open(*number) {
                        forgotten_later.extend(forgotten_in(&segment));
                    }
                    kept.failed.insert(*number);
                    looked_through += FAILED_SEGMENT_COST;
                    continue;
                }
                Ok(worked) => worked,
            };
            looked_through += worked.read;
            done.segments += usize::from(worked.freed.is_some());
            done.freed += worked.freed.unwrap_or(0);
            forgotten_later.extend(worked.forgotten);
        }
        kept.archives.retain(|number, _| numbers.contains(number));
        Ok(done)
    }

    /// Returns when nothing is being written any more, and nothing will be.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        drop(self.cache());
    }

    fn cache(&self) -> MutexGuard<'_, CompactionCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn should_close_segment(&self) -> bool {
        // On a disk that is about full the next one might not be begun, and what has room in this one is refused then.
        if !self.shared.has_room() {
            return false;
        }
        let state = self.shared.state();
        let since = state.purged_since.map(|since| since.elapsed());
        since.is_some_and(|since| since >= CLOSE_AFTER || state.end.offset >= self.close_bytes)
    }

    fn close_segment(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let gone = || io::Error::other("the journal is closed");
        self.queue.push(JournalRequest::CloseSegment(reply)).map_err(|_| gone())?;
        Ok(answer.blocking_recv().map_err(|_| gone())??)
    }

    fn compact_segment(
        &self,
        number: u32,
        forgotten_later: &HashSet<SessionId>,
        kept: &mut CompactionCache,
        may_work: bool,
    ) -> Result<CompactedSegment, StoreError> {
        let is_dead = |session: SessionId| {
            forgotten_later.contains(&session)
                || self.shared.is_complete && !self.shared.state().sessions.contains_key(&session)
        };
        if let Some(forgotten) = kept.unreadable.get(&number) {
            return Ok(CompactedSegment { forgotten: forgotten.clone(), ..CompactedSegment::default() });
        }
        let may_work = may_work && !kept.failed.remove(&number);
        if let Some(ArchiveSummary { sessions, forgotten }) = kept.archives.get(&number)
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
            tracing::warn!("segment {number} of the journal is damaged, or has been, and stays as it is");
            let forgotten = forgotten_in(&segment);
            kept.unreadable.insert(number, forgotten.clone());
            return Ok(CompactedSegment { forgotten, ..CompactedSegment::default() });
        };
        kept.archives.insert(number, summary);
        if matches!(segment, Segment::Log(_))
            && let Err(error) = self.shared.drop_archived_locations(number)
        {
            tracing::warn!("the journal's index keeps more of segment {number} than it needs: {error}");
        }
        Ok(worked)
    }
}

/// What was done about one segment.
#[derive(Debug, Default)]
struct CompactedSegment {
    /// Bytes of the log that were read for it.
    read: u64,
    /// What the disk got back; `None` where the segment was left as it is.
    freed: Option<u64>,
    forgotten: HashSet<SessionId>,
}

/// One segment on its way into an archive.
struct CompactionJob<'a> {
    shared: &'a SharedJournal,
    number: u32,
    is_dead: &'a dyn Fn(SessionId) -> bool,
    stopping: &'a AtomicBool,
}

/// What stands in a segment.
#[derive(Default)]
struct SegmentSurvey {
    /// Those that count.
    frames_by_session: BTreeMap<SessionId, SessionFrames>,
    forgotten: HashSet<SessionId>,
}

/// The frames of one session, in the order of the log.
#[derive(Default)]
struct SessionFrames {
    frames: Vec<FrameSpan>,
    /// The first and the last of those that have events.
    ends: Option<[EventLocation; 2]>,
}

/// A frame that is taken over. A segment may have a million of them.
struct FrameSpan {
    offset: u32,
    size: u32,
}

/// `None` stands for a segment that cannot be read in whole.
type CompactionOutcome = Result<Option<(CompactedSegment, ArchiveSummary)>, StoreError>;

impl CompactionJob<'_> {
    fn archive_log(&self, file: &File) -> CompactionOutcome {
        let Ok(preface) = SegmentHeader::read(file, SegmentFileKind::Log)? else { return Ok(None) };
        let Some(end) = self.segment_end()? else { return Ok(None) };
        let Some(SegmentSurvey { frames_by_session: mut rows, forgotten }) = survey_segment(file, self.number, end)?
        else {
            return Ok(None);
        };
        rows.retain(|session, _| !(self.is_dead)(*session));
        for (session, row) in &rows {
            if self.has_superseded_events(*session, row)? {
                return Ok(None);
            }
        }

        let read = file.metadata()?.len();
        let sessions = rows.keys().copied().collect();
        let freed = self.replace(read, preface, |writer| {
            forgotten.iter().try_for_each(|session| writer.forgotten(*session))?;
            let mut bytes = Vec::new();
            for FrameSpan { offset, size } in rows.into_values().flat_map(|row| row.frames) {
                self.check_not_stopping()?;
                bytes.resize(size as usize, 0);
                // What the disk lost stays damaged: it is no reason to keep all else as it is.
                segment::read_exact_past_lost(file, &mut bytes, offset.into())?;
                let (header, payload) = FrameHeader::split(&bytes).ok_or(io::ErrorKind::InvalidData)?;
                writer.frame(header, payload)?;
            }
            Ok(())
        })?;
        let worked = CompactedSegment { read, freed: Some(freed), forgotten: forgotten.clone() };
        Ok(Some((worked, ArchiveSummary { sessions, forgotten })))
    }

    /// Whether the index leads to the first events of a session here, but not to the last: the disk did not give those when it
    /// was made, so their numbers were given anew in a later segment, or will be.
    fn has_superseded_events(&self, session: SessionId, row: &SessionFrames) -> Result<bool, StoreError> {
        let Some([first, last]) = row.ends else { return Ok(false) };
        let is_elsewhere = |place: EventLocation| -> Result<bool, StoreError> {
            let known = self.shared.locate(session, place.first)?;
            Ok(known.first().is_some_and(|known| known.at.is_some() && *known != place))
        };
        Ok(is_elsewhere(last)? && !is_elsewhere(first)?)
    }

    /// What the segment behind it says about where this one ends.
    fn segment_end(&self) -> io::Result<Option<u64>> {
        let next = match self.shared.segments.open(self.number + 1) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            next => next?.header()?,
        };
        Ok(next.ok().filter(|next| next.number == self.number + 1).map(|next| next.previous_end))
    }

    /// Leaves out whom nobody knows any more.
    fn rewrite_archive(&self, archive: &SegmentArchive) -> CompactionOutcome {
        let Ok(preface) = SegmentHeader::read(archive.file(), SegmentFileKind::Archive)? else { return Ok(None) };
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
        let freed = self.replace(read, preface, |writer| {
            for block in archive.blocks().iter().filter(|block| block.forgotten || !dead.contains(&block.session)) {
                self.check_not_stopping()?;
                // Byte for byte: a damaged one stays damaged, and is named when somebody reads it.
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

    /// Puts an archive in the segment's place; returns how many bytes fewer it has.
    fn replace(
        &self,
        size: u64,
        preface: SegmentHeader,
        write: impl FnOnce(&mut ArchiveWriter) -> io::Result<()>,
    ) -> Result<u64, StoreError> {
        let dir = self.shared.segments.dir();
        let target = segment::path(dir, self.number, SegmentFileKind::Archive);
        let unfinished = target.with_extension(UNFINISHED_EXTENSION);
        let made = write_verified(&unfinished, preface, write).and_then(|size| {
            fs::rename(&unfinished, &target)?;
            File::open(dir)?.sync_all()?;
            Ok(size)
        });
        let new_size = made.inspect_err(|_| {
            // The room is wanted; where it fails, the next start settles it.
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

/// Writes an archive and reads it back before anybody relies on it.
fn write_verified(
    path: &Path,
    preface: SegmentHeader,
    write: impl FnOnce(&mut ArchiveWriter) -> io::Result<()>,
) -> io::Result<u64> {
    let mut writer = ArchiveWriter::create(path, preface)?;
    write(&mut writer)?;
    let WrittenArchive { size, blocks, sums } = writer.finish()?;
    let archive = SegmentArchive::open(path)?;
    if archive.blocks() != blocks {
        return Err(io::Error::other("an archive does not read as it was written"));
    }
    for (block, sum) in blocks.iter().zip(sums) {
        if !archive.reads_as_written(block, sum)? {
            return Err(io::Error::other("a block of an archive does not read as it was written"));
        }
    }
    Ok(size)
}

/// Whom a segment says to be forgotten, as far as it can be read.
fn forgotten_in(segment: &Segment) -> HashSet<SessionId> {
    let mut forgotten = HashSet::new();
    let mut visit = |found: ScanItem<'_>| {
        if let ScanItem::Frame { header, .. } | ScanItem::Damaged { header, .. } = found
            && header.kind == FrameKind::Forget
        {
            forgotten.insert(header.session);
        }
    };
    // What cannot be read says nothing.
    let _ = match segment {
        Segment::Log(file) => scan(file, SEGMENT_HEADER_LEN as u64, ScanUntil::FileEnd, &mut visit).map(drop),
        Segment::Archive(archive) => archive.scan(&mut visit).map_err(ScanError::Io),
    };
    forgotten
}

/// What stands in segment `number` up to `end`; `None` where something cannot be read, or numbers were given anew.
fn survey_segment(file: &File, number: u32, end: u64) -> Result<Option<SegmentSurvey>, StoreError> {
    let mut survey = SegmentSurvey::default();
    let mut whole = true;
    let mut visit = |found: ScanItem<'_>| match found {
        // What it says is in its header.
        ScanItem::Frame { header: FrameHeader { kind: FrameKind::Forget, session, .. }, .. }
        | ScanItem::Damaged { header: FrameHeader { kind: FrameKind::Forget, session, .. }, .. } => {
            survey.frames_by_session.remove(&session);
            survey.forgotten.insert(session);
        }
        ScanItem::Frame { offset, header, .. } | ScanItem::Damaged { offset, header } => {
            match (u32::try_from(offset), u32::try_from(header.size())) {
                (Ok(offset), Ok(size)) => {
                    let row = survey.frames_by_session.entry(header.session).or_default();
                    row.frames.push(FrameSpan { offset, size });
                    if header.count > 0 {
                        let place =
                            EventLocation { first: header.seq, at: Some(LogPosition { segment: number, offset }) };
                        whole &= row.ends.is_none_or(|[_, last]| last.first < place.first);
                        row.ends = Some([row.ends.map_or(place, |[first, _]| first), place]);
                    }
                }
                // No segment is that long, see `LARGEST_BATCH`.
                _ => whole = false,
            }
        }
        ScanItem::RecoveredHeader { .. } => {}
        ScanItem::Unreadable { .. } | ScanItem::Cut { .. } => whole = false,
    };
    match scan(file, SEGMENT_HEADER_LEN as u64, ScanUntil::Offset(end), &mut visit) {
        Err(ScanError::Io(error)) => return Err(error.into()),
        // The start would have refused it.
        Err(ScanError::Newer { .. }) => return Ok(None),
        Ok(scanned) => whole &= scanned == end,
    }
    Ok(whole.then_some(survey))
}
