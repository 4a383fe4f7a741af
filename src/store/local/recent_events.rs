//! The newest events of the sessions that work now. Whoever follows a session reads here and never touches the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::{Limit, NewEvent, Seq, SessionId, StoredEvent};

/// Bounds of what is kept: of one session, and in all. Beyond, the oldest go, and are read from the log again.
///
/// One commit can hold thousands of events of one session, and a little of each of a thousand. Both must be here still when
/// those who follow come for them, or a flood is read back from the log. So what is let go is what has been here the longest,
/// whosever it is: where a thousand take turns, whoever has been quiet the longest is about to speak, and is not read to its end.
const OF_ONE: usize = 1 << 20;
const IN_ALL: usize = 64 << 20;
/// What an event costs beside its text, and what a batch costs beside its events.
const OVERHEAD: usize = 96;
/// So many batches are taken out at once where others wait meanwhile.
const AT_ONCE: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Recent {
    tails: HashMap<SessionId, Tail>,
    /// Whose each batch is, oldest first.
    order: BTreeMap<u64, SessionId>,
    /// Counts appends.
    clock: u64,
    /// What it was when what is old was taken out last.
    old_until: u64,
    bytes: usize,
}

/// The newest events of one session, without a gap.
#[derive(Debug, Default)]
struct Tail {
    /// Never none.
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// What was appended at once.
#[derive(Debug)]
pub(super) struct Batch {
    clock: u64,
    /// The number of the first of its events.
    first: Seq,
    events: Vec<NewEvent>,
    bytes: usize,
}

/// What was there when old things were asked for the last time but one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Old(u64);

fn cost(events: &[NewEvent]) -> usize {
    events.iter().map(|event| event.json.len() + event.kind.len() + OVERHEAD).sum::<usize>() + OVERHEAD
}

impl Batch {
    /// The number that comes after its last.
    fn end(&self) -> Seq {
        self.first + self.events.len() as Seq
    }
}

impl Recent {
    /// `events` follow `at`.
    pub(super) fn push(&mut self, session: SessionId, at: Seq, events: Vec<NewEvent>) {
        self.clock += 1;
        let batch = Batch { clock: self.clock, first: at + 1, bytes: cost(&events), events };
        let newest = self.tails.get(&session).and_then(|tail| tail.batches.back());
        if newest.is_some_and(|newest| newest.end() != batch.first) {
            self.forget(session);
        }
        let tail = self.tails.entry(session).or_default();
        tail.bytes += batch.bytes;
        self.bytes += batch.bytes;
        tail.batches.push_back(batch);
        self.order.insert(self.clock, session);
        while self.tails.get(&session).is_some_and(|tail| tail.bytes > OF_ONE) {
            self.take_oldest_of(session);
        }
        while self.bytes > IN_ALL && self.take_oldest().is_some() {}
    }

    /// From now on what is here is old the next time; returns what is old now, for [`Recent::take_old`].
    pub(super) fn age(&mut self) -> Old {
        Old(std::mem::replace(&mut self.old_until, self.clock))
    }

    /// Takes out some of what is old, as long as there is any: who followed it has read it. To free it takes a while, which is the
    /// caller's to spend where nobody waits.
    #[must_use]
    pub(super) fn take_old(&mut self, Old(until): Old) -> Vec<Batch> {
        let mut old = Vec::new();
        while old.len() < AT_ONCE && self.order.first_key_value().is_some_and(|(clock, _)| *clock <= until) {
            old.extend(self.take_oldest());
        }
        old
    }

    fn take_oldest(&mut self) -> Option<Batch> {
        let session = *self.order.first_key_value()?.1;
        self.take_oldest_of(session)
    }

    fn take_oldest_of(&mut self, session: SessionId) -> Option<Batch> {
        let tail = self.tails.get_mut(&session)?;
        let batch = tail.batches.pop_front()?;
        tail.bytes -= batch.bytes;
        if tail.batches.is_empty() {
            self.tails.remove(&session);
        } else if tail.batches.len() < tail.batches.capacity() / 4 {
            // It may stay for long, with few.
            tail.batches.shrink_to(tail.batches.len() * 2);
        }
        self.order.remove(&batch.clock);
        self.bytes -= batch.bytes;
        Some(batch)
    }

    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(tail) = self.tails.remove(&session) {
            for batch in &tail.batches {
                self.order.remove(&batch.clock);
            }
            self.bytes -= tail.bytes;
        }
    }

    /// The events after `after`, or `None` where they are not all here.
    pub(super) fn read(&self, session: SessionId, after: Seq, limit: Limit) -> Option<Vec<StoredEvent>> {
        let batches = &self.tails.get(&session)?.batches;
        let next = after + 1;
        if next < batches.front()?.first {
            return None;
        }
        let mut page = Page::new(limit);
        for batch in batches.range(batches.partition_point(|batch| batch.end() <= next)..) {
            let skipped = next.saturating_sub(batch.first) as usize;
            for (seq, event) in (batch.first..).zip(&batch.events).skip(skipped) {
                if !page.take(seq, event.clone()) {
                    return Some(page.events);
                }
            }
        }
        Some(page.events)
    }
}

