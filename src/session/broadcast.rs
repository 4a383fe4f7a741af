//! Who listens, and what is live: the newest durable number and the items that still grow.
//!
//! A listener is never sent anything but [`Published`]: it pulls. From the journal up to [`Live::tail`], and then, when it
//! has all of that, what the open items have grown since it last looked. So there is no queue that a slow listener could
//! fill, and a delta can never overtake the event before it or follow the event that ends its item.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use actix::Recipient;
use greenroom_protocol::{Delta, DeltaKind};

use super::{messages::Published, transition::OpenItem};
use crate::store::Seq;

/// How much of a growing item is kept for those who come late, in bytes. Of a longer one they get the end: what a command
/// printed last is what a person looks for. The whole comes with the event that ends the item.
const RETAINED_BYTES: usize = 256 * 1024;
/// How much grows at once in one session: so many items, and so many bytes of their names and texts. An agent works on a few
/// at a time; one that begins ever new ones and ends none costs its session the oldest of them, and nobody else anything.
const MAX_ITEMS: usize = 64;
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// How many items are remembered that were ended, beside those that still stand here until that is on disk. Only pieces that
/// are on their way from the agent at that moment matter.
const MAX_SEALED: usize = 32;

/// What the session, its link and its listeners share.
#[derive(Default)]
pub struct SessionBroadcast {
    live: Mutex<LiveState>,
    disk_backlogged: AtomicBool,
}

/// What is live right now.
#[derive(Default)]
pub struct LiveState {
    /// Everything up to here is on disk.
    pub tail: Seq,
    /// Everything up to here is decided, and on its way there.
    decided: Seq,
    /// The session's actor is gone; whoever still wants the session asks the Directory again.
    pub closed: bool,
    /// The agent is being taken away: what it has said is written down, and what it says now is not.
    ignores_deltas: bool,
    /// Oldest first.
    items: Vec<LiveItem>,
    /// What was ended last, also where that is not on disk yet: it grows no more.
    sealed: VecDeque<ItemEnd>,
    subscribers: Vec<(u64, Recipient<Published>)>,
    /// Counts listeners and items, so that neither is ever mistaken for an earlier one of the same name.
    next_id: u64,
}

/// A tool call's input and its output grow under the same item, one after the other.
struct LiveItem {
    item: String,
    kind: DeltaKind,
    /// Which one it is; the later began later.
    id: u64,
    /// The newest event when it began: nobody sees the item before that event.
    visible_after: Seq,
    /// Where `text` begins in the item, in bytes.
    start: u64,
    text: String,
    /// What ends it is decided, if not on disk yet: it grows no more.
    is_over: bool,
}

/// A listener's own end. Dropping it ends the listening.
pub struct Subscription {
    shared: Arc<SessionBroadcast>,
    id: u64,
}

