//! Newest events of active sessions, in memory. The same for every driver: see `cached`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{JournalEvent, ReadLimit, Seq, SessionId, StoredEvent};

/// Bound: 1 MiB per session and 64 MiB in all. When full: the oldest batch is evicted.
///
/// A commit can hold thousands of events of one session, or a few of each of a thousand. Both
/// must stay until their followers read them. Otherwise a flood is read back from the log.
///
/// Eviction is FIFO over all sessions, not LRU. If a thousand sessions append in turn, the least
/// recent one is about to append. Its followers have not read it to its end.
const MAX_SESSION_BYTES: usize = 1 << 20;
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// Memory of an event beside its text, and of a batch beside its events.
const OVERHEAD: usize = 96;
/// Batches that are taken out under one hold of the lock.
const MAX_BATCHES_PER_TAKE: usize = 512;

#[derive(Debug, Default)]
pub(super) struct RecentEvents {
    tails: HashMap<SessionId, SessionTail>,
    /// Session of each batch, oldest first.
    order: BTreeMap<u64, SessionId>,
    /// Number of appends so far.
    clock: u64,
    /// Clock at the last call of [`RecentEvents::age`].
    old_until: u64,
    /// Number of calls of [`RecentEvents::forget`].
    purges: u64,
    bytes: usize,
}

/// Newest events of one session.
#[derive(Debug, Default)]
struct SessionTail {
    /// Never empty. In the order of the events. A gap is an append whose answer is not processed
    /// yet.
    batches: VecDeque<RecentBatch>,
    bytes: usize,
}

/// Events of one append.
#[derive(Debug)]
pub(super) struct RecentBatch {
    clock: u64,
    /// Number of the first event.
    first: Seq,
    events: Vec<JournalEvent>,
    bytes: usize,
}

/// Age limit: everything present at the last call of [`RecentEvents::age`] but one.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentAge(u64);

fn cost(events: &[JournalEvent]) -> usize {
    events.iter().map(|event| event.json.len() + event.kind.len() + OVERHEAD).sum::<usize>() + OVERHEAD
}

impl RecentBatch {
    /// Returns the number after the last event.
    fn end(&self) -> Seq {
        self.first + self.events.len() as Seq
    }
}

impl RecentEvents {
    /// Returns the number of purges so far, for a later [`RecentEvents::push`].
    pub(super) fn purges(&self) -> u64 {
        self.purges
    }

    /// Adds `events`, which follow event `at`.
    ///
    /// Drops `events` if a session was purged after `purges` was read: it may be this session.
    pub(super) fn push(&mut self, session: SessionId, at: Seq, events: Vec<JournalEvent>, purges: u64) {
        if purges != self.purges {
            return;
        }
        self.clock += 1;
        let batch = RecentBatch { clock: self.clock, first: at + 1, bytes: cost(&events), events };
        let tail = self.tails.entry(session).or_default();
        tail.bytes += batch.bytes;
        self.bytes += batch.bytes;
        // The answers of pipelined appends may be processed in another order.
        let position = tail.batches.partition_point(|other| other.first < batch.first);
        tail.batches.insert(position, batch);
        self.order.insert(self.clock, session);
        while self.tails.get(&session).is_some_and(|tail| tail.bytes > MAX_SESSION_BYTES) {
            self.take_oldest_of(session);
        }
        while self.bytes > MAX_TOTAL_BYTES && self.take_oldest().is_some() {}
    }

    /// Returns the age limit for [`RecentEvents::take_old`].
    ///
    /// Everything present now is old at the next call.
    pub(super) fn age(&mut self) -> RecentAge {
        RecentAge(std::mem::replace(&mut self.old_until, self.clock))
    }

    /// Takes out some of the old batches; empty if none is left. Their followers have read them.
    ///
    /// Freeing the batches takes a while, so the caller drops them without the lock.
    #[must_use]
    pub(super) fn take_old(&mut self, RecentAge(until): RecentAge) -> Vec<RecentBatch> {
        let mut old = Vec::new();
        while old.len() < MAX_BATCHES_PER_TAKE && self.order.first_key_value().is_some_and(|(clock, _)| *clock <= until)
        {
            old.extend(self.take_oldest());
        }
        old
    }

