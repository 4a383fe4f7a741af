//! Live part of a session: the newest event on disk, the growing items and the subscribers.
//!
//! A subscriber receives only [`Published`] and pulls the rest. It reads the journal up to
//! [`LiveState::tail`], then polls for the text that growing items have gained since its last poll.
//! So no queue exists that a slow subscriber could fill. A delta never overtakes the event before
//! it, and never follows the event that ends its item.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use actix::prelude::*;
use greenroom_protocol::{Delta, DeltaKind, RetryFrame};

use super::transition::OpenItem;
use crate::store::Seq;

/// Newest bytes of a growing item that late subscribers receive.
///
/// A late subscriber gets only the end of a longer item: the last output of a command is what a
/// person looks for. The event that ends the item has the whole text.
const RETAINED_BYTES: usize = 256 * 1024;
/// Growing items in one session.
///
/// Bound: 64 items and [`MAX_BYTES`]. When full: the oldest items are evicted. An agent works on a
/// few items at a time. An agent that starts items without end costs its own session the oldest
/// items, and no other session anything.
const MAX_ITEMS: usize = 64;
/// Bytes of names and texts of all growing items in one session.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Newest item ends that are kept to drop deltas that arrive after the end of their item.
///
/// Such deltas were on their way from the agent when the end was decided, so few ends suffice.
/// Items whose end is not on disk yet also drop their late deltas themselves.
const MAX_SEALED: usize = 32;

/// State that a session, its link and its subscribers share.
#[derive(Default)]
pub struct SessionBroadcast {
    live: Mutex<LiveState>,
    /// Set while the session's bytes in flight to disk exceed their bound.
    disk_backlogged: AtomicBool,
}

/// Live state of a session, behind the lock of [`SessionBroadcast`].
#[derive(Default)]
pub struct LiveState {
    /// Newest event on disk.
    pub tail: Seq,
    /// Newest decided event. May be in flight to disk.
    decided: Seq,
    /// Set when the session's actor has stopped. Clients then look up the next actor in the
    /// Directory.
    pub closed: bool,
    /// Set while the agent is being stopped: its output so far is committed, later deltas are
    /// dropped.
    ignores_deltas: bool,
    /// Growing items, oldest first.
    items: Vec<LiveItem>,
    /// Newest item ends, on disk or not. The ended items do not grow any more.
    sealed: VecDeque<ItemEnd>,
    /// Newest wait of a model call for its next attempt.
    retry: Option<LiveRetry>,
    subscribers: Vec<(u64, Recipient<Published>)>,
    /// Counter of subscribers, items and retries. Ids are unique, so a new item of an old name
    /// differs from the old item.
    next_id: u64,
}

/// Growing item. A tool call's input and its output are two items of one name, one after the other.
struct LiveItem {
    item: String,
    kind: DeltaKind,
    /// Unique id. Later items have larger ids.
    id: u64,
    /// Newest decided event when the item began. Subscribers see the item after that event.
    visible_after: Seq,
    /// Offset of `text` in the item, in bytes.
    start: u64,
    text: String,
    /// Set when the event that ends the item is decided, on disk or not.
    is_over: bool,
}

/// Wait of a model call for its next attempt.
struct LiveRetry {
    frame: RetryFrame,
    /// Unique id. Later waits have larger ids.
    id: u64,
    /// Newest decided event when the wait began. Subscribers see the wait after that event.
    visible_after: Seq,
}

/// Notice that there is more to pull. Idempotent: one notice may stand for many events and deltas.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Published;

/// Subscription to a session. Dropping the subscription ends it.
pub struct Subscription {
    broadcast: Arc<SessionBroadcast>,
    id: u64,
}

