//! Locations of each session's events in the log that the index on disk does not hold yet.

use std::collections::{HashMap, HashSet};

use super::segment::LogPosition;
use crate::store::{Seq, SessionId};

/// Location of a frame, or of a row of frames in an archive, and its first event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventLocation {
    pub(super) first: Seq,
    /// `None` if the log lost these events.
    pub(super) at: Option<LogPosition>,
}

impl EventLocation {
    /// Reports if this location and the one `before` it are in `segment`.
    ///
    /// An archive finds the events behind the first location of such a row by itself.
    pub(super) fn continues_row(&self, before: Option<EventLocation>, segment: u32) -> bool {
        let is_there = |location: &EventLocation| location.at.is_some_and(|at| at.segment == segment);
        is_there(self) && before.is_some_and(|before| is_there(&before))
    }
}

/// Locations of many sessions, each session's in the order of its events.
#[derive(Debug, Default)]
pub(super) struct EventLocations {
    pub(super) by_session: HashMap<SessionId, Vec<EventLocation>>,
    /// Sessions whose older locations no longer hold.
    pub(super) forgotten: HashSet<SessionId>,
    count: usize,
}

/// Result of a lookup in one level of the index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IndexLookup {
    /// Locations from the one that holds the event.
    Found(Vec<EventLocation>),
    /// The level below decides.
    Below,
    /// No level holds the event.
    Absent,
}

/// Most locations that are returned at once, or stored under one key.
pub(super) const LOCATIONS_PER_BLOCK: usize = 128;

impl EventLocations {
    pub(super) fn add(&mut self, session: SessionId, location: EventLocation) {
        self.by_session.entry(session).or_default().push(location);
        self.count += 1;
    }

    /// Adds a frame in an archive like [`EventLocations::add`], but only the first of a row.
    pub(super) fn add_archived(&mut self, session: SessionId, location: EventLocation) {
        let before = self.by_session.get(&session).and_then(|locations| locations.last().copied());
        if !location.at.is_some_and(|at| location.continues_row(before, at.segment)) {
            self.add(session, location);
        }
    }

    /// Drops a session's locations in `segment`, except the first of each row.
    pub(super) fn drop_archived(&mut self, segment: u32, session: SessionId) {
        let Some(locations) = self.by_session.get_mut(&session) else { return };
        let (had, mut before) = (locations.len(), None);
        locations.retain(|location| !location.continues_row(before.replace(*location), segment));
        locations.shrink_to_fit();
        self.count -= had - locations.len();
    }

    /// Drops the locations of a session from event `seq` on. Returns if there were any.
    pub(super) fn truncate_from(&mut self, session: SessionId, seq: Seq) -> bool {
        let Some(locations) = self.by_session.get_mut(&session) else { return false };
        let had = locations.len();
        locations.truncate(locations.partition_point(|location| location.first < seq));
        self.count -= had - locations.len();
        had > locations.len()
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        self.count -= self.by_session.remove(&session).map_or(0, |locations| locations.len());
        self.forgotten.insert(session);
    }

    pub(super) fn lookup(&self, session: SessionId, seq: Seq) -> IndexLookup {
        match self.by_session.get(&session).and_then(|locations| locations_from(locations, seq)) {
            Some(found) => IndexLookup::Found(found.to_vec()),
            None if self.forgotten.contains(&session) => IndexLookup::Absent,
            None => IndexLookup::Below,
        }
    }

