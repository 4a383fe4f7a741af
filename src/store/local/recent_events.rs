//! Newest events of active sessions, in memory. Followers of a session read here instead of from
//! disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::{JournalEvent, ReadLimit, Seq, SessionId, StoredEvent};

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
    bytes: usize,
}

/// Newest events of one session, without a gap.
#[derive(Debug, Default)]
struct SessionTail {
    /// Never empty.
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
    /// Adds `events`, which follow event `at`.
    pub(super) fn push(&mut self, session: SessionId, at: Seq, events: Vec<JournalEvent>) {
        self.clock += 1;
        let batch = RecentBatch { clock: self.clock, first: at + 1, bytes: cost(&events), events };
        let newest = self.tails.get(&session).and_then(|tail| tail.batches.back());
        if newest.is_some_and(|newest| newest.end() != batch.first) {
            self.forget(session);
        }
        let tail = self.tails.entry(session).or_default();
        tail.bytes += batch.bytes;
        self.bytes += batch.bytes;
        tail.batches.push_back(batch);
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

    pub(super) fn forget(&mut self, session: SessionId) {
        if let Some(tail) = self.tails.remove(&session) {
            for batch in &tail.batches {
                self.order.remove(&batch.clock);
            }
            self.bytes -= tail.bytes;
        }
    }

    /// Returns the events after `after`, or `None` if some of them are not here.
    pub(super) fn read(&self, session: SessionId, after: Seq, limit: ReadLimit) -> Option<Vec<StoredEvent>> {
        let batches = &self.tails.get(&session)?.batches;
        let next = after + 1;
        if next < batches.front()?.first {
            return None;
        }
        let mut page = RecentPage::new(limit);
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
            recent.push(session, at, vec![event(MAX_SESSION_BYTES / 20)]);
        }
        assert!(recent.bytes <= MAX_SESSION_BYTES);
        check_sums(&recent);
        assert_eq!(recent.read(session, 0, ALL), None);
        assert_eq!(numbers(&recent.read(session, 98, ALL).unwrap()), [99, 100]);
        assert_eq!(recent.read(session, 100, ALL), Some(Vec::new()));
    }

    #[test]
    fn read_starts_inside_batch() {
        let session = SessionId::from_bytes([1; 16]);
        let mut recent = RecentEvents::default();
        recent.push(session, 4, vec![event(1); 3]);
        recent.push(session, 7, vec![event(1); 2]);
        assert_eq!(recent.read(session, 3, ALL), None);
        for (after, expected) in [(4, &[5, 6, 7, 8, 9][..]), (6, &[7, 8, 9]), (7, &[8, 9]), (8, &[9]), (9, &[])] {
            assert_eq!(numbers(&recent.read(session, after, ALL).unwrap()), expected);
        }
        let few = ReadLimit { events: 2, bytes: usize::MAX };
        assert_eq!(numbers(&recent.read(session, 5, few).unwrap()), [6, 7]);
        // A gap in the numbers drops the earlier events.
        recent.push(session, 20, vec![event(1)]);
        assert_eq!(recent.read(session, 8, ALL), None);
        assert_eq!(numbers(&recent.read(session, 20, ALL).unwrap()), [21]);
        check_sums(&recent);
        recent.forget(session);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }

    #[test]
    fn oldest_batch_is_evicted_first() {
        let mut recent = RecentEvents::default();
        let session = |n: u8| SessionId::from_bytes([n; 16]);
        for n in 0..100 {
            recent.push(session(n), 0, vec![event(MAX_SESSION_BYTES / 2)]);
            recent.push(session(n), 1, vec![event(MAX_SESSION_BYTES / 4)]);
            recent.push(session(0), u64::from(n) + 2, vec![event(1)]);
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
                recent.push(SessionId::from_bytes([n; 16]), at, vec![event(len)]);
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
        recent.push(quiet, 0, vec![event(10)]);
        recent.push(busy, 0, vec![event(10)]);
        let take = |recent: &mut RecentEvents| {
            let old = recent.age();
            std::iter::from_fn(|| Some(recent.take_old(old)).filter(|some| !some.is_empty())).flatten().count()
        };
        assert_eq!(take(&mut recent), 0);
        for at in 1..=2 * MAX_BATCHES_PER_TAKE as Seq {
            recent.push(busy, at, vec![event(10)]);
        }
        assert_eq!(take(&mut recent), 2);
        assert_eq!(recent.read(quiet, 0, ALL), None);
        assert_eq!(recent.read(busy, 1, ALL).unwrap().len(), 2 * MAX_BATCHES_PER_TAKE);
        check_sums(&recent);
        assert_eq!(take(&mut recent), 2 * MAX_BATCHES_PER_TAKE);
        assert_eq!((recent.bytes, recent.tails.len(), recent.order.len()), (0, 0, 0));
    }
}