impl SessionBroadcast {
    fn live(&self) -> MutexGuard<'_, LiveState> {
        // A holder that panicked has at most left a shorter text behind.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(self: &Arc<SessionBroadcast>, subscriber: Recipient<Published>) -> Subscription {
        let mut live = self.live();
        live.next_id += 1;
        let id = live.next_id;
        live.subscribers.push((id, subscriber));
        Subscription { broadcast: self.clone(), id }
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.live().subscribers.len()
    }

    pub(crate) fn set_disk_backlogged(&self, backlogged: bool) {
        self.disk_backlogged.store(backlogged, Ordering::Relaxed);
    }

    /// Returns true if too many bytes are in flight to disk. The link then reads no more from the
    /// agent. May change with each answer to an append.
    pub fn is_disk_backlogged(&self) -> bool {
        self.disk_backlogged.load(Ordering::Relaxed)
    }

    /// Returns the number of the newest event on disk.
    pub(super) fn tail(&self) -> Seq {
        self.live().tail
    }

    /// Returns an item end that ends all tool inputs that grow now.
    pub(super) fn end_of_tool_inputs(&self) -> ItemEnd {
        ItemEnd::ToolInputs(self.live().next_id)
    }

    /// Accepts or drops the agent's deltas from now on.
    pub(super) fn accept_deltas(&self, accepted: bool) {
        self.live().ignores_deltas = !accepted;
    }

    /// Records that events up to `tail` are decided and end the items of `ended`.
    ///
    /// These items stop growing, because the event that ends an item lacks later deltas.
    pub(super) fn mark_decided(&self, tail: Seq, ended: &[ItemEnd]) {
        let mut live = self.live();
        live.decided = tail;
        for live_item in &mut live.items {
            live_item.is_over |= ended.iter().any(|ended| ended.ends(live_item));
        }
        live.sealed.extend(ended.iter().cloned());
        let forgotten = live.sealed.len().saturating_sub(MAX_SEALED);
        live.sealed.drain(..forgotten);
    }

    /// Records that events up to `tail` are on disk, removes the items of `ended`, and notifies all
    /// subscribers.
    pub(super) fn publish(&self, tail: Seq, ended: &[ItemEnd]) {
        let mut live = self.live();
        live.tail = tail;
        live.decided = live.decided.max(tail);
        for ended in ended {
            live.items.retain(|live_item| !ended.ends(live_item));
        }
        live.notify_subscribers();
    }

    /// Appends a delta to its item.
    ///
    /// A delta that overlaps the known text adds only the new part. After a gap, or if the overlap
    /// differs, the item begins again: subscribers discard its earlier text.
    ///
    /// The caller must first have received the answer to all earlier reports: a delta must not
    /// overtake the event before it.
    pub fn append_delta(&self, delta: Delta) {
        // The end of such a text would overflow.
        if delta.offset.checked_add(delta.content.len() as u64).is_none() {
            return;
        }
        let mut live = self.live();
        if live.ignores_deltas || live.is_sealed(&delta.item, delta.kind) {
            return;
        }
        let known =
            live.items.iter().position(|live_item| live_item.item == delta.item && live_item.kind == delta.kind);
        let at = match known {
            Some(at) if live.items[at].is_over => return,
            Some(at) if !live.items[at].continues_with(&delta) => {
                // The item gets a new id: positions in the old text do not apply to the new text.
                live.items.remove(at);
                live.start_item(delta.item, delta.kind, delta.offset)
            }
            Some(at) => at,
            None => live.start_item(delta.item, delta.kind, delta.offset),
        };
        live.items[at].add(delta.offset, &delta.content);
        live.evict_oldest();
        live.notify_subscribers();
    }

    /// Shows a model call's wait for its next attempt, in place of an earlier wait.
    pub(super) fn set_retry(&self, frame: RetryFrame) {
        let mut live = self.live();
        live.next_id += 1;
        live.retry = Some(LiveRetry { frame, id: live.next_id, visible_after: live.decided });
        live.notify_subscribers();
    }

    /// Removes the wait of `call`. Later subscribers do not receive the wait.
    pub(super) fn clear_retry(&self, call: u64) {
        let mut live = self.live();
        live.retry.take_if(|retry| retry.frame.call == call);
    }

    /// Returns the items that have not ended, oldest first.
    pub(super) fn open_items(&self) -> Vec<OpenItem> {
        let live = self.live();
        let open = |live_item: &LiveItem| {
            let LiveItem { item, kind, start, text, .. } = live_item;
            OpenItem { item: item.clone(), kind: *kind, start: *start, text: text.clone() }
        };
        live.items.iter().filter(|live_item| !live_item.is_over).map(open).collect()
    }

    pub(super) fn close(&self) {
        let mut live = self.live();
        live.closed = true;
        live.notify_subscribers();
    }
}

