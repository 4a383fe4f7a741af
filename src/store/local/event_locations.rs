//! Where each session's events stand in the log, for what the index on disk does not hold yet.

use std::collections::{HashMap, HashSet};

use super::segment::Position;
use crate::store::{Seq, SessionId};

/// A frame, or in an archive a row of them, and the first event in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) first: Seq,
    /// `None` where the log lost these events.
    pub(super) at: Option<Position>,
}

impl Place {
    /// Whether it stands in the same segment as the one `before` it. An archive finds what comes behind the first by itself.
    pub(super) fn goes_on(&self, before: Option<Place>, segment: u32) -> bool {
        let stands_there = |place: &Place| place.at.is_some_and(|at| at.segment == segment);
        stands_there(self) && before.is_some_and(|before| stands_there(&before))
    }
}

/// The places of many sessions, each session's in the order of its events.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) of: HashMap<SessionId, Vec<Place>>,
    /// What older places say about these sessions no longer holds.
    pub(super) forgotten: HashSet<SessionId>,
    count: usize,
}

/// What one level of the index knows about an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// From the one that holds it onwards.
    Here(Vec<Place>),
    /// Ask the level below.
    Below,
    /// No level below has it.
    Nowhere,
}

/// How many places are handed out, or kept under one key, at once.
pub(super) const CHUNK: usize = 128;

impl Places {
    pub(super) fn add(&mut self, session: SessionId, place: Place) {
        self.of.entry(session).or_default().push(place);
        self.count += 1;
    }

    /// As [`Places::add`], for a frame in an archive: only the first of a row of them.
    pub(super) fn add_archived(&mut self, session: SessionId, place: Place) {
        let before = self.of.get(&session).and_then(|places| places.last().copied());
        if !place.at.is_some_and(|at| place.goes_on(before, at.segment)) {
            self.add(session, place);
        }
    }

    /// Forgets where each frame of a session stands in `segment`, but the first of each row of them.
    pub(super) fn thin(&mut self, segment: u32, session: SessionId) {
        let Some(places) = self.of.get_mut(&session) else { return };
        let (had, mut before) = (places.len(), None);
        places.retain(|place| !place.goes_on(before.replace(*place), segment));
        places.shrink_to_fit();
        self.count -= had - places.len();
    }

    /// Forgets where the events of a session stand from `seq` on. Whether there were any.
    pub(super) fn cut(&mut self, session: SessionId, seq: Seq) -> bool {
        let Some(places) = self.of.get_mut(&session) else { return false };
        let had = places.len();
        places.truncate(places.partition_point(|place| place.first < seq));
        self.count -= had - places.len();
        had > places.len()
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.count -= self.of.remove(&session).map_or(0, |places| places.len());
        self.forgotten.insert(session);
    }

    pub(super) fn lookup(&self, session: SessionId, seq: Seq) -> Lookup {
        match self.of.get(&session).and_then(|places| from(places, seq)) {
            Some(found) => Lookup::Here(found.to_vec()),
            None if self.forgotten.contains(&session) => Lookup::Nowhere,
            None => Lookup::Below,
        }
    }

    /// Puts what is `newer` on top.
    pub(super) fn cover(&mut self, newer: Places) {
        for session in newer.forgotten {
            self.forget(session);
        }
        for (session, places) in newer.of {
            self.count += places.len();
            self.of.entry(session).or_default().extend(places);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// The place that holds `seq` and those after it; `None` where all begin later.
pub(super) fn from(places: &[Place], seq: Seq) -> Option<&[Place]> {
    let at = places.partition_point(|place| place.first <= seq).checked_sub(1)?;
    Some(&places[at..places.len().min(at + CHUNK)])
}

/// Places as they stand in the index: of each number what it is more than the one before, in groups of seven bits (LEB128). A
/// place takes some four bytes, and a million of them are looked up when a long session is told.
pub(super) fn encode(places: &[Place]) -> Vec<u8> {
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
pub(super) fn decode(mut bytes: &[u8]) -> Vec<Place> {
    let mut places = Vec::new();
    let mut before = [0; 3];
    while let (Some(first), Some(segment), Some(offset)) = (get(&mut bytes), get(&mut bytes), get(&mut bytes)) {
        let number = sum(before, [first, segment, offset]);
        let (Ok(segment), Ok(offset)) = (u32::try_from(number[1]), u32::try_from(number[2])) else { break };
        places.push(Place { first: number[0], at: (segment > 0).then_some(Position { segment, offset }) });
        before = number;
    }
    places
}

/// Segments count from 1, so 0 can stand for "lost".
fn numbers(place: &Place) -> [u64; 3] {
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

    fn any_place() -> impl Strategy<Value = Place> {
        let at = prop::option::of((1..=u32::MAX, any::<u32>()));
        let at = prop_oneof![at, prop::option::of((1..3u32, 0..100_000u32))];
        (any::<u64>(), at)
            .prop_map(|(first, at)| Place { first, at: at.map(|(segment, offset)| Position { segment, offset }) })
    }

    proptest! {
        #[test]
        fn places_come_back(places in prop::collection::vec(any_place(), 0..CHUNK)) {
            prop_assert_eq!(decode(&encode(&places)), places);
        }

        #[test]
        fn garbage_is_read_to_an_end(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(decode(&bytes).len() <= bytes.len() / 3);
        }
    }

    #[test]
    fn a_place_takes_a_few_bytes() {
        let frame = |n: u64| Place { first: 1_000_000 + n, at: Some(Position { segment: 9, offset: 400 * n as u32 }) };
        let places: Vec<Place> = (0..CHUNK as u64).map(frame).collect();
        assert!(encode(&places).len() <= CHUNK * 4 + 8);
    }

    fn place(first: Seq) -> Place {
        Place { first, at: Some(Position { segment: 1, offset: first as u32 * 10 }) }
    }

    #[test]
    fn a_lookup_begins_at_the_place_that_holds_the_event() {
        let session = SessionId::from_bytes([1; 16]);
        let mut places = Places::default();
        for first in [3, 5, 9] {
            places.add(session, place(first));
        }
        let check = |seq, expected: Lookup| assert_eq!(places.lookup(session, seq), expected, "{seq}");
        check(2, Lookup::Below);
        check(3, Lookup::Here(vec![place(3), place(5), place(9)]));
        check(8, Lookup::Here(vec![place(5), place(9)]));
        check(99, Lookup::Here(vec![place(9)]));
    }

    #[test]
    fn what_was_forgotten_hides_what_is_older() {
        let session = SessionId::from_bytes([1; 16]);
        let (mut older, mut newer) = (Places::default(), Places::default());
        older.add(session, place(1));
        newer.forget(session);
        assert_eq!(newer.lookup(session, 1), Lookup::Nowhere);
        newer.add(session, place(2));
        older.cover(newer);
        assert_eq!(older.lookup(session, 2), Lookup::Here(vec![place(2)]));
        assert_eq!((older.lookup(session, 1), older.len()), (Lookup::Nowhere, 1));
    }
}
