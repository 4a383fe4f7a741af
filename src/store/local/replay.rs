//! Turns the log back into what it says: sessions, and where their events stand.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
};

use greenroom_protocol::observation::AgentState;

use super::{
    OpenError,
    event_locations::{EventLocation, EventLocations},
    frame::{FrameHeader, FrameKind, FramePayload, HeaderError},
    scan::{ScanError, ScanItem, ScanUntil, scan},
    segment::{self, LogPosition, SEGMENT_HEADER_LEN, Segment, SegmentCache, SegmentFileKind},
};
use crate::store::{Seq, SessionId, SessionRecord, UsageTotals, session_change::SessionEntry};

/// What is known after the frames that were applied so far.
#[derive(Debug, Default)]
pub(super) struct LogReplay {
    pub(super) sessions: HashMap<SessionId, SessionEntry>,
    pub(super) locations: EventLocations,
    /// Whom the applied frames were about.
    pub(super) touched: HashSet<SessionId>,
    /// What could not be read, in words.
    pub(super) damage: Vec<String>,
    /// What was damaged and could be read all the same, in words.
    pub(super) recovered: Vec<String>,
    /// What of the last commit goes though it is there, in words.
    pub(super) cut_frames: Vec<String>,
    /// Events of which there is nothing, from one to another. Those of sessions that are gone are not missed.
    lost: Vec<(SessionId, Seq, Seq)>,
    /// The newest record of each session as it stands in the log: parsed once, at the end.
    records: HashMap<SessionId, Vec<u8>>,
}

impl LogReplay {
    pub(super) fn new(sessions: HashMap<SessionId, SessionEntry>) -> LogReplay {
        LogReplay { sessions, ..LogReplay::default() }
    }

    /// Applies the log from `from` to its end, and returns that end. Nothing before `from` counts as torn.
    pub(super) fn replay_from(&mut self, segments: &SegmentCache, from: LogPosition) -> Result<LogPosition, OpenError> {
        let numbers: Vec<u32> = numbers(segments)?.range(from.segment..).copied().collect();
        let mut end = from;
        for (index, number) in numbers.iter().enumerate() {
            let start = if *number == from.segment { from.offset } else { SEGMENT_HEADER_LEN as u32 };
            let until = match numbers.get(index + 1) {
                Some(next) => segment_end(segments, *number, *next)?,
                None if *number == from.segment => ScanUntil::TornTail { synced: u64::from(from.offset) },
                None => ScanUntil::TornTail { synced: 0 },
            };
            end = self.replay_segment(segments, LogPosition { segment: *number, offset: start }, until)?;
        }
        self.finish();
        Ok(end)
    }

    /// Applies the log from its start up to `end`.
    pub(super) fn replay_up_to(&mut self, segments: &SegmentCache, end: LogPosition) -> Result<(), OpenError> {
        let numbers: Vec<u32> = numbers(segments)?.range(..=end.segment).copied().collect();
        for (index, number) in numbers.iter().enumerate() {
            let until = match numbers.get(index + 1) {
                Some(next) => segment_end(segments, *number, *next)?,
                None => ScanUntil::Offset(u64::from(end.offset)),
            };
            self.replay_segment(segments, LogPosition { segment: *number, offset: SEGMENT_HEADER_LEN as u32 }, until)?;
        }
        self.finish();
        Ok(())
    }

    /// Names the segments that are gone.
    pub(super) fn report_missing_segments(&mut self, segments: &SegmentCache) -> Result<(), OpenError> {
        let mut next = 1;
        for number in numbers(segments)? {
            if number > next {
                self.damage.push(format!("segments {next} to {} are gone, with all that stood in them", number - 1));
            }
            next = number.saturating_add(1);
        }
        Ok(())
    }

