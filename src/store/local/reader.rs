//! Reader of a session's events in the log.

use std::{borrow::Cow, fs::File, io};

use bytes::Bytes;

use super::{
    archive::{self, ArchiveBlock, SegmentArchive},
    catalog::CatalogError,
    event_locations::EventLocation,
    frame::{FrameHeader, FramePayload},
    scan,
    segment::{LogPosition, ReadWindow, Segment},
    shared::SharedJournal,
};
use crate::{
    allocator::LARGE_BUFFER,
    store::{JournalEvent, ReadLimit, Seq, SessionId, StoreError, StoredEvent},
};

/// Returns the events after `after`, up to the first that cannot be read.
///
/// Fails if the first event cannot be read.
pub(super) fn read(
    shared: &SharedJournal,
    session: SessionId,
    after: Seq,
    limit: ReadLimit,
) -> Result<Vec<StoredEvent>, StoreError> {
    JournalReader::for_session(shared, session)?.read(after, limit)
}

/// Reader that keeps its segment and block open between reads.
pub(super) struct JournalReader<'a> {
    shared: &'a SharedJournal,
    session: SessionId,
    tail: Seq,
    collected: EventCollector,
    open: Option<(u32, Segment)>,
    window: ReadWindow,
    /// Block of an archive that was read last.
    inflated: Option<(ArchiveBlock, Vec<u8>)>,
}

/// Result of reading one location.
enum ReadStep {
    /// Continue with this event.
    Next(Seq),
    Full,
    /// The index led to something else.
    Elsewhere,
}

