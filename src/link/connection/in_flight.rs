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

use super::Broken;
use crate::session::{Shared, messages::OutOfOrder};

/// How many reports, each with those that go with it, may be on their way to disk, and how many bytes of them: where the disk
/// takes its time, an agent that prints without end would have the window in memory, and some copies of it.
const WINDOW: usize = 64;
const WINDOW_BYTES: usize = 1 << 20;
/// How long an agent keeps what it has said, and longer only where the disk takes longer. It loses nothing by it, whatever dies: a
/// new connection begins with what the journal holds. A frame for each event is a system call more for either side, and wakes the
/// agent.
const ACK_AFTER: Duration = Duration::from_millis(500);
/// What is acknowledged before that time, bytes: an eighth of what an agent can keep.
const ACK_BYTES: usize = 1 << 20;

/// Reports that the session was told and the disk does not have yet, oldest first, and what of them is to be acknowledged.
#[derive(Default)]
pub(super) struct OnTheirWay {
    reports: VecDeque<OnItsWay>,
    /// How much had been read when the oldest was next, bytes.
    settled: usize,
    /// Up to here all is on disk, and not acknowledged.
    unacknowledged: Option<u64>,
    /// When the next acknowledgement is due, while there is something that is not acknowledged.
    due: Option<Pin<Box<Sleep>>>,
    /// How much had been read when the last one went out, bytes.
    acknowledged: usize,
    came_to_something: bool,
}

pub(super) struct OnItsWay {
    /// The number of the last that goes with it.
    pub(super) last: u64,
    /// How much had been read with it, bytes.
    pub(super) read: usize,
    pub(super) on_disk: oneshot::Receiver<Result<(), OutOfOrder>>,
}

/// What became of it.
#[derive(Debug, PartialEq)]
pub(super) enum Settled {
    /// All up to this one is on disk, and the agent is to be told so.
    ToBeTold(u64),
    /// There is less of it than there was.
    Room,
}

impl OnTheirWay {
    /// Whether one more may be heard, when so much has been read.
    pub(super) fn has_room(&self, read: usize, live: &Shared) -> bool {
        let len = self.reports.len();
        len == 0 || len < WINDOW && read - self.settled < WINDOW_BYTES && !live.is_waiting_for_the_disk()
    }

    pub(super) fn push(&mut self, report: OnItsWay) {
        // What was read before it, of what grows, is on no way anywhere.
        if self.reports.is_empty() {
            self.settled = report.read;
        }
        self.reports.push_back(report);
        self.owe();
    }

    /// Wakes when an acknowledgement is due, and only where there is no room when something is on disk.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, read: usize, has_room: bool) -> Poll<Result<Settled, Broken>> {
        let is_due = self.poll_due(cx, read).is_ready();
        if !is_due && has_room {
            return Poll::Pending;
        }
        let before = self.reports.len();
        self.settle(cx)?;
        if is_due && let Some(n) = self.unacknowledged.take() {
            (self.due, self.acknowledged) = (None, read);
            if !self.reports.is_empty() {
                self.owe();
            }
            return Poll::Ready(Ok(Settled::ToBeTold(n)));
        }
        if self.reports.len() < before { Poll::Ready(Ok(Settled::Room)) } else { Poll::Pending }
    }

    /// Looks what is on disk by now.
    ///
    /// # Errors
    /// The session, or the journal, did not take what comes next.
    pub(super) fn settle_now(&mut self) -> Result<(), Broken> {
        self.settle(&mut Context::from_waker(Waker::noop()))
    }

    /// Whether anything of it was seen on disk.
    pub(super) fn came_to_something(&self) -> bool {
        self.came_to_something
    }

    fn owe(&mut self) {
        self.due.get_or_insert_with(|| Box::pin(sleep(ACK_AFTER)));
    }

    fn poll_due(&mut self, cx: &mut Context<'_>, read: usize) -> Poll<()> {
        let Some(due) = &mut self.due else { return Poll::Pending };
        if !due.is_elapsed() && read - self.acknowledged < ACK_BYTES {
            ready!(due.as_mut().poll(cx));
        }
        Poll::Ready(())
    }

    /// Looks what is on disk, and has the oldest that is not wake this task.
    fn settle(&mut self, cx: &mut Context<'_>) -> Result<(), Broken> {
        while let Some(OnItsWay { last, read, on_disk }) = self.reports.front_mut() {
            let Poll::Ready(answer) = on_disk.poll_unpin(cx) else { break };
            let (last, read) = (*last, *read);
            self.reports.pop_front();
            let refused = match answer {
                Ok(Ok(())) => {
                    (self.unacknowledged, self.settled, self.came_to_something) = (Some(last), read, true);
                    continue;
                }
                Ok(Err(OutOfOrder { n, newest })) => {
                    Broken::Nonsense(format!("report {n} came where {} was to come", newest.saturating_add(1)))
                }
                // The journal did not take it.
                Err(_) => Broken::SessionLeft,
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
