//! Many clients at once with bad networks: with any cuts, each client receives every event once, in
//! one order.

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    net::Ipv4Addr,
    time::Duration,
};

use fastrand::Rng;
use futures::{SinkExt, StreamExt};
use greenroom_protocol::{Delta, DeltaKind, Observation, ObservationKind, link::AgentReport};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    task::JoinHandle,
};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Starts a server and a session with a scripted agent.
async fn session_with_puppet() -> (TestServer, String, PuppetAgent) {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, puppet) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    (server, session, puppet)
}

/// Reports `count` different thoughts and waits until they are on disk.
async fn think(mut puppet: PuppetAgent, count: usize) {
    for n in 0..count {
        let content = format!("thought {n}");
        let body = Observation { kind: ObservationKind::Think { partial: false }, content }.into();
        puppet.report(AgentReport::Event { item: None, body }).await.expect("the server listens");
    }
    puppet.until_acknowledged().await;
}

/// The agent sends the delta and the event without a pause, many times.
#[tokio::test]
async fn delta_is_ordered_between_its_neighbouring_events() {
    const ITEMS: usize = 2_000;
    let (server, session, mut puppet) = session_with_puppet().await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    tokio::spawn(async move {
        for n in 0..ITEMS {
            let (item, content) = (n.to_string(), format!("thought {n}"));
            let delta = Delta { kind: DeltaKind::Thinking, item: item.clone(), offset: 0, content: content.clone() };
            puppet.grow(delta).await.expect("the server listens");
            let body = Observation { kind: ObservationKind::Think { partial: false }, content }.into();
            puppet.report(AgentReport::Event { item: Some(item), body }).await.expect("the server listens");
        }
        puppet.until_acknowledged().await;
    });
    let (mut ended, mut grew) = (0, 0);
    while ended < ITEMS {
        let frame = socket.next().await;
        let Some(item) = frame["item"].as_str() else { continue };
        assert_eq!(item, ended.to_string(), "{frame}");
        match frame["delta"].is_string() {
            true => grew += 1,
            false => ended += 1,
        }
    }
    assert!(grew > 0, "some deltas arrived before their event");
    server.leaves_nothing().await;
}

/// Client that reconnects with its cursor after each cut, until it has `last`.
struct StormWatcher {
    /// Port of the lossy network, and the authority of the server behind it.
    port: u16,
    authority: String,
    token: String,
    session: String,
    cursor: u64,
    /// Number of thoughts read.
    thoughts: usize,
    seen: DefaultHasher,
    connections: usize,
}

impl StormWatcher {
    fn new(rest: &RestClient, port: u16, session: &str) -> StormWatcher {
        StormWatcher {
            port,
            authority: rest.authority.clone(),
            token: rest.token.clone(),
            session: session.to_owned(),
            cursor: 0,
            thoughts: 0,
            seen: DefaultHasher::new(),
            connections: 0,
        }
    }

    async fn connect(&self) -> Option<WebSocketStream<TcpStream>> {
        let tcp = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.ok()?;
        let address = format!("ws://{}/ws?session={}&after={}", self.authority, self.session, self.cursor);
        let mut request = address.into_client_request().expect("an address");
        let headers = request.headers_mut();
        headers.insert("authorization", HeaderValue::from_str(&format!("Bearer {}", self.token)).expect("text"));
        Some(client_async(request, tcp).await.ok()?.0)
    }

    /// Reads until the client has `last`. With dice, the client cuts its own connection after a
    /// random number of frames.
    async fn until(mut self, last: u64, mut dice: Option<Rng>) -> StormWatcher {
        while self.cursor < last {
            let Some(mut socket) = self.connect().await else { continue };
            self.connections += 1;
            let mut frames = dice.as_mut().map_or(usize::MAX, |dice| dice.usize(1..400));
            while self.cursor < last
                && frames > 0
                && let Some(Ok(message)) = socket.next().await
            {
                frames -= 1;
                self.take(&message);
                // The library has prepared the answer to a Ping; it goes out with the next flush.
                if message.is_ping() && socket.flush().await.is_err() {
                    break;
                }
            }
        }
        self
    }