impl SessionBroadcast {
    fn live(&self) -> MutexGuard<'_, LiveState> {
        // Whoever panicked while holding it left at most a shorter text behind.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(self: &Arc<SessionBroadcast>, listener: Recipient<Published>) -> Subscription {
        let mut live = self.live();
        live.next_id += 1;
        let id = live.next_id;
        live.subscribers.push((id, listener));
        Subscription { shared: self.clone(), id }
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.live().subscribers.len()
    }

    pub(crate) fn set_disk_backlogged(&self, waits: bool) {
        self.disk_backlogged.store(waits, Ordering::Relaxed);
    }

    /// Whether so much is on its way to disk that nothing more should be asked for. It has news for who waits for any of it.
    pub fn is_disk_backlogged(&self) -> bool {
        self.disk_backlogged.load(Ordering::Relaxed)
    }

    /// The newest event on disk.
    pub(super) fn tail(&self) -> Seq {
        self.live().tail
    }

    /// The end of the inputs of all calls that grow now.
    pub(super) fn end_of_tool_inputs(&self) -> ItemEnd {
        ItemEnd::ToolInputs(self.live().next_id)
    }

    /// Whether the agent's deltas count from now on.
    pub(super) fn accept_deltas(&self, counts: bool) {
        self.live().ignores_deltas = !counts;
    }

    /// Events up to `tail` are decided, and that these end with them. What listeners would read of them from now on would not
    /// be in the event that ends them.
    pub(super) fn mark_decided(&self, tail: Seq, ended: &[ItemEnd]) {
        let mut live = self.live();
        live.decided = tail;
        for growing in &mut live.items {
            growing.is_over |= ended.iter().any(|ended| ended.ends(growing));
        }
        live.sealed.extend(ended.iter().cloned());
        let forgotten = live.sealed.len().saturating_sub(MAX_SEALED);
        live.sealed.drain(..forgotten);
    }

    /// Events up to `tail` are on disk, and those that end the items of `ended` are among them.
    pub(super) fn publish(&self, tail: Seq, ended: &[ItemEnd]) {
        let mut live = self.live();
        live.tail = tail;
        live.decided = live.decided.max(tail);
        for ended in ended {
            live.items.retain(|growing| !ended.ends(growing));
        }
        live.notify_subscribers();
    }

    /// An item grew. A delta that overlaps what is known adds only what is new; one that leaves a gap, or says something else
    /// than is known, begins anew.
    ///
    /// Whoever calls this has had an answer behind all that was reported before: a delta may not overtake the event before it.
    pub fn append_delta(&self, delta: Delta) {
        // Of a text that ends nowhere nothing can be said.
        if delta.offset.checked_add(delta.content.len() as u64).is_none() {
            return;
        }
        let mut live = self.live();
        if live.ignores_deltas || live.is_sealed(&delta.item, delta.kind) {
            return;
        }
        let known = live.items.iter().position(|growing| growing.item == delta.item && growing.kind == delta.kind);
        let at = match known {
            Some(at) if live.items[at].is_over => return,
            Some(at) if !live.items[at].continues_with(&delta) => {
                // As another one: how far listeners have come in it says nothing about the new text.
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

    /// Items that have not ended, oldest first.
    pub(super) fn open_items(&self) -> Vec<OpenItem> {
        let live = self.live();
        let open = |growing: &LiveItem| {
            let LiveItem { item, kind, start, text, .. } = growing;
            OpenItem { item: item.clone(), kind: *kind, start: *start, text: text.clone() }
        };
        live.items.iter().filter(|growing| !growing.is_over).map(open).collect()
    }

    pub(super) fn close(&self) {
        let mut live = self.live();
        live.closed = true;
        live.notify_subscribers();
    }
}

/// An event that ends what grew under its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemEnd {
    /// An action ends its input; its output may be growing already.
    ToolInput(String),
    /// An observation ends everything.
    Item(String),
    /// With a turn the inputs of all calls end, up to this item: those that were not called have no event of their own.
    ToolInputs(u64),
}

impl ItemEnd {
    fn ends(&self, growing: &LiveItem) -> bool {
        match self {
            ItemEnd::ToolInputs(newest) => growing.kind == DeltaKind::ToolInput && growing.id <= *newest,
            ItemEnd::ToolInput(_) | ItemEnd::Item(_) => self.seals(&growing.item, growing.kind),
        }
    }

    /// Whether nothing of that name grows any more, whenever it began.
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

    /// The place of a new item, of which nothing before `start` is known.
    fn start_item(&mut self, item: String, kind: DeltaKind, start: u64) -> usize {
        self.next_id += 1;
        let (id, after) = (self.next_id, self.decided);
        self.items.push(LiveItem { item, kind, id, visible_after: after, start, text: String::new(), is_over: false });
        self.items.len() - 1
    }

    /// Lets go of what began first, while more grows than is kept. If it grows on, it begins anew for those who listen.
    fn evict_oldest(&mut self) {
        while self.items.len() > MAX_ITEMS || self.items.len() > 1 && self.size() > MAX_BYTES {
            self.items.remove(0);
        }
    }

    fn size(&self) -> usize {
        self.items.iter().map(|growing| growing.item.len() + growing.text.len()).sum()
    }

    /// Wakes every listener. One whose mailbox is full is about to look anyway: the message only says "look again".
    fn notify_subscribers(&self) {
        for (_, listener) in &self.subscribers {
            let _full_or_gone = listener.try_send(Published);
        }
    }
}

impl LiveItem {
    fn end(&self) -> u64 {
        self.start + self.text.len() as u64
    }

    /// Whether `delta` goes on with what is known: there is no gap, and the agent did not begin the item again.
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
            let cut = self.text.ceil_char_boundary(self.text.len() - RETAINED_BYTES);
            self.text.drain(..cut);
            // A single piece may have been as large as a frame.
            self.text.shrink_to(2 * RETAINED_BYTES);
            self.start += cut as u64;
        }
    }
}

