//! Window of the batches that an agent has sent and that are not yet on disk.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures::FutureExt;
use tokio::{
    sync::oneshot,
    time::{Sleep, sleep},
};

use super::DisconnectReason;
use crate::session::{SessionBroadcast, messages::OutOfOrder};

/// Limits of the window. Bound: 64 batches or 1 MiB. When full: the link stops reading the agent's
/// socket. Without the limits, an endless output would fill the server's memory while the disk is
/// slow.
const MAX_IN_FLIGHT_BATCHES: usize = 64;
const MAX_IN_FLIGHT_BYTES: usize = 1 << 20;
/// Longest time that the agent keeps a persisted report before it is acknowledged. The agent loses
/// nothing by the delay: each connection begins from what the journal holds. An acknowledgement per
/// event would cost both sides a system call and wake the agent.
const ACK_AFTER: Duration = Duration::from_millis(500);
/// Text after which an acknowledgement is sent at once, in bytes. An eighth of what the agent's
/// outbox can hold.
const ACK_BYTES: usize = 1 << 20;

/// Window of the batches in flight to disk, oldest first, with the acknowledgement that is due.
#[derive(Default)]
pub(super) struct InFlightBatches {
    reports: VecDeque<InFlightBatch>,
    /// Value of the connection's byte counter after the newest batch on disk, in bytes. In an empty
    /// window, the first batch sets the value to its own end.
    persisted_bytes: usize,
    /// Newest report number on disk that is not yet acknowledged.
    unacknowledged: Option<u64>,
    /// Time of the next acknowledgement. Set while a report is unacknowledged.
    ack_timer: Option<Pin<Box<Sleep>>>,
    /// Value of the connection's byte counter at the last acknowledgement, in bytes.
    acknowledged_bytes: usize,
    made_progress: bool,
}

/// Batch in flight to disk.
pub(super) struct InFlightBatch {
    /// Number of the newest report in the batch.
    pub(super) last: u64,
    /// Value of the connection's byte counter after this batch, in bytes.
    pub(super) bytes_read: usize,
    pub(super) persisted: oneshot::Receiver<Result<(), OutOfOrder>>,
}

/// Result of [`InFlightBatches::poll`].
#[derive(Debug, PartialEq)]
pub(super) enum InFlightProgress {
    /// Number up to which all reports are on disk. The agent gets an acknowledgement.
    Acknowledge(u64),
    /// Some batches left the window.
    RoomFreed,
}

impl InFlightBatches {
    /// Returns true if the window has room for another batch. `read` is the connection's byte
    /// counter. An empty window always has room, because only a batch in it could wake the link.
    pub(super) fn has_room(&self, read: usize, live: &SessionBroadcast) -> bool {
        let len = self.reports.len();
        len == 0
            || len < MAX_IN_FLIGHT_BATCHES
                && read - self.persisted_bytes < MAX_IN_FLIGHT_BYTES
                && !live.is_disk_backlogged()
    }

    pub(super) fn push(&mut self, report: InFlightBatch) {
        // Deltas read before this report are not in flight, so their bytes do not count.
        if self.reports.is_empty() {
            self.persisted_bytes = report.bytes_read;
        }
        self.reports.push_back(report);
        self.schedule_ack();
    }

    /// Completes when an acknowledgement is due. If the window is full, completes also when a batch
    /// is on disk.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        read: usize,
        has_room: bool,
    ) -> Poll<Result<InFlightProgress, DisconnectReason>> {
        let is_due = self.poll_due(cx, read).is_ready();
        if !is_due && has_room {
            return Poll::Pending;
        }
        let before = self.reports.len();
        self.poll_persisted(cx)?;
        if is_due && let Some(n) = self.unacknowledged.take() {
            (self.ack_timer, self.acknowledged_bytes) = (None, read);
            if !self.reports.is_empty() {
                self.schedule_ack();
            }
            return Poll::Ready(Ok(InFlightProgress::Acknowledge(n)));
        }
        if self.reports.len() < before { Poll::Ready(Ok(InFlightProgress::RoomFreed)) } else { Poll::Pending }
    }

    /// Reads the results that are already there, without blocking.
    ///
    /// # Errors
    /// `ProtocolViolation` if a report was out of order, `SessionGone` if the journal did not store
    /// it.
    pub(super) fn collect_persisted(&mut self) -> Result<(), DisconnectReason> {
        self.poll_persisted(&mut Context::from_waker(Waker::noop()))
    }

    /// Returns true if at least one batch of this connection has reached the disk.
    pub(super) fn made_progress(&self) -> bool {
        self.made_progress
    }

    fn schedule_ack(&mut self) {
        self.ack_timer.get_or_insert_with(|| Box::pin(sleep(ACK_AFTER)));
    }

    fn poll_due(&mut self, cx: &mut Context<'_>, read: usize) -> Poll<()> {
        let Some(due) = &mut self.ack_timer else { return Poll::Pending };
        if !due.is_elapsed() && read - self.acknowledged_bytes < ACK_BYTES {
            ready!(due.as_mut().poll(cx));
        }
        Poll::Ready(())
    }

    /// Reads the results that are already there. Registers this task to be woken by the oldest
    /// missing result.
    fn poll_persisted(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectReason> {
        while let Some(InFlightBatch { last, bytes_read: read, persisted }) = self.reports.front_mut() {
            let Poll::Ready(result) = persisted.poll_unpin(cx) else { break };
            let (last, read) = (*last, *read);
            self.reports.pop_front();
            let failure = match result {
                Ok(Ok(())) => {
                    (self.unacknowledged, self.persisted_bytes, self.made_progress) = (Some(last), read, true);
                    continue;
                }
                Ok(Err(OutOfOrder { n, newest })) => DisconnectReason::ProtocolViolation(format!(
                    "report {n} arrived, but report {} was expected",
                    newest.saturating_add(1)
                )),
                // The sender was dropped: the journal did not store the batch.
                Err(_) => DisconnectReason::SessionGone,
            };
            // Later reports do not count after a failed one.
            self.reports.clear();
            return Err(failure);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