    /// Names the newest events of each session, where the log ends before `end`, up to which its sessions are known. They stay
    /// given: their places lead to what is lost. Returns of which sessions the log does not say any more how they stand.
    pub(super) fn report_lost_events(
        &mut self,
        segments: &SegmentCache,
        end: LogPosition,
    ) -> Result<Vec<SessionId>, OpenError> {
        let mut left = LogReplay::default();
        left.replay_up_to(segments, end)?;
        let mut behind = Vec::new();
        for (session, entry) in &self.sessions {
            let left = left.sessions.get(session);
            let tail = left.map_or(0, |left| left.tail);
            if tail < entry.tail {
                self.damage.push(describe_events(*session, tail + 1, entry.tail));
            }
            if left.is_none_or(|left| left.tail < entry.tail || left.epoch < entry.epoch || left.record != entry.record)
            {
                behind.push(*session);
            }
        }
        Ok(behind)
    }

    fn replay_segment(
        &mut self,
        segments: &SegmentCache,
        from: LogPosition,
        until: ScanUntil,
    ) -> Result<LogPosition, OpenError> {
        let segment = segments.open(from.segment).map_err(|source| segments.open_error(from.segment, source))?;
        let is_archive = matches!(segment, Segment::Archive(_));
        let mut apply = |found: ScanItem<'_>| self.apply(from.segment, is_archive, found);
        let end = match &segment {
            Segment::Log(file) => scan(file, u64::from(from.offset), until, &mut apply),
            Segment::Archive(archive) => archive.scan(&mut apply).map(|()| 0).map_err(ScanError::Io),
        };
        let end = end.map_err(|error| match error {
            ScanError::Newer { .. } => OpenError::Newer { path: segments.path(from.segment) },
            ScanError::Io(source) => segments.open_error(from.segment, source),
        })?;
        let offset = u32::try_from(end).map_err(|error| segments.open_error(from.segment, io::Error::other(error)))?;
        Ok(LogPosition { segment: from.segment, offset })
    }

    fn apply(&mut self, segment: u32, is_archive: bool, found: ScanItem<'_>) {
        let at = |offset| LogPosition { segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) };
        match found {
            ScanItem::Frame { offset, header, payload } => {
                self.apply_frame(at(offset), is_archive, &header, Some(payload))
            }
            ScanItem::RecoveredHeader { offset, header } => {
                self.recovered.push(format!("{} (segment {segment}, byte {offset})", describe_frame(&header)));
            }
            ScanItem::Damaged { offset, header } => {
                self.damage.push(format!("{} (segment {segment}, byte {offset})", describe_frame(&header)));
                self.apply_frame(at(offset), is_archive, &header, None);
            }
            ScanItem::Unreadable { offset, until } => {
                self.damage
                    .push(format!("segment {segment}: bytes {offset} to {until}, of which sessions is not known"));
            }
            ScanItem::Cut { header } => self.cut_frames.push(describe_frame(&header)),
        }
    }

    fn apply_frame(
        &mut self,
        at: LogPosition,
        is_archive: bool,
        header: &FrameHeader,
        payload: Option<FramePayload<'_>>,
    ) {
        let session = header.session;
        self.touched.insert(session);
        let begins_anew = match header.kind {
            FrameKind::Create => self.sessions.contains_key(&session),
            FrameKind::Forget => true,
            FrameKind::Put | FrameKind::Claim | FrameKind::Append => false,
        };
        if begins_anew {
            self.sessions.remove(&session);
            self.records.remove(&session);
            self.locations.forget(session);
            self.lost.retain(|(of, ..)| *of != session);
        }
        if header.kind == FrameKind::Forget {
            return;
        }
        let entry = self.sessions.entry(session).or_insert_with(|| SessionEntry::new(lost_record(session)));
        entry.epoch = entry.epoch.max(header.epoch);
        // Also a frame without events says which number comes next, so those before it were given.
        if header.seq > entry.tail + 1 {
            self.lost.push((session, entry.tail + 1, header.seq - 1));
            self.locations.add(session, EventLocation { first: entry.tail + 1, at: None });
            entry.tail = header.seq - 1;
        }
        // The disk did not give what stood there when these numbers were given anew, and gives it again: what was acknowledged last
        // counts. (A session of the index may be ahead of where this begins: it has no such places here.)
        if header.count > 0 && header.seq <= entry.tail && self.locations.truncate_from(session, header.seq) {
            self.damage
                .push(format!("{}, which were given anew later", describe_events(session, header.seq, entry.tail)));
        }
        if header.count > 0 {
            let place = EventLocation { first: header.seq, at: Some(at) };
            match is_archive {
                true => self.locations.add_archived(session, place),
                false => self.locations.add(session, place),
            }
            entry.tail = header.seq + u64::from(header.count) - 1;
        }
        let Some(FramePayload { mark, record, .. }) = payload else { return };
        entry.mark = mark.or_else(|| entry.mark.take());
        if let Some(record) = record {
            entry.revision += u64::from(header.kind != FrameKind::Create);
            self.records.insert(session, record.to_vec());
        }
    }

    fn finish(&mut self) {
        let lost = std::mem::take(&mut self.lost).into_iter();
        self.damage.extend(lost.map(|(session, first, last)| describe_events(session, first, last)));
        for (session, json) in std::mem::take(&mut self.records) {
            match (serde_json::from_slice::<SessionRecord>(&json), self.sessions.get_mut(&session)) {
                (Ok(record), Some(entry)) => entry.record = Arc::new(record),
                (Err(error), _) => self.damage.push(format!("session `{session}`: its record: {error}")),
                (Ok(_), None) => {}
            }
        }
    }
}

