//! Committer threads: each takes the queued changes, decides, writes, syncs, publishes and replies.
//!
//! No fixed time window exists: changes that arrive during one commit form the next. The threads
//! write in turn and wait for the disk side by side. A sync covers everything written before it, by
//! either thread. A thread that the scheduler wakes late delays no commit, because the other
//! thread's sync follows soon.
//!
//! After a failure, one thread that holds the turn recovers the log, with no commit in flight.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

use super::{
    commit_group::{CommitGroup, DecisionBase},
    commit_queue::{CommitQueue, JournalRequest},
    in_flight::{InFlightCommit, InFlightCommits},
    log_writer::LogWriter,
    segment::LogPosition,
    shared::SharedJournal,
};
use crate::{net::wake_batch::coalesce_wakes, store::session_change::ChangeFailure, telemetry::metrics::METRICS};

pub(super) struct Committer {
    shared: Arc<SharedJournal>,
    queue: Arc<CommitQueue>,
    /// Used by the thread that holds the turn.
    log: Mutex<LogWriter>,
    in_flight: InFlightCommits,
    /// Signals the index flusher that enough locations are unflushed. While the flusher is busy, a
    /// signal may be lost.
    flush_signal: mpsc::SyncSender<()>,
    thresholds: FlushThresholds,
    sync: Box<SyncDataFn>,
}

/// Function that returns when everything written to a file is on disk. Tests let it fail or block.
pub(super) type SyncDataFn = dyn Fn(&File) -> io::Result<()> + Send + Sync;

/// Amounts after which locations are flushed into the catalog.
///
/// A restart replays about this much of the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushThresholds {
    pub(super) locations: usize,
    pub(super) bytes: u32,
}

/// Request to the log itself. Answered with no commit in flight.
enum LogRequest {
    Check(oneshot::Sender<io::Result<()>>),
    CloseSegment(oneshot::Sender<io::Result<()>>),
}

impl Committer {
    pub(super) fn new(
        shared: Arc<SharedJournal>,
        queue: Arc<CommitQueue>,
        log: LogWriter,
        flush_signal: mpsc::SyncSender<()>,
        thresholds: FlushThresholds,
        sync: Box<SyncDataFn>,
    ) -> Committer {
        Committer {
            shared,
            queue,
            log: Mutex::new(log),
            in_flight: InFlightCommits::default(),
            flush_signal,
            thresholds,
            sync,
        }
    }

