//! Where each session's events stand in the log, for what the index on disk does not hold yet.

use std::collections::{HashMap, HashSet};

use super::segment::LogPosition;
use crate::store::{Seq, SessionId};

/// A frame, or in an archive a row of them, and the first event in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventLocation {
    pub(super) first: Seq,
    /// `None` where the log lost these events.
    pub(super) at: Option<LogPosition>,
}

impl EventLocation {
    /// Whether it stands in the same segment as the one `before` it. An archive finds what comes behind the first by itself.
    pub(super) fn continues_row(&self, before: Option<EventLocation>, segment: u32) -> bool {
        let stands_there = |place: &EventLocation| place.at.is_some_and(|at| at.segment == segment);
        stands_there(self) && before.is_some_and(|before| stands_there(&before))
    }
}

/// The places of many sessions, each session's in the order of its events.
#[derive(Debug, Default)]
pub(super) struct EventLocations {
    pub(super) by_session: HashMap<SessionId, Vec<EventLocation>>,
    /// What older places say about these sessions no longer holds.
    pub(super) forgotten: HashSet<SessionId>,
    count: usize,
}

/// What one level of the index knows about an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IndexLookup {
    /// From the one that holds it onwards.
    Found(Vec<EventLocation>),
    /// Ask the level below.
    Below,
    /// No level below has it.
    Absent,
}

/// How many places are handed out, or kept under one key, at once.
pub(super) const LOCATIONS_PER_BLOCK: usize = 128;

impl EventLocations {
    pub(super) fn add(&mut self, session: SessionId, place: EventLocation) {
        self.by_session.entry(session).or_default().push(place);
        self.count += 1;
    }

    /// As [`Places::add`], for a frame in an archive: only the first of a row of them.
    pub(super) fn add_archived(&mut self, session: SessionId, place: EventLocation) {
        let before = self.by_session.get(&session).and_then(|places| places.last().copied());
        if !place.at.is_some_and(|at| place.continues_row(before, at.segment)) {
            self.add(session, place);
        }
    }

    /// Forgets where each frame of a session stands in `segment`, but the first of each row of them.
    pub(super) fn drop_archived(&mut self, segment: u32, session: SessionId) {
        let Some(places) = self.by_session.get_mut(&session) else { return };
        let (had, mut before) = (places.len(), None);
        places.retain(|place| !place.continues_row(before.replace(*place), segment));
        places.shrink_to_fit();
        self.count -= had - places.len();
    }

    /// Forgets where the events of a session stand from `seq` on. Whether there were any.
    pub(super) fn truncate_from(&mut self, session: SessionId, seq: Seq) -> bool {
        let Some(places) = self.by_session.get_mut(&session) else { return false };
        let had = places.len();
        places.truncate(places.partition_point(|place| place.first < seq));
        self.count -= had - places.len();
        had > places.len()
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.count -= self.by_session.remove(&session).map_or(0, |places| places.len());
        self.forgotten.insert(session);
    }

    pub(super) fn lookup(&self, session: SessionId, seq: Seq) -> IndexLookup {
        match self.by_session.get(&session).and_then(|places| locations_from(places, seq)) {
            Some(found) => IndexLookup::Found(found.to_vec()),
            None if self.forgotten.contains(&session) => IndexLookup::Absent,
            None => IndexLookup::Below,
        }
    }

