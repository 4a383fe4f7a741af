//! The server's connection: one at a time, the newest wins. Carries frames and knows what they mean only to the link.

use std::{fs, io, path::Path, time::Duration};

use futures::{
    SinkExt, StreamExt,
    stream::{self, SplitSink, SplitStream},
};
use greenroom_protocol::{
    LINK_FRAME_LIMIT,
    link::{AgentHello, FromAgent, LINK_VERSION, ToAgent, fragments},
};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{
        self, Bytes, Message, Utf8Bytes,
        protocol::{
            CloseFrame, WebSocketConfig,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

use crate::{
    dispatcher::Dispatcher,
    outgoing::{OutgoingQueue, frame},
};

/// A reason in a close frame may have 123 bytes.
const REASON_LIMIT: usize = 123;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum AgentLinkError {
    #[error("the server closed the link")]
    Closed,
    #[error("the link was cut: {0}")]
    Socket(#[from] tungstenite::Error),
    #[error("not a frame of this link: {0}")]
    InvalidFrame(String),
    #[error("`{0}` has no place here")]
    UnexpectedFrame(&'static str),
}

/// Listens at `path`, for ever. The socket appears there only when it can be dialled.
pub async fn listen(path: &Path, desk: Dispatcher, outgoing: OutgoingQueue) -> io::Result<()> {
    let listener = bind(path)?;
    let mut current: Option<JoinHandle<()>> = None;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the link cannot accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Some(older) = current.take() {
            older.abort();
            // It has let go of the outgoing queue once this returns; how it ended does not matter any more.
            let _ = older.await;
        }
        current = Some(tokio::spawn(serve(stream, desk.clone(), outgoing.clone())));
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let making = path.with_extension("new");
    for old in [&making, path] {
        match fs::remove_file(old) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A directory, say, that a command made here. It keeps no agent from its start.
            Err(_) => fs::rename(old, old.with_extension(ulid::Ulid::generate().to_string()))?,
        }
    }
    let listener = UnixListener::bind(&making)?;
    fs::rename(&making, path)?;
    Ok(listener)
}

async fn serve(stream: UnixStream, desk: Dispatcher, outgoing: OutgoingQueue) {
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(4096)
        .max_write_buffer_size(2 * LINK_FRAME_LIMIT)
        .max_message_size(Some(LINK_FRAME_LIMIT))
        .max_frame_size(Some(LINK_FRAME_LIMIT));
    let socket = match accept_async_with_config(stream, Some(config)).await {
        Ok(socket) => socket,
        Err(error) => return tracing::warn!(%error, "somebody dialled who speaks no WebSocket"),
    };
    let (mut sink, mut stream) = socket.split();
    let _until_the_end = DisconnectOnDrop(outgoing.clone());
    // Both at once: a server that is behind with reading is heard all the same.
    let broken = tokio::select! {
        broken = write(&mut sink, hello(&desk, &outgoing), &outgoing) => broken,
        broken = read(&mut stream, &desk, &outgoing) => broken,
    };
    tracing::info!(why = %broken, "link closed");
    if let AgentLinkError::InvalidFrame(_)
    | AgentLinkError::UnexpectedFrame(_)
    | AgentLinkError::Socket(tungstenite::Error::Capacity(_)) = broken
    {
        let text = broken.to_string();
        let reason = text[..text.floor_char_boundary(REASON_LIMIT)].to_owned().into();
        let close = Message::Close(Some(CloseFrame { code: CloseCode::Policy, reason }));
        // The other end may have gone away; then there is nobody to tell.
        let _ = sink.send(close).await;
    }
}

/// Says hello, then all there is to say, until it cannot.
async fn write(
    sink: &mut SplitSink<WebSocketStream<UnixStream>, Message>,
    hello: AgentHello,
    outgoing: &OutgoingQueue,
) -> AgentLinkError {
    let mut next = frame(&FromAgent::Hello(hello));
    loop {
        if let Err(error) = sink.send_all(&mut stream::iter(in_fragments(next).map(Ok))).await {
            return error.into();
        }
        next = outgoing.next_frame().await;
    }
}

fn in_fragments(text: Utf8Bytes) -> impl Iterator<Item = Message> {
    let whole = Bytes::from(text);
    fragments(whole.len()).map(move |fragment| {
        let kind = if fragment.first { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(whole.slice(fragment.bytes), OpCode::Data(kind), fragment.last))
    })
}

/// Lets go of the outgoing queue however the connection ends, an abort included.
struct DisconnectOnDrop(OutgoingQueue);

impl Drop for DisconnectOnDrop {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

fn hello(desk: &Dispatcher, outgoing: &OutgoingQueue) -> AgentHello {
    AgentHello {
        link_version: LINK_VERSION,
        boot: desk.boot_for_hello(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        last_n: outgoing.last_n(),
        turn: desk.turn(),
    }
}

/// What the server may say next.
enum ExpectedFrame {
    Welcome,
    History,
    Anything,
}

async fn read(
    stream: &mut SplitStream<WebSocketStream<UnixStream>>,
    desk: &Dispatcher,
    outgoing: &OutgoingQueue,
) -> AgentLinkError {
    let mut expect = ExpectedFrame::Welcome;
    loop {
        let heard = match next_frame(stream).await {
            Ok(heard) => heard,
            Err(broken) => return broken,
        };
        expect = match (expect, heard) {
            (ExpectedFrame::Welcome, ToAgent::Welcome(welcome)) => {
                desk.apply_settings(welcome.settings);
                outgoing.connect(welcome.acked);
                if welcome.restore {
                    desk.begin_restore().await;
                    ExpectedFrame::History
                } else {
                    ExpectedFrame::Anything
                }
            }
            (ExpectedFrame::History, ToAgent::History { events, complete }) => {
                desk.restore(&events, complete).await;
                if complete { ExpectedFrame::Anything } else { ExpectedFrame::History }
            }
            (ExpectedFrame::Anything, ToAgent::Command(command)) => {
                let id = command.id.clone();
                desk.handle_command(command);
                outgoing.taken(id);
                ExpectedFrame::Anything
            }
            (expect @ (ExpectedFrame::Anything | ExpectedFrame::History), ToAgent::Ack { n }) => {
                outgoing.ack(n);
                expect
            }
            (_, ToAgent::Welcome(_)) => return AgentLinkError::UnexpectedFrame("welcome"),
            (_, ToAgent::History { .. }) => return AgentLinkError::UnexpectedFrame("history"),
            (_, ToAgent::Command(_)) => return AgentLinkError::UnexpectedFrame("command"),
            (_, ToAgent::Ack { .. }) => return AgentLinkError::UnexpectedFrame("ack"),
        };
    }
}

async fn next_frame(stream: &mut SplitStream<WebSocketStream<UnixStream>>) -> Result<ToAgent, AgentLinkError> {
    loop {
        match stream.next().await {
            None => return Err(AgentLinkError::Closed),
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(Message::Text(text))) => {
                return serde_json::from_str(text.as_str())
                    .map_err(|error| AgentLinkError::InvalidFrame(error.to_string()));
            }
            Some(Ok(Message::Binary(_))) => return Err(AgentLinkError::InvalidFrame("a binary message".into())),
            Some(Ok(Message::Close(_))) => return Err(AgentLinkError::Closed),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
        }
    }
}