    /// Runs one committer thread. `thread_index` is below
    /// [`COMMITTER_THREADS`](super::log_writer::COMMITTER_THREADS).
    pub(super) fn run(&self, thread_index: usize) {
        let _guard = AbandonOnPanic(self);
        while let Some(requests) = self.queue.take() {
            self.commit(requests, thread_index);
            if self.in_flight.lock_queue().is_empty() && self.queue.take_idle_turn() {
                self.log().preallocate();
                self.queue.end_turn();
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, LogWriter> {
        // A holder that panics ends all committer threads, so a poisoned lock needs no handling
        // here.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out one commit. The calling thread holds the turn.
    fn commit(&self, requests: Vec<JournalRequest>, thread_index: usize) {
        let began = Instant::now();
        let (group, others) = self.admit(requests);
        // Appends behind a rejected append rely on it. They must be failed while they are still
        // queued.
        let mut alone = !others.is_empty() || !group.failed_rows.is_empty();
        let mut log = self.log();
        let commit = self.write(group, &mut log).unwrap_or_else(|failed| {
            alone = true;
            *failed
        });
        let (segment, is_written) = (log.segment(), commit.len > 0);
        let (number, are_before) = {
            let mut in_flight = self.in_flight.lock_queue();
            let are_before = !in_flight.is_empty();
            (in_flight.add(commit), are_before)
        };
        // A thread that keeps the turn syncs earlier commits itself. It does not wait for the
        // thread that wrote them.
        let file = (is_written || alone && are_before).then(|| log.sync_file(thread_index));
        drop(log);
        if !alone {
            self.queue.end_turn();
        }
        match file.map(|file| (self.sync)(&file)) {
            Some(Err(error)) => self.recover(segment, &Arc::new(error), alone),
            Some(Ok(())) => {
                METRICS.journal_commit.observe(began.elapsed().as_secs_f64());
                self.mark_committed(Some(number));
            }
            None => self.mark_committed(None),
        }
        self.shared.disk_reserve.measure();
        if alone {
            let committed = self.in_flight.wait_until_committed();
            for other in others {
                self.answer(other, &committed);
            }
            self.queue.end_turn();
        }
    }

    fn admit(&self, requests: Vec<JournalRequest>) -> (CommitGroup, Vec<LogRequest>) {
        let in_flight = self.in_flight.lock_queue();
        let state = self.shared.state();
        let (mut group, mut others) = (CommitGroup::after_in_flight(&in_flight), Vec::new());
        let known = DecisionBase { in_flight: &in_flight, state: &state };
        for request in requests {
            match request {
                JournalRequest::Change(request) => group.admit(*request, &known),
                JournalRequest::Check(reply) => others.push(LogRequest::Check(reply)),
                JournalRequest::CloseSegment(reply) => others.push(LogRequest::CloseSegment(reply)),
            }
        }
        (group, others)
    }

    /// Writes the group behind the commits in flight. Fails with the failed commit if it cannot be
    /// written.
    fn write(&self, mut group: CommitGroup, log: &mut LogWriter) -> Result<InFlightCommit, Box<InFlightCommit>> {
        let bytes = std::mem::take(&mut group.bytes);
        if bytes.is_empty() {
            return Ok(InFlightCommit { group, at: LogPosition::START, len: 0 });
        }
        let written = self.make_room(bytes.len(), log).map_err(ChangeFailure::NotWritten);
        match written.and_then(|at| log.write(&bytes).map(|()| at)) {
            Ok(at) => Ok(InFlightCommit { group, at, len: bytes.len() as u32 }),
            Err(failure) => {
                group.fail(&failure);
                Err(Box::new(InFlightCommit { group, at: LogPosition::START, len: 0 }))
            }
        }
    }

    fn make_room(&self, len: usize, log: &mut LogWriter) -> Result<LogPosition, Arc<io::Error>> {
        if !log.has_room(len) {
            self.in_flight.wait_until_committed()?;
        }
        let mut in_flight = self.in_flight.lock_queue();
        if let Some(error) = in_flight.failure() {
            return Err(error);
        }
        let at = log.make_room(len)?;
        in_flight.set_segment(at.segment);
        Ok(at)
    }

    /// Publishes and answers all commits up to `number`, which are on disk.
    ///
    /// Also answers the commits behind them that wrote nothing.
    fn mark_committed(&self, number: Option<u64>) {
        coalesce_wakes(|| {
            let mut in_flight = self.in_flight.lock_queue();
            while let Some(mut commit) = in_flight.next_committed(number) {
                if commit.len > 0 {
                    self.publish(&mut commit);
                }
                self.send_replies(&mut commit.group);
            }
        });
        self.in_flight.notify_changed();
    }

    fn publish(&self, InFlightCommit { group, at, len }: &mut InFlightCommit) {
        let mut state = self.shared.state_mut();
        if at.segment > state.end.segment {
            state.purged_since = None;
        }
        group.publish(&mut state, *at);
        METRICS.journal_bytes.inc_by((*len).into());
        state.end = LogPosition { segment: at.segment, offset: at.offset + *len };
        let bytes = match state.end.segment == state.flushed_to.segment {
            true => state.end.offset - state.flushed_to.offset,
            false => state.end.offset,
        };
        if state.flushing.is_none()
            && (state.unflushed.len() >= self.thresholds.locations || bytes >= self.thresholds.bytes)
        {
            let _ = self.flush_signal.try_send(());
        }
    }

    fn send_replies(&self, group: &mut CommitGroup) {
        let failed_rows = std::mem::take(&mut group.failed_rows);
        match failed_rows.is_empty() {
            true => group.answer(),
            false => self.queue.answer_and_fail(&failed_rows, || group.answer()),
        }
    }

    /// Voids all commits that may not be on disk, and all that was decided on top of them.
    ///
    /// Called after a failed sync of `segment`. Applies even if another sync has covered this
    /// commit meanwhile. The kernel reports a lost page once per file description, and does not
    /// name the page.
    fn recover(&self, segment: u32, error: &Arc<io::Error>, has_turn: bool) {
        {
            let mut in_flight = self.in_flight.lock_queue();
            if !in_flight.fail(segment, error.clone()) {
                return;
            }
            if !has_turn {
                self.queue.request_recovery();
            }
        }
        self.in_flight.notify_changed();
        if !has_turn {
            self.queue.take_turn_to_recover();
        }
        let mut log = self.log();
        let void = self.in_flight.lock_queue().clear();
        log.abandon_file(void.iter().find(|commit| commit.len > 0).map(|commit| commit.at));
        drop(log);
        coalesce_wakes(|| {
            for mut commit in void {
                commit.group.fail(&match commit.len {
                    0 => ChangeFailure::NotWritten(error.clone()),
                    _ => ChangeFailure::Unknown(error.clone()),
                });
                self.send_replies(&mut commit.group);
            }
        });
        self.in_flight.notify_changed();
        if !has_turn {
            self.queue.end_turn();
        }
    }

    fn answer(&self, request: LogRequest, committed: &Result<(), Arc<io::Error>>) {
        let committed = committed.clone().map_err(|error| io::Error::new(error.kind(), error));
        // A receiver that is gone needs no reply.
        match request {
            LogRequest::Check(reply) => drop(reply.send(committed.and_then(|()| self.log().check()))),
            LogRequest::CloseSegment(reply) => drop(reply.send(committed.and_then(|()| self.close_segment()))),
        }
    }

    fn close_segment(&self) -> io::Result<()> {
        let at = self.log().close_segment()?;
        let mut state = self.shared.state_mut();
        (state.end, state.purged_since) = (at, None);
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.log().trim();
    }
}

/// Releases callers and the other threads when a committer thread panics.
struct AbandonOnPanic<'a>(&'a Committer);

impl Drop for AbandonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.in_flight.abandon();
            self.0.queue.abandon();
        }
    }
}
