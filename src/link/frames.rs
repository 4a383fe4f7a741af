//! Encodes the server's link frames as WebSocket frames.

use greenroom_protocol::link::{ToAgent, fragments};
use tokio_tungstenite::tungstenite::{
    Bytes, Message, Utf8Bytes,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

pub(super) fn encode_frame(frame: &ToAgent) -> Utf8Bytes {
    // All link types have string keys and an infallible `Serialize`, so this cannot fail.
    serde_json::to_string(frame).expect("link frames serialize: string keys, no fallible `Serialize`").into()
}

pub(super) fn into_fragments(text: Utf8Bytes) -> impl Iterator<Item = Message> {
    let payload = Bytes::from(text);
    fragments(payload.len()).map(move |fragment| {
        let kind = if fragment.first { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(payload.slice(fragment.bytes), OpCode::Data(kind), fragment.last))
    })
}
