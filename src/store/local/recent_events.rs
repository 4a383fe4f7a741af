//! The newest events of the sessions that work now. Whoever follows a session reads here and never touches the disk.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::super::{JournalEvent, ReadLimit, Seq, SessionId, StoredEvent};

/// Bounds of what is kept: of one session, and in all. Beyond, the oldest go, and are read from the log again.
///
/// One commit can hold thousands of events of one session, and a little of each of a thousand. Both must be here still when
/// those who follow come for them, or a flood is read back from the log. So what is let go is what has been here the longest,
/// whosever it is: where a thousand take turns, whoever has been quiet the longest is about to speak, and is not read to its end.
const MAX_SESSION_BYTES: usize = 1 << 20;
const MAX_TOTAL_BYTES: usize = 64 << 20;
/// What an event costs beside its text, and what a batch costs beside its events.
const OVERHEAD: usize = 96;
/// So many batches are taken out at once where others wait meanwhile.
const MAX_BATCHES_PER_TAKE: usize = 512;

#[derive(Debug, Default)]
pub(super) struct RecentEvents {
    tails: HashMap<SessionId, SessionTail>,
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
struct SessionTail {
    /// Never none.
    batches: VecDeque<RecentBatch>,
    bytes: usize,
}

/// What was appended at once.
#[derive(Debug)]
pub(super) struct RecentBatch {
    clock: u64,
    /// The number of the first of its events.
    first: Seq,
    events: Vec<JournalEvent>,
    bytes: usize,
}

/// What was there when old things were asked for the last time but one.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecentAge(u64);

fn cost(events: &[JournalEvent]) -> usize {
    events.iter().map(|event| event.json.len() + event.kind.len() + OVERHEAD).sum::<usize>() + OVERHEAD
}

impl RecentBatch {
    /// The number that comes after its last.
    fn end(&self) -> Seq {
        self.first + self.events.len() as Seq
    }
}

impl RecentEvents {
    /// `events` follow `at`.
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

    /// From now on what is here is old the next time; returns what is old now, for [`Recent::take_old`].
    pub(super) fn age(&mut self) -> RecentAge {
        RecentAge(std::mem::replace(&mut self.old_until, self.clock))
    }

    /// Takes out some of what is old, as long as there is any: who followed it has read it. To free it takes a while, which is the
    /// caller's to spend where nobody waits.
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

/// Gathers events up to a limit, but never fewer than one.
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

    /// Whether there was room.
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
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
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
    fn a_session_keeps_its_newest_and_says_what_it_lacks() {
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
    fn reading_goes_on_in_the_middle_of_what_was_appended_at_once() {
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
    fn where_all_take_turns_nobody_loses_what_is_newest() {
        let mut recent = RecentEvents::default();
        let (sessions, len) = (100, MAX_TOTAL_BYTES / 100 / 8 - 2 * OVERHEAD);
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
