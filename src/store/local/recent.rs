//! The newest events of the sessions that work now. Whoever follows a session reads here and never touches the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::{Limit, NewEvent, Seq, SessionId, StoredEvent};

/// Bounds of what is kept: of one session, and in all. Beyond, the oldest events go, and then the sessions that have been
/// quiet the longest; both are read from the log again.
///
/// One commit can hold thousands of events of one session, and a little of each of a thousand. Both must be here still when
/// those who follow come for them, or a flood is read back from the log.
const OF_ONE: usize = 1 << 20;
const IN_ALL: usize = 64 << 20;
/// What an event costs beside its text.
const OVERHEAD: usize = 96;

#[derive(Debug, Default)]
pub(super) struct Recent {
    tails: HashMap<SessionId, Tail>,
    /// Sessions by the time of their last append.
    order: BTreeMap<u64, SessionId>,
    /// Counts appends.
    clock: u64,
    /// What it was when quiet sessions were taken out last.
    quiet_since: u64,
    bytes: usize,
}

/// The newest events of one session.
#[derive(Debug, Default)]
pub(super) struct Tail {
    first: Seq,
    events: VecDeque<NewEvent>,
    bytes: usize,
    touched: u64,
}

fn cost(event: &NewEvent) -> usize {
    event.json.len() + event.kind.len() + OVERHEAD
}

impl Recent {
    /// `events` follow `at`.
    pub(super) fn push(&mut self, session: SessionId, at: Seq, events: Vec<NewEvent>) {
        self.clock += 1;
        let tail = self.tails.entry(session).or_default();
        self.order.remove(&tail.touched);
        self.order.insert(self.clock, session);
        tail.touched = self.clock;
        self.bytes -= tail.bytes;
        if tail.first + tail.events.len() as Seq != at + 1 {
            *tail = Tail { first: at + 1, touched: self.clock, ..Tail::default() };
        }
        tail.bytes += events.iter().map(cost).sum::<usize>();
        tail.events.extend(events);
        while tail.bytes > OF_ONE
            && let Some(oldest) = tail.events.pop_front()
        {
            tail.first += 1;
            tail.bytes -= cost(&oldest);
        }
        self.bytes += tail.bytes;
        while self.bytes > IN_ALL && self.take_quietest().is_some() {}
    }

    /// Takes out all sessions that nothing was appended to since this was called last: who followed them has read it. To free
    /// them takes a while, which is the caller's to spend where nobody waits.
    #[must_use]
    pub(super) fn take_quiet(&mut self) -> Vec<Tail> {
        let mut quiet = Vec::new();
        while self.order.first_key_value().is_some_and(|(touched, _)| *touched <= self.quiet_since) {
            quiet.extend(self.take_quietest());
        }
        self.quiet_since = self.clock;
        quiet
    }

    fn take_quietest(&mut self) -> Option<Tail> {
        let (_, quiet) = self.order.pop_first()?;
        let tail = self.tails.remove(&quiet)?;
        self.bytes -= tail.bytes;
        Some(tail)
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(tail) = self.tails.remove(&session) {
            self.order.remove(&tail.touched);
            self.bytes -= tail.bytes;
        }
    }

    /// The events after `after`, or `None` where they are not all here.
    pub(super) fn read(&self, session: SessionId, after: Seq, limit: Limit) -> Option<Vec<StoredEvent>> {
        let tail = self.tails.get(&session)?;
        let skipped = usize::try_from((after + 1).checked_sub(tail.first)?).ok()?;
        let mut page = Page::new(limit);
        for (seq, event) in (after + 1..).zip(tail.events.iter().skip(skipped)) {
            if !page.take(seq, event.clone()) {
                break;
            }
        }
        Some(page.events)
    }
}

/// Gathers events up to a limit, but never fewer than one.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) events: Vec<StoredEvent>,
    limit: Limit,
    bytes: usize,
}

impl Page {
    pub(super) fn new(limit: Limit) -> Page {
        Page { events: Vec::new(), limit, bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        !self.events.is_empty() && (self.events.len() >= self.limit.events || self.bytes >= self.limit.bytes)
    }

    /// Whether there was room.
    pub(super) fn take(&mut self, seq: Seq, event: NewEvent) -> bool {
        let bytes = self.bytes + event.json.len();
        if self.is_full() || (!self.events.is_empty() && bytes > self.limit.bytes) {
            return false;
        }
        self.bytes = bytes;
        self.events.push((seq, event));
        true
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use super::*;

    fn event(len: usize) -> NewEvent {
        NewEvent { kind: "".into(), json: vec![b'x'; len].into() }
    }

    const ALL: Limit = Limit { events: usize::MAX, bytes: usize::MAX };

    #[test]
    fn a_session_keeps_its_newest_and_says_what_it_lacks() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = Recent::default();
        for at in 0..100 {
            recent.push(session, at, vec![event(OF_ONE / 20)]);
        }
        assert!(recent.bytes <= OF_ONE);
        assert_eq!(recent.read(session, 0, ALL), None);
        let newest = recent.read(session, 98, ALL).unwrap();
        assert_eq!(newest.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [99, 100]);
        assert_eq!(recent.read(session, 100, ALL), Some(Vec::new()));
    }

    #[test]
    fn quiet_sessions_make_room() {
        let mut recent = Recent::default();
        let session = |n: u8| SessionId::from_bytes([n; 16]);
        for n in 0..100 {
            recent.push(session(n), 0, vec![event(OF_ONE - OVERHEAD)]);
            recent.push(session(0), u64::from(n) + 1, vec![event(1)]);
        }
        assert!(recent.bytes <= IN_ALL);
        assert_eq!(recent.bytes, recent.tails.values().map(|tail| tail.bytes).sum::<usize>());
        assert_eq!(recent.order.len(), recent.tails.len());
        assert_eq!(recent.read(session(1), 0, ALL), None);
        assert!(recent.read(session(99), 0, ALL).is_some() && recent.read(session(0), 100, ALL).is_some());
    }

    #[test]
    fn what_was_quiet_from_one_time_to_the_next_is_let_go() {
        let [quiet, busy] = [1, 2].map(|n| SessionId::from_bytes([n; 16]));
        let mut recent = Recent::default();
        recent.push(quiet, 0, vec![event(10)]);
        recent.push(busy, 0, vec![event(10)]);
        assert!(recent.take_quiet().is_empty());
        recent.push(busy, 1, vec![event(10)]);
        assert_eq!(recent.take_quiet().len(), 1);
        assert_eq!(recent.read(quiet, 0, ALL), None);
        assert_eq!(recent.read(busy, 0, ALL).unwrap().len(), 2);
        assert_eq!(recent.take_quiet().len(), 1);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }
}
