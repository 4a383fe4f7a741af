//! Connections that leave HTTP for a WebSocket, at the level of bytes.

use futures::StreamExt;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use greenroom_testkit::{
    driver::TestDriver,
    host,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    within,
};

const MIB: usize = 1024 * 1024;

async fn connect(rest: &RestClient) -> TcpStream {
    TcpStream::connect(&rest.authority).await.expect("the server listens")
}

/// Returns a request for a WebSocket, with `more` headers and what follows them.
fn upgrade_request(rest: &RestClient, method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
        rest.authority, rest.token
    )
}

/// Sends the request and returns all bytes until the server hangs up.
async fn exchange(rest: &RestClient, request: &str) -> String {
    let mut stream = connect(rest).await;
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    let mut answer = Vec::new();
    within("the server to hang up", stream.read_to_end(&mut answer)).await.expect("the answer is complete");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns a client's frame: masked, as required, with a mask that changes nothing.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126, "the payload fits a short frame");
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}

/// Reads the head of the answer, and not a byte more.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within("the answer", stream.read_u8()).await.expect("it goes on"));
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// Covers a proxy that upgrade_request for an upgrade with each request.
#[tokio::test]
async fn non_upgradable_put_replaces_no_file() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let path = format!("/api/sessions/{session}/files/kept.txt");
    let kept = server.data().join("workspaces").join(&session).join("kept.txt");
    std::fs::write(&kept, "here to stay").expect("the workspace exists");
    let upgrading = upgrade_request(&server.rest, "PUT", &path, "content-length: 3\r\n") + "new";
    let answer = exchange(&server.rest, &upgrading).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("a PUT request cannot be upgraded"), "{answer}");
    assert_eq!(std::fs::read_to_string(kept).expect("it exists"), "here to stay");
}

#[tokio::test]
async fn frames_sent_with_the_handshake_are_processed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut stream = connect(&server.rest).await;
    let mut all = upgrade_request(&server.rest, "GET", "/ws", "").into_bytes();
    all.extend(frame(1, br#"{"action":"initialize","args":{}}"#));
    stream.write_all(&all).await.expect("the server reads");
    let answer = head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
    assert!(!answer.contains("content-length"), "{answer}");
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
    let ready = async {
        while let Some(Ok(message)) = socket.next().await {
            if message.to_text().is_ok_and(|text| text.contains(r#""idle""#)) {
                return;
            }
        }
        panic!("the socket was closed");
    };
    within("the session", ready).await;
    server.leaves_nothing().await;
}

/// Only the sockets' addresses lead to a WebSocket.
#[tokio::test]
async fn upgrade_request_elsewhere_is_answered_and_closed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let rest = &server.rest;
    let list = exchange(rest, &upgrade_request(rest, "GET", "/api/sessions", "")).await;
    assert!(list.starts_with("HTTP/1.1 200 ") && list.contains("\r\nconnection: close\r\n"), "{list}");
    assert!(list.ends_with('}') || list.ends_with(']'), "{list}");
    let body = r#"{"task":"hello"}"#;
    let more = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let made = exchange(rest, &(upgrade_request(rest, "POST", "/api/sessions", &more) + body)).await;
    assert!(made.starts_with("HTTP/1.1 400 "), "bytes after an upgrade request are no body: {made}");
    assert!(exchange(rest, &upgrade_request(rest, "GET", "/ws/nowhere", "")).await.starts_with("HTTP/1.1 404 "));
    assert!(exchange(rest, &upgrade_request(rest, "POST", "/ws", "")).await.starts_with("HTTP/1.1 405 "));
    let stranger = upgrade_request(rest, "GET", "/api/sessions", "").replace(&rest.token, "wrong");
    assert!(exchange(rest, &stranger).await.starts_with("HTTP/1.1 401 "));
    let sessions = rest.get("/api/sessions").await.expect(200);
    assert_eq!(sessions["items"].as_array().map(Vec::len), Some(0), "no session may be created: {sessions}");
    server.leaves_nothing().await;
}

/// The server reads no more of a client before it has processed what it has read.
#[tokio::test]
async fn endless_sender_costs_no_memory_and_receives_close() {
    let mut server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut stream = connect(&server.rest).await;
    let path = format!("/ws?session={session}&after=tail");
    stream.write_all(upgrade_request(&server.rest, "GET", &path, "").as_bytes()).await.expect("the server reads");
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 101 "));
    let before = host::resident_kib(server.pid());
    let (mut reader, mut speaks) = stream.into_split();
    let pongs = frame(10, b"x").repeat(8_192);
    let mut received = Vec::new();
    let speaking = tokio::spawn(async move {
        let mut sent = 0;
        while speaks.write_all(&pongs).await.is_ok() {
            sent += pongs.len();
        }
        sent
    });
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let after = host::resident_kib(server.pid());
    assert!(after < before + 8 * 1024, "{before} KiB became {after} KiB");
    let other = server.rest.start("say something").await;
    server.rest.until_state(&other, "idle").await;
    // While the client keeps sending.
    server.signal(Signal::TERM);
    within("the end", reader.read_to_end(&mut received)).await.expect("the connection is not reset");
    let reason = "the server is going away";
    let goodbye = [&[0x88, 2 + reason.len() as u8][..], &1001_u16.to_be_bytes(), reason.as_bytes()].concat();
    assert!(received.ends_with(&goodbye), "no close frame 1001 at the end: {:?}", String::from_utf8_lossy(&received));
    let sent = within("the client to notice", speaking).await.expect("the sender ends");
    assert!(sent > MIB, "the client sent too little for this test: {sent} bytes");
    assert!(server.wait().await.success());
}
