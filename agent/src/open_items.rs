//! Items that are still growing: what was told of each, and what is to be told next. Pure: no socket, no clock.

use greenroom_protocol::{Delta, DeltaKind};

use crate::headtail::HeadTail;

/// How much of an item is kept for a connection that comes later. Of a longer one it gets head and tail.
const ITEM_TEXT_LIMIT: usize = 256 * 1024;

/// How much goes into one delta, in bytes. What an item has grown at once may be more than a frame of the link holds.
const DELTA_LIMIT: usize = 256 * 1024;

/// The items that no durable event has ended yet. Adjacent pieces of one item become one delta while the socket is busy.
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
    /// How long the listener's text is.
    sent_bytes: u64,
}

impl OpenItems {
    /// Adds to an item, which begins with its first piece. `listening`: whether a connection stands that wants it.
    pub fn grow(&mut self, kind: DeltaKind, item: &str, text: &str, listening: bool) {
        let at = self.open.iter().position(|open| open.item == item && open.kind == kind).unwrap_or_else(|| {
            let so_far = HeadTail::new(ITEM_TEXT_LIMIT);
            self.open.push(GrowingItem { item: item.to_owned(), kind, so_far, unsent: String::new(), sent_bytes: 0 });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.so_far.push(text);
        if listening {
            open.unsent.push_str(text);
        }
    }

    /// A durable event has ended the item; what was not told of it is in that event.
    pub fn close(&mut self, item: &str) {
        self.open.retain(|open| open.item != item);
    }

    /// A new connection: it gets each item so far, in one delta with offset 0.
    pub fn resend_all(&mut self) {
        for open in &mut self.open {
            open.sent_bytes = 0;
            open.unsent = open.so_far.text();
        }
    }

    /// No connection stands any more.
    pub fn drop_unsent(&mut self) {
        self.open.iter_mut().for_each(|open| open.unsent = String::new());
    }

    /// How many bytes wait for the socket.
    pub fn unsent_bytes(&self) -> usize {
        self.open.iter().map(|open| open.unsent.len()).sum()
    }

    /// The next delta; items take turns.
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

    /// What a listener makes of the deltas.
    fn apply_delta(heard: &mut String, delta: Delta) {
        if delta.offset == 0 {
            heard.clear();
        }
        assert_eq!(delta.offset, heard.len() as u64, "a gap");
        heard.push_str(&delta.content);
    }

    proptest! {
        #[test]
        fn a_listener_has_the_item_so_far(pieces in proptest::collection::vec(("[a-zä]{1,9}", 0..4u8), 1..50)) {
            let (mut items, mut heard, mut whole) = (OpenItems::default(), String::new(), String::new());
            let mut listening = false;
            for (piece, what) in &pieces {
                match what {
                    0 => { listening = false; items.drop_unsent(); }
                    1 => { listening = true; items.resend_all(); }
                    2 => { items.next_delta().into_iter().for_each(|delta| apply_delta(&mut heard, delta)); }
                    _ => {}
                }
                whole.push_str(piece);
                items.grow(DeltaKind::Text, "i", piece, listening);
            }
            items.resend_all();
            while let Some(delta) = items.next_delta() { apply_delta(&mut heard, delta); }
            prop_assert_eq!(heard, whole);
        }
    }

    #[test]
    fn what_grew_much_at_once_is_told_in_parts() {
        let (mut items, mut heard) = (OpenItems::default(), String::new());
        let much = "ä".repeat(DELTA_LIMIT);
        items.grow(DeltaKind::Text, "i", &much, true);
        while let Some(delta) = items.next_delta() {
            assert!(delta.content.len() <= DELTA_LIMIT);
            apply_delta(&mut heard, delta);
        }
        assert!(heard == much);
    }

    #[test]
    fn an_ended_item_is_told_no_more() {
        let mut items = OpenItems::default();
        items.grow(DeltaKind::Text, "a", "x", true);
        items.grow(DeltaKind::Output, "b", "y", true);
        items.close("a");
        assert_eq!(items.next_delta().map(|delta| delta.item), Some("b".into()));
        assert_eq!(items.next_delta(), None);
    }
}
