//! One commit in the making: what was asked for, decided in order, and what goes into the log of it. Nothing of it is seen before
//! it is on disk.

use std::{collections::HashMap, time::Instant};

use tokio::sync::oneshot;

use super::{
    commit_queue::{ChangeOutcome, ChangeRequest, FailedRows},
    event_locations::EventLocation,
    frame::{self, FrameKind},
    in_flight::InFlightCommitQueue,
    segment::LogPosition,
    shared::JournalState,
};
use crate::store::{
    Epoch, JournalEvent, Seq, SessionId,
    session_change::{ChangeFailure, ChangeRejection, SessionChange, SessionEntry, decide},
};

#[derive(Default)]
pub(super) struct CommitGroup {
    /// As they go into the log.
    pub(super) bytes: Vec<u8>,
    /// How much right before them was not synced when this was decided.
    unsynced: u32,
    /// The sessions as they will stand; `None` for those that will be gone.
    draft: HashMap<SessionId, Option<SessionEntry>>,
    admitted: Vec<AdmittedChange>,
    pending_replies: Vec<PendingReply>,
    pub(super) failed_rows: FailedRows,
}

/// What somebody is to be told.
struct PendingReply {
    reply: oneshot::Sender<ChangeOutcome>,
    outcome: ChangeOutcome,
    row: Option<(SessionId, Epoch)>,
}

/// What a decision stands on: the sessions as they are published, and above them the commits that are on their way to disk.
pub(super) struct DecisionBase<'a> {
    pub(super) in_flight: &'a InFlightCommitQueue,
    pub(super) state: &'a JournalState,
}

impl DecisionBase<'_> {
    fn session(&self, session: SessionId) -> Option<&SessionEntry> {
        match self.in_flight.newest_first().find_map(|group| group.draft.get(&session)) {
            Some(drafted) => drafted.as_ref(),
            None => self.state.sessions.get(&session),
        }
    }

    fn failed_row(&self, row: (SessionId, Epoch)) -> Option<&ChangeFailure> {
        self.in_flight.newest_first().find_map(|group| group.failed_rows.get(&row))
    }
}

/// What readers get once it is on disk.
struct AdmittedChange {
    session: SessionId,
    offset: u32,
    what: PublishedChange,
}

enum PublishedChange {
    Events { at: Seq, events: Vec<JournalEvent> },
    Forgotten,
    RecordOnly,
}

impl CommitGroup {
    /// One that is written right behind what is on its way to disk.
    pub(super) fn after_in_flight(flying: &InFlightCommitQueue) -> CommitGroup {
        CommitGroup { unsynced: flying.bytes(), ..CommitGroup::default() }
    }

    pub(super) fn admit(&mut self, request: ChangeRequest, known: &DecisionBase<'_>) {
        let row = request.row();
        let ChangeRequest { session, change, payload, events, reply } = request;
        let (kind, what) = match &change {
            SessionChange::Create(_) => (FrameKind::Create, PublishedChange::RecordOnly),
            SessionChange::Put { .. } => (FrameKind::Put, PublishedChange::RecordOnly),
            SessionChange::Claim => (FrameKind::Claim, PublishedChange::RecordOnly),
            SessionChange::Append { .. } if events.is_empty() => (FrameKind::Append, PublishedChange::RecordOnly),
            SessionChange::Append { at, .. } => (FrameKind::Append, PublishedChange::Events { at: *at, events }),
            SessionChange::Forget => (FrameKind::Forget, PublishedChange::Forgotten),
        };
        let stumbled = row.and_then(|row| self.failed_rows.get(&row).or_else(|| known.failed_row(row)));
        let verdict = match stumbled {
            Some(failure) => Err(failure.clone()),
            None => self.decide(session, change, known),
        };
        match (&verdict, row) {
            (Ok(after), _) => {
                let offset = self.bytes.len() as u32;
                frame::put_frame(&mut self.bytes, self.unsynced, kind, session, after.as_ref(), what.count(), &payload);
                self.admitted.push(AdmittedChange { session, offset, what });
            }
            (Err(failure @ ChangeFailure::Rejected(ChangeRejection::TailMismatch { .. })), Some(row)) => {
                self.failed_rows.insert(row, failure.clone());
            }
            (Err(_), _) => {}
        }
        self.pending_replies.push(PendingReply { reply, outcome: verdict, row });
    }

    fn decide(&mut self, session: SessionId, change: SessionChange, known: &DecisionBase<'_>) -> ChangeOutcome {
        let entry = match self.draft.get(&session) {
            Some(drafted) => drafted.as_ref(),
            None => known.session(session),
        };
        let after = decide(entry, change).map_err(ChangeFailure::Rejected)?;
        self.draft.insert(session, after.clone());
        Ok(after)
    }

    /// It is on disk, from `at` on.
    pub(super) fn publish(&mut self, state: &mut JournalState, at: LogPosition) {
        for admitted in self.admitted.drain(..) {
            admitted.publish(state, at);
        }
        for (session, after) in self.draft.drain() {
            state.changed_sessions.insert(session);
            match after {
                Some(entry) => drop(state.sessions.insert(session, entry)),
                None => drop(state.sessions.remove(&session)),
            }
        }
    }

    /// Nothing was published, so nothing that was decided on top of it holds either, and no rejection that may stand on another
    /// that failed. Whoever was told of a failure already, is told of that one.
    pub(super) fn fail(&mut self, failure: &ChangeFailure) {
        let behind = match failure {
            ChangeFailure::NotWritten(error) | ChangeFailure::Unknown(error) => {
                ChangeFailure::NotWritten(error.clone())
            }
            ChangeFailure::Rejected(rejection) => ChangeFailure::Rejected(*rejection),
        };
        self.admitted.clear();
        for (session, after) in self.draft.drain() {
            if let Some(entry) = after {
                self.failed_rows.insert((session, entry.epoch), behind.clone());
            }
        }
        for PendingReply { outcome: verdict, row, .. } in &mut self.pending_replies {
            if let Ok(_) | Err(ChangeFailure::Rejected(_)) = verdict {
                *verdict = Err(failure.clone());
            }
            self.failed_rows.extend(row.map(|row| (row, behind.clone())));
        }
    }

    /// Tells everybody what became of it.
    pub(super) fn answer(&mut self) {
        for PendingReply { reply, outcome: verdict, .. } in self.pending_replies.drain(..) {
            // Whoever no longer listens does not need the answer.
            let _ = reply.send(verdict);
        }
    }
}

impl PublishedChange {
    /// How many events stand in the frame: a batch is bounded in bytes, so they fit in 32 bits.
    fn count(&self) -> u32 {
        match self {
            PublishedChange::Events { events, .. } => events.len() as u32,
            PublishedChange::Forgotten | PublishedChange::RecordOnly => 0,
        }
    }
}

impl AdmittedChange {
    fn publish(self, state: &mut JournalState, base: LogPosition) {
        match self.what {
            PublishedChange::Events { at, events } => {
                let place = LogPosition { segment: base.segment, offset: base.offset + self.offset };
                state.unflushed.add(self.session, EventLocation { first: at + 1, at: Some(place) });
                state.recent.push(self.session, at, events);
            }
            PublishedChange::Forgotten => {
                state.unflushed.forget(self.session);
                state.recent.forget(self.session);
                state.purged_since.get_or_insert_with(Instant::now);
            }
            PublishedChange::RecordOnly => {}
        }
    }
}
