//! Overload: a request beyond the limits waits or is rejected with a reason, and leaves nothing
//! behind.

use std::time::Duration;

use futures::StreamExt;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host, on_each_driver,
    rest::send,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const AT_ONCE: usize = 2_000;

on_each_driver!(two_thousand_session_starts_wait_or_get_429);

async fn two_thousand_session_starts_wait_or_get_429(driver: TestDriver) {
    let options = TestServerOptions::new(driver)
        .env("GREENROOM_SANDBOX__MAX_STARTING", "1")
        .env("GREENROOM_SANDBOX__MAX_WAITING", "40");
    let server = TestServer::start(options).await;
    host::take_all_descriptors();
    // Opens as many connections as will be used; they stay open.
    let warm = (0..AT_ONCE).map(|_| server.rest.get("/api/sessions?limit=1"));
    futures::future::join_all(warm).await;
    let with_a_key = || {
        let request = server.rest.request(Method::POST, "/api/sessions").json(&json!({}));
        send(request.header("idempotency-key", "known").header("connection", "close"))
    };
    let known = with_a_key().await.expect(201)["id"].as_str().expect("an id").to_owned();
    server.rest.until_state(&known, "idle").await;
    let before = host::descriptors(server.pid());
    let asked = futures::stream::iter(0..2_000).map(|_| {
        let request = server.rest.request(Method::POST, "/api/sessions").json(&json!({}));
        // A busy client may open more connections now than before. With this header none of them
        // stays open.
        async move { send(request.header("connection", "close")).await }
    });
    let (replies, again) = tokio::join!(asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>(), with_a_key());
    assert_eq!(again.expect(200)["id"], known.as_str(), "a session that exists already needs no start");
    let (mut made, mut refused) = (Vec::new(), 0);
    for reply in replies {
        if reply.status == 201 {
            made.push(reply.json()["id"].as_str().expect("an id").to_owned());
        } else {
            let reason = reply.error(429, "overloaded");
            assert!(reason.contains("sandbox.max_waiting"), "{reason}");
            assert_eq!(reply.headers["retry-after"], "1");
            refused += 1;
        }
    }
    assert!(refused > 500 && made.len() > 40, "{refused} were refused, {} made", made.len());
    // Sessions that wait for a start are listed.
    let states: Vec<_> = futures::future::join_all(made.iter().map(|id| server.rest.session(id))).await;
    assert!(states.iter().any(|session| session["state"] == "starting"), "{states:?}");
    server.leaves_nothing().await;
    // No connection is left either.
    eventually("no descriptor to be left", || async { host::descriptors(server.pid()) <= before + 8 }).await;
    let next = server.rest.create(json!({})).await;
    server.rest.until_state(&next, "idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn backlog_holds_a_thousand_connections() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    host::take_all_descriptors();
    // The connections wait in the kernel's backlog. A full backlog answers no client, and a stopped
    // server accepts none.
    server.signal(Signal::STOP);
    let all = (0..1_000).map(|_| TcpStream::connect(&server.rest.authority));
    let all = timeout(Duration::from_secs(45), futures::future::try_join_all(all)).await;
    server.signal(Signal::CONT);
    let all = all.expect("the backlog holds all connections").expect("the server listens");
    for mut client in all {
        let call = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.rest.authority);
        client.write_all(call.as_bytes()).await.expect("the server reads");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("the server answers");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn connection_limit_counts_sockets_until_closed() {
    const MOST: usize = 8;
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__WORKERS", "1")
        .env("GREENROOM_SERVER__MAX_CONNECTIONS", &MOST.to_string());
    let server = TestServer::start(options).await;
    let session_id = server.rest.create(json!({})).await;
    // Each connection moves to its session's thread. REST requests hold some connections too, which
    // stay open.
    let mut sockets = Vec::new();
    while let Ok(socket) = timeout(Duration::from_secs(5), TestSocket::attach(&server.rest, &session_id)).await {
        sockets.push(socket);
        assert!(sockets.len() <= MOST, "more connections than the limit");
    }
    drop(sockets.pop().expect("at least one socket attached"));
    let next = timeout(Duration::from_secs(45), TestSocket::attach(&server.rest, &session_id)).await;
    next.expect("a connection is free again");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn half_open_clients_are_detected() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    // All three complete their handshakes. The first never reads again. From the second, and from a
    // reader of server-sent events, no packet arrives any more, not even an acknowledgement of its
    // kernel.
    let connect = async || TcpStream::connect(&server.rest.authority).await.expect("the server listens");
    let [mut half, mut away, mut stream] = [connect().await, connect().await, connect().await];
    let events = format!(
        "GET /api/sessions/{session}/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         accept: text/event-stream\r\n\r\n",
        server.rest.authority, server.rest.token
    );
    stream.write_all(events.as_bytes()).await.expect("the server reads");
    let hello = format!(
        "GET /ws?session={session} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\n\
         connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.rest.authority, server.rest.token
    );
    for client in [&mut half, &mut away] {
        client.write_all(hello.as_bytes()).await.expect("the server reads");
    }
    eventually("all to be attached", || async { server.rest.session(&session).await["attached"] == 3 }).await;
    let held = host::descriptors(server.pid());
    let lost = [&away, &stream].map(host::PacketLoss::of);
    if lost.iter().any(Option::is_none) {
        // Without packet loss, the kernel acknowledges a stream's data for its client in any state.
        eprintln!("skipped in part: packet loss needs root and iptables");
        drop(stream);
    }
    let noticed = async {
        while server.rest.session(&session).await["attached"] != 0 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Within 45 s if the machine is not busy. A kernel alone would retry for a quarter of an hour.
    timeout(Duration::from_secs(60), noticed).await.expect("half-open clients are detected within 60 s");
    eventually("their descriptors to be closed", || async { host::descriptors(server.pid()) <= held - 3 }).await;
    server.leaves_nothing().await;
}
