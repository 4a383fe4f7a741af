//! Server's connection: one at a time, the newest wins. Carries frames and interprets only those of
//! the link itself. The protocol is in [`greenroom_protocol::link`]; see docs/internals/link.md.

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

/// Size limit of the reason in a close frame, in bytes (RFC 6455, section 5.5).
const REASON_LIMIT: usize = 123;

/// Reason why a connection ended.
#[derive(Debug, thiserror::Error)]
enum AgentLinkError {
    #[error("the server closed the link")]
    Closed,
    #[error("the link was cut: {0}")]
    Socket(#[from] tungstenite::Error),
    #[error("invalid frame: {0}")]
    InvalidFrame(String),
    #[error("unexpected frame `{0}`")]
    UnexpectedFrame(&'static str),
    #[error("the reports of an earlier start are delivered; the next connection begins anew")]
    EarlierStartFinished,
}

/// Listens at `path` and serves connections until the task is dropped. The socket appears at `path`
/// only when it accepts connections.
///
/// # Errors
/// Fails if the socket cannot be made at `path`.
pub async fn listen(path: &Path, dispatcher: Dispatcher, outgoing: OutgoingQueue) -> io::Result<()> {
    let listener = bind(path)?;
    let mut current: Option<JoinHandle<()>> = None;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the link cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if let Some(older) = current.take() {
            older.abort();
            // The older task has released the outgoing queue once this returns. Its result does not
            // matter.
            let _ = older.await;
        }
        current = Some(tokio::spawn(serve(stream, dispatcher.clone(), outgoing.clone())));
    }
}

/// Binds a listening socket at `path`, which appears only when it accepts connections. Replaces
/// what an earlier start left there.
///
/// # Errors
/// Fails if the socket cannot be made at `path`.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    let temporary = path.with_extension("new");
    for old in [&temporary, path] {
        match fs::remove_file(old) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // A command may have made a directory here. It is moved away, so that the agent starts.
            Err(_) => fs::rename(old, old.with_extension(ulid::Ulid::generate().to_string()))?,
        }
    }
    let listener = UnixListener::bind(&temporary)?;
    fs::rename(&temporary, path)?;
    Ok(listener)
}

async fn serve(stream: UnixStream, dispatcher: Dispatcher, outgoing: OutgoingQueue) {
    let config = WebSocketConfig::default()
        .read_buffer_size(4096)
        .write_buffer_size(4096)
        .max_write_buffer_size(2 * LINK_FRAME_LIMIT)
        .max_message_size(Some(LINK_FRAME_LIMIT))
        .max_frame_size(Some(LINK_FRAME_LIMIT));
    let socket = match accept_async_with_config(stream, Some(config)).await {
        Ok(socket) => socket,
        Err(error) => return tracing::warn!(%error, "a connection failed the WebSocket handshake"),
    };
    let (mut sink, mut stream) = socket.split();
    let _disconnect_on_drop = DisconnectOnDrop(outgoing.clone());
    // Both directions run at once: frames of a server that is slow to read are still processed.
    let error = tokio::select! {
        error = write(&mut sink, hello(&dispatcher, &outgoing), &outgoing) => error,
        error = read(&mut stream, &dispatcher, &outgoing) => error,
    };
    tracing::info!(reason = %error, "link closed");
    if let AgentLinkError::InvalidFrame(_)
    | AgentLinkError::UnexpectedFrame(_)
    | AgentLinkError::Socket(tungstenite::Error::Capacity(_)) = error
    {
        let text = error.to_string();
        let reason = text[..text.floor_char_boundary(REASON_LIMIT)].to_owned().into();
        let close = Message::Close(Some(CloseFrame { code: CloseCode::Policy, reason }));
        // The peer may be gone, so the result is ignored.
        let _ = sink.send(close).await;
    }
}

/// Sends `hello`, then all outgoing frames, until an error.
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

/// Releases the outgoing queue when the connection ends, even by an abort.
struct DisconnectOnDrop(OutgoingQueue);

