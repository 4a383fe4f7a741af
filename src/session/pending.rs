//! Transitions in flight to disk, and the recipients of their results.

use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::{
    broadcast::ItemEnd,
    effect::Effect,
    messages::{DurableReply, RequestAccepted, RequestResult},
    request_error::RequestError,
    transition::Escalation,
};
use crate::store::{AppendError, ReportMark, Seq};

/// Transition in flight to disk, with everything that waits for its commit.
pub(super) struct PendingTransition {
    /// Newest event on disk after this transition.
    pub(super) tail: Seq,
    pub(super) mark: Option<ReportMark>,
    pub(super) ended_items: Vec<ItemEnd>,
    pub(super) effects: Vec<Effect>,
    pub(super) escalation: Option<Escalation>,
    pub(super) replies: Vec<CommitReply>,
    /// Bytes of this transition that go to disk.
    pub(super) bytes: usize,
    /// Set for a record without an event. If its append fails, later appends cannot detect the
    /// failure, because no event number is missing.
    pub(super) is_record_only: bool,
    pub(super) on_disk: bool,
}

/// Totals of all pending transitions.
#[derive(Default)]
pub(super) struct InFlightTotals {
    pub(super) bytes: usize,
    pub(super) record_only: usize,
}

/// Recipient of the result of a commit.
pub(super) enum CommitReply {
    Request(oneshot::Sender<RequestResult>, RequestAccepted),
    Report(DurableReply),
    /// Permit of the gateway. While too many notices are uncommitted, the gateway begins no further
    /// call.
    Notice(Option<OwnedSemaphorePermit>),
}

impl CommitReply {
    // A receiver may be gone: its client left. The journal has the result.
    pub(super) fn confirm(self) {
        match self {
            CommitReply::Request(client, accepted) => drop(client.send(Ok(accepted))),
            CommitReply::Report(agent) => drop(agent.send(Ok(()))),
            CommitReply::Notice(permit) => drop(permit),
        }
    }

    pub(super) fn reject(self, error: &AppendError) {
        match self {
            CommitReply::Request(client, _) => drop(client.send(Err(RequestError::Journal(error.to_string())))),
            // The report is not acknowledged, so the agent keeps it.
            CommitReply::Report(_) | CommitReply::Notice(_) => {}
        }
    }
}
