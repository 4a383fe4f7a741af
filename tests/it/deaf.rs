//! Clients that read nothing, at the level of bytes.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use greenroom_testkit::{
    driver::TestDriver,
    host,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    within,
};

/// Allowed growth of the server's memory, in KiB.
const FLOOD_KIB: u64 = 16 * 1024;

/// The client sends for five seconds and at least a hundred thousand frames, and reads no answer.
#[tokio::test]
async fn flood_of_tiny_frames_without_reading_costs_no_memory() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut client = deaf_socket(&server.rest, "/ws").await;
    let held = fill(&mut client).await;
    let before = host::forget_peak(server.pid());
    let pongs = frame(0x8a, "").repeat(10_000);
    let (until, mut sent) = (Instant::now() + Duration::from_secs(5), 0);
    while Instant::now() < until {
        // The server may hold the client back.
        match timeout(Duration::from_millis(100), client.write(&pongs[sent % 6..])).await {
            Ok(bytes) => sent += bytes.expect("the server reads"),
            Err(_) => drop(server.rest.get("/healthz").await.expect(200)),
        }
    }
    let frames = sent / 6;
    let grown = host::peak_kib(server.pid()).saturating_sub(before);
    assert!(frames > 100_000, "{frames} frames");
    assert!(grown < FLOOD_KIB, "{held} bytes were not read; it grew by {grown} KiB over {frames} frames");
    server.rest.get("/healthz").await.expect(200);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn replaced_token_stops_requests_of_clients_that_do_not_read() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut client = deaf_socket(&server.rest, &format!("/ws?session={session}&after=tail")).await;
    fill(&mut client).await;
    let mut rest = server.rest.clone();
    rest.token = server.renew_token().await;
    // The new token is in force for all connections after this time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let run = frame(0x81, r#"{"action":"run","args":{"command":"true"}}"#);
    let _may_be_gone = client.write_all(&run).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let events = rest.events(&session).await;
    assert!(!events.iter().any(|event| event["action"] == "run"), "{events:?}");
}

/// Sends requests and reads no answer, until the connection is full and further answers wait in the
/// server. Returns the bytes that the kernel holds.
async fn fill(client: &mut TcpStream) -> u64 {
    // An unknown action with a long name, which the answer repeats.
    let wrong = frame(0x81, &format!(r#"{{"action":"{}"}}"#, "x".repeat(8 << 10)));
    // When the kernel's bytes stop growing, the connection is full and further answers wait in the
    // server.
    let (mut held, mut in_vain) = (0, 0);
    while in_vain < 4 {
        for _ in 0..30 {
            within("the server to read a frame", client.write_all(&wrong)).await.expect("the server reads");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = host::unread_by(client);
        in_vain = if now > 0 && now == held { in_vain + 1 } else { 0 };
        held = now;
    }
    held
}

/// Opens a session socket at the level of bytes, over a connection with a small receive buffer.
async fn deaf_socket(rest: &RestClient, path: &str) -> TcpStream {
    let tcp = TcpSocket::new_v4().expect("a socket");
    tcp.set_recv_buffer_size(4096).expect("a small buffer is allowed");
    let mut tcp = tcp.connect(rest.authority.parse().expect("an address")).await.expect("the server listens");
    let hello = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        rest.authority, rest.token
    );
    tcp.write_all(hello.as_bytes()).await.expect("the server reads");
    let mut answer = [0; 12];
    within("an answer", tcp.read_exact(&mut answer)).await.expect("the server answers");
    assert_eq!(&answer, b"HTTP/1.1 101");
    tcp
}

/// Returns a frame as a client sends it, with a mask of zeros.
fn frame(first: u8, content: &str) -> Vec<u8> {
    let mut frame = vec![first];
    match content.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(length).expect("a small buffer is allowed").to_be_bytes());
        }
    }
    [&frame[..], &[0; 4], content.as_bytes()].concat()
}
