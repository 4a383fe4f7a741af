//! Connection of a client, a socket or a stream of server-sent events, that expects servers to die.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream::BoxStream};
use reqwest::Method;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use super::world::SoakWorld;

/// Time for a handshake before the server counts as gone.
const HANDSHAKE: Duration = Duration::from_secs(5);

pub(super) enum SoakConnection {
    Socket(Box<WebSocketStream<TcpStream>>),
    Stream { body: BoxStream<'static, reqwest::Result<Bytes>>, read: Vec<u8> },
}

/// Frame that came over a connection.
pub(super) enum SoakFrame {
    Frame(Value),
    Nothing,
    /// The connection is gone.
    Cut,
}

impl SoakConnection {
    /// Attaches to a session. Returns `None` if the server does not answer.
    pub(super) async fn attach(
        world: &SoakWorld,
        session: &str,
        after: impl std::fmt::Display,
    ) -> Option<SoakConnection> {
        SoakConnection::open(world, &format!("/ws?session={session}&after={after}")).await
    }

    /// Attaches to the same session with the chat protocol, from now on.
    pub(super) async fn chat(world: &SoakWorld, session: &str) -> Option<SoakConnection> {
        SoakConnection::open(world, &format!("/ws/sessions/{session}/chat")).await
    }

    async fn open(world: &SoakWorld, path: &str) -> Option<SoakConnection> {
        let authority = &world.rest.authority;
        let mut request = format!("ws://{authority}{path}").into_client_request().expect("an address");
        let bearer = HeaderValue::from_str(&format!("Bearer {}", world.rest.token)).expect("a token is text");
        request.headers_mut().insert("authorization", bearer);
        let opened = async {
            let tcp = TcpStream::connect(authority).await.ok()?;
            Some(client_async(request, tcp).await.ok()?.0)
        };
        let wire = timeout(HANDSHAKE, opened).await.ok()??;
        world.connected();
        Some(SoakConnection::Socket(Box::new(wire)))
    }

    /// Opens the session's stream of server-sent events, which has only durable events and deltas.
    pub(super) async fn stream(world: &SoakWorld, session: &str, after: u64) -> Option<SoakConnection> {
        let path = format!("/api/sessions/{session}/events?after={after}");
        let request = world.rest.request(Method::GET, &path).header("accept", "text/event-stream");
        let response = timeout(HANDSHAKE, request.send()).await.ok()?.ok()?;
        world.connected();
        response
            .status()
            .is_success()
            .then(|| SoakConnection::Stream { body: response.bytes_stream().boxed(), read: Vec::new() })
    }

    pub(super) async fn receive(&mut self, wait: Duration) -> SoakFrame {
        match self {
            SoakConnection::Socket(socket) => loop {
                match timeout(wait, socket.next()).await {
                    Err(_) => return SoakFrame::Nothing,
                    Ok(Some(Ok(Message::Text(text)))) => {
                        return serde_json::from_str(&text).map_or(SoakFrame::Cut, SoakFrame::Frame);
                    }
                    Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return SoakFrame::Cut,
                    Ok(Some(Ok(_))) => {}
                }
            },
            SoakConnection::Stream { body, read } => loop {
                if let Some(frame) = next_frame(read) {
                    return SoakFrame::Frame(frame);
                }
                match timeout(wait, body.next()).await {
                    Err(_) => return SoakFrame::Nothing,
                    Ok(Some(Ok(bytes))) => read.extend_from_slice(&bytes),
                    Ok(Some(Err(_)) | None) => return SoakFrame::Cut,
                }
            },
        }
    }

    /// Sends a frame. Returns false if the frame could not be sent; a stream cannot send.
    pub(super) async fn say(&mut self, frame: &Value) -> bool {
        let SoakConnection::Socket(socket) = self else { return false };
        matches!(timeout(HANDSHAKE, socket.send(Message::text(frame.to_string()))).await, Ok(Ok(())))
    }
}

/// Removes the first complete frame with data from the bytes read.
fn next_frame(read: &mut Vec<u8>) -> Option<Value> {
    loop {
        let end = read.windows(2).position(|two| two == b"\n\n")?;
        let frame: Vec<u8> = read.drain(..end + 2).collect();
        let frame = String::from_utf8_lossy(&frame);
        let data = frame.lines().find_map(|line| line.strip_prefix("data:"));
        if let Some(Ok(data)) = data.map(serde_json::from_str) {
            return Some(data);
        }
    }
}
