//! What an agent has said and the disk does not have yet.

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

/// How many reports, each with those that go with it, may be on their way to disk, and how many bytes of them: where the disk
/// takes its time, an agent that prints without end would have the window in memory, and some copies of it.
const MAX_IN_FLIGHT_REPORTS: usize = 64;
const MAX_IN_FLIGHT_BYTES: usize = 1 << 20;
/// How long an agent keeps what it has said, and longer only where the disk takes longer. It loses nothing by it, whatever dies: a
/// new connection begins with what the journal holds. A frame for each event is a system call more for either side, and wakes the
/// agent.
const ACK_AFTER: Duration = Duration::from_millis(500);
/// What is acknowledged before that time, bytes: an eighth of what an agent can keep.
const ACK_BYTES: usize = 1 << 20;

/// Reports that the session was told and the disk does not have yet, oldest first, and what of them is to be acknowledged.
#[derive(Default)]
pub(super) struct InFlightReports {
    reports: VecDeque<InFlightReport>,
    /// How much had been read when the oldest was next, bytes.
    persisted_bytes: usize,
    /// Up to here all is on disk, and not acknowledged.
    unacknowledged: Option<u64>,
    /// When the next acknowledgement is due, while there is something that is not acknowledged.
    ack_timer: Option<Pin<Box<Sleep>>>,
    /// How much had been read when the last one went out, bytes.
    acknowledged_bytes: usize,
    made_progress: bool,
}

pub(super) struct InFlightReport {
    /// The number of the last that goes with it.
    pub(super) last: u64,
    /// How much had been read with it, bytes.
    pub(super) bytes_read: usize,
    pub(super) persisted: oneshot::Receiver<Result<(), OutOfOrder>>,
}

/// What became of it.
#[derive(Debug, PartialEq)]
pub(super) enum InFlightProgress {
    /// All up to this one is on disk, and the agent is to be told so.
    Acknowledge(u64),
    /// There is less of it than there was.
    RoomFreed,
}

impl InFlightReports {
    /// Whether one more may be heard, when so much has been read.
    pub(super) fn has_room(&self, read: usize, live: &SessionBroadcast) -> bool {
        let len = self.reports.len();
        len == 0
            || len < MAX_IN_FLIGHT_REPORTS
                && read - self.persisted_bytes < MAX_IN_FLIGHT_BYTES
                && !live.is_disk_backlogged()
    }

    pub(super) fn push(&mut self, report: InFlightReport) {
        // What was read before it, of what grows, is on no way anywhere.
        if self.reports.is_empty() {
            self.persisted_bytes = report.bytes_read;
        }
        self.reports.push_back(report);
        self.schedule_ack();
    }

    /// Wakes when an acknowledgement is due, and only where there is no room when something is on disk.
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

    /// Looks what is on disk by now.
    ///
    /// # Errors
    /// The session, or the journal, did not take what comes next.
    pub(super) fn collect_persisted(&mut self) -> Result<(), DisconnectReason> {
        self.poll_persisted(&mut Context::from_waker(Waker::noop()))
    }

    /// Whether anything of it was seen on disk.
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

    /// Looks what is on disk, and has the oldest that is not wake this task.
    fn poll_persisted(&mut self, cx: &mut Context<'_>) -> Result<(), DisconnectReason> {
        while let Some(InFlightReport { last, bytes_read: read, persisted: on_disk }) = self.reports.front_mut() {
            let Poll::Ready(answer) = on_disk.poll_unpin(cx) else { break };
            let (last, read) = (*last, *read);
            self.reports.pop_front();
            let refused = match answer {
                Ok(Ok(())) => {
                    (self.unacknowledged, self.persisted_bytes, self.made_progress) = (Some(last), read, true);
                    continue;
                }
                Ok(Err(OutOfOrder { n, newest })) => DisconnectReason::ProtocolViolation(format!(
                    "report {n} came where {} was to come",
                    newest.saturating_add(1)
                )),
                // The journal did not take it.
                Err(_) => DisconnectReason::SessionGone,
            };
            // Nothing that came behind it counts.
            self.reports.clear();
            return Err(refused);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
