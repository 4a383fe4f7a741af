//! Relay: from an agent through the server to a client.
//!
//! Measured beside: nginx as a plain WebSocket proxy before the same agent, and a client connected
//! to the agent directly. The agent is the bench's own and sends the same frames all three ways:
//! live text, which the server passes on, and events, which are on disk before a client sees them.
//! The smallest hop with the same promise is measured too.

use std::{
    path::Path,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures::{SinkExt, StreamExt, future::join_all};
use greenroom_protocol::{Delta, DeltaKind, Observation, ObservationKind, link::AgentReport};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    task::JoinHandle,
    time::{sleep, sleep_until},
};
use tokio_tungstenite::{
    WebSocketStream, client_async_with_config,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue, protocol::WebSocketConfig},
};

use crate::figures::{Figures, table, times};
use greenroom_testkit::{
    driver::TestDriver,
    host,
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
};

mod beside;
mod disk;
pub(crate) mod flood;
mod hop;
mod proxy;
use beside::{BaselineAgent, RelayPath};
use proxy::{DESCRIPTORS, NginxProxy, raise_descriptors};

const CONNECTIONS: [usize; 3] = [1, 100, 1_000];
/// Interval of frames on each connection while latency is measured.
const EVERY: Duration = Duration::from_millis(100);
/// Length of one measurement, warm-up included.
const SPEAKING: Duration = Duration::from_secs(4);
/// Turns of each way; the median counts. A shared machine changes from minute to minute, and the
/// slowest hundredth of a round takes 30 ms, so one stall of the machine decides a round.
const ROUNDS: usize = 7;
/// Warm-up, which is not the steady state.
const WARM_UP: Duration = Duration::from_secs(1);
/// Wait after which a client has lost a frame.
const TOO_LONG: Duration = Duration::from_secs(120);
const IDLE: usize = 10_000;
/// Connections that open before memory is measured.
const FIRST: usize = 8;

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
/// Arrival signals for agents that send one frame at a time; one for each agent.
static ARRIVED: LazyLock<Vec<Semaphore>> = LazyLock::new(|| (0..8_192).map(|_| Semaphore::new(0)).collect());
static SPEAKERS: AtomicUsize = AtomicUsize::new(0);

