//! Commit queue: requests that wait for the committers, in order, and the turn to take them.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::store::{
    Epoch, SessionId,
    session_change::{ChangeFailure, SessionChange, SessionEntry},
};

pub(super) type ChangeOutcome = Result<Option<SessionEntry>, ChangeFailure>;

/// Change that is to become durable.
#[derive(Debug)]
pub(super) struct ChangeRequest {
    pub(super) session: SessionId,
    pub(super) change: SessionChange,
    /// The change as it goes into the log. Encoded by the caller to relieve the committers.
    pub(super) payload: Vec<u8>,
    pub(super) reply: oneshot::Sender<ChangeOutcome>,
}

impl ChangeRequest {
    fn weight(&self) -> usize {
        self.payload.len() + 256
    }

    /// Returns the row of pipelined appends that the change belongs to, if it is an append.
    pub(super) fn row(&self) -> Option<(SessionId, Epoch)> {
        match self.change {
            SessionChange::Append { epoch, .. } => Some((self.session, epoch)),
            SessionChange::Create(_) | SessionChange::Claim | SessionChange::Forget { .. } => None,
        }
    }
}

#[derive(Debug)]
pub(super) enum JournalRequest {
    Change(Box<ChangeRequest>),
    /// Asks if a change would succeed now.
    Check(oneshot::Sender<io::Result<()>>),
    /// Closes the segment, so the next commit goes into a new one.
    CloseSegment(oneshot::Sender<io::Result<()>>),
}

/// Rows with a failed append, and the failure for the appends queued behind it.
pub(super) type FailedRows = HashMap<(SessionId, Epoch), ChangeFailure>;

