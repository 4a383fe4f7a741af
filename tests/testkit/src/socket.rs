//! Session socket, as a client would use it. Checks on each frame what must hold for all frames.

use std::net::{Ipv4Addr, SocketAddr};

use futures::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{self, Message, client::IntoClientRequest, http::HeaderValue},
};

use super::{rest::RestClient, within};

/// Byte stream to a server: TCP, or TLS over TCP.
pub trait TestConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> TestConnection for T {}

/// Open socket, and every frame that came over it.
pub struct TestSocket {
    stream: WebSocketStream<Box<dyn TestConnection>>,
    /// Every frame so far.
    pub seen: Vec<Value>,
    last_seq: Option<u64>,
}

/// Headers of the handshake beside the usual ones.
pub type HandshakeHeaders<'a> = &'a [(&'static str, &'a str)];

impl TestSocket {
    /// Opens a socket without a session: the first `initialize` or `start` creates the session.
    pub async fn open(rest: &RestClient) -> TestSocket {
        TestSocket::at(rest, "/ws").await
    }

    /// Attaches to a session, from its first event.
    pub async fn attach(rest: &RestClient, session: &str) -> TestSocket {
        TestSocket::at(rest, &format!("/ws?session={session}")).await
    }

    /// Attaches to a session, with the events after `after` (a number, or `tail`).
    pub async fn attach_after(rest: &RestClient, session: &str, after: impl std::fmt::Display) -> TestSocket {
        TestSocket::at(rest, &format!("/ws?session={session}&after={after}")).await
    }

    /// Opens a socket at any path, with the token in the header.
    pub async fn at(rest: &RestClient, path: &str) -> TestSocket {
        let bearer = format!("Bearer {}", rest.token);
        match TestSocket::handshake(rest, path, &[("authorization", &bearer)]).await {
            Ok(socket) => socket,
            Err(status) => panic!("`{path}` was rejected with {status}"),
        }
    }

    /// Attaches from the newest event on, over a connection with a small receive buffer. Unread
    /// frames stay in the server.
    pub async fn narrow(rest: &RestClient, session: &str) -> TestSocket {
        let tcp = TcpSocket::new_v4().expect("a socket");
        tcp.set_recv_buffer_size(4096).expect("a small buffer is allowed");
        let tcp = tcp.connect(address(rest)).await.expect("the server listens");
        let bearer = format!("Bearer {}", rest.token);
        let path = format!("/ws?session={session}&after=tail");
        let socket = TestSocket::over(tcp, rest, &path, &[("authorization", &bearer)]).await;
        socket.expect("the handshake is accepted")
    }

    /// Opens a socket with these headers and no other relevant ones. Returns the HTTP status if the
    /// server rejects the handshake.
    pub async fn handshake(rest: &RestClient, path: &str, headers: HandshakeHeaders<'_>) -> Result<TestSocket, u16> {
        let tcp = TcpStream::connect(address(rest)).await.expect("the server listens");
        TestSocket::over(tcp, rest, path, headers).await
    }

