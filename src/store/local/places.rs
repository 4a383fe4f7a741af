//! Where each session's events stand in the log, for what the index on disk does not hold yet.

use std::collections::{HashMap, HashSet};

use super::segment::Position;
use crate::store::{Seq, SessionId};

/// A frame, and the first event in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) first: Seq,
    /// `None` where the log lost these events.
    pub(super) at: Option<Position>,
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

#[cfg(test)]
mod tests {
    use super::*;

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