impl<'a> JournalReader<'a> {
    pub(super) fn for_session(shared: &'a SharedJournal, session: SessionId) -> Result<JournalReader<'a>, StoreError> {
        let tail = shared.state().sessions.get(&session).ok_or(StoreError::NoSession(session))?.tail;
        let collected = EventCollector::up_to(ReadLimit { events: 0, bytes: 0 });
        Ok(JournalReader {
            shared,
            session,
            tail,
            collected,
            open: None,
            window: ReadWindow::default(),
            inflated: None,
        })
    }

    pub(super) fn read(&mut self, after: Seq, limit: ReadLimit) -> Result<Vec<StoredEvent>, StoreError> {
        self.collected = EventCollector::up_to(limit);
        let filled = self.fill(after);
        let events = self.collected.take_all();
        match filled {
            Err(StoreError::Damaged { .. }) if !events.is_empty() => Ok(events),
            Err(error) => Err(error),
            Ok(()) => Ok(events),
        }
    }

    fn fill(&mut self, after: Seq) -> Result<(), StoreError> {
        let mut seq = after.saturating_add(1);
        let (mut retried, mut rebuilt) = (None, None);
        while seq <= self.tail && !self.collected.is_full() {
            let locations = self.shared.locate(self.session, seq)?;
            let started_at = seq;
            let mut rest = &locations[..];
            while let [location, behind @ ..] = rest {
                if behind.first().is_some_and(|next| next.first <= seq) {
                    rest = behind;
                    continue;
                }
                match self.read_location(*location, seq)? {
                    ReadStep::Next(next) => seq = next,
                    ReadStep::Full => return Ok(()),
                    ReadStep::Elsewhere => break,
                }
                if seq > self.tail {
                    return Ok(());
                }
            }
            if seq == started_at {
                if !self.shared.state().sessions.contains_key(&self.session) {
                    return Err(StoreError::NoSession(self.session));
                }
                // The segment may have become an archive meanwhile. The index then leads only to
                // the start of its row.
                if self.open.take().is_some() && retried != Some(seq) {
                    retried = Some(seq);
                    continue;
                }
                // An index that leads nowhere is rebuilt once. If it still leads nowhere, the log
                // lacks the event.
                if rebuilt == Some(seq) {
                    return Err(self.damaged(seq, "the log lacks this event"));
                }
                self.shared.rebuild_index(&CatalogError::Mismatch)?;
                rebuilt = Some(seq);
            }
        }
        Ok(())
    }

    /// Takes the events of one location, from `seq` on.
    fn read_location(&mut self, location: EventLocation, seq: Seq) -> Result<ReadStep, StoreError> {
        let Some(at) = location.at else { return Err(self.damaged(seq, "the event was in a damaged part of the log")) };
        match self.open(at)? {
            // Every number up to the current segment existed, so a missing segment was lost. A
            // higher number is an error of the index.
            None if at.segment <= self.shared.state().end.segment => {
                Err(self.damaged(seq, &format!("segment {} of the log is missing", at.segment)))
            }
            None => Ok(ReadStep::Elsewhere),
            Some(Segment::Log(file)) => self.read_from_log(&file, at, seq),
            Some(Segment::Archive(archive)) => self.read_from_archive(&archive, at, seq),
        }
    }

    fn read_from_log(&mut self, file: &File, at: LogPosition, seq: Seq) -> Result<ReadStep, StoreError> {
        let offset = u64::from(at.offset);
        let header = match self.window.header(file, offset)? {
            Some(Ok(header)) if header.holds(self.session, seq) => header,
            Some(Ok(_)) => return Ok(ReadStep::Elsewhere),
            Some(Err(_)) | None => match scan::header_by_footer(file, offset)? {
                Some(header) if header.holds(self.session, seq) => header,
                Some(_) => return Ok(ReadStep::Elsewhere),
                None => return Err(self.damaged(seq, &describe(at, "the frame's header"))),
            },
        };
        let payload = self.window.payload(file, offset, &header)?;
        let taken = payload.map(|payload| self.collected.take(&header, payload, seq));
        taken.unwrap_or(Err(FrameDefect::Checksum)).map_err(|defect| self.damaged(seq, &describe(at, defect.part())))
    }

    fn read_from_archive(
        &mut self,
        archive: &SegmentArchive,
        at: LogPosition,
        seq: Seq,
    ) -> Result<ReadStep, StoreError> {
        let Some(block) = archive.find(self.session, seq) else { return Ok(ReadStep::Elsewhere) };
        if self.inflated.as_ref().is_none_or(|(inflated, _)| inflated != block) {
            self.inflated = archive.frames(block)?.map(|frames| (*block, frames));
        }
        let Some((_, frames)) = &self.inflated else {
            return Err(self.damaged(seq, &format!("a block in the archive of segment {} is damaged", at.segment)));
        };
        // A block holds the frames of one session in order, so the next frames need no lookup.
        let following = archive::split_frames(frames).skip_while(|(header, _)| !header.holds(self.session, seq));
        let mut next = None;
        for (header, payload) in following {
            let seq = next.unwrap_or(seq);
            if header.seq > seq || seq > self.tail {
                break;
            }
            if header.count == 0 {
                continue;
            }
            let sound = crc32fast::hash(payload) == header.crc;
            let taken = if sound { self.collected.take(&header, payload, seq) } else { Err(FrameDefect::Checksum) };
            match taken.map_err(|defect| self.damaged(seq, &describe(at, defect.part())))? {
                ReadStep::Next(behind) => next = Some(behind.max(seq)),
                step => return Ok(step),
            }
        }
        Ok(next.map_or(ReadStep::Elsewhere, ReadStep::Next))
    }

    /// Opens the segment of `at`. Returns `None` if it does not exist.
    fn open(&mut self, at: LogPosition) -> Result<Option<Segment>, StoreError> {
        if let Some((number, segment)) = &self.open
            && *number == at.segment
        {
            return Ok(Some(segment.clone()));
        }
        match self.shared.segments.open(at.segment) {
            Ok(segment) => {
                self.window.clear();
                self.inflated = None;
                self.open = Some((at.segment, segment.clone()));
                Ok(Some(segment))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, seq: Seq, detail: &str) -> StoreError {
        StoreError::Damaged { session: self.session, seq, detail: detail.to_owned() }
    }
}

/// Part of a frame that differs from what was written.
enum FrameDefect {
    Checksum,
    Format,
}

impl FrameDefect {
    fn part(&self) -> &'static str {
        match self {
            FrameDefect::Checksum => "the frame's checksum",
            FrameDefect::Format => "the frame's format",
        }
    }
}

/// Events that one read has collected.
///
/// Their text is in one buffer from the system, which returns there when the last event is dropped.
/// The events are created here and dropped on another thread. Separate allocations, or slices of
/// the block that was read, are worse. After a long replay, they left several times as much memory
/// behind as was ever in flight.
struct EventCollector {
    limit: ReadLimit,
    text: Vec<u8>,
    /// Number, kind, and end of the text.
    events: Vec<(Seq, Cow<'static, str>, usize)>,
}

impl EventCollector {
    fn up_to(limit: ReadLimit) -> EventCollector {
        EventCollector { limit, text: Vec::new(), events: Vec::new() }
    }

    fn is_full(&self) -> bool {
        !self.has_room_for(1)
    }

    fn has_room_for(&self, bytes: usize) -> bool {
        self.limit.admits(bytes, self.events.len(), self.text.len())
    }

    /// Takes the events of a frame, from `seq` on.
    fn take(&mut self, header: &FrameHeader, payload: &[u8], seq: Seq) -> Result<ReadStep, FrameDefect> {
        let mut payload = FramePayload::parse(payload).ok_or(FrameDefect::Checksum)?;
        for number in header.seq..header.seq + u64::from(header.count) {
            let (kind, json) = payload.next_event().ok_or(FrameDefect::Format)?;
            if number < seq {
                continue;
            }
            if !self.has_room_for(json.len()) {
                return Ok(ReadStep::Full);
            }
            if self.events.is_empty() {
                self.text.reserve(LARGE_BUFFER.max(json.len()));
            }
            self.text.extend(json);
            self.events.push((number, kind.to_owned().into(), self.text.len()));
        }
        Ok(ReadStep::Next(header.seq + u64::from(header.count)))
    }

    fn take_all(&mut self) -> Vec<StoredEvent> {
        let text = Bytes::from(std::mem::take(&mut self.text));
        let mut begins = 0;
        let event = |(seq, kind, ends)| {
            let json = text.slice(std::mem::replace(&mut begins, ends)..ends);
            (seq, JournalEvent { kind, json })
        };
        std::mem::take(&mut self.events).into_iter().map(event).collect()
    }
}

fn describe(at: LogPosition, part: &str) -> String {
    format!("{part} at byte {} of segment {} is wrong", at.offset, at.segment)
}