/// How far a listener has come in each growing item: by the item's own id, the end of what it was sent, in bytes.
#[derive(Default)]
pub struct DeltaPositions(Vec<(u64, u64)>);

impl DeltaPositions {
    fn position_of(&mut self, growing: &LiveItem) -> Option<&mut u64> {
        self.0.iter_mut().find(|(id, _)| *id == growing.id).map(|(_, end)| end)
    }
}

/// What a listener gets when it looks.
pub enum DeliveryPoll {
    /// The journal is ahead of it: read from there first.
    Behind {
        tail: Seq,
    },
    /// It has the whole journal; these are the pieces that it has not seen, oldest item first.
    Deltas(Vec<DeltaChunk>),
    Closed,
}

/// What an item has grown.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaChunk {
    /// As the wire shows it: one that begins at 0 is in the place of all that came before.
    pub delta: Delta,
    /// Where it begins in its item, in bytes: of one that has grown long not at 0, though the wire says so.
    pub at: u64,
}

impl Subscription {
    /// Looks from `cursor`. What is returned as deltas counts as seen; nothing more than about `most` bytes is.
    pub fn poll(&self, cursor: Seq, seen: &mut DeltaPositions, most: usize) -> DeliveryPoll {
        let live = self.shared.live();
        if live.closed {
            return DeliveryPoll::Closed;
        }
        if live.tail > cursor {
            return DeliveryPoll::Behind { tail: live.tail };
        }
        if live.tail < cursor {
            // It came by way of the journal, which is a moment ahead: what grows here may be ended there.
            return DeliveryPoll::Deltas(Vec::new());
        }
        seen.0.retain(|(id, _)| live.items.iter().any(|growing| growing.id == *id));
        let mut deltas = Vec::new();
        let mut budget = most;
        for growing in &live.items {
            if budget == 0 || growing.visible_after > cursor {
                break;
            }
            let known = seen.position_of(growing);
            let Some((from, content)) = growing.chunk_after(known.as_deref().copied(), budget) else { continue };
            budget = budget.saturating_sub(content.len());
            let at = from.position(growing.start);
            let end = at + content.len() as u64;
            match known {
                Some(known) => *known = end,
                None => seen.0.push((growing.id, end)),
            }
            let (kind, item) = (growing.kind, growing.item.clone());
            deltas.push(DeltaChunk { delta: Delta { kind, item, offset: from.offset(), content }, at });
        }
        DeliveryPoll::Deltas(deltas)
    }

    pub fn tail(&self) -> Seq {
        self.shared.live().tail
    }
}

/// Where a piece begins.
enum ChunkStart {
    /// Right after what the listener has.
    Continue(u64),
    /// The listener has nothing of use: it begins with what is kept.
    Restart,
}

impl ChunkStart {
    /// As the wire shows it: 0 means "forget what you had".
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
    /// The piece after `seen`, at most about `most` bytes of it.
    fn chunk_after(&self, seen: Option<u64>, most: usize) -> Option<(ChunkStart, String)> {
        let from = match seen {
            Some(seen) if seen >= self.end() => return None,
            Some(seen) if seen >= self.start => ChunkStart::Continue(seen),
            Some(_) | None => ChunkStart::Restart,
        };
        // Every end that a listener was sent is one of a character of this item.
        let rest = self.text.get((from.position(self.start) - self.start) as usize..)?;
        // A piece holds at least one character, or a listener with little room would never get on.
        let content = rest[..rest.floor_char_boundary(most.max(4))].to_owned();
        (!content.is_empty()).then_some((from, content))
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.live().subscribers.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests;
