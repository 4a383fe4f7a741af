//! Everything that the agent sends, in one order, with or without a connection.
//!
//! - Reports go first, then reviews, then open items. So an item opens after the reports that
//!   precede it, and a review follows them.
//! - A report that ends an item drops the item's unsent text. So no delta follows the event that
//!   ended its item.
//! - Bound: 8 MiB of reports ([`crate::outbox::LIMIT`]), 4 MiB of reviews and 64 KiB of unsent
//!   deltas. When full: the caller blocks.
//! - Without a connection, deltas do not block.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use greenroom_protocol::{
    DeltaKind, EventBody,
    approval::{ReviewRequest, ReviewVerdict, Verdict},
    link::{AgentReport, FromAgent},
};
use tokio::sync::{Notify, oneshot};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::{open_items::OpenItems, outbox::Outbox, pending_reviews::PendingReviews, saved_reports::SavedReports};

/// Bound: 64 KiB of deltas that wait for the socket. When full: the caller blocks.
const UNSENT_LIMIT: usize = 64 * 1024;

/// Shared handle of all senders and the link's writer.
#[derive(Debug, Clone, Default)]
pub struct OutgoingQueue(Arc<OutgoingShared>);

#[derive(Debug, Default)]
struct OutgoingShared {
    state: Mutex<OutgoingState>,
    /// Notified when there is something to send.
    to_send: Notify,
    /// Notified when there may be room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct OutgoingState {
    outbox: Outbox,
    reviews: PendingReviews,
    open_items: OpenItems,
    connected: bool,
    /// Earlier start whose reports the outbox holds, until all are acknowledged.
    earlier_start: Option<EarlierStart>,
    /// Set when the agent ends: the reports of the end must not block.
    is_unlimited: bool,
    /// Commands whose receipt was not sent yet. Bound: the commands received over this connection.
    taken: Vec<String>,
}

/// Start of the agent that ended without a server.
#[derive(Debug)]
struct EarlierStart {
    boot: String,
    file: PathBuf,
}

impl OutgoingQueue {
    /// Returns a queue that first sends the reports of an earlier start, if the file at `saved` has
    /// any.
    pub fn resuming(saved: &Path) -> OutgoingQueue {
        let queue = OutgoingQueue::default();
        if let Some(SavedReports { boot, frames }) = SavedReports::take(saved) {
            let mut state = queue.lock();
            state.outbox = Outbox::of_earlier_start(frames);
            state.earlier_start = Some(EarlierStart { boot, file: saved.to_owned() });
        }
        queue
    }

    /// Returns the boot id of the earlier start whose reports are to be sent.
    pub fn earlier_boot(&self) -> Option<String> {
        self.lock().earlier_start.as_ref().map(|earlier| earlier.boot.clone())
    }

    /// Forgets the earlier start if all its reports are acknowledged. Numbers then begin again.
    /// Returns `true` if it did. `acked` is what the server's welcome says: if a report is missing
    /// between, the server no longer expects the reports, and they are dropped.
    pub fn finish_earlier_start(&self, acked: Option<u64>) -> bool {
        let mut state = self.lock();
        let first = state.outbox.unacknowledged().first().map(|(n, _)| *n);
        let is_unexpected = first.zip(acked).is_some_and(|(first, acked)| first > acked + 1);
        if is_unexpected {
            tracing::warn!("the server does not expect the reports of an earlier start; they are dropped");
        }
        if first.is_some() && !is_unexpected {
            return false;
        }
        let Some(earlier) = state.earlier_start.take() else { return false };
        state.outbox = Outbox::default();
        // Removed before the next `hello`: a server that has got another boot id would store the
        // reports twice.
        SavedReports::remove(&earlier.file);
        true
    }

    /// Returns the unacknowledged reports. `boot` is the agent's boot id.
    pub fn unacknowledged(&self, boot: String) -> SavedReports {
        let state = self.lock();
        let boot = state.earlier_start.as_ref().map_or(boot, |earlier| earlier.boot.clone());
        SavedReports { boot, frames: state.outbox.unacknowledged() }
    }

    /// Accepts all further reports without blocking.
    pub fn lift_limit(&self) {
        self.lock().is_unlimited = true;
        self.0.room.notify_waiters();
    }

    /// Returns when a welcomed connection exists, or when none does.
    pub async fn until_connected(&self, connected: bool) {
        self.wait_for_room(|state| state.connected == connected).await;
    }

    /// Reports an event for the journal. The event ends `item`.
    pub async fn event(&self, item: Option<&str>, body: impl Into<EventBody>) {
        self.report(AgentReport::Event { item: item.map(str::to_owned), body: body.into() }).await;
    }

    /// Numbers and queues a report. Blocks while the outbox is full. Cancel-safe: if dropped before
    /// completion, the report is not queued.
    pub async fn report(&self, report: AgentReport) {
        let mut report = Some(report);
        self.wait_for_room(|state| {
            if !state.outbox.has_room() && !state.is_unlimited {
                return false;
            }
            if let Some(report) = report.take() {
                if let AgentReport::Event { item: Some(item), .. } = &report {
                    state.open_items.close(item);
                }
                state.outbox.push(report);
            }
            true
        })
        .await;
        self.0.to_send.notify_one();
    }

