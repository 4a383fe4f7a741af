//! Reviews of tool calls that wait for the session's verdict.

use std::task::{Context, Poll};

use actix::WeakAddr;
use futures::{FutureExt, StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use greenroom_protocol::approval::{ReviewRequest, ReviewVerdict};

use super::DisconnectReason;
use crate::session::{Session, messages::ReviewToolCall};

/// Number of pending reviews of one connection. Bound: 64. When full: the link stops reading the
/// agent's socket.
const MAX_PENDING_REVIEWS: usize = 64;

/// Verdict that the session has not sent yet. An analyzer may take seconds.
type PendingVerdict = LocalBoxFuture<'static, Result<ReviewVerdict, DisconnectReason>>;

/// Pending reviews of a connection, in no order. Dropped with the connection: the agent repeats
/// them on the next one.
#[derive(Default)]
pub(super) struct InFlightReviews {
    /// `None` without pending reviews, because each live session keeps this value.
    verdicts: Option<FuturesUnordered<PendingVerdict>>,
}

impl InFlightReviews {
    /// Returns true if another review may be pending.
    pub(super) fn has_room(&self) -> bool {
        self.verdicts.as_ref().is_none_or(|verdicts| verdicts.len() < MAX_PENDING_REVIEWS)
    }

    /// Passes a review to the session. Reports and deltas do not wait for the verdict.
    pub(super) fn begin(&mut self, session: &WeakAddr<Session>, review: ReviewRequest) -> Result<(), DisconnectReason> {
        let session = session.upgrade().ok_or(DisconnectReason::SessionGone)?;
        let id = review.id.clone();
        let verdict = session.send(ReviewToolCall { review }).map(move |verdict| match verdict {
            Ok(verdict) => Ok(ReviewVerdict { id, verdict }),
            Err(_) => Err(DisconnectReason::SessionGone),
        });
        self.verdicts.get_or_insert_default().push(verdict.boxed_local());
        Ok(())
    }

    /// Completes when a verdict has arrived. Pending without reviews.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<ReviewVerdict, DisconnectReason>> {
        let Some(verdicts) = &mut self.verdicts else { return Poll::Pending };
        let Poll::Ready(verdict) = verdicts.poll_next_unpin(cx) else { return Poll::Pending };
        if verdicts.is_empty() {
            self.verdicts = None;
        }
        verdict.map_or(Poll::Pending, Poll::Ready)
    }
}
