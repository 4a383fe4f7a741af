//! Putting a client's messages together, and finding the ones that are too large without losing the connection. No frame is
//! larger than [`CLIENT_FRAME_LIMIT`]: one that is sent so comes in pieces (`web/upgrade/cut.rs`).

use actix_http::ws::{Item, Message};
use actix_web::web::{Bytes, BytesMut};
use greenroom_protocol::CLIENT_FRAME_LIMIT;

/// What came of a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Text(String),
    /// Not text, or not UTF-8.
    NotText,
    TooLarge,
    /// A piece of a message whose end has not come, or nothing that concerns anybody.
    Nothing,
}

/// A message that comes in pieces. Most never do.
#[derive(Debug, Default)]
pub(super) struct Pieces(Option<Box<Begun>>);

#[derive(Debug)]
struct Begun {
    buffer: BytesMut,
    kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Text,
    NotText,
    /// The rest of it is thrown away as it comes.
    TooLarge,
}

impl Pieces {
    /// Control frames are not for this.
    pub(super) fn hear(&mut self, message: Message) -> Heard {
        match message {
            Message::Text(text) => Heard::Text(text.into()),
            Message::Binary(_) => Heard::NotText,
            Message::Continuation(item) => self.piece(item),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Nop => Heard::Nothing,
        }
    }

    fn piece(&mut self, item: Item) -> Heard {
        match item {
            Item::FirstText(bytes) => self.begin(Kind::Text, &bytes),
            Item::FirstBinary(bytes) => self.begin(Kind::NotText, &bytes),
            Item::Continue(bytes) => self.add(&bytes),
            Item::Last(bytes) => {
                self.add(&bytes);
                self.end()
            }
        }
    }

    fn begin(&mut self, kind: Kind, bytes: &Bytes) -> Heard {
        self.0 = Some(Box::new(Begun { buffer: BytesMut::new(), kind }));
        self.add(bytes)
    }

    fn add(&mut self, bytes: &Bytes) -> Heard {
        let Some(Begun { buffer, kind }) = self.0.as_deref_mut() else { return Heard::Nothing };
        if buffer.len() + bytes.len() > CLIENT_FRAME_LIMIT {
            *kind = Kind::TooLarge;
            *buffer = BytesMut::new();
        }
        if *kind == Kind::Text {
            buffer.extend_from_slice(bytes);
        }
        Heard::Nothing
    }

    fn end(&mut self) -> Heard {
        let Some(begun) = self.0.take() else { return Heard::Nothing };
        match begun.kind {
            Kind::TooLarge => Heard::TooLarge,
            Kind::NotText => Heard::NotText,
            Kind::Text => String::from_utf8(begun.buffer.into()).map_or(Heard::NotText, Heard::Text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(items: Vec<Item>, expected: Heard) {
        let mut pieces = Pieces::default();
        let heard = items.into_iter().map(|item| pieces.hear(Message::Continuation(item))).last();
        assert_eq!(heard, Some(expected));
    }

    #[test]
    fn pieces_become_a_message() {
        let part = |text: &'static str| Bytes::from_static(text.as_bytes());
        check(
            vec![Item::FirstText(part("a")), Item::Continue(part("b")), Item::Last(part("c"))],
            Heard::Text("abc".into()),
        );
        check(vec![Item::FirstText(part("a")), Item::Continue(part("b"))], Heard::Nothing);
        check(vec![Item::FirstBinary(part("a")), Item::Last(part("b"))], Heard::NotText);
        let large = Bytes::from(vec![b'x'; CLIENT_FRAME_LIMIT]);
        check(vec![Item::FirstText(large.clone()), Item::Continue(large), Item::Last(part("c"))], Heard::TooLarge);
        check(vec![Item::FirstText(Bytes::from_static(&[0xff])), Item::Last(part("c"))], Heard::NotText);
    }
}
