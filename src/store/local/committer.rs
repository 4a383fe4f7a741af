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
    flight::{Commit, Flight},
    group::{Group, Known},
    log::Log,
    queue::{Ask, Queue},
    segment::Position,
    shared::Shared,
};
use crate::{store::ledger::Failure, wakeups::together};

pub(super) struct Committer {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// Whose turn it is has it.
    log: Mutex<Log>,
    flight: Flight,
    /// Told that there is enough to move into the catalog. A message that finds it busy is no loss.
    mover: mpsc::SyncSender<()>,
    thresholds: Thresholds,
    sync: Box<SyncData>,
}

/// Returns when all that was written to a file is on disk. Tests have it fail and take its time.
pub(super) type SyncData = dyn Fn(&File) -> io::Result<()> + Send + Sync;

/// When places are moved into the catalog: after so many, or so many bytes of log, as a restart replays at most that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    pub(super) places: usize,
    pub(super) bytes: u32,
}

/// What is asked of the log itself. It is answered with nothing on its way to disk.
enum OfTheLog {
    Check(oneshot::Sender<io::Result<()>>),
    CloseSegment(oneshot::Sender<io::Result<()>>),
}

impl Committer {
    pub(super) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        log: Log,
        mover: mpsc::SyncSender<()>,
        thresholds: Thresholds,
        sync: Box<SyncData>,
    ) -> Committer {
        Committer { shared, queue, log: Mutex::new(log), flight: Flight::default(), mover, thresholds, sync }
    }

    /// The life of one of the threads, which are numbered from 0. There are as many as [`super::log::HANDS`] at most.
    pub(super) fn run(&self, hand: usize) {
        let _guard = AbandonOnPanic(self);
        while let Some(asks) = self.queue.take() {
            self.commit(asks, hand);
            if self.flight.flying().is_empty() && self.queue.take_idle_turn() {
                self.log().prepare();
                self.queue.pass_on();
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        // Whoever panicked while holding it has the threads end.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the turn.
    fn commit(&self, asks: Vec<Ask>, hand: usize) {
        let (group, others) = self.admit(asks);
        // What was sent behind an append that is refused counts on it, and must be found while it waits.
        let mut alone = !others.is_empty() || !group.stumbled.is_empty();
        let mut log = self.log();
        let commit = self.write(group, &mut log).unwrap_or_else(|failed| {
            alone = true;
            *failed
        });
        let (segment, is_written) = (log.segment(), commit.len > 0);
        let (number, are_before) = {
            let mut flying = self.flight.flying();
            let are_before = !flying.is_empty();
            (flying.add(commit), are_before)
        };
        // Who waits alone for what another has written does not wait for that thread.
        let file = (is_written || alone && are_before).then(|| log.hand(hand));
        drop(log);
        if !alone {
            self.queue.pass_on();
        }
        match file.map(|file| (self.sync)(&file)) {
            Some(Err(error)) => self.mend(segment, &Arc::new(error), alone),
            Some(Ok(())) => self.land(Some(number)),
            None => self.land(None),
        }
        if alone {
            let landed = self.flight.wait_until_landed();
            for other in others {
                self.answer(other, &landed);
            }
            self.queue.pass_on();
        }
    }

    fn admit(&self, asks: Vec<Ask>) -> (Group, Vec<OfTheLog>) {
        let flying = self.flight.flying();
        let state = self.shared.state();
        let (mut group, mut others) = (Group::behind(&flying), Vec::new());
        let known = Known { flying: &flying, state: &state };
        for ask in asks {
            match ask {
                Ask::Change(request) => group.admit(*request, &known),
                Ask::Check(reply) => others.push(OfTheLog::Check(reply)),
                Ask::CloseSegment(reply) => others.push(OfTheLog::CloseSegment(reply)),
            }
        }
        (group, others)
    }

    /// Writes it behind what is on its way. An error: it could not be, and all of it has failed.
    fn write(&self, mut group: Group, log: &mut Log) -> Result<Commit, Box<Commit>> {
        let bytes = std::mem::take(&mut group.bytes);
        if bytes.is_empty() {
            return Ok(Commit { group, at: Position::START, len: 0 });
        }
        let written = self.make_room(bytes.len(), log).map_err(Failure::Refused);
        match written.and_then(|at| log.write(&bytes).map(|()| at)) {
            Ok(at) => Ok(Commit { group, at, len: bytes.len() as u32 }),
            Err(failure) => {
                group.fail(&failure);
                Err(Box::new(Commit { group, at: Position::START, len: 0 }))
            }
        }
    }

    fn make_room(&self, len: usize, log: &mut Log) -> Result<Position, Arc<io::Error>> {
        if !log.has_room(len) {
            self.flight.wait_until_landed()?;
        }
        let mut flying = self.flight.flying();
        if let Some(error) = flying.has_failed() {
            return Err(error);
        }
        let at = log.make_room(len)?;
        flying.goes_on_in(at.segment);
        Ok(at)
    }

    /// All up to `number` is on disk, and with it what follows and had nothing to be written.
    fn land(&self, number: Option<u64>) {
        together(|| {
            let mut flying = self.flight.flying();
            while let Some(mut commit) = flying.next_landed(number) {
                if commit.len > 0 {
                    self.publish(&mut commit);
                }
                self.tell(&mut commit.group);
            }
        });
        self.flight.changed();
    }

    fn publish(&self, Commit { group, at, len }: &mut Commit) {
        let mut state = self.shared.change();
        if at.segment > state.end.segment {
            state.purged = None;
        }
        group.publish(&mut state, *at);
        state.end = Position { segment: at.segment, offset: at.offset + *len };
        let bytes = match state.end.segment == state.moved.segment {
            true => state.end.offset - state.moved.offset,
            false => state.end.offset,
        };
        if state.moving.is_none() && (state.fresh.len() >= self.thresholds.places || bytes >= self.thresholds.bytes) {
            let _ = self.mover.try_send(());
        }
    }

    fn tell(&self, group: &mut Group) {
        let stumbled = std::mem::take(&mut group.stumbled);
        match stumbled.is_empty() {
            true => group.answer(),
            false => self.queue.answer_and_fail(&stumbled, || group.answer()),
        }
    }

    /// A sync of this segment failed. Void is all that is not known to be on disk, and what was decided on top of it. So it is also
    /// where another sync has answered for this commit meanwhile: the kernel says once to each that it lost a page, and does not
    /// say whose.
    fn mend(&self, segment: u32, error: &Arc<io::Error>, has_turn: bool) {
        {
            let mut flying = self.flight.flying();
            if !flying.fail(segment, error.clone()) {
                return;
            }
            if !has_turn {
                self.queue.mending_is_due();
            }
        }
        self.flight.changed();
        if !has_turn {
            self.queue.take_turn_to_mend();
        }
        let mut log = self.log();
        let void = self.flight.flying().clear();
        log.give_up(void.iter().find(|commit| commit.len > 0).map(|commit| commit.at));
        drop(log);
        together(|| {
            for mut commit in void {
                commit.group.fail(&match commit.len {
                    0 => Failure::Refused(error.clone()),
                    _ => Failure::Unknown(error.clone()),
                });
                self.tell(&mut commit.group);
            }
        });
        self.flight.changed();
        if !has_turn {
            self.queue.pass_on();
        }
    }

    fn answer(&self, asked: OfTheLog, landed: &Result<(), Arc<io::Error>>) {
        let landed = landed.clone().map_err(|error| io::Error::new(error.kind(), error));
        // Whoever no longer listens does not need the answer.
        match asked {
            OfTheLog::Check(reply) => drop(reply.send(landed.and_then(|()| self.log().check()))),
            OfTheLog::CloseSegment(reply) => drop(reply.send(landed.and_then(|()| self.close_segment()))),
        }
    }

    fn close_segment(&self) -> io::Result<()> {
        let at = self.log().close_segment()?;
        let mut state = self.shared.change();
        (state.end, state.purged) = (at, None);
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
            self.0.flight.abandon();
            self.0.queue.abandon();
        }
    }
}