/// End of one or more growing items, caused by an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemEnd {
    /// An action ends the input. The output may grow already.
    ToolInput(String),
    /// An observation ends input and output.
    Item(String),
    /// The end of a turn ends all inputs up to this id. The input of a call that was never made has
    /// no event of its own.
    ToolInputs(u64),
}

impl ItemEnd {
    fn ends(&self, live_item: &LiveItem) -> bool {
        match self {
            ItemEnd::ToolInputs(newest) => live_item.kind == DeltaKind::ToolInput && live_item.id <= *newest,
            ItemEnd::ToolInput(_) | ItemEnd::Item(_) => self.seals(&live_item.item, live_item.kind),
        }
    }

    /// Returns true if no item of that name may grow any more, whenever it began.
    fn seals(&self, item: &str, kind: DeltaKind) -> bool {
        match self {
            ItemEnd::ToolInput(ended) => ended == item && kind == DeltaKind::ToolInput,
            ItemEnd::Item(ended) => ended == item,
            ItemEnd::ToolInputs(_) => false,
        }
    }
}

impl LiveState {
    fn is_sealed(&self, item: &str, kind: DeltaKind) -> bool {
        self.sealed.iter().any(|ended| ended.seals(item, kind))
    }

    /// Adds an item whose text before `start` is unknown. Returns the item's index.
    fn start_item(&mut self, item: String, kind: DeltaKind, start: u64) -> usize {
        self.next_id += 1;
        let (id, after) = (self.next_id, self.decided);
        self.items.push(LiveItem { item, kind, id, visible_after: after, start, text: String::new(), is_over: false });
        self.items.len() - 1
    }

    /// Evicts the oldest items until the rest is within the bounds. An evicted item that grows on
    /// begins again for its subscribers.
    fn evict_oldest(&mut self) {
        while self.items.len() > MAX_ITEMS || self.items.len() > 1 && self.size() > MAX_BYTES {
            self.items.remove(0);
        }
    }

    fn size(&self) -> usize {
        self.items.iter().map(|live_item| live_item.item.len() + live_item.text.len()).sum()
    }

    /// Wakes every subscriber. A subscriber with a full mailbox is about to poll anyway, so a lost
    /// [`Published`] has no effect.
    fn notify_subscribers(&self) {
        for (_, subscriber) in &self.subscribers {
            let _full_or_gone = subscriber.try_send(Published);
        }
    }
}

impl LiveItem {
    fn end(&self) -> u64 {
        self.start + self.text.len() as u64
    }

    /// Returns true if `delta` continues the known text: no gap, and no new beginning of the item.
    fn continues_with(&self, delta: &Delta) -> bool {
        let is_shorter = self.end() > delta.content.len() as u64;
        if delta.offset > self.end() || delta.offset == 0 && is_shorter {
            return false;
        }
        let both_from = self.start.max(delta.offset);
        let known = self.text.as_bytes().get((both_from - self.start) as usize..).unwrap_or_default();
        let again = delta.content.as_bytes().get((both_from - delta.offset) as usize..).unwrap_or_default();
        known.iter().zip(again).all(|(known, again)| known == again)
    }

    fn add(&mut self, offset: u64, content: &str) {
        let known = self.end().saturating_sub(offset) as usize;
        if let Some(new) = content.get(known..) {
            self.text.push_str(new);
        }
        if self.text.len() > 2 * RETAINED_BYTES {
            let cut_at = self.text.ceil_char_boundary(self.text.len() - RETAINED_BYTES);
            self.text.drain(..cut_at);
            // One delta may be as large as a frame.
            self.text.shrink_to(2 * RETAINED_BYTES);
            self.start += cut_at as u64;
        }
    }
}

/// Positions of a subscriber in the unnumbered state of a session.
#[derive(Default)]
pub struct DeltaPositions {
    /// Growing items: id to end of the sent text, in bytes.
    items: Vec<(u64, u64)>,
    /// Id of the newest wait that was sent.
    retry: u64,
}

impl DeltaPositions {
    fn position_of(&mut self, live_item: &LiveItem) -> Option<&mut u64> {
        self.items.iter_mut().find(|(id, _)| *id == live_item.id).map(|(_, end)| end)
    }
}