/// Gathers events up to a limit, but never fewer than one.
#[derive(Debug)]
struct Page {
    events: Vec<StoredEvent>,
    limit: Limit,
    bytes: usize,
}

impl Page {
    fn new(limit: Limit) -> Page {
        Page { events: Vec::new(), limit, bytes: 0 }
    }

    /// Whether there was room.
    fn take(&mut self, seq: Seq, event: NewEvent) -> bool {
        let has_room = self.limit.admits(event.json.len(), self.events.len(), self.bytes);
        if has_room {
            self.bytes += event.json.len();
            self.events.push((seq, event));
        }
        has_room
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

    fn check_sums(recent: &Recent) {
        assert_eq!(recent.bytes, recent.tails.values().map(|tail| tail.bytes).sum::<usize>());
        let batches = recent.tails.values().flat_map(|tail| &tail.batches);
        assert_eq!(recent.bytes, batches.map(|batch| batch.bytes).sum::<usize>());
        assert_eq!(recent.order.len(), recent.tails.values().map(|tail| tail.batches.len()).sum::<usize>());
    }

    fn numbers(events: &[StoredEvent]) -> Vec<Seq> {
        events.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn a_session_keeps_its_newest_and_says_what_it_lacks() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = Recent::default();
        for at in 0..100 {
            recent.push(session, at, vec![event(OF_ONE / 20)]);
        }
        assert!(recent.bytes <= OF_ONE);
        check_sums(&recent);
        assert_eq!(recent.read(session, 0, ALL), None);
        assert_eq!(numbers(&recent.read(session, 98, ALL).unwrap()), [99, 100]);
        assert_eq!(recent.read(session, 100, ALL), Some(Vec::new()));
    }

    #[test]
    fn reading_goes_on_in_the_middle_of_what_was_appended_at_once() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = Recent::default();
        recent.push(session, 4, vec![event(1); 3]);
        recent.push(session, 7, vec![event(1); 2]);
        assert_eq!(recent.read(session, 3, ALL), None);
        for (after, expected) in [(4, &[5, 6, 7, 8, 9][..]), (6, &[7, 8, 9]), (7, &[8, 9]), (8, &[9]), (9, &[])] {
            assert_eq!(numbers(&recent.read(session, after, ALL).unwrap()), expected);
        }
        let few = Limit { events: 2, bytes: usize::MAX };
        assert_eq!(numbers(&recent.read(session, 5, few).unwrap()), [6, 7]);
        // Where the numbers begin anew, what was is not of the same row.
        recent.push(session, 20, vec![event(1)]);
        assert_eq!(recent.read(session, 8, ALL), None);
        assert_eq!(numbers(&recent.read(session, 20, ALL).unwrap()), [21]);
        check_sums(&recent);
        recent.forget(session);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }

    #[test]
    fn what_came_first_makes_room() {
        let mut recent = Recent::default();
        let session = |n: u8| SessionId::from_bytes([n; 16]);
        for n in 0..100 {
            recent.push(session(n), 0, vec![event(OF_ONE / 2)]);
            recent.push(session(n), 1, vec![event(OF_ONE / 4)]);
            recent.push(session(0), u64::from(n) + 2, vec![event(1)]);
        }
        assert!(recent.bytes <= IN_ALL);
        check_sums(&recent);
        assert_eq!(recent.read(session(1), 0, ALL), None);
        assert_eq!(recent.read(session(99), 0, ALL).unwrap().len(), 2);
        assert!(recent.read(session(0), 2, ALL).is_none() && recent.read(session(0), 101, ALL).is_some());
    }

    #[test]
    fn where_all_take_turns_nobody_loses_what_is_newest() {
        let mut recent = Recent::default();
        let (sessions, len) = (100, IN_ALL / 100 / 8 - 2 * OVERHEAD);
        for at in 0..20 {
            for n in 0..sessions {
                recent.push(SessionId::from_bytes([n; 16]), at, vec![event(len)]);
            }
        }
        for n in 0..sessions {
            assert_eq!(recent.read(SessionId::from_bytes([n; 16]), 13, ALL).unwrap().len(), 7, "of {n}");
        }
    }

    #[test]
    fn what_is_old_from_one_time_to_the_next_is_let_go() {
        let [quiet, busy] = [1, 2].map(|n| SessionId::from_bytes([n; 16]));
        let mut recent = Recent::default();
        recent.push(quiet, 0, vec![event(10)]);
        recent.push(busy, 0, vec![event(10)]);
        let take = |recent: &mut Recent| {
            let old = recent.age();
            std::iter::from_fn(|| Some(recent.take_old(old)).filter(|some| !some.is_empty())).flatten().count()
        };
        assert_eq!(take(&mut recent), 0);
        for at in 1..=2 * AT_ONCE as Seq {
            recent.push(busy, at, vec![event(10)]);
        }
        assert_eq!(take(&mut recent), 2);
        assert_eq!(recent.read(quiet, 0, ALL), None);
        assert_eq!(recent.read(busy, 1, ALL).unwrap().len(), 2 * AT_ONCE);
        check_sums(&recent);
        assert_eq!(take(&mut recent), 2 * AT_ONCE);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }
}
