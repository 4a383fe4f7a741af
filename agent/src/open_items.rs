//! Items that still grow: the text sent of each, and the text to send next. Pure: no socket, no
//! clock.

use greenroom_protocol::{Delta, DeltaKind};

use crate::headtail::HeadTail;

/// Bytes of an item that are kept for a later connection. Of a longer item, the connection gets
/// head and tail.
const ITEM_TEXT_LIMIT: usize = 256 * 1024;

/// Size limit of one delta, in bytes. A sudden growth may exceed a frame of the link.
const DELTA_LIMIT: usize = 256 * 1024;

/// Items that no durable event has ended yet. While the socket is busy, adjacent pieces of one item
/// become one delta.
#[derive(Debug, Default)]
pub struct OpenItems {
    open: Vec<GrowingItem>,
}

#[derive(Debug)]
struct GrowingItem {
    item: String,
    kind: DeltaKind,
    so_far: HeadTail,
    unsent: String,
    /// Length of the text that the connection has, in bytes.
    sent_bytes: u64,
}

impl OpenItems {
    /// Appends `text` to an item, which begins with its first piece. Without a connection, nothing
    /// is queued to send.
    pub fn grow(&mut self, kind: DeltaKind, item: &str, text: &str, connected: bool) {
        let at = self.open.iter().position(|open| open.item == item && open.kind == kind).unwrap_or_else(|| {
            let so_far = HeadTail::new(ITEM_TEXT_LIMIT);
            self.open.push(GrowingItem { item: item.to_owned(), kind, so_far, unsent: String::new(), sent_bytes: 0 });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.so_far.push(text);
        if connected {
            open.unsent.push_str(text);
        }
    }

    /// Ends the item. Its durable event holds the text that was not sent.
    pub fn close(&mut self, item: &str) {
        self.open.retain(|open| open.item != item);
    }

    /// Prepares for a new connection: each item is sent again from offset 0.
    pub fn resend_all(&mut self) {
        for open in &mut self.open {
            open.sent_bytes = 0;
            open.unsent = open.so_far.text();
        }
    }

    /// Drops the unsent text, because the connection ended.
    pub fn drop_unsent(&mut self) {
        self.open.iter_mut().for_each(|open| open.unsent = String::new());
    }

    /// Bytes that wait for the socket.
    pub fn unsent_bytes(&self) -> usize {
        self.open.iter().map(|open| open.unsent.len()).sum()
    }

    /// Returns the next delta. Items alternate.
    pub fn next_delta(&mut self) -> Option<Delta> {
        let at = self.open.iter().position(|open| !open.unsent.is_empty())?;
        let mut open = self.open.remove(at);
        let rest = open.unsent.split_off(open.unsent.floor_char_boundary(DELTA_LIMIT));
        let content = std::mem::replace(&mut open.unsent, rest);
        let offset = open.sent_bytes;
        open.sent_bytes += content.len() as u64;
        let delta = Delta { kind: open.kind, item: open.item.clone(), offset, content };
        self.open.push(open);
        Some(delta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Applies a delta as a receiver does.
    fn apply_delta(received: &mut String, delta: Delta) {
        if delta.offset == 0 {
            received.clear();
        }
        assert_eq!(delta.offset, received.len() as u64, "a gap");
        received.push_str(&delta.content);
    }

    proptest! {
        #[test]
        fn receiver_has_full_item_after_reconnects(pieces in proptest::collection::vec(("[a-zä]{1,9}", 0..4u8), 1..50)) {
            let (mut items, mut received, mut whole) = (OpenItems::default(), String::new(), String::new());
            let mut connected = false;
            for (piece, what) in &pieces {
                match what {
                    0 => { connected = false; items.drop_unsent(); }
                    1 => { connected = true; items.resend_all(); }
                    2 => { items.next_delta().into_iter().for_each(|delta| apply_delta(&mut received, delta)); }
                    _ => {}
                }
                whole.push_str(piece);
                items.grow(DeltaKind::Text, "i", piece, connected);
            }
            items.resend_all();
            while let Some(delta) = items.next_delta() { apply_delta(&mut received, delta); }
            prop_assert_eq!(received, whole);
        }
    }

    #[test]
    fn sudden_growth_is_split_into_deltas() {
        let (mut items, mut received) = (OpenItems::default(), String::new());
        let much = "ä".repeat(DELTA_LIMIT);
        items.grow(DeltaKind::Text, "i", &much, true);
        while let Some(delta) = items.next_delta() {
            assert!(delta.content.len() <= DELTA_LIMIT);
            apply_delta(&mut received, delta);
        }
        assert!(received == much);
    }

    #[test]
    fn ended_item_sends_no_delta() {
        let mut items = OpenItems::default();
        items.grow(DeltaKind::Text, "a", "x", true);
        items.grow(DeltaKind::Output, "b", "y", true);
        items.close("a");
        assert_eq!(items.next_delta().map(|delta| delta.item), Some("b".into()));
        assert_eq!(items.next_delta(), None);
    }
}
