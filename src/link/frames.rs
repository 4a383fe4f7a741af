//! What the server says to an agent, as WebSocket frames.

use greenroom_protocol::link::{ToAgent, fragments};
use tokio_tungstenite::tungstenite::{
    Bytes, Message, Utf8Bytes,
    protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

pub(super) fn encode_frame(frame: &ToAgent) -> Utf8Bytes {
    // Every type of the link has string keys and no fallible `Serialize`, so this cannot fail.
    serde_json::to_string(frame).expect("a frame is JSON").into()
}

pub(super) fn into_fragments(text: Utf8Bytes) -> impl Iterator<Item = Message> {
    let whole = Bytes::from(text);
    fragments(whole.len()).map(move |fragment| {
        let kind = if fragment.first { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(whole.slice(fragment.bytes), OpCode::Data(kind), fragment.last))
    })
}
