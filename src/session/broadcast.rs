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

use super::{decision::OpenItem, messages::Published};
use crate::store::Seq;

/// How much of a growing item is kept for those who come late, in bytes. Of a longer one they get the end: what a command
/// printed last is what a person looks for. The whole comes with the event that ends the item.
const KEEP: usize = 256 * 1024;
/// How much grows at once in one session: so many items, and so many bytes of their names and texts. An agent works on a few
/// at a time; one that begins ever new ones and ends none costs its session the oldest of them, and nobody else anything.
const MOST_ITEMS: usize = 64;
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// How many items are remembered that were ended, beside those that still stand here until that is on disk. Only pieces that
/// are on their way from the agent at that moment matter.
const SEALED: usize = 32;

/// What the session, its link and its listeners share.
#[derive(Default)]
pub struct Shared {
    live: Mutex<Live>,
    waits_for_the_disk: AtomicBool,
}

/// What is live right now.
#[derive(Default)]
pub struct Live {
    /// Everything up to here is on disk.
    pub tail: Seq,
    /// Everything up to here is decided, and on its way there.
    decided: Seq,
    /// The session's actor is gone; whoever still wants the session asks the Directory again.
    pub closed: bool,
    /// The agent is being taken away: what it has said is written down, and what it says now is not.
    is_deaf: bool,
    /// Oldest first.
    items: Vec<Growing>,
    /// What was ended last, also where that is not on disk yet: it grows no more.
    sealed: VecDeque<Ended>,
    listeners: Vec<(u64, Recipient<Published>)>,
    /// Counts listeners and items, so that neither is ever mistaken for an earlier one of the same name.
    next: u64,
}

/// A tool call's input and its output grow under the same item, one after the other.
struct Growing {
    item: String,
    kind: DeltaKind,
    /// Which one it is; the later began later.
    id: u64,
    /// The newest event when it began: nobody sees the item before that event.
    after: Seq,
    /// Where `text` begins in the item, in bytes.
    start: u64,
    text: String,
    /// What ends it is decided, if not on disk yet: it grows no more.
    is_over: bool,
}

/// A listener's own end. Dropping it ends the listening.
pub struct Listening {
    shared: Arc<Shared>,
    id: u64,
}

impl Shared {
    fn live(&self) -> MutexGuard<'_, Live> {
        // Whoever panicked while holding it left at most a shorter text behind.
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listen(self: &Arc<Shared>, listener: Recipient<Published>) -> Listening {
        let mut live = self.live();
        live.next += 1;
        let id = live.next;
        live.listeners.push((id, listener));
        Listening { shared: self.clone(), id }
    }

    pub(super) fn listeners(&self) -> usize {
        self.live().listeners.len()
    }

    pub(crate) fn waits_for_the_disk(&self, waits: bool) {
        self.waits_for_the_disk.store(waits, Ordering::Relaxed);
    }

    /// Whether so much is on its way to disk that nothing more should be asked for. It has news for who waits for any of it.
    pub fn is_waiting_for_the_disk(&self) -> bool {
        self.waits_for_the_disk.load(Ordering::Relaxed)
    }

    /// The newest event on disk.
    pub(super) fn tail(&self) -> Seq {
        self.live().tail
    }

    /// The end of the inputs of all calls that grow now.
    pub(super) fn end_of_inputs(&self) -> Ended {
        Ended::Inputs(self.live().next)
    }

    /// Whether the agent's deltas count from now on.
    pub(super) fn hear_the_agent(&self, counts: bool) {
        self.live().is_deaf = !counts;
    }

    /// Events up to `tail` are decided, and that these end with them. What listeners would read of them from now on would not
    /// be in the event that ends them.
    pub(super) fn decide(&self, tail: Seq, ended: &[Ended]) {
        let mut live = self.live();
        live.decided = tail;
        for growing in &mut live.items {
            growing.is_over |= ended.iter().any(|ended| ended.ends(growing));
        }
        live.sealed.extend(ended.iter().cloned());
        let forgotten = live.sealed.len().saturating_sub(SEALED);
        live.sealed.drain(..forgotten);
    }

