//! Replay of the log: restores the sessions and the locations of their events.

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
use crate::store::{JournalUsage, Seq, SessionId, SessionRecord, UsageTotals, session_change::SessionEntry};

/// State after the frames that were applied so far.
#[derive(Debug, Default)]
pub(super) struct LogReplay {
    pub(super) sessions: HashMap<SessionId, SessionEntry>,
    pub(super) locations: EventLocations,
    /// Sessions of the applied frames.
    pub(super) touched: HashSet<SessionId>,
    /// Descriptions of what could not be read.
    pub(super) damage: Vec<String>,
    /// Descriptions of what was damaged but could be read.
    pub(super) recovered: Vec<String>,
    /// Descriptions of complete frames that are cut with the last commit.
    pub(super) cut_frames: Vec<String>,
    /// Ranges of missing events, first and last number.
    ///
    /// Missing events of sessions that are gone are not reported.
    lost: Vec<(SessionId, Seq, Seq)>,
    /// Newest record of each session as JSON. Parsed once, at the end.
    records: HashMap<SessionId, Vec<u8>>,
}

impl LogReplay {
    pub(super) fn new(sessions: HashMap<SessionId, SessionEntry>) -> LogReplay {
        LogReplay { sessions, ..LogReplay::default() }
    }

    /// Applies the log from `from` to its end, and returns that end.
    ///
    /// No byte before `from` counts as torn.
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

    /// Reports the missing segments.
    pub(super) fn report_missing_segments(&mut self, segments: &SegmentCache) -> Result<(), OpenError> {
        let mut next = 1;
        for number in numbers(segments)? {
            if number > next {
                self.damage.push(format!("segments {next} to {} are missing, with all their events", number - 1));
            }
            next = number.saturating_add(1);
        }
        Ok(())
    }

    /// Reports each session's newest events if the log ends before `end`, the end of the index.
    ///
    /// The numbers of these events stay given. Their locations lead to what is lost. Returns the
    /// sessions whose present state the log no longer holds.
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
            ScanError::Newer => OpenError::Newer { path: segments.path(from.segment) },
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
                self.damage.push(format!("segment {segment}: bytes {offset} to {until}; their sessions are unknown"));
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
        let restarts = match header.kind {
            FrameKind::Create => self.sessions.contains_key(&session),
            FrameKind::Forget => true,
            FrameKind::Put | FrameKind::Claim | FrameKind::Append => false,
        };
        if restarts {
            self.sessions.remove(&session);
            self.records.remove(&session);
            self.locations.forget(session);
            self.lost.retain(|(of, ..)| *of != session);
        }
        if header.kind == FrameKind::Forget {
            return;
        }
        let entry = self.sessions.entry(session).or_insert_with(|| SessionEntry::new(lost_record(session).into()));
        entry.epoch = entry.epoch.max(header.epoch);
        // A frame without events also states the next number, so the numbers before it were given.
        if header.seq > entry.tail + 1 {
            self.lost.push((session, entry.tail + 1, header.seq - 1));
            self.locations.add(session, EventLocation { first: entry.tail + 1, at: None });
            entry.tail = header.seq - 1;
        }
        // The disk did not return the old events when their numbers were given again, and returns
        // them now. The events acknowledged last count. A session from the index may be ahead of
        // the start of this replay. It has no such locations here.
        if header.count > 0 && header.seq <= entry.tail && self.locations.truncate_from(session, header.seq) {
            self.damage.push(format!(
                "{}, whose numbers were given again later",
                describe_events(session, header.seq, entry.tail)
            ));
        }
        if header.count > 0 {
            let location = EventLocation { first: header.seq, at: Some(at) };
            match is_archive {
                true => self.locations.add_archived(session, location),
                false => self.locations.add(session, location),
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
                (Err(error), _) => self.damage.push(format!("session `{session}`: its record cannot be read: {error}")),
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

/// Returns the end of segment `number`: from the next segment's header, or else the file's length.
fn segment_end(segments: &SegmentCache, number: u32, next: u32) -> Result<ScanUntil, OpenError> {
    let header_read = segments.open(next).and_then(|segment| segment.header());
    match header_read.map_err(|source| segments.open_error(next, source))? {
        Ok(header_read) if header_read.number == number + 1 => Ok(ScanUntil::Offset(header_read.previous_end)),
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

/// Returns a replacement for an unreadable record, so the session's events can still be read.
fn lost_record(id: SessionId) -> SessionRecord {
    SessionRecord {
        id,
        title: String::new(),
        state: AgentState::Stopped,
        reason: Some("the session's record was damaged; its events are still readable".to_owned()),
        agent: String::new(),
        model: String::new(),
        effort: None,
        mode: None,
        analyzer: None,
        image: None,
        sandbox: String::new(),
        sandbox_uid: None,
        directory: None,
        created_at: String::new(),
        updated_at: String::new(),
        usage: UsageTotals::default(),
        budget_usd: None,
        spent_on: None,
        reported_budget_usd: None,
        journal_usage: JournalUsage::default(),
        latest: None,
        parent: None,
        repository: None,
        further_models: Vec::new(),
        archived: false,
        idempotency_key: None,
        actor_state: crate::store::OpaqueState::default(),
    }
}