/// Result of one poll of a subscriber.
pub enum DeliveryPoll {
    /// The journal has newer events. The subscriber must read them first.
    Behind { tail: Seq },
    /// Chunks that the subscriber lacks, oldest item first. The subscriber has the whole journal.
    Deltas(Vec<DeltaChunk>),
    /// Newest wait of a model call, which the subscriber lacks.
    Retry(RetryFrame),
    /// The session's actor has stopped.
    Closed,
}

/// New part of a growing item.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaChunk {
    /// Delta in wire form. Offset 0 replaces everything before.
    pub delta: Delta,
    /// True offset of the delta in its item, in bytes. If the item's beginning was dropped, the
    /// wire's offset is 0 although this offset is not.
    pub at: u64,
}

impl Subscription {
    /// Polls from `cursor`. Returned deltas count as received, in `positions`.
    ///
    /// Returns about `max_bytes` bytes at most.
    pub fn poll(&self, cursor: Seq, positions: &mut DeltaPositions, max_bytes: usize) -> DeliveryPoll {
        let live = self.broadcast.live();
        if live.closed {
            return DeliveryPoll::Closed;
        }
        if live.tail > cursor {
            return DeliveryPoll::Behind { tail: live.tail };
        }
        if live.tail < cursor {
            // The subscriber has read events of the journal that are not published here yet. Those
            // events may have ended items that still grow here.
            return DeliveryPoll::Deltas(Vec::new());
        }
        if let Some(retry) = &live.retry
            && retry.id > positions.retry
            && retry.visible_after <= cursor
        {
            positions.retry = retry.id;
            return DeliveryPoll::Retry(retry.frame.clone());
        }
        positions.items.retain(|(id, _)| live.items.iter().any(|live_item| live_item.id == *id));
        let mut deltas = Vec::new();
        let mut remaining = max_bytes;
        for live_item in &live.items {
            if remaining == 0 || live_item.visible_after > cursor {
                break;
            }
            let position = positions.position_of(live_item);
            let Some((from, content)) = live_item.chunk_after(position.as_deref().copied(), remaining) else {
                continue;
            };
            remaining = remaining.saturating_sub(content.len());
            let at = from.position(live_item.start);
            let end = at + content.len() as u64;
            match position {
                Some(position) => *position = end,
                None => positions.items.push((live_item.id, end)),
            }
            let (kind, item) = (live_item.kind, live_item.item.clone());
            deltas.push(DeltaChunk { delta: Delta { kind, item, offset: from.offset(), content }, at });
        }
        DeliveryPoll::Deltas(deltas)
    }

    /// Returns the number of the newest event on disk.
    pub fn tail(&self) -> Seq {
        self.broadcast.live().tail
    }
}

/// Begin of a chunk.
enum ChunkStart {
    /// Directly behind the text that the subscriber has.
    Continue(u64),
    /// At the oldest retained byte: the subscriber has nothing that fits.
    Restart,
}

impl ChunkStart {
    /// Returns the offset in wire form. Offset 0 discards the text before.
    fn offset(&self) -> u64 {
        match self {
            ChunkStart::Continue(offset) => *offset,
            ChunkStart::Restart => 0,
        }
    }

    fn position(&self, start: u64) -> u64 {
        match self {
            ChunkStart::Continue(offset) => *offset,
            ChunkStart::Restart => start,
        }
    }
}

impl LiveItem {
    /// Returns the chunk after `position`, of about `max_bytes` bytes at most.
    fn chunk_after(&self, position: Option<u64>, max_bytes: usize) -> Option<(ChunkStart, String)> {
        let from = match position {
            Some(position) if position >= self.end() => return None,
            Some(position) if position >= self.start => ChunkStart::Continue(position),
            Some(_) | None => ChunkStart::Restart,
        };
        // Every position that a subscriber has is at a character boundary of this item.
        let rest = self.text.get((from.position(self.start) - self.start) as usize..)?;
        // At least one character: otherwise a subscriber with little credit would never continue.
        let content = rest[..rest.floor_char_boundary(max_bytes.max(4))].to_owned();
        (!content.is_empty()).then_some((from, content))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.broadcast.live().subscribers.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests;