    /// Events up to `tail` are on disk, and those that end the items of `ended` are among them.
    pub(super) fn publish(&self, tail: Seq, ended: &[Ended]) {
        let mut live = self.live();
        live.tail = tail;
        live.decided = live.decided.max(tail);
        for ended in ended {
            live.items.retain(|growing| !ended.ends(growing));
        }
        live.tell();
    }

    /// An item grew. A delta that overlaps what is known adds only what is new; one that leaves a gap, or says something else
    /// than is known, begins anew.
    ///
    /// Whoever calls this has had an answer behind all that was reported before: a delta may not overtake the event before it.
    pub fn grow(&self, delta: Delta) {
        // Of a text that ends nowhere nothing can be said.
        if delta.offset.checked_add(delta.content.len() as u64).is_none() {
            return;
        }
        let mut live = self.live();
        if live.is_deaf || live.is_sealed(&delta.item, delta.kind) {
            return;
        }
        let known = live.items.iter().position(|growing| growing.item == delta.item && growing.kind == delta.kind);
        let at = match known {
            Some(at) if live.items[at].is_over => return,
            Some(at) if !live.items[at].goes_on_with(&delta) => {
                // As another one: how far listeners have come in it says nothing about the new text.
                live.items.remove(at);
                live.begin(delta.item, delta.kind, delta.offset)
            }
            Some(at) => at,
            None => live.begin(delta.item, delta.kind, delta.offset),
        };
        live.items[at].add(delta.offset, &delta.content);
        live.forget_the_oldest();
        live.tell();
    }

    /// Items that have not ended, oldest first.
    pub(super) fn open(&self) -> Vec<OpenItem> {
        let live = self.live();
        let open = |growing: &Growing| {
            let Growing { item, kind, start, text, .. } = growing;
            OpenItem { item: item.clone(), kind: *kind, start: *start, text: text.clone() }
        };
        live.items.iter().filter(|growing| !growing.is_over).map(open).collect()
    }

    pub(super) fn close(&self) {
        let mut live = self.live();
        live.closed = true;
        live.tell();
    }
}

/// An event that ends what grew under its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// An action ends its input; its output may be growing already.
    Input(String),
    /// An observation ends everything.
    Whole(String),
    /// With a turn the inputs of all calls end, up to this item: those that were not called have no event of their own.
    Inputs(u64),
}

impl Ended {
    fn ends(&self, growing: &Growing) -> bool {
        match self {
            Ended::Inputs(newest) => growing.kind == DeltaKind::ToolInput && growing.id <= *newest,
            Ended::Input(_) | Ended::Whole(_) => self.seals(&growing.item, growing.kind),
        }
    }

    /// Whether nothing of that name grows any more, whenever it began.
    fn seals(&self, item: &str, kind: DeltaKind) -> bool {
        match self {
            Ended::Input(ended) => ended == item && kind == DeltaKind::ToolInput,
            Ended::Whole(ended) => ended == item,
            Ended::Inputs(_) => false,
        }
    }
}

impl Live {
    fn is_sealed(&self, item: &str, kind: DeltaKind) -> bool {
        self.sealed.iter().any(|ended| ended.seals(item, kind))
    }

    /// The place of a new item, of which nothing before `start` is known.
    fn begin(&mut self, item: String, kind: DeltaKind, start: u64) -> usize {
        self.next += 1;
        let (id, after) = (self.next, self.decided);
        self.items.push(Growing { item, kind, id, after, start, text: String::new(), is_over: false });
        self.items.len() - 1
    }

    /// Lets go of what began first, while more grows than is kept. If it grows on, it begins anew for those who listen.
    fn forget_the_oldest(&mut self) {
        while self.items.len() > MOST_ITEMS || self.items.len() > 1 && self.size() > MOST_BYTES {
            self.items.remove(0);
        }
    }

    fn size(&self) -> usize {
        self.items.iter().map(|growing| growing.item.len() + growing.text.len()).sum()
    }

    /// Wakes every listener. One whose mailbox is full is about to look anyway: the message only says "look again".
    fn tell(&self) {
        for (_, listener) in &self.listeners {
            let _full_or_gone = listener.try_send(Published);
        }
    }
}

impl Growing {
    fn end(&self) -> u64 {
        self.start + self.text.len() as u64
    }

