//! Clients that read nothing, byte for byte.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::harness::{
    driver::TestDriver,
    host,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    within,
};

/// What a server's memory may grow by, KiB.
const FLOOD_KIB: u64 = 16 * 1024;

/// As many as a client can say in five seconds who reads no answer, and a hundred thousand at least.
#[tokio::test]
async fn tiny_frames_of_a_client_that_does_not_read_cost_next_to_nothing() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut client = deaf_socket(&server.rest, "/ws").await;
    let held = fill(&mut client).await;
    let before = host::forget_peak(server.pid());
    let pongs = frame(0x8a, "").repeat(10_000);
    let (until, mut said) = (Instant::now() + Duration::from_secs(5), 0);
    while Instant::now() < until {
        // It may well be held back.
        match timeout(Duration::from_millis(100), client.write(&pongs[said % 6..])).await {
            Ok(bytes) => said += bytes.expect("it hears"),
            Err(_) => drop(server.rest.get("/healthz").await.expect(200)),
        }
    }
    let frames = said / 6;
    let grown = host::peak_kib(server.pid()).saturating_sub(before);
    assert!(frames > 100_000, "{frames} frames");
    assert!(grown < FLOOD_KIB, "{held} bytes were not read; it grew by {grown} KiB over {frames} frames");
    server.rest.get("/healthz").await.expect(200);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn what_is_said_under_a_replaced_token_leads_to_nothing_also_where_nothing_is_read() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut client = deaf_socket(&server.rest, &format!("/ws?session={session}&after=tail")).await;
    fill(&mut client).await;
    let mut rest = server.rest.clone();
    rest.token = server.renew_token().await;
    // So soon it holds, for everybody.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let run = frame(0x81, r#"{"action":"run","args":{"command":"true"}}"#);
    let _may_be_gone = client.write_all(&run).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let events = rest.events(&session).await;
    assert!(!events.iter().any(|event| event["action"] == "run"), "{events:?}");
}

/// Has a client asked for answers, and read none, until the way to it is full and more of them wait in the server. Returns how
/// much the kernel holds.
async fn fill(client: &mut TcpStream) -> u64 {
    // A long name of what cannot be done, which its answer repeats.
    let wrong = frame(0x81, &format!(r#"{{"action":"{}"}}"#, "x".repeat(8 << 10)));
    // Until what the kernel holds for it grows no more: then the way is full, and its answers wait in the server.
    let (mut held, mut in_vain) = (0, 0);
    while in_vain < 4 {
        for _ in 0..30 {
            within("the server to hear a frame", client.write_all(&wrong)).await.expect("it hears");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = host::unread_by(client);
        in_vain = if now > 0 && now == held { in_vain + 1 } else { 0 };
        held = now;
    }
    held
}

/// A session socket, byte for byte, over a connection that holds little on its way to the client.
async fn deaf_socket(rest: &RestClient, path: &str) -> TcpStream {
    let tcp = TcpSocket::new_v4().expect("a socket");
    tcp.set_recv_buffer_size(4096).expect("it is small");
    let mut tcp = tcp.connect(rest.authority.parse().expect("an address")).await.expect("the server listens");
    let hello = format!(
        "GET {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        rest.authority, rest.token
    );
    tcp.write_all(hello.as_bytes()).await.expect("it is heard");
    let mut answer = [0; 12];
    within("an answer", tcp.read_exact(&mut answer)).await.expect("it is answered");
    assert_eq!(&answer, b"HTTP/1.1 101");
    tcp
}

/// As a client sends it, masked with nothing but zeros.
fn frame(first: u8, content: &str) -> Vec<u8> {
    let mut frame = vec![first];
    match content.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length => {
            frame.push(0x80 | 126);
            frame.extend(u16::try_from(length).expect("it is small").to_be_bytes());
        }
    }
    [&frame[..], &[0; 4], content.as_bytes()].concat()
}
