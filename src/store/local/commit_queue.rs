//! What waits for the committers, in the order in which it was asked for, and whose turn it is to take it.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::store::{
    Epoch, NewEvent, SessionId,
    ledger::{Change, Entry, Failure},
};

pub(super) type Verdict = Result<Option<Entry>, Failure>;

/// A change that is to become durable.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) session: SessionId,
    pub(super) change: Change,
    /// The same, as it goes into the log. Encoded by the caller, so that a committer does not.
    pub(super) payload: Vec<u8>,
    /// The same once more, for those who read what is newest.
    pub(super) events: Vec<NewEvent>,
    pub(super) reply: oneshot::Sender<Verdict>,
}

impl Request {
    fn weight(&self) -> usize {
        self.payload.len() + 256
    }

    /// Which row of pipelined appends it stands in.
    pub(super) fn row(&self) -> Option<(SessionId, Epoch)> {
        match self.change {
            Change::Append { epoch, .. } => Some((self.session, epoch)),
            Change::Create(_) | Change::Put { .. } | Change::Claim | Change::Forget => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum Ask {
    Change(Box<Request>),
    /// Whether a change would succeed now.
    Check(oneshot::Sender<io::Result<()>>),
    /// What is written next goes into a new segment.
    CloseSegment(oneshot::Sender<io::Result<()>>),
}

/// Appends that failed, and what those queued behind them are told.
pub(super) type Stumbled = HashMap<(SessionId, Epoch), Failure>;

#[derive(Debug)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    /// For whoever waits for the turn to mend the log.
    turn_is_free: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    asks: VecDeque<Ask>,
    bytes: usize,
    /// How much of it is of each session.
    of: HashMap<SessionId, usize>,
    closed: bool,
    /// Somebody has the turn: what is taken is written before more is taken.
    turn_is_taken: bool,
    /// Somebody waits for the turn who goes before all others.
    is_to_be_mended: bool,
    /// Committers that sleep. To wake one is a system call, even when all are awake.
    sleeping: usize,
}

/// How much may wait. Beyond it appends are refused: the disk cannot keep up, and memory is not the place to hide that.
const MOST_WAITING: usize = 128 << 20;
/// As much again is for those of whom little waits: a few that are greedy do not take the place of the others.
const LITTLE: usize = 1 << 20;
/// How much goes into one commit.
const MOST_AT_ONCE: usize = 16 << 20;

impl Waiting {
    fn can_be_taken(&self) -> bool {
        !self.asks.is_empty() && !self.turn_is_taken && !self.is_to_be_mended
    }

    fn has_room_for(&self, session: SessionId) -> bool {
        let own = self.of.get(&session).copied().unwrap_or_default();
        self.bytes <= if own <= LITTLE { 2 * MOST_WAITING } else { MOST_WAITING }
    }

    fn add(&mut self, request: &Request) {
        self.bytes += request.weight();
        *self.of.entry(request.session).or_default() += request.weight();
    }

    fn remove(&mut self, request: &Request) {
        self.bytes -= request.weight();
        if let hash_map::Entry::Occupied(mut of) = self.of.entry(request.session) {
            *of.get_mut() -= request.weight();
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue { waiting: Mutex::default(), arrived: Condvar::new(), turn_is_free: Condvar::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, ask: Ask) -> Result<(), Failure> {
        let refuse = |kind, text: &str| Err(Failure::Refused(Arc::new(io::Error::new(kind, text))));
        let mut waiting = self.waiting();
        if waiting.closed {
            return refuse(io::ErrorKind::BrokenPipe, "the journal is closed; start the server again");
        }
        if let Ask::Change(request) = &ask {
            if !waiting.has_room_for(request.session) {
                return refuse(io::ErrorKind::WouldBlock, "too much waits for the disk already; try again later");
            }
            waiting.add(request);
        }
        // Who is awake, or has the turn, looks again before it sleeps.
        let is_first = waiting.asks.is_empty();
        waiting.asks.push_back(ask);
        let wakes = is_first && waiting.sleeping > 0 && waiting.can_be_taken();
        drop(waiting);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// All that has gathered, up to the size of a commit, and the turn; waits for the first. `None` once it is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<Ask>> {
        let mut waiting = self.waiting();
        while !waiting.can_be_taken() {
            if waiting.closed && waiting.asks.is_empty() {
                return None;
            }
            waiting.sleeping += 1;
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleeping -= 1;
        }
        waiting.turn_is_taken = true;
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < MOST_AT_ONCE
            && let Some(ask) = waiting.asks.pop_front()
        {
            if let Ask::Change(request) = &ask {
                bytes += request.weight();
                waiting.remove(request);
            }
            taken.push(ask);
        }
        Some(taken)
    }

    /// The turn, if nothing is to be done with it.
    pub(super) fn take_idle_turn(&self) -> bool {
        let mut waiting = self.waiting();
        let is_idle = waiting.asks.is_empty() && !waiting.closed && !waiting.turn_is_taken && !waiting.is_to_be_mended;
        waiting.turn_is_taken |= is_idle;
        is_idle
    }

    /// Nobody gets the turn from now on but whoever [takes](Queue::take_turn_to_mend) it to mend.
    pub(super) fn mending_is_due(&self) {
        self.waiting().is_to_be_mended = true;
    }

    /// Waits for the turn, once mending is due.
    pub(super) fn take_turn_to_mend(&self) {
        let mut waiting = self.waiting();
        while waiting.turn_is_taken {
            waiting = self.turn_is_free.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        (waiting.turn_is_taken, waiting.is_to_be_mended) = (true, false);
    }

    /// Ends a turn.
    pub(super) fn pass_on(&self) {
        let mut waiting = self.waiting();
        waiting.turn_is_taken = false;
        let (mends, ends) = (waiting.is_to_be_mended, waiting.closed);
        let wakes = waiting.sleeping > 0 && waiting.can_be_taken();
        drop(waiting);
        if mends {
            self.turn_is_free.notify_one();
        } else if ends {
            // What a sleeper waited for may be there no more.
            self.arrived.notify_all();
        } else if wakes {
            self.arrived.notify_one();
        }
    }

    /// Answers by `answer`, and in the same moment fails what already waits behind the failed appends: whoever sent it did
    /// so on the assumption that they succeed.
    pub(super) fn answer_and_fail(&self, stumbled: &Stumbled, answer: impl FnOnce()) {
        let mut waiting = self.waiting();
        answer();
        let (failed, kept): (VecDeque<Ask>, VecDeque<Ask>) =
            std::mem::take(&mut waiting.asks).into_iter().partition(|ask| failure_of(ask, stumbled).is_some());
        waiting.asks = kept;
        for ask in failed {
            if let (Some(failure), Ask::Change(request)) = (failure_of(&ask, stumbled), ask) {
                waiting.remove(&request);
                // Whoever no longer listens does not need the answer.
                let _ = request.reply.send(Err(failure));
            }
        }
    }

    /// Takes nothing more; what waits is still carried out.
    pub(super) fn close(&self) {
        self.waiting().closed = true;
        self.arrived.notify_all();
    }

    /// For a committer that will not come back: whoever waits is told so by the dropped reply, and the others end.
    pub(super) fn abandon(&self) {
        let mut waiting = self.waiting();
        (waiting.closed, waiting.turn_is_taken) = (true, false);
        waiting.asks.clear();
        drop(waiting);
        self.arrived.notify_all();
        self.turn_is_free.notify_all();
    }
}

fn failure_of(ask: &Ask, stumbled: &Stumbled) -> Option<Failure> {
    match ask {
        Ask::Change(request) => stumbled.get(&request.row()?).cloned(),
        Ask::Check(_) | Ask::CloseSegment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(session: SessionId, bytes: usize) -> Ask {
        let (reply, _) = oneshot::channel();
        let payload = vec![0; bytes];
        Ask::Change(Box::new(Request { session, change: Change::Claim, payload, events: Vec::new(), reply }))
    }

    #[test]
    fn the_greedy_do_not_take_the_place_of_the_others() {
        let queue = Queue::new();
        let [greedy, another, modest] = [SessionId::generate(), SessionId::generate(), SessionId::generate()];
        while queue.push(ask(greedy, 8 << 20)).is_ok() {}
        assert!(queue.waiting().bytes < MOST_WAITING + (9 << 20));
        assert!(queue.push(ask(another, 2 << 20)).is_ok(), "of it nothing waits");
        assert!(queue.push(ask(another, 1)).is_err(), "and now much");
        for _ in 0..100 {
            queue.push(ask(modest, 1000)).expect("there is room for those of whom little waits");
        }
        let mut taken = 0;
        while !queue.waiting().asks.is_empty() {
            taken += queue.take().expect("it is open").len();
            queue.pass_on();
        }
        assert_eq!(taken, 16 + 1 + 100);
        assert_eq!(queue.waiting().bytes, 0);
        assert!(queue.waiting().of.is_empty());
        assert!(queue.push(ask(greedy, 1)).is_ok());
    }
}
