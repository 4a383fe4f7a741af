//! Client of a terminal over a WebSocket: bytes in binary frames.

use std::time::{Duration, Instant};

use futures::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use greenroom_testkit::rest::RestClient;

pub(super) struct BenchTerminal {
    socket: WebSocketStream<TcpStream>,
    /// End of the output so far.
    tail: Vec<u8>,
}

/// Output that is kept to find a mark in.
const TAIL: usize = 64;

impl BenchTerminal {
    /// Opens a session's terminal, and waits until the shell runs.
    pub(super) async fn of_session(rest: &RestClient, session: &str) -> BenchTerminal {
        let port = rest.authority.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        let name = fastrand::u32(..);
        let path = format!("/ws/sessions/{session}/terminal?name=t{name}&cols=80&rows=24");
        BenchTerminal::over(port, &path, Some(&rest.token)).await
    }

    pub(super) async fn over(port: u16, path: &str, token: Option<&str>) -> BenchTerminal {
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.expect("the server listens");
        tcp.set_nodelay(true).expect("a socket");
        let mut request = format!("ws://127.0.0.1:{port}{path}").into_client_request().expect("an address");
        if let Some(token) = token {
            let bearer = format!("Bearer {token}").parse().expect("a header is text");
            request.headers_mut().insert("authorization", bearer);
        }
        let (socket, _) = client_async(request, tcp).await.expect("the handshake is accepted");
        BenchTerminal { socket, tail: Vec::new() }
    }

    /// Types a line, and waits until the output has the mark.
    pub(super) async fn line(&mut self, line: &str, mark: &str) {
        self.tail.clear();
        self.send(format!("{line}\r").into_bytes()).await;
        while !self.tail.windows(mark.len()).any(|window| window == mark.as_bytes()) {
            let bytes = self.output().await;
            self.tail.extend_from_slice(&bytes);
            // A mark may be cut by a frame.
            if bytes.len() < TAIL {
                self.tail.drain(..self.tail.len().saturating_sub(2 * TAIL));
            } else if !bytes.windows(mark.len()).any(|window| window == mark.as_bytes()) {
                self.tail.drain(..self.tail.len() - TAIL);
            }
        }
    }

    /// Types a key, and returns the time until it comes back.
    pub(super) async fn echo(&mut self, key: u8) -> Duration {
        let began = Instant::now();
        self.send(vec![key]).await;
        while !self.output().await.contains(&key) {}
        began.elapsed()
    }

    async fn send(&mut self, bytes: Vec<u8>) {
        self.socket.send(Message::binary(bytes)).await.expect("the socket is open");
    }

    async fn output(&mut self) -> Vec<u8> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Binary(bytes))) => return bytes.to_vec(),
                Some(Ok(_)) => {}
                other => panic!("the terminal is closed: {other:?}"),
            }
        }
    }
}
