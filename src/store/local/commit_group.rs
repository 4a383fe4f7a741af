//! One commit in the making: what was asked for, decided in order, and what goes into the log of it. Nothing of it is seen before
//! it is on disk.

use std::{collections::HashMap, time::Instant};

use tokio::sync::oneshot;

use super::{
    flight::Flying,
    frame::{self, Kind},
    places::Place,
    queue::{Request, Stumbled, Verdict},
    segment::Position,
    shared::State,
};
use crate::store::{
    Epoch, NewEvent, Seq, SessionId,
    ledger::{Change, Entry, Failure, Rejection, decide},
};

#[derive(Default)]
pub(super) struct Group {
    /// As they go into the log.
    pub(super) bytes: Vec<u8>,
    /// How much right before them was not synced when this was decided.
    unsynced: u32,
    /// The sessions as they will stand; `None` for those that will be gone.
    draft: HashMap<SessionId, Option<Entry>>,
    admitted: Vec<Admitted>,
    verdicts: Vec<Ruling>,
    pub(super) stumbled: Stumbled,
}

/// What somebody is to be told.
struct Ruling {
    reply: oneshot::Sender<Verdict>,
    verdict: Verdict,
    row: Option<(SessionId, Epoch)>,
}

/// What a decision stands on: the sessions as they are published, and above them the commits that are on their way to disk.
pub(super) struct Known<'a> {
    pub(super) flying: &'a Flying,
    pub(super) state: &'a State,
}

impl Known<'_> {
    fn session(&self, session: SessionId) -> Option<&Entry> {
        match self.flying.newest_first().find_map(|group| group.draft.get(&session)) {
            Some(drafted) => drafted.as_ref(),
            None => self.state.sessions.get(&session),
        }
    }

    fn stumbled(&self, row: (SessionId, Epoch)) -> Option<&Failure> {
        self.flying.newest_first().find_map(|group| group.stumbled.get(&row))
    }
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
    /// One that is written right behind what is on its way to disk.
    pub(super) fn behind(flying: &Flying) -> Group {
        Group { unsynced: flying.bytes(), ..Group::default() }
    }

    pub(super) fn admit(&mut self, request: Request, known: &Known<'_>) {
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
        let stumbled = row.and_then(|row| self.stumbled.get(&row).or_else(|| known.stumbled(row)));
        let verdict = match stumbled {
            Some(failure) => Err(failure.clone()),
            None => self.decide(session, change, known),
        };
        match (&verdict, row) {
            (Ok(after), _) => {
                let offset = self.bytes.len() as u32;
                frame::put(&mut self.bytes, self.unsynced, kind, session, after.as_ref(), what.count(), &payload);
                self.admitted.push(Admitted { session, offset, what });
            }
            (Err(failure @ Failure::Rejected(Rejection::Behind { .. })), Some(row)) => {
                self.stumbled.insert(row, failure.clone());
            }
            (Err(_), _) => {}
        }
        self.verdicts.push(Ruling { reply, verdict, row });
    }

    fn decide(&mut self, session: SessionId, change: Change, known: &Known<'_>) -> Verdict {
        let entry = match self.draft.get(&session) {
            Some(drafted) => drafted.as_ref(),
            None => known.session(session),
        };
        let after = decide(entry, change).map_err(Failure::Rejected)?;
        self.draft.insert(session, after.clone());
        Ok(after)
    }

    /// It is on disk, from `at` on.
    pub(super) fn publish(&mut self, state: &mut State, at: Position) {
        for admitted in self.admitted.drain(..) {
            admitted.publish(state, at);
        }
        for (session, after) in self.draft.drain() {
            state.changed.insert(session);
            match after {
                Some(entry) => drop(state.sessions.insert(session, entry)),
                None => drop(state.sessions.remove(&session)),
            }
        }
    }

    /// Nothing was published, so nothing that was decided on top of it holds either, and no rejection that may stand on another
    /// that failed. Whoever was told of a failure already, is told of that one.
    pub(super) fn fail(&mut self, failure: &Failure) {
        let behind = match failure {
            Failure::Refused(error) | Failure::Unknown(error) => Failure::Refused(error.clone()),
            Failure::Rejected(rejection) => Failure::Rejected(*rejection),
        };
        self.admitted.clear();
        for (session, after) in self.draft.drain() {
            if let Some(entry) = after {
                self.stumbled.insert((session, entry.epoch), behind.clone());
            }
        }
        for Ruling { verdict, row, .. } in &mut self.verdicts {
            if let Ok(_) | Err(Failure::Rejected(_)) = verdict {
                *verdict = Err(failure.clone());
            }
            self.stumbled.extend(row.map(|row| (row, behind.clone())));
        }
    }

    /// Tells everybody what became of it.
    pub(super) fn answer(&mut self) {
        for Ruling { reply, verdict, .. } in self.verdicts.drain(..) {
            // Whoever no longer listens does not need the answer.
            let _ = reply.send(verdict);
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
