//! Assembly of a client's messages from fragments. Detects messages above the size limit without
//! closing the connection.
//!
//! No frame is larger than [`CLIENT_FRAME_LIMIT`]: the transport splits larger ones
//! (`net/ws_transport/oversize_frames.rs`).

use actix_web::web::{Bytes, BytesMut};
use actix_web_actors::ws::Message;
use greenroom_protocol::CLIENT_FRAME_LIMIT;

use crate::net::FragmentItem;

/// Result of receiving one frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReceivedFrame {
    Text(String),
    /// Binary data, or text that is not UTF-8.
    NotText,
    TooLarge,
    /// Fragment of a message that is not complete, or a frame without content.
    Nothing,
}

/// Message in fragments. Most clients never send one.
#[derive(Debug, Default)]
pub(super) struct FrameAssembler(Option<Box<FragmentedMessage>>);

#[derive(Debug)]
struct FragmentedMessage {
    buffer: BytesMut,
    kind: FragmentedKind,
}

#[derive(Debug, PartialEq, Eq)]
enum FragmentedKind {
    Text,
    NotText,
    /// The rest of the message is dropped as it arrives.
    TooLarge,
}

impl FrameAssembler {
    /// Receives one data frame. Control frames yield [`ReceivedFrame::Nothing`].
    pub(super) fn receive(&mut self, message: Message) -> ReceivedFrame {
        match message {
            Message::Text(text) => ReceivedFrame::Text(text.into()),
            Message::Binary(_) => ReceivedFrame::NotText,
            Message::Continuation(item) => self.receive_fragment(item),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Nop => ReceivedFrame::Nothing,
        }
    }

    fn receive_fragment(&mut self, item: FragmentItem) -> ReceivedFrame {
        match item {
            FragmentItem::FirstText(bytes) => self.begin(FragmentedKind::Text, &bytes),
            FragmentItem::FirstBinary(bytes) => self.begin(FragmentedKind::NotText, &bytes),
            FragmentItem::Continue(bytes) => self.add(&bytes),
            FragmentItem::Last(bytes) => {
                self.add(&bytes);
                self.end()
            }
        }
    }

    fn begin(&mut self, kind: FragmentedKind, bytes: &Bytes) -> ReceivedFrame {
        self.0 = Some(Box::new(FragmentedMessage { buffer: BytesMut::new(), kind }));
        self.add(bytes)
    }

    fn add(&mut self, bytes: &Bytes) -> ReceivedFrame {
        let Some(FragmentedMessage { buffer, kind }) = self.0.as_deref_mut() else { return ReceivedFrame::Nothing };
        if buffer.len() + bytes.len() > CLIENT_FRAME_LIMIT {
            *kind = FragmentedKind::TooLarge;
            *buffer = BytesMut::new();
        }
        if *kind == FragmentedKind::Text {
            buffer.extend_from_slice(bytes);
        }
        ReceivedFrame::Nothing
    }

    fn end(&mut self) -> ReceivedFrame {
        let Some(message) = self.0.take() else { return ReceivedFrame::Nothing };
        match message.kind {
            FragmentedKind::TooLarge => ReceivedFrame::TooLarge,
            FragmentedKind::NotText => ReceivedFrame::NotText,
            FragmentedKind::Text => {
                String::from_utf8(message.buffer.into()).map_or(ReceivedFrame::NotText, ReceivedFrame::Text)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(items: Vec<FragmentItem>, expected: ReceivedFrame) {
        let mut assembler = FrameAssembler::default();
        let received = items.into_iter().map(|item| assembler.receive(Message::Continuation(item))).last();
        assert_eq!(received, Some(expected));
    }

    #[test]
    fn fragments_become_a_message() {
        let part = |text: &'static str| Bytes::from_static(text.as_bytes());
        check(
            vec![FragmentItem::FirstText(part("a")), FragmentItem::Continue(part("b")), FragmentItem::Last(part("c"))],
            ReceivedFrame::Text("abc".into()),
        );
        check(vec![FragmentItem::FirstText(part("a")), FragmentItem::Continue(part("b"))], ReceivedFrame::Nothing);
        check(vec![FragmentItem::FirstBinary(part("a")), FragmentItem::Last(part("b"))], ReceivedFrame::NotText);
        let large = Bytes::from(vec![b'x'; CLIENT_FRAME_LIMIT]);
        check(
            vec![FragmentItem::FirstText(large.clone()), FragmentItem::Continue(large), FragmentItem::Last(part("c"))],
            ReceivedFrame::TooLarge,
        );
        check(
            vec![FragmentItem::FirstText(Bytes::from_static(&[0xff])), FragmentItem::Last(part("c"))],
            ReceivedFrame::NotText,
        );
    }
}
