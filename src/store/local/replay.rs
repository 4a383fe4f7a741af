//! Turns the log back into what it says: sessions, and where their events stand.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    path::PathBuf,
    sync::Arc,
};

use greenroom_protocol::observation::State;

use super::{
    OpenError,
    frame::{Header, Kind, NoHeader, Payload},
    places::{Place, Places},
    scan::{Found, ScanError, Until, scan},
    segment::{self, FileKind, PREFACE, Position, Segment, Segments},
};
use crate::store::{Record, Seq, SessionId, Totals, ledger::Entry};

/// What is known after the frames that were applied so far.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) sessions: HashMap<SessionId, Entry>,
    pub(super) places: Places,
    /// Whom the applied frames were about.
    pub(super) touched: HashSet<SessionId>,
    /// What could not be read, in words.
    pub(super) damage: Vec<String>,
    /// What was damaged and could be read all the same, in words.
    pub(super) mended: Vec<String>,
    /// What of the last commit goes though it is there, in words.
    pub(super) cut: Vec<String>,
    /// Events of which there is nothing, from one to another. Those of sessions that are gone are not missed.
    lost: Vec<(SessionId, Seq, Seq)>,
    /// The newest record of each session as it stands in the log: parsed once, at the end.
    records: HashMap<SessionId, Vec<u8>>,
}

impl Replay {
    pub(super) fn new(sessions: HashMap<SessionId, Entry>) -> Replay {
        Replay { sessions, ..Replay::default() }
    }

    /// Applies the log from `from` to its end, and returns that end. Nothing before `from` counts as torn.
    pub(super) fn rest(&mut self, segments: &Segments, from: Position) -> Result<Position, OpenError> {
        let numbers: Vec<u32> = numbers(segments)?.range(from.segment..).copied().collect();
        let mut end = from;
        for (index, number) in numbers.iter().enumerate() {
            let start = if *number == from.segment { from.offset } else { PREFACE as u32 };
            let until = match numbers.get(index + 1) {
                Some(next) => end_of(segments, *number, *next)?,
                None if *number == from.segment => Until::TornTail { synced: u64::from(from.offset) },
                None => Until::TornTail { synced: 0 },
            };
            end = self.segment(segments, Position { segment: *number, offset: start }, until)?;
        }
        self.finish();
        Ok(end)
    }

    /// Applies the log from its start up to `end`.
    pub(super) fn up_to(&mut self, segments: &Segments, end: Position) -> Result<(), OpenError> {
        let numbers: Vec<u32> = numbers(segments)?.range(..=end.segment).copied().collect();
        for (index, number) in numbers.iter().enumerate() {
            let until = match numbers.get(index + 1) {
                Some(next) => end_of(segments, *number, *next)?,
                None => Until::Here(u64::from(end.offset)),
            };
            self.segment(segments, Position { segment: *number, offset: PREFACE as u32 }, until)?;
        }
        self.finish();
        Ok(())
    }