impl Drop for DisconnectOnDrop {
    fn drop(&mut self) {
        self.0.disconnect();
    }
}

fn hello(dispatcher: &Dispatcher, outgoing: &OutgoingQueue) -> AgentHello {
    AgentHello {
        link_version: LINK_VERSION,
        boot: dispatcher.boot_for_hello(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        last_n: outgoing.last_n(),
        turn: dispatcher.turn(),
        reads_cancel_hints: true,
    }
}

/// Frames that the server may send next.
enum ExpectedFrame {
    Welcome,
    History,
    Anything,
}

async fn read(
    stream: &mut SplitStream<WebSocketStream<UnixStream>>,
    dispatcher: &Dispatcher,
    outgoing: &OutgoingQueue,
) -> AgentLinkError {
    let mut expect = ExpectedFrame::Welcome;
    let has_earlier_start = outgoing.earlier_boot().is_some();
    loop {
        let received = match next_frame(stream).await {
            Ok(received) => received,
            Err(error) => return error,
        };
        if has_earlier_start {
            if deliver_earlier_start(received, outgoing) {
                return AgentLinkError::EarlierStartFinished;
            }
            continue;
        }
        expect = match (expect, received) {
            (ExpectedFrame::Welcome, ToAgent::Welcome(welcome)) => {
                dispatcher.apply_settings(welcome.settings);
                outgoing.connect(welcome.acked, welcome.reviews);
                if welcome.restore {
                    dispatcher.begin_restore().await;
                    ExpectedFrame::History
                } else {
                    ExpectedFrame::Anything
                }
            }
            (ExpectedFrame::History, ToAgent::History { events, complete }) => {
                dispatcher.restore(&events, complete).await;
                if complete { ExpectedFrame::Anything } else { ExpectedFrame::History }
            }
            (ExpectedFrame::Anything, ToAgent::Command(command)) => {
                let id = command.id.clone();
                dispatcher.handle_command(command);
                outgoing.taken(id);
                ExpectedFrame::Anything
            }
            (ExpectedFrame::Anything, ToAgent::CancelHint(hint)) => {
                dispatcher.cancel_hinted(&hint);
                ExpectedFrame::Anything
            }
            (expect @ (ExpectedFrame::Anything | ExpectedFrame::History), ToAgent::Ack { n }) => {
                outgoing.ack(n);
                expect
            }
            // A server that lost its state of this boot may answer a repeated review early.
            (expect @ (ExpectedFrame::Anything | ExpectedFrame::History), ToAgent::Verdict(verdict)) => {
                outgoing.settle_review(verdict);
                expect
            }
            (_, ToAgent::Welcome(_)) => return AgentLinkError::UnexpectedFrame("welcome"),
            (_, ToAgent::History { .. }) => return AgentLinkError::UnexpectedFrame("history"),
            (_, ToAgent::Command(_)) => return AgentLinkError::UnexpectedFrame("command"),
            (_, ToAgent::CancelHint(_)) => return AgentLinkError::UnexpectedFrame("cancel_hint"),
            (_, ToAgent::Verdict(_)) => return AgentLinkError::UnexpectedFrame("verdict"),
            (_, ToAgent::Ack { .. }) => return AgentLinkError::UnexpectedFrame("ack"),
        };
    }
}

/// Handles a frame on a connection that delivers the reports of an earlier start. Returns `true` if
/// the delivery has ended. Commands are left for the next connection, which has the history.
fn deliver_earlier_start(received: ToAgent, outgoing: &OutgoingQueue) -> bool {
    match received {
        ToAgent::Welcome(welcome) => {
            if outgoing.finish_earlier_start(Some(welcome.acked)) {
                return true;
            }
            outgoing.connect(welcome.acked, welcome.reviews);
            outgoing.finish_earlier_start(None)
        }
        ToAgent::Ack { n } => {
            outgoing.ack(n);
            outgoing.finish_earlier_start(None)
        }
        ToAgent::History { .. } | ToAgent::Command(_) | ToAgent::CancelHint(_) | ToAgent::Verdict(_) => false,
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
