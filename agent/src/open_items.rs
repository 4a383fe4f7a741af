//! Items that are still growing: what was told of each, and what is to be told next. Pure: no socket, no clock.

use greenroom_protocol::{Delta, DeltaKind};

use crate::headtail::HeadTail;

/// How much of an item is kept for a connection that comes later. Of a longer one it gets head and tail.
const KEPT: usize = 256 * 1024;

/// How much goes into one delta, in bytes. What an item has grown at once may be more than a frame of the link holds.
const DELTA_LIMIT: usize = 256 * 1024;

/// The items that no durable event has ended yet. Adjacent pieces of one item become one delta while the socket is busy.
#[derive(Debug, Default)]
pub struct Items {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    item: String,
    kind: DeltaKind,
    so_far: HeadTail,
    untold: String,
    /// How long the listener's text is.
    told: u64,
}

impl Items {
    /// Adds to an item, which begins with its first piece. `listening`: whether a connection stands that wants it.
    pub fn grow(&mut self, kind: DeltaKind, item: &str, text: &str, listening: bool) {
        let at = self.open.iter().position(|open| open.item == item && open.kind == kind).unwrap_or_else(|| {
            let so_far = HeadTail::new(KEPT);
            self.open.push(Open { item: item.to_owned(), kind, so_far, untold: String::new(), told: 0 });
            self.open.len() - 1
        });
        let open = &mut self.open[at];
        open.so_far.push(text);
        if listening {
            open.untold.push_str(text);
        }
    }

    /// A durable event has ended the item; what was not told of it is in that event.
    pub fn close(&mut self, item: &str) {
        self.open.retain(|open| open.item != item);
    }

    /// A new connection: it gets each item so far, in one delta with offset 0.
    pub fn tell_anew(&mut self) {
        for open in &mut self.open {
            open.told = 0;
            open.untold = open.so_far.text();
        }
    }

    /// No connection stands any more.
    pub fn forget_untold(&mut self) {
        self.open.iter_mut().for_each(|open| open.untold = String::new());
    }

    /// How many bytes wait for the socket.
    pub fn untold(&self) -> usize {
        self.open.iter().map(|open| open.untold.len()).sum()
    }

    /// The next delta; items take turns.
    pub fn next_delta(&mut self) -> Option<Delta> {
        let at = self.open.iter().position(|open| !open.untold.is_empty())?;
        let mut open = self.open.remove(at);
        let rest = open.untold.split_off(open.untold.floor_char_boundary(DELTA_LIMIT));
        let content = std::mem::replace(&mut open.untold, rest);
        let offset = open.told;
        open.told += content.len() as u64;
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
    fn hear(heard: &mut String, delta: Delta) {
        if delta.offset == 0 {
            heard.clear();
        }
        assert_eq!(delta.offset, heard.len() as u64, "a gap");
        heard.push_str(&delta.content);
    }

    proptest! {
        #[test]
        fn a_listener_has_the_item_so_far(pieces in proptest::collection::vec(("[a-zä]{1,9}", 0..4u8), 1..50)) {
            let (mut items, mut heard, mut whole) = (Items::default(), String::new(), String::new());
            let mut listening = false;
            for (piece, what) in &pieces {
                match what {
                    0 => { listening = false; items.forget_untold(); }
                    1 => { listening = true; items.tell_anew(); }
                    2 => { items.next_delta().into_iter().for_each(|delta| hear(&mut heard, delta)); }
                    _ => {}
                }
                whole.push_str(piece);
                items.grow(DeltaKind::Text, "i", piece, listening);
            }
            items.tell_anew();
            while let Some(delta) = items.next_delta() { hear(&mut heard, delta); }
            prop_assert_eq!(heard, whole);
        }
    }

    #[test]
    fn what_grew_much_at_once_is_told_in_parts() {
        let (mut items, mut heard) = (Items::default(), String::new());
        let much = "ä".repeat(DELTA_LIMIT);
        items.grow(DeltaKind::Text, "i", &much, true);
        while let Some(delta) = items.next_delta() {
            assert!(delta.content.len() <= DELTA_LIMIT);
            hear(&mut heard, delta);
        }
        assert!(heard == much);
    }

    #[test]
    fn an_ended_item_is_told_no_more() {
        let mut items = Items::default();
        items.grow(DeltaKind::Text, "a", "x", true);
        items.grow(DeltaKind::Output, "b", "y", true);
        items.close("a");
        assert_eq!(items.next_delta().map(|delta| delta.item), Some("b".into()));
        assert_eq!(items.next_delta(), None);
    }
}