fn describe_frame(FrameHeader { session, seq, count, .. }: &FrameHeader) -> String {
    match count {
        0 => format!("session `{session}`: a change of its record"),
        _ => describe_events(*session, *seq, seq + u64::from(*count) - 1),
    }
}

fn describe_events(session: SessionId, first: Seq, last: Seq) -> String {
    match first == last {
        true => format!("session `{session}`: event {first}"),
        false => format!("session `{session}`: events {first} to {last}"),
    }
}

fn numbers(segments: &SegmentCache) -> Result<BTreeSet<u32>, OpenError> {
    segments.numbers().map_err(|source| OpenError::Io { path: segments.dir().to_owned(), source })
}

/// Where segment `number` ends: the next one says it, or where that cannot be read, the file's length does.
fn segment_end(segments: &SegmentCache, number: u32, next: u32) -> Result<ScanUntil, OpenError> {
    let preface = segments.open(next).and_then(|segment| segment.header());
    match preface.map_err(|source| segments.open_error(next, source))? {
        Ok(preface) if preface.number == number + 1 => Ok(ScanUntil::Offset(preface.previous_end)),
        Ok(_) | Err(HeaderError::Damaged) => Ok(ScanUntil::FileEnd),
        Err(HeaderError::Newer) => Err(OpenError::Newer { path: segments.path(next) }),
    }
}

impl SegmentCache {
    fn path(&self, number: u32) -> PathBuf {
        segment::path(self.dir(), number, SegmentFileKind::Log)
    }

    fn open_error(&self, number: u32, source: io::Error) -> OpenError {
        OpenError::Io { path: self.path(number), source }
    }
}

/// Stands in for a record that can no longer be read, so that the session's events still can.
fn lost_record(id: SessionId) -> SessionRecord {
    SessionRecord {
        id,
        title: String::new(),
        state: AgentState::Stopped,
        reason: Some("its record was damaged; its events are there".to_owned()),
        agent: String::new(),
        model: String::new(),
        image: None,
        sandbox: String::new(),
        directory: None,
        created_at: String::new(),
        updated_at: String::new(),
        usage: UsageTotals::default(),
        budget_usd: None,
        archived: false,
        idempotency_key: None,
        actor_state: crate::store::OpaqueState::default(),
    }
}