pub(crate) async fn run() {
    raise_descriptors();
    LazyLock::force(&BEGAN);
    let home = tempfile::tempdir().expect("a directory");
    let mut proxy = match NginxProxy::start(home.path()) {
        Ok(proxy) => proxy,
        Err(why) => return println!("(no relay beside nginx: {why}; Debian: `apt install nginx-light`)\n"),
    };
    disk::alone(home.path());
    let (mut latencies, mut rates, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
    for connections in CONNECTIONS {
        let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
        let beside = BaselineAgent::start(home.path(), proxy.port).await;
        // Both ways first fill what is shared: pools, the code itself.
        let first_proxied = clients((0..FIRST).map(|_| beside.through_the_proxy())).await;
        let _first_sessions = sessions(&server, FIRST).await;
        let (proxy_idle, server_idle) = (proxy.memory(), host::resident_kib(server.pid()));
        let direct = clients((0..connections).map(|_| beside.directly())).await;
        let proxied = clients((0..connections).map(|_| beside.through_the_proxy())).await;
        let proxy_full = proxy.memory();
        let hopped = clients((0..connections).map(|_| beside.through_the_hop())).await;
        let (mut puppets, ours) = sessions(&server, connections).await;
        let server_full = host::resident_kib(server.pid());
        // These connections have no reader for the agent's frames.
        drop(first_proxied);

        let mut floor = RelayClients::new(direct);
        let mut nginx = RelayClients::new(proxied);
        let mut smallest = RelayClients::new(hopped);
        let mut greenroom = RelayClients::new(ours);
        let [mut directly, mut through_nginx, mut text, mut hop, mut events] = [const { RoundFigures(Vec::new()) }; 5];
        let mut one_by_one = [Figures::default(), Figures::default()];
        for _ in 0..ROUNDS {
            directly.0.push(beside.paced(&mut floor, RelayPath::Direct).await);
            through_nginx.0.push(beside.paced(&mut nginx, RelayPath::Proxied).await);
            text.0.push(greenroom.paced(&mut puppets, RelayFrameKind::Text).await);
            hop.0.push(beside.paced(&mut smallest, RelayPath::Hop).await);
            events.0.push(greenroom.paced(&mut puppets, RelayFrameKind::Event).await);
            one_by_one[0].add(beside.at_full_speed(&mut nginx, SendPace::OneByOne).await);
            one_by_one[1].add(greenroom.at_full_speed(&mut puppets, RelayFrameKind::Text, SendPace::OneByOne).await);
        }
        let us = |it: &RoundFigures| format!("{:.0} / {:.0} µs", it.p(50), it.p(99));
        let beside_each = |it: &RoundFigures, other: &RoundFigures| {
            format!("{} / {}", times(it.p(50), other.p(50)), times(it.p(99), other.p(99)))
        };
        latencies.push(vec![
            connections.to_string(),
            us(&directly),
            us(&through_nginx),
            us(&text),
            beside_each(&text, &through_nginx),
            us(&hop),
            us(&events),
            beside_each(&events, &hop),
            beside_each(&events, &through_nginx),
        ]);

        let [nginx, ours] = one_by_one.map(|rounds| rounds.p(50));
        let rate = [nginx, ours].map(|rate| format!("{rate:.0}"));
        let mut row = vec![connections.to_string()];
        row.extend(rate);
        row.push(times(ours, nginx));
        rates.push(row);
        let each = |full: u64, idle: u64| format!("{:.1} KiB", full.saturating_sub(idle) as f64 / connections as f64);
        sizes.push(vec![connections.to_string(), each(proxy_full, proxy_idle), each(server_full, server_idle)]);
    }
    let head = [
        "connections",
        "directly",
        "through nginx",
        "Greenroom: text",
        "beside nginx",
        "through the smallest hop with a log",
        "Greenroom: events on disk",
        "beside that",
        "beside nginx alone",
    ];
    table("Relay: agent → client, ten frames a second and connection, p50 / p99", &head, &latencies);
    let head = ["connections", "through nginx", "Greenroom: text", "beside nginx"];
    table("Relay: frames a second, one by one on each connection", &head, &rates);
    let head = ["connections", "nginx, a connection", "Greenroom, a session with its two connections"];
    table("Relay: resident memory of each further", &head, &sizes);
    idle(home.path(), &mut proxy).await;
}

/// Many clients that only receive.
async fn idle(home: &Path, proxy: &mut NginxProxy) {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let before = host::resident_kib(server.pid());
    let path = format!("/ws?session={session}&after=tail");
    let held = clients((0..IDLE).map(|_| open(&server.rest, &path))).await;
    sleep(WARM_UP).await;
    let attached = server.rest.session(&session).await["attached"].clone();
    let ours = (host::resident_kib(server.pid()) - before) as f64 / IDLE as f64;
    drop(held);
    let beside = BaselineAgent::start(home, proxy.port).await;
    let before = proxy.memory();
    // Both ends are in this process.
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(DESCRIPTORS);
    let count = IDLE.min((most as usize).saturating_sub(4_000) / 2);
    let held = clients((0..count).map(|_| beside.through_the_proxy())).await;
    sleep(WARM_UP).await;
    let theirs = (proxy.memory() - before) as f64 / count as f64;
    drop(held);
    let rows = [("nginx", count.to_string(), theirs), ("Greenroom", attached.to_string(), ours)];
    let rows = rows.map(|(who, held, each)| vec![who.to_owned(), held, format!("{each:.1} KiB")]);
    table("Idle connections", &["", "held", "resident memory for each"], &rows);
}

/// Figures of one round after the other.
struct RoundFigures(Vec<Figures>);

impl RoundFigures {
    /// Returns the median of the rounds' figures at this percentile.
    fn p(&self, percent: usize) -> f64 {
        self.0.iter().map(|round| round.p(percent)).collect::<Figures>().p(50)
    }
}

type RelayClient = WebSocketStream<TcpStream>;

/// Clients of one way to the agent.
struct RelayClients {
    clients: Vec<RelayClient>,
}

impl RelayClients {
    fn new(clients: Vec<RelayClient>) -> RelayClients {
        RelayClients { clients }
    }

    /// Lets every client read for a while; each returns its figures.
    async fn read(&mut self) -> Vec<ClientFigures> {
        let end = Instant::now() + SPEAKING;
        let reading = self.clients.drain(..).map(|client| tokio::spawn(read(client, end)));
        let mut heard = Vec::new();
        for (client, what) in join_all(reading).await.into_iter().map(|read| read.expect("it reads")) {
            self.clients.push(client);
            heard.push(what);
        }
        heard
    }

    async fn paced(&mut self, puppets: &mut Vec<PuppetAgent>, kind: RelayFrameKind) -> Figures {
        let stop = Arc::new(AtomicBool::new(false));
        let count = puppets.len();
        let speaking: Vec<JoinHandle<PuppetAgent>> = puppets
            .drain(..)
            .enumerate()
            .map(|(n, puppet)| {
                let pace = SendPace::Every { late: EVERY * n as u32 / count as u32 };
                tokio::spawn(speak(puppet, kind, pace, stop.clone()))
            })
            .collect();
        let heard = self.read().await;
        stop.store(true, Relaxed);
        puppets.extend(join_all(speaking).await.into_iter().map(|puppet| puppet.expect("it speaks")));
        latencies(heard)
    }

    async fn at_full_speed(&mut self, puppets: &mut Vec<PuppetAgent>, kind: RelayFrameKind, pace: SendPace) -> f64 {
        let stop = Arc::new(AtomicBool::new(false));
        let speaking: Vec<JoinHandle<PuppetAgent>> =
            puppets.drain(..).map(|puppet| tokio::spawn(speak(puppet, kind, pace, stop.clone()))).collect();
        let heard = self.read().await;
        stop.store(true, Relaxed);
        puppets.extend(join_all(speaking).await.into_iter().map(|puppet| puppet.expect("it speaks")));
        rate(&heard)
    }

    /// Lets every agent send this many frames without a pause. Returns frames a second until every
    /// client has all of them.
    async fn flood(&mut self, puppets: &mut Vec<PuppetAgent>, frames: u64) -> f64 {
        let never = Arc::new(AtomicBool::new(false));
        let speak =
            |puppet| tokio::spawn(speak(puppet, RelayFrameKind::Event, SendPace::Flood { frames }, never.clone()));
        let speaking: Vec<JoinHandle<PuppetAgent>> = puppets.drain(..).map(speak).collect();
        let rate = self.read_all(frames).await;
        puppets.extend(join_all(speaking).await.into_iter().map(|puppet| puppet.expect("it speaks")));
        rate
    }

    /// Lets every client read this many frames. Returns the frames a second of all clients.
    async fn read_all(&mut self, frames: u64) -> f64 {
        let (began, count) = (Instant::now(), self.clients.len());
        let reading: Vec<_> = self.clients.drain(..).map(|client| tokio::spawn(read_all(client, frames))).collect();
        let read = tokio::time::timeout(TOO_LONG, join_all(reading)).await.expect("every client has all in time");
        self.clients.extend(read.into_iter().map(|read| read.expect("it reads")));
        (frames * count as u64) as f64 / began.elapsed().as_secs_f64()
    }
}

/// Figures of one client.
#[derive(Default)]
struct ClientFigures {
    latencies: Figures,
    /// Counted after the warm-up.
    frames: u64,
}

fn latencies(heard: Vec<ClientFigures>) -> Figures {
    let mut all = Figures::default();
    heard.into_iter().for_each(|heard| all.extend(heard.latencies));
    all
}

fn rate(heard: &[ClientFigures]) -> f64 {
    heard.iter().map(|heard| heard.frames).sum::<u64>() as f64 / (SPEAKING - WARM_UP).as_secs_f64()
}

/// Returns the age of a frame in microseconds, by the time written in it.
fn latency(frame: &str, now: Instant) -> Option<f64> {
    let sent = frame.split('@').nth(1)?.parse::<u64>().ok()?;
    Some((now.duration_since(*BEGAN).as_nanos() as u64).saturating_sub(sent) as f64 / 1e3)
}

async fn read(mut client: RelayClient, end: Instant) -> (RelayClient, ClientFigures) {
    let mut heard = ClientFigures::default();
    let counts_from = end - SPEAKING + WARM_UP;
    while let Ok(message) = tokio::time::timeout_at(end.into(), client.next()).await {
        match message.expect("the connection is held").expect("it can be read") {
            Message::Text(text) => {
                let now = Instant::now();
                if let Some(taken) = latency(&text, now).filter(|_| now >= counts_from) {
                    heard.latencies.add(taken);
                    heard.frames += 1;
                }
                if let Some(speaker) = text.split('@').nth(2).and_then(|name| name.parse::<usize>().ok()) {
                    ARRIVED[speaker].add_permits(1);
                }
            }
            Message::Close(why) => panic!("a client was closed: {why:?}"),
            // The library's pong goes out with the next flush.
            Message::Ping(_) if client.flush().await.is_err() => break,
            _ => {}
        }
    }
    (client, heard)
}

async fn read_all(mut client: RelayClient, frames: u64) -> RelayClient {
    let mut heard = 0;
    while heard < frames {
        match client.next().await.expect("the connection is held").expect("it can be read") {
            Message::Text(text) => heard += u64::from(latency(&text, Instant::now()).is_some()),
            Message::Ping(_) => client.flush().await.expect("the connection is held"),
            other => panic!("a client heard {other:?}"),
        }
    }
    client
}

#[derive(Debug, Clone, Copy)]
enum RelayFrameKind {
    Text,
    Event,
}

/// Pace of the frames.
#[derive(Debug, Clone, Copy)]
enum SendPace {
    /// Starts a little later than the other connections.
    Every { late: Duration },
    /// Sends when the client has the frame before.
    OneByOne,
    /// Sends without a pause up to this number.
    Flood { frames: u64 },
}

/// Sender of frames at a pace.
struct PacedSender {
    number: usize,
    /// Time of the last paced frame.
    turn: Instant,
    /// Frames sent since the start.
    said: u64,
}

impl PacedSender {
    fn new() -> PacedSender {
        let number = SPEAKERS.fetch_add(1, Relaxed) % ARRIVED.len();
        // Signals for an earlier sender of this number, which stopped early, are dropped.
        ARRIVED[number].forget_permits(usize::MAX);
        PacedSender { number, turn: Instant::now(), said: 0 }
    }

    /// Sends the first paced frame now.
    fn begin(&mut self) {
        (self.turn, self.said) = (Instant::now(), 0);
    }

    fn has_said_all(&self, pace: SendPace) -> bool {
        matches!(pace, SendPace::Flood { frames } if self.said >= frames)
    }

    fn words(&mut self) -> String {
        self.said += 1;
        format!("@{}@{}@ some words that an agent said", BEGAN.elapsed().as_nanos(), self.number)
    }

    async fn wait_for_turn(&mut self, pace: SendPace) {
        match pace {
            // By the clock, not by the last frame. After a stall of the machine, senders that count
            // from the last frame would send in step for ever, in bursts that no agents make.
            SendPace::Every { .. } => {
                let missed = self.turn.elapsed().as_millis() / EVERY.as_millis();
                self.turn += EVERY * (missed as u32 + 1);
                sleep_until(self.turn.into()).await;
            }
            // Two frames may be read as one; then both have arrived. A lost frame is not awaited
            // for ever.
            SendPace::OneByOne => {
                if let Ok(Ok(arrived)) = tokio::time::timeout(WARM_UP / 2, ARRIVED[self.number].acquire()).await {
                    arrived.forget();
                }
            }
            SendPace::Flood { .. } => {}
        }
    }
}

/// Sends into its session.
async fn speak(mut puppet: PuppetAgent, kind: RelayFrameKind, pace: SendPace, stop: Arc<AtomicBool>) -> PuppetAgent {
    if let SendPace::Every { late } = pace {
        sleep(late).await;
    }
    let mut speaker = PacedSender::new();
    let item = format!("item-{}", fastrand::u64(..));
    let mut offset = 0;
    while !stop.load(Relaxed) && !speaker.has_said_all(pace) {
        let content = speaker.words();
        let said = match kind {
            RelayFrameKind::Text => {
                let len = content.len() as u64;
                let delta = Delta { kind: DeltaKind::Text, item: item.clone(), offset, content };
                offset += len;
                puppet.grow(delta).await
            }
            RelayFrameKind::Event => {
                let body = Observation { kind: ObservationKind::Think { partial: false }, content }.into();
                puppet.report(AgentReport::Event { item: None, body }).await
            }
        };
        if let Err(why) = said {
            panic!("an agent's link was closed: {why}");
        }
        speaker.wait_for_turn(pace).await;
    }
    puppet
}

/// Opens sessions, each with a scripted agent and the client that created it, as the page does.
async fn sessions(server: &TestServer, count: usize) -> (Vec<PuppetAgent>, Vec<RelayClient>) {
    let made = futures::stream::iter(0..count).map(|_| async {
        let mut client = open(&server.rest, "/ws").await;
        client.send(Message::text(r#"{"action":"initialize","args":{}}"#)).await.expect("it is heard");
        let session = loop {
            let frame = client.next().await.expect("it goes on").expect("the socket holds");
            let frame: Value = serde_json::from_slice(&frame.into_data()).unwrap_or_default();
            if let Some(id) = frame["session"]["id"].as_str() {
                break id.to_owned();
            }
        };
        server.rest.until_state(&session, "idle").await;
        (PuppetAgent::take_over(server, &session).await, client)
    });
    made.buffer_unordered(16).unzip().await
}

async fn clients<F: Future<Output = RelayClient>>(dialling: impl Iterator<Item = F>) -> Vec<RelayClient> {
    futures::stream::iter(dialling).buffer_unordered(64).collect().await
}

async fn open(rest: &RestClient, path: &str) -> RelayClient {
    let address = format!("ws://{}{path}", rest.authority);
    let mut request = address.into_client_request().expect("an address");
    let bearer = HeaderValue::from_str(&format!("Bearer {}", rest.token)).expect("a token is text");
    request.headers_mut().insert("authorization", bearer);
    let tcp = TcpStream::connect(&rest.authority).await.expect("the server listens");
    client_async_with_config(request, tcp, Some(small())).await.expect("it is let in").0
}

fn small() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(4096).write_buffer_size(0)
}
