//! Connections that leave HTTP for a WebSocket, byte by byte.

use futures::StreamExt;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::protocol::Role};

use crate::harness::{
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

/// A request for a WebSocket, with `more` headers and what follows them.
fn asks(rest: &RestClient, method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n",
        rest.authority, rest.token
    )
}

/// All that the server says until it hangs up.
async fn says(rest: &RestClient, request: &str) -> String {
    let mut stream = connect(rest).await;
    stream.write_all(request.as_bytes()).await.expect("it is heard");
    let mut said = Vec::new();
    within("the server to hang up", stream.read_to_end(&mut said)).await.expect("it is whole");
    String::from_utf8_lossy(&said).into_owned()
}

/// A client's frame: masked, as they must be, with a mask that changes nothing.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126, "a short one");
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

/// As behind a proxy that asks for an upgrade with each request.
#[tokio::test]
async fn nothing_is_put_into_the_place_of_a_file_by_what_cannot_be_upgraded() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let path = format!("/api/sessions/{session}/files/kept.txt");
    let kept = server.data().join("workspaces").join(&session).join("kept.txt");
    std::fs::write(&kept, "here to stay").expect("its workspace is there");
    let upgrading = asks(&server.rest, "PUT", &path, "content-length: 3\r\n") + "new";
    let answer = says(&server.rest, &upgrading).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("a PUT cannot be upgraded"), "{answer}");
    assert_eq!(std::fs::read_to_string(kept).expect("it is there"), "here to stay");
}

#[tokio::test]
async fn what_comes_in_one_piece_with_the_handshake_is_heard() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut stream = connect(&server.rest).await;
    let mut all = asks(&server.rest, "GET", "/ws", "").into_bytes();
    all.extend(frame(1, br#"{"action":"initialize","args":{}}"#));
    stream.write_all(&all).await.expect("it is heard");
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

/// Only the sockets' addresses lead to one.
#[tokio::test]
async fn who_asks_for_a_socket_elsewhere_is_answered_and_let_go() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let rest = &server.rest;
    let list = says(rest, &asks(rest, "GET", "/api/sessions", "")).await;
    assert!(list.starts_with("HTTP/1.1 200 ") && list.contains("\r\nconnection: close\r\n"), "{list}");
    assert!(list.ends_with('}') || list.ends_with(']'), "{list}");
    let body = r#"{"task":"hello"}"#;
    let more = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
    let made = says(rest, &(asks(rest, "POST", "/api/sessions", &more) + body)).await;
    assert!(made.starts_with("HTTP/1.1 400 "), "what follows such a head is no body: {made}");
    assert!(says(rest, &asks(rest, "GET", "/ws/nowhere", "")).await.starts_with("HTTP/1.1 404 "));
    assert!(says(rest, &asks(rest, "POST", "/ws", "")).await.starts_with("HTTP/1.1 405 "));
    let stranger = asks(rest, "GET", "/api/sessions", "").replace(&rest.token, "wrong");
    assert!(says(rest, &stranger).await.starts_with("HTTP/1.1 401 "));
    let sessions = rest.get("/api/sessions").await.expect(200);
    assert_eq!(sessions["items"].as_array().map(Vec::len), Some(0), "nothing was made: {sessions}");
    server.leaves_nothing().await;
}

/// The server reads no more of a client before it has dealt with what it has read.
#[tokio::test]
async fn a_client_that_never_stops_talking_costs_no_memory_and_hears_the_end() {
    let mut server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut stream = connect(&server.rest).await;
    let path = format!("/ws?session={session}&after=tail");
    stream.write_all(asks(&server.rest, "GET", &path, "").as_bytes()).await.expect("it is heard");
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 101 "));
    let before = host::resident_kib(server.pid());
    let (mut hears, mut speaks) = stream.into_split();
    let pongs = frame(10, b"x").repeat(8_192);
    let mut heard = Vec::new();
    let speaking = tokio::spawn(async move {
        let mut said = 0;
        while speaks.write_all(&pongs).await.is_ok() {
            said += pongs.len();
        }
        said
    });
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let after = host::resident_kib(server.pid());
    assert!(after < before + 8 * 1024, "{before} KiB became {after} KiB");
    let other = server.rest.start("say something").await;
    server.rest.until_state(&other, "idle").await;
    // While it talks on.
    server.signal(Signal::TERM);
    within("the end", hears.read_to_end(&mut heard)).await.expect("nothing of it is taken back");
    let why = "the server is going away";
    let goodbye = [&[0x88, 2 + why.len() as u8][..], &1001_u16.to_be_bytes(), why.as_bytes()].concat();
    assert!(heard.ends_with(&goodbye), "1001 is told: {:?}", String::from_utf8_lossy(&heard));
    let said = within("the client to notice", speaking).await.expect("it spoke");
    assert!(said > MIB, "it talked a lot: {said} bytes");
    assert!(server.wait().await.success());
}
