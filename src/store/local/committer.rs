//! The one thread that writes: takes what has gathered, decides, writes it at once, syncs, publishes, answers in order.
//!
//! There is no fixed window: what gathers while one commit runs is the next commit.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, mpsc},
    time::Instant,
};

use tokio::sync::oneshot;

use super::{
    frame::{self, Kind},
    log::Log,
    places::Place,
    queue::{Ask, Queue, Request, Stumbled, Verdict},
    segment::Position,
    shared::{Shared, State},
};
use crate::{
    store::{
        NewEvent, Seq, SessionId,
        ledger::{Change, Entry, Failure, Rejection, decide},
    },
    wakeups::together,
};

pub(super) struct Committer {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<Queue>,
    pub(super) log: Log,
    /// Told that there is enough to move into the catalog. A message that finds it busy is no loss.
    pub(super) mover: mpsc::SyncSender<()>,
    pub(super) thresholds: Thresholds,
}

/// When places are moved into the catalog: after so many, or so many bytes of log, as a restart replays at most that.
#[derive(Debug, Clone, Copy)]
pub(super) struct Thresholds {
    pub(super) places: usize,
    pub(super) bytes: u32,
}

impl Committer {
    pub(super) fn run(mut self) {
        let _guard = AbandonOnPanic(self.queue.clone());
        while let Some(asks) = self.queue.take() {
            self.commit(asks);
            if self.queue.is_empty() {
                self.log.prepare();
            }
        }
        self.log.trim();
    }

    fn commit(&mut self, asks: Vec<Ask>) {
        let mut group = Group::default();
        let mut closing = Vec::new();
        let shared = self.shared.clone();
        {
            let state = shared.state();
            for ask in asks {
                match ask {
                    Ask::Change(request) => group.admit(*request, &state),
                    // Whoever no longer listens does not need the answer; so below.
                    Ask::Check(reply) => drop(reply.send(self.log.check())),
                    Ask::CloseSegment(reply) => closing.push(reply),
                }
            }
        }
        match self.write(&group) {
            Ok(at) => self.publish(&mut group, at),
            Err(failure) => group.fail(&failure),
        }
        let Group { verdicts, stumbled, .. } = group;
        let answer = || {
            together(|| {
                for (reply, verdict) in verdicts {
                    let _ = reply.send(verdict);
                }
            });
        };
        if stumbled.is_empty() {
            answer()
        } else {
            self.queue.answer_and_fail(&stumbled, answer)
        }
        for reply in closing {
            let _ = reply.send(self.close_segment());
        }
    }

    fn close_segment(&mut self) -> io::Result<()> {
        let at = self.log.close_segment()?;
        let mut state = self.shared.change();
        (state.end, state.purged) = (at, None);
        Ok(())
    }

    fn write(&mut self, group: &Group) -> Result<Position, Failure> {
        if group.bytes.is_empty() {
            return Ok(Position::START);
        }
        let at = self.log.make_room(group.bytes.len()).map_err(|error| Failure::Refused(Arc::new(error)))?;
        self.log.commit(&group.bytes)?;
        Ok(at)
    }

    fn publish(&self, group: &mut Group, at: Position) {
        if group.bytes.is_empty() {
            return;
        }
        let mut state = self.shared.change();
        for admitted in group.admitted.drain(..) {
            admitted.publish(&mut state, at);
        }
        for (session, after) in group.draft.drain() {
            state.changed.insert(session);
            match after {
                Some(entry) => drop(state.sessions.insert(session, entry)),
                None => drop(state.sessions.remove(&session)),
            }
        }
        if at.segment > state.end.segment {
            state.purged = None;
        }
        state.end = Position { segment: at.segment, offset: at.offset + group.bytes.len() as u32 };
        let bytes = match state.end.segment == state.moved.segment {
            true => state.end.offset - state.moved.offset,
            false => state.end.offset,
        };
        if state.moving.is_none() && (state.fresh.len() >= self.thresholds.places || bytes >= self.thresholds.bytes) {
            let _ = self.mover.try_send(());
        }
    }
}