#[derive(Debug)]
pub(super) struct CommitQueue {
    queued: Mutex<QueuedRequests>,
    arrived: Condvar,
    /// Signalled for the thread that needs the turn for a recovery.
    turn_freed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedRequests {
    requests: VecDeque<JournalRequest>,
    bytes: usize,
    /// Share of each session.
    bytes_by_session: HashMap<SessionId, usize>,
    closed: bool,
    /// A committer has the turn: no more is taken until it has written what it took.
    turn_taken: bool,
    /// A thread waits for the turn to recover the log. It goes before all others.
    recovery_due: bool,
    /// Committers that sleep. Counted because a wake-up is a system call, even if all are awake.
    sleeping: usize,
}

/// Bound: 128 MiB of queued changes. When full: appends are rejected.
///
/// The disk cannot keep up then, and memory must not hide that.
const MAX_QUEUED_BYTES: usize = 128 << 20;
/// Largest share of a session that may use a second 128 MiB.
///
/// A few greedy sessions therefore cannot fill the queue for the others.
const SMALL_SHARE_BYTES: usize = 1 << 20;
/// Largest commit in bytes.
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
        if let hash_map::Entry::Occupied(mut bytes) = self.bytes_by_session.entry(request.session) {
            *bytes.get_mut() -= request.weight();
            if *bytes.get() == 0 {
                bytes.remove();
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

    pub(super) fn push(&self, request: JournalRequest) -> Result<(), ChangeFailure> {
        let reject = |kind, text: &str| Err(ChangeFailure::NotWritten(Arc::new(io::Error::new(kind, text))));
        let mut queued = self.queued();
        if queued.closed {
            return reject(io::ErrorKind::BrokenPipe, "the journal is closed; restart the server");
        }
        if let JournalRequest::Change(request) = &request {
            if !queued.has_room_for(request.session) {
                return reject(io::ErrorKind::WouldBlock, "too many appends wait for the disk; try again later");
            }
            queued.add(request);
        }
        // A committer that is awake or has the turn checks the queue again before it sleeps.
        let is_first = queued.requests.is_empty();
        queued.requests.push_back(request);
        let wakes = is_first && queued.sleeping > 0 && queued.can_be_taken();
        drop(queued);
        if wakes {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes the queued requests, up to the size of a commit, and the turn.
    ///
    /// Blocks until there is a request. Returns `None` once the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Vec<JournalRequest>> {
        let mut queued = self.queued();
        while !queued.can_be_taken() {
            if queued.closed && queued.requests.is_empty() {
                return None;
            }
            queued.sleeping += 1;
            queued = self.arrived.wait(queued).unwrap_or_else(PoisonError::into_inner);
            queued.sleeping -= 1;
        }
        queued.turn_taken = true;
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < MAX_COMMIT_BYTES
            && let Some(request) = queued.requests.pop_front()
        {
            if let JournalRequest::Change(request) = &request {
                bytes += request.weight();
                queued.remove(request);
            }
            taken.push(request);
        }
        Some(taken)
    }

    /// Takes the turn if no request is queued.
    pub(super) fn take_idle_turn(&self) -> bool {
        let mut queued = self.queued();
        let is_idle = queued.requests.is_empty() && !queued.closed && !queued.turn_taken && !queued.recovery_due;
        queued.turn_taken |= is_idle;
        is_idle
    }

    /// Reserves the turn for the thread that calls [`CommitQueue::take_turn_to_recover`].
    pub(super) fn request_recovery(&self) {
        self.queued().recovery_due = true;
    }

    /// Blocks until the turn is free. Requires an earlier [`CommitQueue::request_recovery`].
    pub(super) fn take_turn_to_recover(&self) {
        let mut queued = self.queued();
        while queued.turn_taken {
            queued = self.turn_freed.wait(queued).unwrap_or_else(PoisonError::into_inner);
        }
        (queued.turn_taken, queued.recovery_due) = (true, false);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&self) {
        let mut queued = self.queued();
        queued.turn_taken = false;
        let (recovers, is_closed) = (queued.recovery_due, queued.closed);
        let wakes = queued.sleeping > 0 && queued.can_be_taken();
        drop(queued);
        if recovers {
            self.turn_freed.notify_one();
        } else if is_closed {
            // The request that a sleeping committer waits for may be gone.
            self.arrived.notify_all();
        } else if wakes {
            self.arrived.notify_one();
        }
    }

    /// Replies by calling `answer`, and atomically fails the requests queued behind the failed
    /// appends.
    ///
    /// Their senders assumed that those appends succeed.
    pub(super) fn answer_and_fail(&self, failed_rows: &FailedRows, answer: impl FnOnce()) {
        let mut queued = self.queued();
        answer();
        let (failed, kept): (VecDeque<JournalRequest>, VecDeque<JournalRequest>) = std::mem::take(&mut queued.requests)
            .into_iter()
            .partition(|request| failure_of(request, failed_rows).is_some());
        queued.requests = kept;
        for request in failed {
            if let (Some(failure), JournalRequest::Change(request)) = (failure_of(&request, failed_rows), request) {
                queued.remove(&request);
                // A receiver that is gone needs no reply.
                let _ = request.reply.send(Err(failure));
            }
        }
    }

    /// Rejects further requests. Queued requests are still carried out.
    pub(super) fn close(&self) {
        self.queued().closed = true;
        self.arrived.notify_all();
    }

    /// Empties and closes the queue after the panic of a committer.
    ///
    /// The dropped replies inform the callers. The other committers end.
    pub(super) fn abandon(&self) {
        let mut queued = self.queued();
        (queued.closed, queued.turn_taken) = (true, false);
        queued.requests.clear();
        drop(queued);
        self.arrived.notify_all();
        self.turn_freed.notify_all();
    }
}

fn failure_of(request: &JournalRequest, failed_rows: &FailedRows) -> Option<ChangeFailure> {
    match request {
        JournalRequest::Change(request) => failed_rows.get(&request.row()?).cloned(),
        JournalRequest::Check(_) | JournalRequest::CloseSegment(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(session: SessionId, bytes: usize) -> JournalRequest {
        let (reply, _) = oneshot::channel();
        let payload = vec![0; bytes];
        JournalRequest::Change(Box::new(ChangeRequest { session, change: SessionChange::Claim, payload, reply }))
    }

    #[test]
    fn greedy_session_leaves_room_for_others() {
        let queue = CommitQueue::new();
        let [greedy, another, modest] = [SessionId::generate(), SessionId::generate(), SessionId::generate()];
        while queue.push(request(greedy, 8 << 20)).is_ok() {}
        assert!(queue.queued().bytes < MAX_QUEUED_BYTES + (9 << 20));
        assert!(queue.push(request(another, 2 << 20)).is_ok(), "the session has nothing queued");
        assert!(queue.push(request(another, 1)).is_err(), "the session has more than its small share queued");
        for _ in 0..100 {
            queue.push(request(modest, 1000)).expect("sessions with little in the queue have room");
        }
        let mut taken = 0;
        while !queue.queued().requests.is_empty() {
            taken += queue.take().expect("the queue is open").len();
            queue.end_turn();
        }
        assert_eq!(taken, 16 + 1 + 100);
        assert_eq!(queue.queued().bytes, 0);
        assert!(queue.queued().bytes_by_session.is_empty());
        assert!(queue.push(request(greedy, 1)).is_ok());
    }
}