    fn take_oldest(&mut self) -> Option<RecentBatch> {
        let session = *self.order.first_key_value()?.1;
        self.take_oldest_of(session)
    }

    fn take_oldest_of(&mut self, session: SessionId) -> Option<RecentBatch> {
        let tail = self.tails.get_mut(&session)?;
        let batch = tail.batches.pop_front()?;
        tail.bytes -= batch.bytes;
        if tail.batches.is_empty() {
            self.tails.remove(&session);
        } else if tail.batches.len() < tail.batches.capacity() / 4 {
            // The tail may stay for long with few batches.
            tail.batches.shrink_to(tail.batches.len() * 2);
        }
        self.order.remove(&batch.clock);
        self.bytes -= batch.bytes;
        Some(batch)
    }

    /// Drops the events of a session that is purged.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.purges += 1;
        if let Some(tail) = self.tails.remove(&session) {
            for batch in &tail.batches {
                self.order.remove(&batch.clock);
            }
            self.bytes -= tail.bytes;
        }
    }

    /// Returns the events after `after`, up to a gap. `None` if the next event is not here.
    pub(super) fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Option<Vec<StoredEvent>> {
        let batches = &self.tails.get(&session)?.batches;
        let mut next = after.checked_add(1)?;
        let begin = batches.partition_point(|batch| batch.end() <= next);
        if batches.get(begin)?.first > next {
            return None;
        }
        let mut page = RecentPage::new(limit);
        for batch in batches.range(begin..) {
            if batch.first > next {
                break;
            }
            let skipped = (next - batch.first) as usize;
            for (seq, event) in (batch.first..).zip(&batch.events).skip(skipped) {
                if !page.take(seq, event.clone()) {
                    return Some(page.events);
                }
            }
            next = batch.end();
        }
        Some(page.events)
    }
}

/// Collects events up to a limit, but at least one.
#[derive(Debug)]
struct RecentPage {
    events: Vec<StoredEvent>,
    limit: ReadLimit,
    bytes: usize,
}

impl RecentPage {
    fn new(limit: ReadLimit) -> RecentPage {
        RecentPage { events: Vec::new(), limit, bytes: 0 }
    }

    /// Adds the event if it fits. Returns if it fitted.
    fn take(&mut self, seq: Seq, event: JournalEvent) -> bool {
        let has_room = self.limit.admits(event.json.len(), self.events.len(), self.bytes);
        if has_room {
            self.bytes += event.json.len();
            self.events.push((seq, event));
        }
        has_room
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    impl RecentEvents {
        fn add(&mut self, session: SessionId, at: Seq, events: Vec<JournalEvent>) {
            self.push(session, at, events, self.purges);
        }
    }

    fn event(len: usize) -> JournalEvent {
        JournalEvent { kind: "".into(), json: vec![b'x'; len].into() }
    }

    const ALL: ReadLimit = ReadLimit { events: usize::MAX, bytes: usize::MAX };

    fn check_sums(recent: &RecentEvents) {
        assert_eq!(recent.bytes, recent.tails.values().map(|tail| tail.bytes).sum::<usize>());
        let batches = recent.tails.values().flat_map(|tail| &tail.batches);
        assert_eq!(recent.bytes, batches.map(|batch| batch.bytes).sum::<usize>());
        assert_eq!(recent.order.len(), recent.tails.values().map(|tail| tail.batches.len()).sum::<usize>());
    }

    fn numbers(events: &[StoredEvent]) -> Vec<Seq> {
        events.iter().map(|(seq, _)| *seq).collect()
    }

    #[test]
    fn session_keeps_newest_events_within_bound() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = RecentEvents::default();
        for at in 0..100 {
            recent.add(session, at, vec![event(MAX_SESSION_BYTES / 20)]);
        }
        assert!(recent.bytes <= MAX_SESSION_BYTES);
        check_sums(&recent);
        assert_eq!(recent.read(session, 0, ALL), None);
        assert_eq!(numbers(&recent.read(session, 98, ALL).unwrap()), [99, 100]);
        assert_eq!(recent.read(session, 100, ALL), None);
    }

