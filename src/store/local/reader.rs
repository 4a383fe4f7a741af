//! Reads a session's events from the log.

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

/// The events after `after`; stops before the first that cannot be read, which is an error only where it is the first.
pub(super) fn read(
    shared: &SharedJournal,
    session: SessionId,
    after: Seq,
    limit: ReadLimit,
) -> Result<Vec<StoredEvent>, StoreError> {
    JournalReader::for_session(shared, session)?.read(after, limit)
}

/// Reads on in what it has open already.
pub(super) struct JournalReader<'a> {
    shared: &'a SharedJournal,
    session: SessionId,
    tail: Seq,
    collected: EventCollector,
    open: Option<(u32, Segment)>,
    window: ReadWindow,
    /// The block of an archive that was read last.
    inflated: Option<(ArchiveBlock, Vec<u8>)>,
}

/// What came of reading one frame.
enum ReadStep {
    /// Go on with this event.
    Next(Seq),
    Full,
    /// The index led to something else.
    Elsewhere,
}

impl<'a> JournalReader<'a> {
    pub(super) fn for_session(shared: &'a SharedJournal, session: SessionId) -> Result<JournalReader<'a>, StoreError> {
        let tail = shared.state().sessions.get(&session).ok_or(StoreError::NoSession(session))?.tail;
        let gathered = EventCollector::up_to(ReadLimit { events: 0, bytes: 0 });
        Ok(JournalReader {
            shared,
            session,
            tail,
            collected: gathered,
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
        let (mut missed, mut distrusted) = (None, None);
        while seq <= self.tail && !self.collected.is_full() {
            let places = self.shared.locate(self.session, seq)?;
            let begun_at = seq;
            let mut rest = &places[..];
            while let [place, behind @ ..] = rest {
                if behind.first().is_some_and(|next| next.first <= seq) {
                    rest = behind;
                    continue;
                }
                match self.read_location(*place, seq)? {
                    ReadStep::Next(next) => seq = next,
                    ReadStep::Full => return Ok(()),
                    ReadStep::Elsewhere => break,
                }
                if seq > self.tail {
                    return Ok(());
                }
            }
            if seq == begun_at {
                if !self.shared.state().sessions.contains_key(&self.session) {
                    return Err(StoreError::NoSession(self.session));
                }
                // Meanwhile the segment may have become an archive, of which the index leads to the start only.
                if self.open.take().is_some() && missed != Some(seq) {
                    missed = Some(seq);
                    continue;
                }
                // An index that leads nowhere is read anew once; if it still does, the log itself lacks the event.
                if distrusted == Some(seq) {
                    return Err(self.damaged(seq, "the log lacks it"));
                }
                self.shared.rebuild_index(&CatalogError::Mismatch)?;
                distrusted = Some(seq);
            }
        }
        Ok(())
    }

    /// Takes the events from `seq` on that stand in one frame.
    fn read_location(&mut self, place: EventLocation, seq: Seq) -> Result<ReadStep, StoreError> {
        let Some(at) = place.at else { return Err(self.damaged(seq, "a damaged part of the log held it")) };
        match self.open(at)? {
            // There was one of each number: what is gone, the log lost. A number beyond all of them only the index can have made up.
            None if at.segment <= self.shared.state().end.segment => {
                Err(self.damaged(seq, &format!("segment {} of the log is gone", at.segment)))
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
                None => return Err(self.damaged(seq, &describe(at, "the header"))),
            },
        };
        let payload = self.window.payload(file, offset, &header)?;
        let taken = payload.map(|payload| self.collected.take(&header, payload, seq));
        taken.unwrap_or(Err(FrameDefect::Checksum)).map_err(|unsound| self.damaged(seq, &describe(at, unsound.part())))
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
            return Err(self.damaged(seq, &format!("a block of the archive of segment {} does not hold", at.segment)));
        };
        // A block has the frames of one session in their order, so those behind are told without a look at their places.
        let frames_on = archive::split_frames(frames).skip_while(|(header, _)| !header.holds(self.session, seq));
        let mut next = None;
        for (header, payload) in frames_on {
            let seq = next.unwrap_or(seq);
            if header.seq > seq || seq > self.tail {
                break;
            }
            if header.count == 0 {
                continue;
            }
            let sound = crc32fast::hash(payload) == header.crc;
            let taken = if sound { self.collected.take(&header, payload, seq) } else { Err(FrameDefect::Checksum) };
            match taken.map_err(|unsound| self.damaged(seq, &describe(at, unsound.part())))? {
                ReadStep::Next(behind) => next = Some(behind.max(seq)),
                step => return Ok(step),
            }
        }
        Ok(next.map_or(ReadStep::Elsewhere, ReadStep::Next))
    }

    /// `None` where there is no such segment.
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

/// What of a frame is not as it was written.
enum FrameDefect {
    Checksum,
    Format,
}

impl FrameDefect {
    fn part(&self) -> &'static str {
        match self {
            FrameDefect::Checksum => "the checksum",
            FrameDefect::Format => "the format",
        }
    }
}

/// Events on their way out.
///
/// Their text stands in one buffer from the system, to which it goes back when the last of them is told. They are made here and
/// dropped on another thread: where each was a block of its own, or shared what it was read from, a long replay left several times
/// as much behind as was ever on its way.
struct EventCollector {
    limit: ReadLimit,
    text: Vec<u8>,
    /// Number, kind, and where its text ends.
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

fn describe(at: LogPosition, what: &str) -> String {
    format!("{what} at byte {} of segment {} does not hold", at.offset, at.segment)
}
