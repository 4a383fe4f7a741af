//! The threads that write: each takes what has gathered, decides, writes it at once, syncs, publishes, answers in order.
//!
//! There is no fixed window: what gathers while one commit is written is the next. They write in turn and wait for the disk
//! side by side, and a sync answers for all that was written before it, whoever wrote that. So a thread that is not woken when its
//! sync is done, as happens on a busy machine, holds nobody up: the other's sync comes soon after.
//!
//! Where something fails, the threads are as one: the log is mended by a thread that has the turn, with nothing left on its way.

use std::{
    fs::File,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
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
use crate::{store::session_change::ChangeFailure, wake_batch::coalesce_wakes};

pub(super) struct Committer {
    shared: Arc<SharedJournal>,
    queue: Arc<CommitQueue>,
    /// Whose turn it is has it.
    log: Mutex<LogWriter>,
    in_flight: InFlightCommits,
    /// Told that there is enough to move into the catalog. A message that finds it busy is no loss.
    flush_signal: mpsc::SyncSender<()>,
    thresholds: FlushThresholds,
    sync: Box<SyncDataFn>,
}

/// Returns when all that was written to a file is on disk. Tests have it fail and take its time.
pub(super) type SyncDataFn = dyn Fn(&File) -> io::Result<()> + Send + Sync;

/// When places are moved into the catalog: after so many, or so many bytes of log, as a restart replays at most that.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushThresholds {
    pub(super) locations: usize,
    pub(super) bytes: u32,
}

/// What is asked of the log itself. It is answered with nothing on its way to disk.
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

    /// The life of one of the threads, which are numbered from 0. There are as many as [`super::log::HANDS`] at most.
    pub(super) fn run(&self, hand: usize) {
        let _guard = AbandonOnPanic(self);
        while let Some(asks) = self.queue.take() {
            self.commit(asks, hand);
            if self.in_flight.lock_queue().is_empty() && self.queue.take_idle_turn() {
                self.log().preallocate();
                self.queue.end_turn();
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, LogWriter> {
        // Whoever panicked while holding it has the threads end.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the turn.
    fn commit(&self, asks: Vec<JournalRequest>, hand: usize) {
        let (group, others) = self.admit(asks);
        // What was sent behind an append that is refused counts on it, and must be found while it waits.
        let mut alone = !others.is_empty() || !group.failed_rows.is_empty();
        let mut log = self.log();
        let commit = self.write(group, &mut log).unwrap_or_else(|failed| {
            alone = true;
            *failed
        });
        let (segment, is_written) = (log.segment(), commit.len > 0);
        let (number, are_before) = {
            let mut flying = self.in_flight.lock_queue();
            let are_before = !flying.is_empty();
            (flying.add(commit), are_before)
        };
        // Who waits alone for what another has written does not wait for that thread.
        let file = (is_written || alone && are_before).then(|| log.sync_file(hand));
        drop(log);
        if !alone {
            self.queue.end_turn();
        }
        match file.map(|file| (self.sync)(&file)) {
            Some(Err(error)) => self.recover(segment, &Arc::new(error), alone),
            Some(Ok(())) => self.mark_committed(Some(number)),
            None => self.mark_committed(None),
        }
        if alone {
            let landed = self.in_flight.wait_until_committed();
            for other in others {
                self.answer(other, &landed);
            }
            self.queue.end_turn();
        }
    }

    fn admit(&self, asks: Vec<JournalRequest>) -> (CommitGroup, Vec<LogRequest>) {
        let flying = self.in_flight.lock_queue();
        let state = self.shared.state();
        let (mut group, mut others) = (CommitGroup::after_in_flight(&flying), Vec::new());
        let known = DecisionBase { in_flight: &flying, state: &state };
        for ask in asks {
            match ask {
                JournalRequest::Change(request) => group.admit(*request, &known),
                JournalRequest::Check(reply) => others.push(LogRequest::Check(reply)),
                JournalRequest::CloseSegment(reply) => others.push(LogRequest::CloseSegment(reply)),
            }
        }
        (group, others)
    }

    /// Writes it behind what is on its way. An error: it could not be, and all of it has failed.
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
        let mut flying = self.in_flight.lock_queue();
        if let Some(error) = flying.failure() {
            return Err(error);
        }
        let at = log.make_room(len)?;
        flying.set_segment(at.segment);
        Ok(at)
    }

    /// All up to `number` is on disk, and with it what follows and had nothing to be written.
    fn mark_committed(&self, number: Option<u64>) {
        coalesce_wakes(|| {
            let mut flying = self.in_flight.lock_queue();
            while let Some(mut commit) = flying.next_committed(number) {
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
        let stumbled = std::mem::take(&mut group.failed_rows);
        match stumbled.is_empty() {
            true => group.answer(),
            false => self.queue.answer_and_fail(&stumbled, || group.answer()),
        }
    }

    /// A sync of this segment failed. Void is all that is not known to be on disk, and what was decided on top of it. So it is also
    /// where another sync has answered for this commit meanwhile: the kernel says once to each that it lost a page, and does not
    /// say whose.
    fn recover(&self, segment: u32, error: &Arc<io::Error>, has_turn: bool) {
        {
            let mut flying = self.in_flight.lock_queue();
            if !flying.fail(segment, error.clone()) {
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

    fn answer(&self, asked: LogRequest, landed: &Result<(), Arc<io::Error>>) {
        let landed = landed.clone().map_err(|error| io::Error::new(error.kind(), error));
        // Whoever no longer listens does not need the answer.
        match asked {
            LogRequest::Check(reply) => drop(reply.send(landed.and_then(|()| self.log().check()))),
            LogRequest::CloseSegment(reply) => drop(reply.send(landed.and_then(|()| self.close_segment()))),
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

/// Callers, and the other threads, must not wait for a thread that is gone.
struct AbandonOnPanic<'a>(&'a Committer);

impl Drop for AbandonOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.in_flight.abandon();
            self.0.queue.abandon();
        }
    }
}