    #[test]
    fn read_starts_inside_batch() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = RecentEvents::default();
        recent.add(session, 4, vec![event(1); 3]);
        recent.add(session, 7, vec![event(1); 2]);
        assert_eq!(recent.read(session, 3, ALL), None);
        for (after, expected) in [(4, &[5, 6, 7, 8, 9][..]), (6, &[7, 8, 9]), (7, &[8, 9]), (8, &[9])] {
            assert_eq!(numbers(&recent.read(session, after, ALL).unwrap()), expected);
        }
        let few = ReadLimit { events: 2, bytes: usize::MAX };
        assert_eq!(numbers(&recent.read(session, 5, few).unwrap()), [6, 7]);
        assert_eq!(recent.read(session, 9, ALL), None);
        assert_eq!(recent.read(session, Seq::MAX, ALL), None);
        // A read ends at a gap in the numbers, until the gap is filled.
        recent.add(session, 10, vec![event(1)]);
        assert_eq!(numbers(&recent.read(session, 7, ALL).unwrap()), [8, 9]);
        assert_eq!(recent.read(session, 9, ALL), None);
        assert_eq!(numbers(&recent.read(session, 10, ALL).unwrap()), [11]);
        recent.add(session, 9, vec![event(1)]);
        assert_eq!(numbers(&recent.read(session, 7, ALL).unwrap()), [8, 9, 10, 11]);
        check_sums(&recent);
        recent.forget(session);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }

    #[test]
    fn oldest_batch_is_evicted_first() {
        let mut recent = RecentEvents::default();
        let session = |n: u8| SessionId::from_bytes([n; 16]);
        for n in 0..100 {
            recent.add(session(n), 0, vec![event(MAX_SESSION_BYTES / 2)]);
            recent.add(session(n), 1, vec![event(MAX_SESSION_BYTES / 4)]);
            recent.add(session(0), u64::from(n) + 2, vec![event(1)]);
        }
        assert!(recent.bytes <= MAX_TOTAL_BYTES);
        check_sums(&recent);
        assert_eq!(recent.read(session(1), 0, ALL), None);
        assert_eq!(recent.read(session(99), 0, ALL).unwrap().len(), 2);
        assert!(recent.read(session(0), 2, ALL).is_none() && recent.read(session(0), 101, ALL).is_some());
    }

    #[test]
    fn sessions_in_turn_keep_newest_events() {
        let mut recent = RecentEvents::default();
        let (sessions, len) = (100, MAX_TOTAL_BYTES / 100 / 8 - 2 * OVERHEAD);
        for at in 0..20 {
            for n in 0..sessions {
                recent.add(SessionId::from_bytes([n; 16]), at, vec![event(len)]);
            }
        }
        for n in 0..sessions {
            assert_eq!(recent.read(SessionId::from_bytes([n; 16]), 13, ALL).unwrap().len(), 7, "session {n}");
        }
    }

    #[test]
    fn events_older_than_one_sweep_are_dropped() {
        let [quiet, busy] = [1, 2].map(|n| SessionId::from_bytes([n; 16]));
        let mut recent = RecentEvents::default();
        recent.add(quiet, 0, vec![event(10)]);
        recent.add(busy, 0, vec![event(10)]);
        let take = |recent: &mut RecentEvents| {
            let old = recent.age();
            std::iter::from_fn(|| Some(recent.take_old(old)).filter(|some| !some.is_empty())).flatten().count()
        };
        assert_eq!(take(&mut recent), 0);
        for at in 1..=2 * MAX_BATCHES_PER_TAKE as Seq {
            recent.add(busy, at, vec![event(10)]);
        }
        assert_eq!(take(&mut recent), 2);
        assert_eq!(recent.read(quiet, 0, ALL), None);
        assert_eq!(recent.read(busy, 1, ALL).unwrap().len(), 2 * MAX_BATCHES_PER_TAKE);
        check_sums(&recent);
        assert_eq!(take(&mut recent), 2 * MAX_BATCHES_PER_TAKE);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }
}