    /// Appends a piece to an item. Blocks while the socket is behind.
    pub async fn delta(&self, kind: DeltaKind, item: &str, text: &str) {
        if text.is_empty() {
            return;
        }
        self.wait_for_room(|state| {
            let room = state.open_items.unsent_bytes() < UNSENT_LIMIT;
            if room {
                state.open_items.grow(kind, item, text, state.connected);
            }
            room
        })
        .await;
        self.0.to_send.notify_one();
    }

    /// Drops an item that no durable event will end.
    pub fn forget(&self, item: &str) {
        self.lock().open_items.close(item);
        self.0.room.notify_waiters();
    }

    /// Returns `true` if the server of the newest welcome reviews tool calls.
    pub fn is_reviewed(&self) -> bool {
        self.lock().reviews.is_reviewed()
    }

    /// Queues a review. Blocks while too many wait. Withdrawn if the result is dropped.
    pub async fn review(&self, request: ReviewRequest) -> OpenReview {
        let (sender, verdict) = oneshot::channel();
        let open = OpenReview { outgoing: self.clone(), id: request.id.clone(), verdict };
        let mut review = Some((request, sender));
        self.wait_for_room(|state| {
            let room = state.reviews.has_room();
            if room && let Some((request, sender)) = review.take() {
                state.reviews.push(request, sender);
            }
            room
        })
        .await;
        self.0.to_send.notify_one();
        open
    }

    /// Passes a verdict to the review that waits for it.
    pub fn settle_review(&self, verdict: ReviewVerdict) {
        let review = verdict.id.clone();
        if !self.lock().reviews.settle(verdict) {
            tracing::info!(review, "ignored a verdict on a call that waits no more");
        }
        self.0.room.notify_waiters();
    }

    /// Queues the receipt of a command.
    pub fn taken(&self, command: String) {
        self.lock().taken.push(command);
        self.0.to_send.notify_one();
    }

    /// Number of the newest report.
    pub fn last_n(&self) -> u64 {
        self.lock().outbox.last_n()
    }

    /// Begins a connection. The server has all reports up to `acked`, and reviews tool calls if
    /// `reviewed`.
    pub fn connect(&self, acked: u64, reviewed: bool) {
        let mut state = self.lock();
        state.outbox.rewind(acked);
        state.reviews.connect(reviewed);
        state.open_items.resend_all();
        state.connected = true;
        drop(state);
        self.0.to_send.notify_one();
        self.0.room.notify_waiters();
    }

    /// Ends the connection: drops unsent deltas and receipts.
    pub fn disconnect(&self) {
        let mut state = self.lock();
        state.connected = false;
        state.open_items.drop_unsent();
        state.taken.clear();
        drop(state);
        self.0.room.notify_waiters();
    }

    /// Forgets every report up to `n`, because it is on the server's disk.
    pub fn ack(&self, n: u64) {
        self.lock().outbox.ack(n);
        self.0.room.notify_waiters();
    }

    /// Returns the next frame for the current connection. Only the connection's one writer may call
    /// this.
    pub async fn next_frame(&self) -> Utf8Bytes {
        loop {
            if let Some(frame) = self.try_next() {
                self.0.room.notify_waiters();
                return frame;
            }
            self.0.to_send.notified().await;
        }
    }

    fn try_next(&self) -> Option<Utf8Bytes> {
        let mut state = self.lock();
        if !state.connected {
            return None;
        }
        if let Some(command) = state.taken.pop() {
            return Some(frame(&FromAgent::Taken { command }));
        }
        let frames = state.outbox.next_frame().or_else(|| state.reviews.next_frame());
        frames.or_else(|| state.open_items.next_delta().map(|delta| frame(&FromAgent::Delta(delta))))
    }

    async fn wait_for_room(&self, mut attempt: impl FnMut(&mut OutgoingState) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.room.notified());
            // Enabled before the attempt, so that room made between the two is not missed.
            changed.as_mut().enable();
            if attempt(&mut self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutgoingState> {
        self.0.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Review that waits for its verdict. Withdrawn when dropped.
#[derive(Debug)]
pub struct OpenReview {
    outgoing: OutgoingQueue,
    id: String,
    verdict: oneshot::Receiver<Verdict>,
}

impl OpenReview {
    /// Returns the verdict when it comes. `None` if the agent ends.
    pub async fn verdict(mut self) -> Option<Verdict> {
        (&mut self.verdict).await.ok()
    }
}

impl Drop for OpenReview {
    fn drop(&mut self) {
        self.outgoing.lock().reviews.withdraw(&self.id);
        self.outgoing.0.room.notify_waiters();
    }
}

/// Serializes a frame as it goes over the wire.
pub fn frame(frame: &FromAgent) -> Utf8Bytes {
    serde_json::to_string(frame).expect("a frame serializes: string keys, no foreign types").into()
}