    async fn over(
        tcp: TcpStream,
        rest: &RestClient,
        path: &str,
        headers: HandshakeHeaders<'_>,
    ) -> Result<TestSocket, u16> {
        let stream: Box<dyn TestConnection> = match rest.certificate() {
            None => Box::new(tcp),
            Some(certificate) => {
                let name = ServerName::from(address(rest).ip());
                let tls = TlsConnector::from(certificate.client_config()).connect(name, tcp);
                Box::new(within("the TLS handshake", tls).await.expect("the server has the certificate"))
            }
        };
        let address = format!("ws://{}{}{path}", rest.authority, rest.base_path);
        let mut request = address.into_client_request().expect("a fitting path");
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value).expect("a fitting header"));
        }
        match within("the handshake", client_async(request, stream)).await {
            Ok((stream, _)) => Ok(TestSocket { stream, seen: Vec::new(), last_seq: None }),
            Err(tungstenite::Error::Http(response)) => Err(response.status().as_u16()),
            Err(e) => panic!("the handshake failed: {e}"),
        }
    }

    /// Sends a client request.
    pub async fn send_request(&mut self, action: &str, args: Value) {
        self.send(json!({ "action": action, "args": args })).await;
    }

    pub async fn send(&mut self, frame: Value) {
        self.send_text(frame.to_string()).await;
    }

    pub async fn send_text(&mut self, text: impl Into<String>) {
        self.send_message(Message::text(text.into())).await;
    }

    pub async fn send_message(&mut self, message: Message) {
        within("the server to take a frame", self.stream.send(message)).await.expect("the socket is open");
    }

    /// Returns the next frame of any kind.
    pub async fn next(&mut self) -> Value {
        match self.next_or_close().await {
            Ok(frame) => frame,
            Err(code) => panic!("the server closed the socket ({code:?}); {}", self.recently()),
        }
    }

    /// Returns the next frame, or the close code if the server closes.
    pub async fn next_or_close(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match within("a frame", self.stream.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(self.took(&text)),
                Some(Ok(Message::Close(close))) => return Err(close.map(|close| close.code.into())),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(_))) => panic!("a binary frame on a session socket"),
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    fn took(&mut self, text: &str) -> Value {
        let frame: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("no JSON ({e}): {text}"));
        let families = ["at", "delta", "status", "error"].iter().filter(|key| frame.get(**key).is_some()).count();
        assert_eq!(families, 1, "a frame belongs to one family: {frame}");
        if is_durable(&frame) {
            let seq = frame["seq"].as_u64().expect("a durable event has a number");
            if let Some(last) = self.last_seq {
                assert_eq!(seq, last + 1, "a gap or a duplicate: {frame}");
            }
            self.last_seq = Some(seq);
        }
        self.seen.push(frame.clone());
        frame
    }

    /// Reads on to the first frame for which `is` holds.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let found = tokio::time::timeout(super::DEADLINE, async {
            loop {
                let frame = self.next().await;
                if is(&frame) {
                    return frame;
                }
            }
        })
        .await;
        found.unwrap_or_else(|_| panic!("timed out waiting for {what}; {}", self.recently()))
    }

    /// Reads on to the next action of that name.
    pub async fn action(&mut self, name: &str) -> Value {
        self.until(&format!("the action `{name}`"), |frame| frame["action"] == name).await
    }

    /// Reads on to the next observation of that name.
    pub async fn observation(&mut self, name: &str) -> Value {
        self.until(&format!("the observation `{name}`"), |frame| frame["observation"] == name).await
    }

    /// Reads on to the next delta of that kind.
    pub async fn delta(&mut self, kind: &str) -> Value {
        self.until(&format!("a delta `{kind}`"), |frame| frame["delta"] == kind).await
    }

    pub async fn status(&mut self, name: &str) -> Value {
        self.until(&format!("the status `{name}`"), |frame| frame["status"] == name).await
    }

    /// Reads on until the session is in that state.
    pub async fn state(&mut self, state: &str) -> Value {
        self.until(&format!("the state `{state}`"), |frame| {
            frame["observation"] == "agent_state_changed" && frame["extras"]["agent_state"] == state
        })
        .await
    }

    /// Reads on to the next error of that code; returns its text.
    pub async fn error(&mut self, code: &str) -> String {
        let frame = self.until(&format!("the error `{code}`"), |frame| frame.get("error").is_some()).await;
        assert_eq!(frame["error"]["code"], code, "{frame}");
        frame["error"]["message"].as_str().expect("an error has a message").to_owned()
    }

    /// Reads to the end. Returns the code with which the server closed.
    pub async fn closed(&mut self) -> Option<u16> {
        loop {
            if let Err(code) = self.next_or_close().await {
                return code;
            }
        }
    }

    /// Reads on to the `hello` with a session, and returns the session's id.
    pub async fn session(&mut self) -> String {
        let hello = |frame: &Value| frame["status"] == "hello" && frame["session"].is_object();
        let frame = self.until("a hello with a session", hello).await;
        frame["session"]["id"].as_str().expect("a session has an id").to_owned()
    }

    /// Returns the durable frames so far.
    pub fn events(&self) -> Vec<Value> {
        self.seen.iter().filter(|frame| is_durable(frame)).cloned().collect()
    }

    /// Returns the number of the newest durable frame.
    pub fn newest(&self) -> Option<u64> {
        self.last_seq
    }

    fn recently(&self) -> String {
        let last = &self.seen[self.seen.len().saturating_sub(8)..];
        let lines: Vec<String> = last.iter().map(|frame| frame.to_string().chars().take(300).collect()).collect();
        format!("the last frames were:\n{}", lines.join("\n"))
    }
}

/// Returns true for a durable event. Of the four families of frames, only durable events carry the
/// time of their commit.
fn is_durable(frame: &Value) -> bool {
    frame.get("at").is_some()
}

fn address(rest: &RestClient) -> SocketAddr {
    let port = rest.authority.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    (Ipv4Addr::LOCALHOST, port).into()
}
