//! Commit group: the changes of one commit, decided in order, and their bytes for the log.
//!
//! No change is visible before it is on disk.

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
    Epoch, Seq, SessionId,
    session_change::{ChangeFailure, ChangeRejection, SessionChange, SessionEntry, decide},
};

#[derive(Default)]
pub(super) struct CommitGroup {
    /// Frames of the admitted changes.
    pub(super) bytes: Vec<u8>,
    /// Bytes right before `bytes` that were not synced when the changes were decided.
    unsynced: u32,
    /// Sessions after the commit; `None` for sessions that the commit removes.
    draft: HashMap<SessionId, Option<SessionEntry>>,
    admitted: Vec<AdmittedChange>,
    pending_replies: Vec<PendingReply>,
    pub(super) failed_rows: FailedRows,
}

/// Reply that is sent once the commit is on disk or has failed.
struct PendingReply {
    reply: oneshot::Sender<ChangeOutcome>,
    outcome: ChangeOutcome,
    row: Option<(SessionId, Epoch)>,
}

/// State that decisions build on: the published sessions, and the commits in flight above them.
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

/// Change that readers see once it is on disk.
struct AdmittedChange {
    session: SessionId,
    offset: u32,
    what: PublishedChange,
}

enum PublishedChange {
    Events { at: Seq, count: u32 },
    Forgotten,
    RecordOnly,
}

impl CommitGroup {
    /// Creates a group that is written right behind the commits in flight.
    pub(super) fn after_in_flight(in_flight: &InFlightCommitQueue) -> CommitGroup {
        CommitGroup { unsynced: in_flight.bytes(), ..CommitGroup::default() }
    }

    pub(super) fn admit(&mut self, request: ChangeRequest, known: &DecisionBase<'_>) {
        let row = request.row();
        let ChangeRequest { session, change, payload, reply } = request;
        let (kind, what) = match &change {
            SessionChange::Create(_) => (FrameKind::Create, PublishedChange::RecordOnly),
            SessionChange::Claim => (FrameKind::Claim, PublishedChange::RecordOnly),
            SessionChange::Append { events: 0, .. } => (FrameKind::Append, PublishedChange::RecordOnly),
            // A batch is bounded in bytes, so its count fits in 32 bits.
            SessionChange::Append { at, events, .. } => {
                (FrameKind::Append, PublishedChange::Events { at: *at, count: *events as u32 })
            }
            SessionChange::Forget { .. } => (FrameKind::Forget, PublishedChange::Forgotten),
        };
        let earlier_failure = row.and_then(|row| self.failed_rows.get(&row).or_else(|| known.failed_row(row)));
        let outcome = match earlier_failure {
            Some(failure) => Err(failure.clone()),
            None => self.decide(session, change, known),
        };
        match (&outcome, row) {
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
        self.pending_replies.push(PendingReply { reply, outcome, row });
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

    /// Publishes the group, which is on disk from `at` on.
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

    /// Fails the group after it was not published.
    ///
    /// Decisions on top of it fail too, and so do rejections that may rest on it. A request that
    /// had failed before keeps its own failure.
    pub(super) fn fail(&mut self, failure: &ChangeFailure) {
        let behind = match failure {
            ChangeFailure::NotWritten(error) | ChangeFailure::Unknown(error) => {
                ChangeFailure::NotWritten(error.clone())
            }
            ChangeFailure::Rejected(rejection) => ChangeFailure::Rejected(rejection.clone()),
        };
        self.admitted.clear();
        for (session, after) in self.draft.drain() {
            if let Some(entry) = after {
                self.failed_rows.insert((session, entry.epoch), behind.clone());
            }
        }
        for PendingReply { outcome, row, .. } in &mut self.pending_replies {
            if let Ok(_) | Err(ChangeFailure::Rejected(_)) = outcome {
                *outcome = Err(failure.clone());
            }
            self.failed_rows.extend(row.map(|row| (row, behind.clone())));
        }
    }

    /// Sends all replies.
    pub(super) fn answer(&mut self) {
        for PendingReply { reply, outcome, .. } in self.pending_replies.drain(..) {
            // A receiver that is gone needs no reply.
            let _ = reply.send(outcome);
        }
    }
}

impl PublishedChange {
    /// Returns the number of events in the frame.
    fn count(&self) -> u32 {
        match self {
            PublishedChange::Events { count, .. } => *count,
            PublishedChange::Forgotten | PublishedChange::RecordOnly => 0,
        }
    }
}

impl AdmittedChange {
    fn publish(self, state: &mut JournalState, base: LogPosition) {
        match self.what {
            PublishedChange::Events { at, .. } => {
                let position = LogPosition { segment: base.segment, offset: base.offset + self.offset };
                state.unflushed.add(self.session, EventLocation { first: at + 1, at: Some(position) });
            }
            PublishedChange::Forgotten => {
                state.unflushed.forget(self.session);
                state.purged_since.get_or_insert_with(Instant::now);
            }
            PublishedChange::RecordOnly => {}
        }
    }
}
