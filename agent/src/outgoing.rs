//! All that the agent has to say, in one order, whether or not a connection stands.
//!
//! Reports go first, then what is open: an item opens after the reports that precede it, and a report that ends an item
//! takes back what was not yet told of it, so no delta ever follows the event that ended its item. When the outbox is full,
//! or the socket is behind with deltas, whoever makes more waits here; without a connection deltas wait for nobody.

use std::sync::{Arc, Mutex, MutexGuard};

use greenroom_protocol::{
    DeltaKind, EventBody,
    link::{AgentReport, FromAgent},
};
use tokio::sync::Notify;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::{open_items::OpenItems, outbox::Outbox};

/// How many bytes of deltas may wait for the socket before their maker waits.
const UNSENT_LIMIT: usize = 64 * 1024;

/// A handle that all makers and the writer of the link share.
#[derive(Debug, Clone, Default)]
pub struct OutgoingQueue(Arc<OutgoingShared>);

#[derive(Debug, Default)]
struct OutgoingShared {
    state: Mutex<OutgoingState>,
    /// There is something to send.
    to_send: Notify,
    /// There may be room again.
    room: Notify,
}

#[derive(Debug, Default)]
struct OutgoingState {
    outbox: Outbox,
    open_items: OpenItems,
    connected: bool,
    /// Commands whose receipt was not sent yet. Bounded by what came in over this connection.
    taken: Vec<String>,
}

impl OutgoingQueue {
    /// Something for the journal; ends `item`.
    pub async fn event(&self, item: Option<&str>, body: impl Into<EventBody>) {
        self.report(AgentReport::Event { item: item.map(str::to_owned), body: body.into() }).await;
    }

    /// Numbers and keeps a report. Waits while the outbox is full; once it has returned the report is as good as made, and
    /// it has not been made if the wait was given up.
    pub async fn report(&self, report: AgentReport) {
        let mut report = Some(report);
        self.wait_for_room(|state| {
            if !state.outbox.has_room() {
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

    /// The next piece of an item. Waits while the socket is behind.
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

    /// The receipt of a command.
    pub fn taken(&self, command: String) {
        self.lock().taken.push(command);
        self.0.to_send.notify_one();
    }

    /// The number of the newest report.
    pub fn last_n(&self) -> u64 {
        self.lock().outbox.last_n()
    }

    /// A connection stands, and the server has everything up to `acked`.
    pub fn connect(&self, acked: u64) {
        let mut state = self.lock();
        state.outbox.rewind(acked);
        state.open_items.resend_all();
        state.connected = true;
        drop(state);
        self.0.to_send.notify_one();
        self.0.room.notify_waiters();
    }

    /// No connection stands any more.
    pub fn disconnect(&self) {
        let mut state = self.lock();
        state.connected = false;
        state.open_items.drop_unsent();
        state.taken.clear();
        drop(state);
        self.0.room.notify_waiters();
    }

    /// Every report up to `n` is on the server's disk.
    pub fn ack(&self, n: u64) {
        self.lock().outbox.ack(n);
        self.0.room.notify_waiters();
    }

    /// The next frame for the connection that stands. For its one writer.
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
        state.outbox.next_frame().or_else(|| state.open_items.next_delta().map(|delta| frame(&FromAgent::Delta(delta))))
    }

    async fn wait_for_room(&self, mut attempt: impl FnMut(&mut OutgoingState) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.0.room.notified());
            // Before the attempt, so that room made between the two is not missed.
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

/// A frame as it goes over the wire.
pub fn frame(frame: &FromAgent) -> Utf8Bytes {
    serde_json::to_string(frame).expect("a frame has string keys and no foreign types").into()
}