    /// Adds the locations of `newer` on top.
    pub(super) fn merge_newer(&mut self, newer: EventLocations) {
        for session in newer.forgotten {
            self.forget(session);
        }
        for (session, locations) in newer.by_session {
            self.count += locations.len();
            self.by_session.entry(session).or_default().extend(locations);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

/// Returns the locations from the one that holds `seq`; `None` if all begin later.
pub(super) fn locations_from(locations: &[EventLocation], seq: Seq) -> Option<&[EventLocation]> {
    let at = locations.partition_point(|location| location.first <= seq).checked_sub(1)?;
    Some(&locations[at..locations.len().min(at + LOCATIONS_PER_BLOCK)])
}

/// Encodes locations for the index: each number as the difference to the one before, as LEB128.
///
/// A location takes about four bytes. A replay of a long session looks up a million of them.
pub(super) fn encode(locations: &[EventLocation]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(locations.len() * 5);
    let mut before = [0; 3];
    for location in locations {
        let number = numbers(location);
        for more in difference(before, number) {
            put(&mut bytes, more);
        }
        before = number;
    }
    bytes
}

/// Decodes the result of [`encode`]. Stops at the first invalid number.
pub(super) fn decode(mut bytes: &[u8]) -> Vec<EventLocation> {
    let mut locations = Vec::new();
    let mut before = [0; 3];
    while let (Some(first), Some(segment), Some(offset)) = (get(&mut bytes), get(&mut bytes), get(&mut bytes)) {
        let number = sum(before, [first, segment, offset]);
        let (Ok(segment), Ok(offset)) = (u32::try_from(number[1]), u32::try_from(number[2])) else { break };
        locations
            .push(EventLocation { first: number[0], at: (segment > 0).then_some(LogPosition { segment, offset }) });
        before = number;
    }
    locations
}

/// Returns the three numbers of a location. Segments count from 1, so 0 stands for "lost".
fn numbers(location: &EventLocation) -> [u64; 3] {
    let (segment, offset) = location.at.map_or((0, 0), |at| (at.segment, at.offset));
    [location.first, segment.into(), offset.into()]
}

/// Returns the differences. In another segment, offsets begin anew.
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

    fn any_location() -> impl Strategy<Value = EventLocation> {
        let at = prop::option::of((1..=u32::MAX, any::<u32>()));
        let at = prop_oneof![at, prop::option::of((1..3u32, 0..100_000u32))];
        (any::<u64>(), at).prop_map(|(first, at)| EventLocation {
            first,
            at: at.map(|(segment, offset)| LogPosition { segment, offset }),
        })
    }

    proptest! {
        #[test]
        fn locations_round_trip(locations in prop::collection::vec(any_location(), 0..LOCATIONS_PER_BLOCK)) {
            prop_assert_eq!(decode(&encode(&locations)), locations);
        }

        #[test]
        fn decode_of_garbage_terminates(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert!(decode(&bytes).len() <= bytes.len() / 3);
        }
    }

    #[test]
    fn location_takes_few_bytes() {
        let frame = |n: u64| EventLocation {
            first: 1_000_000 + n,
            at: Some(LogPosition { segment: 9, offset: 400 * n as u32 }),
        };
        let locations: Vec<EventLocation> = (0..LOCATIONS_PER_BLOCK as u64).map(frame).collect();
        assert!(encode(&locations).len() <= LOCATIONS_PER_BLOCK * 4 + 8);
    }

    fn location(first: Seq) -> EventLocation {
        EventLocation { first, at: Some(LogPosition { segment: 1, offset: first as u32 * 10 }) }
    }

    #[test]
    fn lookup_begins_at_location_of_event() {
        let session = SessionId::from_bytes([1; 16]);
        let mut locations = EventLocations::default();
        for first in [3, 5, 9] {
            locations.add(session, location(first));
        }
        let check = |seq, expected: IndexLookup| assert_eq!(locations.lookup(session, seq), expected, "{seq}");
        check(2, IndexLookup::Below);
        check(3, IndexLookup::Found(vec![location(3), location(5), location(9)]));
        check(8, IndexLookup::Found(vec![location(5), location(9)]));
        check(99, IndexLookup::Found(vec![location(9)]));
    }

    #[test]
    fn forget_hides_older_locations() {
        let session = SessionId::from_bytes([1; 16]);
        let (mut older, mut newer) = (EventLocations::default(), EventLocations::default());
        older.add(session, location(1));
        newer.forget(session);
        assert_eq!(newer.lookup(session, 1), IndexLookup::Absent);
        newer.add(session, location(2));
        older.merge_newer(newer);
        assert_eq!(older.lookup(session, 2), IndexLookup::Found(vec![location(2)]));
        assert_eq!((older.lookup(session, 1), older.len()), (IndexLookup::Absent, 1));
    }
}
