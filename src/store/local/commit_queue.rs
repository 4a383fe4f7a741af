//! What waits for the committers, in the order in which it was asked for, and whose turn it is to take it.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::store::{
    Epoch, JournalEvent, SessionId,
    session_change::{ChangeFailure, SessionChange, SessionEntry},
};

pub(super) type ChangeOutcome = Result<Option<SessionEntry>, ChangeFailure>;

/// A change that is to become durable.
#[derive(Debug)]
pub(super) struct ChangeRequest {
    pub(super) session: SessionId,
    pub(super) change: SessionChange,
    /// The same, as it goes into the log. Encoded by the caller, so that a committer does not.
    pub(super) payload: Vec<u8>,
    /// The same once more, for those who read what is newest.
    pub(super) events: Vec<JournalEvent>,
    pub(super) reply: oneshot::Sender<ChangeOutcome>,
}

impl ChangeRequest {
    fn weight(&self) -> usize {
        self.payload.len() + 256
    }

    /// Which row of pipelined appends it stands in.
    pub(super) fn row(&self) -> Option<(SessionId, Epoch)> {
        match self.change {
            SessionChange::Append { epoch, .. } => Some((self.session, epoch)),
            SessionChange::Create(_) | SessionChange::Put { .. } | SessionChange::Claim | SessionChange::Forget => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum JournalRequest {
    Change(Box<ChangeRequest>),
    /// Whether a change would succeed now.
    Check(oneshot::Sender<io::Result<()>>),
    /// What is written next goes into a new segment.
    CloseSegment(oneshot::Sender<io::Result<()>>),
}

/// Appends that failed, and what those queued behind them are told.
pub(super) type FailedRows = HashMap<(SessionId, Epoch), ChangeFailure>;

#[derive(Debug)]
pub(super) struct CommitQueue {
    queued: Mutex<QueuedRequests>,
    arrived: Condvar,
    /// For whoever waits for the turn to mend the log.
    turn_freed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedRequests {
    requests: VecDeque<JournalRequest>,
    bytes: usize,
    /// How much of it is of each session.
    bytes_by_session: HashMap<SessionId, usize>,
    closed: bool,
    /// Somebody has the turn: what is taken is written before more is taken.
    turn_taken: bool,
    /// Somebody waits for the turn who goes before all others.
    recovery_due: bool,
    /// Committers that sleep. To wake one is a system call, even when all are awake.
    sleeping: usize,
}

/// How much may wait. Beyond it appends are refused: the disk cannot keep up, and memory is not the place to hide that.
const MAX_QUEUED_BYTES: usize = 128 << 20;
/// As much again is for those of whom little waits: a few that are greedy do not take the place of the others.
const SMALL_SHARE_BYTES: usize = 1 << 20;
/// How much goes into one commit.
const MAX_COMMIT_BYTES: usize = 16 << 20;

impl QueuedRequests {
    fn can_be_taken(&self) -> bool {
        !self.requests.is_empty() && !self.turn_taken && !self.recovery_due
    }

    fn has_room_for(&self, session: SessionId) -> bool {
        let own = self.bytes_by_session.get(&session).copied().unwrap_or_default();
        self.bytes <= if own <= SMALL_SHARE_BYTES { 2 * MAX_QUEUED_BYTES } else { MAX_QUEUED_BYTES }
    }

    fn add(&mut self, request: &ChangeRequest) {
        self.bytes += request.weight();
        *self.bytes_by_session.entry(request.session).or_default() += request.weight();
    }

    fn remove(&mut self, request: &ChangeRequest) {
        self.bytes -= request.weight();
        if let hash_map::Entry::Occupied(mut of) = self.bytes_by_session.entry(request.session) {
            *of.get_mut() -= request.weight();
            if *of.get() == 0 {
                of.remove();
            }
        }
    }
}

impl CommitQueue {
    pub(super) fn new() -> CommitQueue {
        CommitQueue { queued: Mutex::default(), arrived: Condvar::new(), turn_freed: Condvar::new() }
    }

    fn queued(&self) -> MutexGuard<'_, QueuedRequests> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, ask: JournalRequest) -> Result<(), ChangeFailure> {
        let refuse = |kind, text: &str| Err(ChangeFailure::NotWritten(Arc::new(io::Error::new(kind, text))));
        let mut waiting = self.queued();
        if waiting.closed {
            return refuse(io::ErrorKind::BrokenPipe, "the journal is closed; start the server again");
        }
        if let JournalRequest::Change(request) = &ask {
            if !waiting.has_room_for(request.session) {
                return refuse(io::ErrorKind::WouldBlock, "too much waits for the disk already; try again later");
            }
            waiting.add(request);
        }
        // Who is awake, or has the turn, looks again before it sleeps.
        let is_first = waiting.requests.is_empty();
        waiting.requests.push_back(ask);
        let wakes = is_first && waiting.sleeping > 0 && waiting.can_be_taken();
        drop(waiting);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// All that has gathered, up to the size of a commit, and the turn; waits for the first. `None` once it is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<JournalRequest>> {
        let mut waiting = self.queued();
        while !waiting.can_be_taken() {
            if waiting.closed && waiting.requests.is_empty() {
                return None;
            }
            waiting.sleeping += 1;
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.sleeping -= 1;
        }
        waiting.turn_taken = true;
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < MAX_COMMIT_BYTES
            && let Some(ask) = waiting.requests.pop_front()
        {
            if let JournalRequest::Change(request) = &ask {
                bytes += request.weight();
                waiting.remove(request);
            }
            taken.push(ask);
        }
        Some(taken)
    }

    /// The turn, if nothing is to be done with it.
    pub(super) fn take_idle_turn(&self) -> bool {
        let mut waiting = self.queued();
        let is_idle = waiting.requests.is_empty() && !waiting.closed && !waiting.turn_taken && !waiting.recovery_due;
        waiting.turn_taken |= is_idle;
        is_idle
    }

    /// Nobody gets the turn from now on but whoever [takes](Queue::take_turn_to_mend) it to mend.
    pub(super) fn request_recovery(&self) {
        self.queued().recovery_due = true;
    }

    /// Waits for the turn, once mending is due.
    pub(super) fn take_turn_to_recover(&self) {
        let mut waiting = self.queued();
        while waiting.turn_taken {
            waiting = self.turn_freed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        (waiting.turn_taken, waiting.recovery_due) = (true, false);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&self) {
        let mut waiting = self.queued();
        waiting.turn_taken = false;
        let (mends, ends) = (waiting.recovery_due, waiting.closed);
        let wakes = waiting.sleeping > 0 && waiting.can_be_taken();
        drop(waiting);
        if mends {
            self.turn_freed.notify_one();
        } else if ends {
            // What a sleeper waited for may be there no more.
            self.arrived.notify_all();
        } else if wakes {
            self.arrived.notify_one();
        }
    }

    /// Answers by `answer`, and in the same moment fails what already waits behind the failed appends: whoever sent it did
    /// so on the assumption that they succeed.
    pub(super) fn answer_and_fail(&self, stumbled: &FailedRows, answer: impl FnOnce()) {
        let mut waiting = self.queued();
        answer();
        let (failed, kept): (VecDeque<JournalRequest>, VecDeque<JournalRequest>) =
            std::mem::take(&mut waiting.requests).into_iter().partition(|ask| failure_of(ask, stumbled).is_some());
        waiting.requests = kept;
        for ask in failed {
            if let (Some(failure), JournalRequest::Change(request)) = (failure_of(&ask, stumbled), ask) {
                waiting.remove(&request);
                // Whoever no longer listens does not need the answer.
                let _ = request.reply.send(Err(failure));
            }
        }
    }

    /// Takes nothing more; what waits is still carried out.
    pub(super) fn close(&self) {
        self.queued().closed = true;
        self.arrived.notify_all();
    }

    /// For a committer that will not come back: whoever waits is told so by the dropped reply, and the others end.
    pub(super) fn abandon(&self) {
        let mut waiting = self.queued();
        (waiting.closed, waiting.turn_taken) = (true, false);
        waiting.requests.clear();
        drop(waiting);
        self.arrived.notify_all();
        self.turn_freed.notify_all();
    }
}

fn failure_of(ask: &JournalRequest, stumbled: &FailedRows) -> Option<ChangeFailure> {
    match ask {
        JournalRequest::Change(request) => stumbled.get(&request.row()?).cloned(),
        JournalRequest::Check(_) | JournalRequest::CloseSegment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(session: SessionId, bytes: usize) -> JournalRequest {
        let (reply, _) = oneshot::channel();
        let payload = vec![0; bytes];
        JournalRequest::Change(Box::new(ChangeRequest {
            session,
            change: SessionChange::Claim,
            payload,
            events: Vec::new(),
            reply,
        }))
    }

    #[test]
    fn the_greedy_do_not_take_the_place_of_the_others() {
        let queue = CommitQueue::new();
        let [greedy, another, modest] = [SessionId::generate(), SessionId::generate(), SessionId::generate()];
        while queue.push(ask(greedy, 8 << 20)).is_ok() {}
        assert!(queue.queued().bytes < MAX_QUEUED_BYTES + (9 << 20));
        assert!(queue.push(ask(another, 2 << 20)).is_ok(), "of it nothing waits");
        assert!(queue.push(ask(another, 1)).is_err(), "and now much");
        for _ in 0..100 {
            queue.push(ask(modest, 1000)).expect("there is room for those of whom little waits");
        }
        let mut taken = 0;
        while !queue.queued().requests.is_empty() {
            taken += queue.take().expect("it is open").len();
            queue.end_turn();
        }
        assert_eq!(taken, 16 + 1 + 100);
        assert_eq!(queue.queued().bytes, 0);
        assert!(queue.queued().bytes_by_session.is_empty());
        assert!(queue.push(ask(greedy, 1)).is_ok());
    }
}