    /// Names the segments that are gone.
    pub(super) fn name_missing(&mut self, segments: &Segments) -> Result<(), OpenError> {
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
    pub(super) fn name_lost(&mut self, segments: &Segments, end: Position) -> Result<Vec<SessionId>, OpenError> {
        let mut left = Replay::default();
        left.up_to(segments, end)?;
        let mut behind = Vec::new();
        for (session, entry) in &self.sessions {
            let left = left.sessions.get(session);
            let tail = left.map_or(0, |left| left.tail);
            if tail < entry.tail {
                self.damage.push(of_session(*session, tail + 1, entry.tail));
            }
            if left.is_none_or(|left| left.tail < entry.tail || left.epoch < entry.epoch || left.record != entry.record)
            {
                behind.push(*session);
            }
        }
        Ok(behind)
    }

    fn segment(&mut self, segments: &Segments, from: Position, until: Until) -> Result<Position, OpenError> {
        let segment = segments.open(from.segment).map_err(|source| segments.failed(from.segment, source))?;
        let is_archive = matches!(segment, Segment::Archive(_));
        let mut apply = |found: Found<'_>| self.apply(from.segment, is_archive, found);
        let end = match &segment {
            Segment::Log(file) => scan(file, u64::from(from.offset), until, &mut apply),
            Segment::Archive(archive) => archive.scan(&mut apply).map(|()| 0).map_err(ScanError::Io),
        };
        let end = end.map_err(|error| match error {
            ScanError::Newer { .. } => OpenError::Newer { path: segments.path(from.segment) },
            ScanError::Io(source) => segments.failed(from.segment, source),
        })?;
        let offset = u32::try_from(end).map_err(|error| segments.failed(from.segment, io::Error::other(error)))?;
        Ok(Position { segment: from.segment, offset })
    }

    fn apply(&mut self, segment: u32, is_archive: bool, found: Found<'_>) {
        let at = |offset| Position { segment, offset: u32::try_from(offset).unwrap_or(u32::MAX) };
        match found {
            Found::Frame { offset, header, payload } => self.frame(at(offset), is_archive, &header, Some(payload)),
            Found::Mended { offset, header } => {
                self.mended.push(format!("{} (segment {segment}, byte {offset})", words(&header)));
            }
            Found::Damaged { offset, header } => {
                self.damage.push(format!("{} (segment {segment}, byte {offset})", words(&header)));
                self.frame(at(offset), is_archive, &header, None);
            }
            Found::Unreadable { offset, until } => {
                self.damage
                    .push(format!("segment {segment}: bytes {offset} to {until}, of which sessions is not known"));
            }
            Found::Cut { header } => self.cut.push(words(&header)),
        }
    }

    fn frame(&mut self, at: Position, is_archive: bool, header: &Header, payload: Option<Payload<'_>>) {
        let session = header.session;
        self.touched.insert(session);
        let begins_anew = match header.kind {
            Kind::Create => self.sessions.contains_key(&session),
            Kind::Forget => true,
            Kind::Put | Kind::Claim | Kind::Append => false,
        };
        if begins_anew {
            self.sessions.remove(&session);
            self.records.remove(&session);
            self.places.forget(session);
            self.lost.retain(|(of, ..)| *of != session);
        }
        if header.kind == Kind::Forget {
            return;
        }
        let entry = self.sessions.entry(session).or_insert_with(|| Entry::new(lost_record(session)));
        entry.epoch = entry.epoch.max(header.epoch);
        // Also a frame without events says which number comes next, so those before it were given.
        if header.seq > entry.tail + 1 {
            self.lost.push((session, entry.tail + 1, header.seq - 1));
            self.places.add(session, Place { first: entry.tail + 1, at: None });
            entry.tail = header.seq - 1;
        }
        // The disk did not give what stood there when these numbers were given anew, and gives it again: what was acknowledged last
        // counts. (A session of the index may be ahead of where this begins: it has no such places here.)
        if header.count > 0 && header.seq <= entry.tail && self.places.cut(session, header.seq) {
            self.damage.push(format!("{}, which were given anew later", of_session(session, header.seq, entry.tail)));
        }
        if header.count > 0 {
            let place = Place { first: header.seq, at: Some(at) };
            match is_archive {
                true => self.places.add_archived(session, place),
                false => self.places.add(session, place),
            }
            entry.tail = header.seq + u64::from(header.count) - 1;
        }
        let Some(Payload { mark, record, .. }) = payload else { return };
        entry.mark = mark.or_else(|| entry.mark.take());
        if let Some(record) = record {
            entry.revision += u64::from(header.kind != Kind::Create);
            self.records.insert(session, record.to_vec());
        }
    }

    fn finish(&mut self) {
        let lost = std::mem::take(&mut self.lost).into_iter();
        self.damage.extend(lost.map(|(session, first, last)| of_session(session, first, last)));
        for (session, json) in std::mem::take(&mut self.records) {
            match (serde_json::from_slice::<Record>(&json), self.sessions.get_mut(&session)) {
                (Ok(record), Some(entry)) => entry.record = Arc::new(record),
                (Err(error), _) => self.damage.push(format!("session `{session}`: its record: {error}")),
                (Ok(_), None) => {}
            }
        }
    }
}

fn words(Header { session, seq, count, .. }: &Header) -> String {
    match count {
        0 => format!("session `{session}`: a change of its record"),
        _ => of_session(*session, *seq, seq + u64::from(*count) - 1),
    }
}

fn of_session(session: SessionId, first: Seq, last: Seq) -> String {
    match first == last {
        true => format!("session `{session}`: event {first}"),
        false => format!("session `{session}`: events {first} to {last}"),
    }
}

fn numbers(segments: &Segments) -> Result<BTreeSet<u32>, OpenError> {
    segments.numbers().map_err(|source| OpenError::Io { path: segments.dir().to_owned(), source })
}

/// Where segment `number` ends: the next one says it, or where that cannot be read, the file's length does.
fn end_of(segments: &Segments, number: u32, next: u32) -> Result<Until, OpenError> {
    let preface = segments.open(next).and_then(|segment| segment.preface());
    match preface.map_err(|source| segments.failed(next, source))? {
        Ok(preface) if preface.number == number + 1 => Ok(Until::Here(preface.previous_end)),
        Ok(_) | Err(NoHeader::Damaged) => Ok(Until::FileEnd),
        Err(NoHeader::Newer) => Err(OpenError::Newer { path: segments.path(next) }),
    }
}

impl Segments {
    fn path(&self, number: u32) -> PathBuf {
        segment::path(self.dir(), number, FileKind::Log)
    }

    fn failed(&self, number: u32, source: io::Error) -> OpenError {
        OpenError::Io { path: self.path(number), source }
    }
}

/// Stands in for a record that can no longer be read, so that the session's events still can.
fn lost_record(id: SessionId) -> Record {
    Record {
        id,
        title: String::new(),
        state: State::Stopped,
        reason: Some("its record was damaged; its events are there".to_owned()),
        agent: String::new(),
        model: String::new(),
        image: None,
        sandbox: String::new(),
        directory: None,
        created_at: String::new(),
        updated_at: String::new(),
        usage: Totals::default(),
        budget_usd: None,
        archived: false,
        key: None,
        core: crate::store::Memory::default(),
    }
}