/// One commit in the making. Nothing of it is seen before it is on disk.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    /// The sessions as they will stand; `None` for those that will be gone.
    draft: HashMap<SessionId, Option<Entry>>,
    admitted: Vec<Admitted>,
    verdicts: Vec<(oneshot::Sender<Verdict>, Verdict)>,
    stumbled: Stumbled,
}

/// What readers get once it is on disk.
struct Admitted {
    session: SessionId,
    offset: u32,
    what: Published,
}

enum Published {
    Events { at: Seq, events: Vec<NewEvent> },
    Forgotten,
    RecordOnly,
}

impl Group {
    fn admit(&mut self, request: Request, state: &State) {
        let row = request.row();
        let Request { session, change, payload, events, reply } = request;
        let (kind, what) = match &change {
            Change::Create(_) => (Kind::Create, Published::RecordOnly),
            Change::Put { .. } => (Kind::Put, Published::RecordOnly),
            Change::Claim => (Kind::Claim, Published::RecordOnly),
            Change::Append { .. } if events.is_empty() => (Kind::Append, Published::RecordOnly),
            Change::Append { at, .. } => (Kind::Append, Published::Events { at: *at, events }),
            Change::Forget => (Kind::Forget, Published::Forgotten),
        };
        let verdict = match row.and_then(|row| self.stumbled.get(&row)) {
            Some(failure) => Err(failure.clone()),
            None => self.decide(session, change, state),
        };
        match (&verdict, row) {
            (Ok(after), _) => {
                let offset = self.bytes.len() as u32;
                frame::put(&mut self.bytes, kind, session, after.as_ref(), what.count(), &payload);
                self.admitted.push(Admitted { session, offset, what });
            }
            (Err(failure @ Failure::Rejected(Rejection::Behind { .. })), Some(row)) => {
                self.stumbled.insert(row, failure.clone());
            }
            (Err(_), _) => {}
        }
        self.verdicts.push((reply, verdict));
    }

    fn decide(&mut self, session: SessionId, change: Change, state: &State) -> Verdict {
        let entry = match self.draft.get(&session) {
            Some(drafted) => drafted.as_ref(),
            None => state.sessions.get(&session),
        };
        let after = decide(entry, change).map_err(Failure::Rejected)?;
        self.draft.insert(session, after.clone());
        Ok(after)
    }

    /// Nothing was published, so nothing that was decided on top of it holds either.
    fn fail(&mut self, failure: &Failure) {
        let behind = match failure {
            Failure::Refused(error) | Failure::Unknown(error) => Failure::Refused(error.clone()),
            Failure::Rejected(rejection) => Failure::Rejected(*rejection),
        };
        for (session, after) in self.draft.drain() {
            if let Some(entry) = after {
                self.stumbled.insert((session, entry.epoch), behind.clone());
            }
        }
        for (_, verdict) in &mut self.verdicts {
            *verdict = Err(failure.clone());
        }
    }
}

impl Published {
    /// How many events stand in the frame: a batch is bounded in bytes, so they fit in 32 bits.
    fn count(&self) -> u32 {
        match self {
            Published::Events { events, .. } => events.len() as u32,
            Published::Forgotten | Published::RecordOnly => 0,
        }
    }
}

impl Admitted {
    fn publish(self, state: &mut State, base: Position) {
        match self.what {
            Published::Events { at, events } => {
                let place = Position { segment: base.segment, offset: base.offset + self.offset };
                state.fresh.add(self.session, Place { first: at + 1, at: Some(place) });
                state.recent.push(self.session, at, events);
            }
            Published::Forgotten => {
                state.fresh.forget(self.session);
                state.recent.forget(self.session);
                state.purged.get_or_insert_with(Instant::now);
            }
            Published::RecordOnly => {}
        }
    }
}

/// Callers must not wait for a thread that is gone.
struct AbandonOnPanic(Arc<Queue>);

impl Drop for AbandonOnPanic {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
