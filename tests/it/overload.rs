//! More than there is room for: it waits its turn or is refused in words, and leaves nothing behind.

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

use crate::harness::{
    driver::{TestDriver, on_each_driver},
    eventually, host,
    rest::send,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const AT_ONCE: usize = 2_000;

on_each_driver!(two_thousand_sessions_at_once_wait_or_are_refused);

async fn two_thousand_sessions_at_once_wait_or_are_refused(driver: TestDriver) {
    let options = TestServerOptions::new(driver)
        .env("GREENROOM_SANDBOX__MAX_STARTING", "1")
        .env("GREENROOM_SANDBOX__MAX_WAITING", "40");
    let server = TestServer::start(options).await;
    host::take_all_descriptors();
    // As many connections as will be used, which then stay open.
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
        // Whoever is busy may open more connections now than before: none of those stays.
        async move { send(request.header("connection", "close")).await }
    });
    let (replies, again) = tokio::join!(asked.buffer_unordered(AT_ONCE).collect::<Vec<_>>(), with_a_key());
    assert_eq!(again.expect(200)["id"], known.as_str(), "it is there already, so there is nothing to refuse");
    let (mut made, mut refused) = (Vec::new(), 0);
    for reply in replies {
        if reply.status == 201 {
            made.push(reply.json()["id"].as_str().expect("an id").to_owned());
        } else {
            let why = reply.error(429, "overloaded");
            assert!(why.contains("sandbox.max_waiting"), "{why}");
            assert_eq!(reply.headers["retry-after"], "1");
            refused += 1;
        }
    }
    assert!(refused > 500 && made.len() > 40, "{refused} were refused, {} made", made.len());
    // Those that wait are seen to.
    let states: Vec<_> = futures::future::join_all(made.iter().map(|id| server.rest.session(id))).await;
    assert!(states.iter().any(|session| session["state"] == "starting"), "{states:?}");
    server.leaves_nothing().await;
    // Nor a connection.
    eventually("no descriptor to be left", || async { host::descriptors(server.pid()) <= before + 8 }).await;
    let next = server.rest.create(json!({})).await;
    server.rest.until_state(&next, "idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_thousand_clients_connect_though_none_is_taken_up() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    host::take_all_descriptors();
    // They wait with the kernel. Whom it has no room for it does not answer, and while nobody is taken up it gets none.
    server.signal(Signal::STOP);
    let all = (0..1_000).map(|_| TcpStream::connect(&server.rest.authority));
    let all = timeout(Duration::from_secs(45), futures::future::try_join_all(all)).await;
    server.signal(Signal::CONT);
    let all = all.expect("there is room for all").expect("it listens");
    for mut client in all {
        let call = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.rest.authority);
        client.write_all(call.as_bytes()).await.expect("it is heard");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("it is answered");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_connection_counts_for_as_long_as_it_lives() {
    const MOST: usize = 8;
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__WORKERS", "1")
        .env("GREENROOM_SERVER__MAX_CONNECTIONS", &MOST.to_string());
    let server = TestServer::start(options).await;
    let session_id = server.rest.create(json!({})).await;
    // Each moves to its session's thread. Requests have some connections too, which stay open.
    let mut sockets = Vec::new();
    while let Ok(socket) = timeout(Duration::from_secs(5), TestSocket::attach(&server.rest, &session_id)).await {
        sockets.push(socket);
        assert!(sockets.len() <= MOST, "all places were taken");
    }
    drop(sockets.pop().expect("there was a place at first"));
    let next = timeout(Duration::from_secs(45), TestSocket::attach(&server.rest, &session_id)).await;
    next.expect("a place is free");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_client_that_is_only_half_there_is_noticed() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    // They shake hands. One never reads again; of another, and of one that hears events, nothing arrives any more, not even
    // that its kernel has something.
    let connect = async || TcpStream::connect(&server.rest.authority).await.expect("it listens");
    let [mut half, mut away, mut hears] = [connect().await, connect().await, connect().await];
    let events = format!(
        "GET /api/sessions/{session}/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         accept: text/event-stream\r\n\r\n",
        server.rest.authority, server.rest.token
    );
    hears.write_all(events.as_bytes()).await.expect("it is heard");
    let hello = format!(
        "GET /ws?session={session} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\nupgrade: websocket\r\n\
         connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.rest.authority, server.rest.token
    );
    for client in [&mut half, &mut away] {
        client.write_all(hello.as_bytes()).await.expect("it is heard");
    }
    eventually("all to be attached", || async { server.rest.session(&session).await["attached"] == 3 }).await;
    let held = host::descriptors(server.pid());
    let lost = [&away, &hears].map(host::PacketLoss::of);
    if lost.iter().any(Option::is_none) {
        // What a stream says the kernel takes for its client, however that fares.
        eprintln!("left out: root alone, with iptables, can have packets lost");
        drop(hears);
    }
    let noticed = async {
        while server.rest.session(&session).await["attached"] != 0 {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    // Within 45 s, where the machine has time for it; by itself a kernel would try for a quarter of an hour.
    timeout(Duration::from_secs(60), noticed).await.expect("it is noticed");
    eventually("their descriptors to be closed", || async { host::descriptors(server.pid()) <= held - 3 }).await;
    server.leaves_nothing().await;
}