    /// Whether `delta` goes on with what is known: there is no gap, and the agent did not begin the item again.
    fn goes_on_with(&self, delta: &Delta) -> bool {
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
        if self.text.len() > 2 * KEEP {
            let cut = self.text.ceil_char_boundary(self.text.len() - KEEP);
            self.text.drain(..cut);
            // A single piece may have been as large as a frame.
            self.text.shrink_to(2 * KEEP);
            self.start += cut as u64;
        }
    }
}

/// How far a listener has come in each growing item: by the item's own id, the end of what it was sent, in bytes.
#[derive(Default)]
pub struct Seen(Vec<(u64, u64)>);

impl Seen {
    fn of(&mut self, growing: &Growing) -> Option<&mut u64> {
        self.0.iter_mut().find(|(id, _)| *id == growing.id).map(|(_, end)| end)
    }
}

/// What a listener gets when it looks.
pub enum Look {
    /// The journal is ahead of it: read from there first.
    Behind {
        tail: Seq,
    },
    /// It has the whole journal; these are the pieces that it has not seen, oldest item first.
    Deltas(Vec<Piece>),
    Closed,
}

/// What an item has grown.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// As the wire shows it: one that begins at 0 is in the place of all that came before.
    pub delta: Delta,
    /// Where it begins in its item, in bytes: of one that has grown long not at 0, though the wire says so.
    pub at: u64,
}

impl Listening {
    /// Looks from `cursor`. What is returned as deltas counts as seen; nothing more than about `most` bytes is.
    pub fn look(&self, cursor: Seq, seen: &mut Seen, most: usize) -> Look {
        let live = self.shared.live();
        if live.closed {
            return Look::Closed;
        }
        if live.tail > cursor {
            return Look::Behind { tail: live.tail };
        }
        if live.tail < cursor {
            // It came by way of the journal, which is a moment ahead: what grows here may be ended there.
            return Look::Deltas(Vec::new());
        }
        seen.0.retain(|(id, _)| live.items.iter().any(|growing| growing.id == *id));
        let mut deltas = Vec::new();
        let mut budget = most;
        for growing in &live.items {
            if budget == 0 || growing.after > cursor {
                break;
            }
            let known = seen.of(growing);
            let Some((from, content)) = growing.since(known.as_deref().copied(), budget) else { continue };
            budget = budget.saturating_sub(content.len());
            let at = from.position(growing.start);
            let end = at + content.len() as u64;
            match known {
                Some(known) => *known = end,
                None => seen.0.push((growing.id, end)),
            }
            let (kind, item) = (growing.kind, growing.item.clone());
            deltas.push(Piece { delta: Delta { kind, item, offset: from.offset(), content }, at });
        }
        Look::Deltas(deltas)
    }

    pub fn tail(&self) -> Seq {
        self.shared.live().tail
    }
}

/// Where a piece begins.
enum From {
    /// Right after what the listener has.
    Here(u64),
    /// The listener has nothing of use: it begins with what is kept.
    Anew,
}

impl From {
    /// As the wire shows it: 0 means "forget what you had".
    fn offset(&self) -> u64 {
        match self {
            From::Here(offset) => *offset,
            From::Anew => 0,
        }
    }

    fn position(&self, start: u64) -> u64 {
        match self {
            From::Here(offset) => *offset,
            From::Anew => start,
        }
    }
}

impl Growing {
    /// The piece after `seen`, at most about `most` bytes of it.
    fn since(&self, seen: Option<u64>, most: usize) -> Option<(From, String)> {
        let from = match seen {
            Some(seen) if seen >= self.end() => return None,
            Some(seen) if seen >= self.start => From::Here(seen),
            Some(_) | None => From::Anew,
        };
        // Every end that a listener was sent is one of a character of this item.
        let rest = self.text.get((from.position(self.start) - self.start) as usize..)?;
        // A piece holds at least one character, or a listener with little room would never get on.
        let content = rest[..rest.floor_char_boundary(most.max(4))].to_owned();
        (!content.is_empty()).then_some((from, content))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.shared.live().listeners.retain(|(id, _)| *id != self.id);
    }
}

#[cfg(test)]
mod tests;