    /// Puts what is `newer` on top.
    pub(super) fn merge_newer(&mut self, newer: EventLocations) {
        for session in newer.forgotten {
            self.forget(session);
        }
        for (session, places) in newer.by_session {
            self.count += places.len();
            self.by_session.entry(session).or_default().extend(places);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// The place that holds `seq` and those after it; `None` where all begin later.
pub(super) fn locations_from(places: &[EventLocation], seq: Seq) -> Option<&[EventLocation]> {
    let at = places.partition_point(|place| place.first <= seq).checked_sub(1)?;
    Some(&places[at..places.len().min(at + LOCATIONS_PER_BLOCK)])
}

/// Places as they stand in the index: of each number what it is more than the one before, in groups of seven bits (LEB128). A
/// place takes some four bytes, and a million of them are looked up when a long session is told.
pub(super) fn encode(places: &[EventLocation]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(places.len() * 5);
    let mut before = [0; 3];
    for place in places {
        let number = numbers(place);
        for more in difference(before, number) {
            put(&mut bytes, more);
        }
        before = number;
    }
    bytes
}

/// What [`encode`] wrote; ends where that does not go on.
pub(super) fn decode(mut bytes: &[u8]) -> Vec<EventLocation> {
    let mut places = Vec::new();
    let mut before = [0; 3];
    while let (Some(first), Some(segment), Some(offset)) = (get(&mut bytes), get(&mut bytes), get(&mut bytes)) {
        let number = sum(before, [first, segment, offset]);
        let (Ok(segment), Ok(offset)) = (u32::try_from(number[1]), u32::try_from(number[2])) else { break };
        places.push(EventLocation { first: number[0], at: (segment > 0).then_some(LogPosition { segment, offset }) });
        before = number;
    }
    places
}

/// Segments count from 1, so 0 can stand for "lost".
fn numbers(place: &EventLocation) -> [u64; 3] {
    let (segment, offset) = place.at.map_or((0, 0), |at| (at.segment, at.offset));
    [place.first, segment.into(), offset.into()]
}

/// In another segment, offsets begin anew.
fn difference([first, segment, offset]: [u64; 3], to: [u64; 3]) -> [u64; 3] {
    let base = if segment == to[1] { offset } else { 0 };
    [to[0].wrapping_sub(first), to[1].wrapping_sub(segment), to[2].wrapping_sub(base)]
}

fn sum([first, segment, offset]: [u64; 3], more: [u64; 3]) -> [u64; 3] {
    let base = if more[1] == 0 { offset } else { 0 };
    [first.wrapping_add(more[0]), segment.wrapping_add(more[1]), base.wrapping_add(more[2])]
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn get(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_place() -> impl Strategy<Value = EventLocation> {
        let at = prop::option::of((1..=u32::MAX, any::<u32>()));
        let at = prop_oneof![at, prop::option::of((1..3u32, 0..100_000u32))];
        (any::<u64>(), at).prop_map(|(first, at)| EventLocation {
            first,
            at: at.map(|(segment, offset)| LogPosition { segment, offset }),
        })
    }

    proptest! {
        #[test]
        fn places_come_back(places in prop::collection::vec(any_place(), 0..LOCATIONS_PER_BLOCK)) {
            prop_assert_eq!(decode(&encode(&places)), places);
        }

        #[test]
        fn garbage_is_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(decode(&bytes).len() <= bytes.len() / 3);
        }
    }

    #[test]
    fn a_place_takes_a_few_bytes() {
        let frame = |n: u64| EventLocation {
            first: 1_000_000 + n,
            at: Some(LogPosition { segment: 9, offset: 400 * n as u32 }),
        };
        let places: Vec<EventLocation> = (0..LOCATIONS_PER_BLOCK as u64).map(frame).collect();
        assert!(encode(&places).len() <= LOCATIONS_PER_BLOCK * 4 + 8);
    }

    fn place(first: Seq) -> EventLocation {
        EventLocation { first, at: Some(LogPosition { segment: 1, offset: first as u32 * 10 }) }
    }

    #[test]
    fn a_lookup_begins_at_the_place_that_holds_the_event() {
        let session = SessionId::from_bytes([1; 16]);
        let mut places = EventLocations::default();
        for first in [3, 5, 9] {
            places.add(session, place(first));
        }
        let check = |seq, expected: IndexLookup| assert_eq!(places.lookup(session, seq), expected, "{seq}");
        check(2, IndexLookup::Below);
        check(3, IndexLookup::Found(vec![place(3), place(5), place(9)]));
        check(8, IndexLookup::Found(vec![place(5), place(9)]));
        check(99, IndexLookup::Found(vec![place(9)]));
    }

    #[test]
    fn what_was_forgotten_hides_what_is_older() {
        let session = SessionId::from_bytes([1; 16]);
        let (mut older, mut newer) = (EventLocations::default(), EventLocations::default());
        older.add(session, place(1));
        newer.forget(session);
        assert_eq!(newer.lookup(session, 1), IndexLookup::Absent);
        newer.add(session, place(2));
        older.merge_newer(newer);
        assert_eq!(older.lookup(session, 2), IndexLookup::Found(vec![place(2)]));
        assert_eq!((older.lookup(session, 1), older.len()), (IndexLookup::Absent, 1));
    }
}