    fn take(&mut self, message: &Message) {
        let Message::Text(text) = message else { return };
        let Some(rest) = text.strip_prefix("{\"seq\":") else { return };
        let seq: u64 = rest.split(',').next().and_then(|seq| seq.parse().ok()).expect("a number");
        assert_eq!(seq, self.cursor + 1, "a gap or a duplicate: {text}");
        self.cursor = seq;
        text.as_str().hash(&mut self.seen);
        // The server numbers the events that it takes. The agent's own count shows that none is
        // missing and none doubled.
        if text.contains(r#""observation":"think""#) {
            let thought = format!(r#""content":"thought {}""#, self.thoughts);
            assert!(text.contains(&thought), "not the {}th: {text}", self.thoughts);
            self.thoughts += 1;
        }
    }

    /// Checks the number of thoughts. Returns a hash of all events, and the number of connections.
    fn saw(&self, thoughts: usize) -> (u64, usize) {
        assert_eq!(self.thoughts, thoughts, "number of thoughts");
        (self.seen.finish(), self.connections)
    }
}

/// Network between a client and the server that splits, delays, and cuts at any byte.
struct LossyNetwork {
    port: u16,
    carrying: JoinHandle<()>,
}

impl LossyNetwork {
    async fn start(server: u16, mut dice: Rng) -> LossyNetwork {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let carrying = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await.expect("the server listens");
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                let bytes = dice.usize(100..900_000);
                tokio::select! {
                    () = carry(from_client, to_server, usize::MAX, dice.fork()) => {}
                    () = carry(from_server, to_client, bytes, dice.fork()) => {}
                }
            }
        });
        LossyNetwork { port, carrying }
    }
}

impl Drop for LossyNetwork {
    fn drop(&mut self) {
        self.carrying.abort();
    }
}

async fn carry(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, mut bytes: usize, mut dice: Rng) {
    let mut piece = vec![0; 16 << 10];
    while bytes > 0 {
        let len = dice.usize(1..=piece.len()).min(bytes);
        let Ok(read @ 1..) = from.read(&mut piece[..len]).await else { return };
        bytes -= read;
        if to.write_all(&piece[..read]).await.is_err() {
            return;
        }
        if dice.u8(0..32) == 0 {
            tokio::time::sleep(Duration::from_millis(dice.u64(0..20))).await;
        }
    }
}

fn port_of(rest: &RestClient) -> u16 {
    rest.authority.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

const THOUGHTS: usize = 100_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_on_bad_networks_receive_one_order() {
    let (server, session_id, puppet) = session_with_puppet().await;
    let last = server.rest.events(&session_id).await.len() as u64 + THOUGHTS as u64;
    let mut dice = Rng::new();
    let mut networks = Vec::new();
    let mut watching = Vec::new();
    for n in 0..8 {
        let mut port = port_of(&server.rest);
        if n < 3 {
            networks.push(LossyNetwork::start(port, dice.fork()).await);
            port = networks[n].port;
        }
        watching.push(tokio::spawn(StormWatcher::new(&server.rest, port, &session_id).until(last, None)));
    }
    think(puppet, THOUGHTS).await;
    let seen =
        futures::future::join_all(watching).await.into_iter().map(|watcher| watcher.expect("the client saw no gap"));
    let seen: Vec<(u64, usize)> = seen.map(|watcher| watcher.saw(THOUGHTS)).collect();
    assert!(seen.iter().all(|(hash, _)| *hash == seen[0].0), "clients received different events: {seen:?}");
    assert!(
        seen[..3].iter().all(|(_, connections)| *connections > 3),
        "the network must have cut connections: {seen:?}"
    );
    server.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_reconnecting_clients_miss_nothing() {
    let (server, session_id, puppet) = session_with_puppet().await;
    let thoughts = 3_000;
    let last = server.rest.events(&session_id).await.len() as u64 + thoughts as u64;
    let before = host::descriptors(server.pid());
    let mut dice = Rng::new();
    let watching: Vec<_> = (0..200)
        .map(|_| {
            tokio::spawn(
                StormWatcher::new(&server.rest, port_of(&server.rest), &session_id).until(last, Some(dice.fork())),
            )
        })
        .collect();
    think(puppet, thoughts).await;
    let seen =
        futures::future::join_all(watching).await.into_iter().map(|watcher| watcher.expect("the client saw no gap"));
    let seen: Vec<(u64, usize)> = seen.map(|watcher| watcher.saw(thoughts)).collect();
    assert!(seen.iter().all(|(hash, _)| *hash == seen[0].0), "clients received different events");
    assert!(seen.iter().map(|(_, connections)| connections).sum::<usize>() > 1_000, "{seen:?}");
    eventually("the server to close all connections", || async {
        server.rest.session(&session_id).await["attached"] == 0
    })
    .await;
    let sockets = |server: &TestServer| host::descriptors(server.pid());
    eventually("their descriptors to be closed", || async { sockets(&server) <= before + 2 }).await;
    server.leaves_nothing().await;
}
