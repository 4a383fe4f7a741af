//! Long journal: its size on disk, the time until a server is ready with it, and the speed and
//! memory of a replay from the start.
//!
//! The journal is written as in production, one event at a time, and replayed from archives.

use std::{
    fmt::Write,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use futures::{SinkExt, StreamExt, future::try_join_all};
use greenroom::store::{AppendBatch, JournalEvent, SessionRecord, Store, local::LocalStore};
use greenroom_protocol::{
    link::AgentReport,
    observation::{Observation, ObservationKind},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use crate::figures::{ms, table};
use greenroom_testkit::{
    driver::TestDriver,
    host,
    puppet::PuppetAgent,
    rest::RestClient,
    server::{StoppedServer, TestServer, TestServerOptions},
};

/// Sessions and events of each journal. The server's memory must differ little from the small
/// one's.
const JOURNALS: [(usize, usize); 3] = [(1_000, 10_000), (1_000, 1_000_000), (1, 1_000_000)];
const REPLAYS: usize = 4;
const WORDS: &str = "some words that an agent said ";
/// Appends in flight together.
const AT_ONCE: usize = 1_000;

pub(crate) async fn run() {
    let mut rows = Vec::new();
    for (sessions, events) in JOURNALS {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("export.jsonl");
        fs::write(&file, export(sessions, events)).expect("there is room");
        let fresh = StoppedServer::nowhere(home, TestServerOptions::new(TestDriver::Process));
        let began = Instant::now();
        fresh.run(&["import", file.to_str().expect("a path")]).await.expect("it is imported");
        let imported = began.elapsed();
        let fresh = StoppedServer::nowhere(
            tempfile::tempdir().expect("a directory"),
            TestServerOptions::new(TestDriver::Process),
        );
        let (_, fresh) = fresh.restart().await.terminate().await;
        live(&fresh.data().join("journal"), sessions, events).await;
        let log = fresh.data().join("journal/log");
        let written = size_of(&log);
        let compacting = fresh.restart().await;
        while compacting.rest.post("/api/admin/sweep", json!({})).await.expect(200)["journal_bytes"] != 0 {}
        let compacted = size_of(&log);
        let (_, fresh) = compacting.terminate().await;
        let began = Instant::now();
        let server = fresh.restart().await;
        let ready = began.elapsed();
        let session = server.rest.get("/api/sessions").await.expect(200)["items"][0]["id"].clone();
        let ReplayFigures { first, rate, memory } =
            ReplayFigures::of(&server, session.as_str().expect("an id"), events / sessions).await;
        let told = if sessions == 1 { format!("{rate:.0} events/s") } else { "–".to_owned() };
        rows.push(vec![
            format!("{sessions} × {}", events / sessions),
            format!("{:.1} s", imported.as_secs_f64()),
            format!("{} → {} MiB", written >> 20, compacted >> 20),
            ms(ready.as_secs_f64() * 1000.0),
            ms(first.as_secs_f64() * 1000.0),
            told,
            memory,
        ]);
    }
    rows.push(said_just_now(1_000_000).await);
    let head = [
        "sessions × events",
        "import",
        "on disk, compacted",
        "start to ready",
        "attach to first event",
        "replay",
        "memory at most over four replays (+8 MiB promised)",
    ];
    table("A journal of 1,000,000 events", &head, &rows);
}

/// Replays to a client that reconnects after its session produced everything.
async fn said_just_now(events: usize) -> Vec<String> {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut puppet) = PuppetAgent::in_a_new_session(&server, json!({ "model": "demo" })).await;
    for _ in 0..events {
        let body = Observation { kind: ObservationKind::Think { partial: false }, content: WORDS.repeat(5) }.into();
        puppet.report(AgentReport::Event { item: None, body }).await.expect("the server listens");
    }
    puppet.until_acknowledged().await;
    let written = size_of(&server.data().join("journal/log"));
    let ReplayFigures { first, rate, memory } = ReplayFigures::of(&server, &session_id, events).await;
    vec![
        format!("1 × {events}, said just now"),
        "–".to_owned(),
        format!("{} MiB", written >> 20),
        "–".to_owned(),
        ms(first.as_secs_f64() * 1000.0),
        format!("{rate:.0} events/s"),
        memory,
    ]
}

/// Cost of replaying a session a few times.
struct ReplayFigures {
    /// Longest wait for the first event.
    first: Duration,
    /// Best rate, events a second.
    rate: f64,
    memory: String,
}

impl ReplayFigures {
    async fn of(server: &TestServer, session: &str, events: usize) -> ReplayFigures {
        let before = host::forget_peak(server.pid());
        let (mut first, mut rate) = (Duration::ZERO, 0.0_f64);
        for _ in 0..REPLAYS {
            let (to_first, whole) = replay(&server.rest, session, events).await;
            first = first.max(to_first);
            rate = rate.max(events as f64 / whole.as_secs_f64());
        }
        let most = host::peak_kib(server.pid());
        let mib = |kib: u64| kib as f64 / 1024.0;
        ReplayFigures { first, rate, memory: format!("{:.1} → {:.1} MiB", mib(before), mib(most)) }
    }
}

/// Returns the bytes of the files in a directory.
fn size_of(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).expect("it is there").map(|entry| entry.expect("it is read"));
    files.map(|file| file.metadata().map_or(0, |metadata| metadata.len())).sum()
}

/// Attaches from the start and reads to the end.
async fn replay(rest: &RestClient, session: &str, events: usize) -> (Duration, Duration) {
    let address = format!("ws://{}/ws?session={session}&after=0", rest.authority);
    let mut request = address.into_client_request().expect("an address");
    let bearer = HeaderValue::from_str(&format!("Bearer {}", rest.token)).expect("a token is text");
    request.headers_mut().insert("authorization", bearer);
    let began = Instant::now();
    let tcp = TcpStream::connect(&rest.authority).await.expect("the server listens");
    let (mut socket, _) = client_async(request, tcp).await.expect("it is let in");
    let (mut told, mut first) = (0, Duration::ZERO);
    while told < events {
        let frame = socket.next().await.expect("it goes on").expect("the socket holds");
        if matches!(&frame, Message::Text(text) if text.starts_with(r#"{"seq""#)) {
            told += 1;
            if told == 1 {
                first = began.elapsed();
            }
        }
        if frame.is_ping() {
            // The library's pong goes out with the next flush.
            socket.flush().await.expect("the socket holds");
        }
    }
    (first, began.elapsed())
}

/// Writes events as sessions do: one by one.
async fn live(journal: &Path, sessions: usize, events: usize) {
    fs::create_dir_all(journal).expect("a directory");
    let store = LocalStore::open(journal).expect("an empty journal");
    for session in 0..sessions {
        let record: SessionRecord = serde_json::from_value(record(session)).expect("a record");
        let id = record.id;
        store.create(record).await.expect("it is new");
        let (epoch, _) = store.claim(id).await.expect("it is ours");
        for at in (0..events / sessions).step_by(AT_ONCE) {
            let on_the_way = (at..(at + AT_ONCE).min(events / sessions)).map(|at| {
                let event = JournalEvent { kind: "message".into(), json: event(at + 1).into() };
                store.append(id, epoch, at as u64, AppendBatch { events: vec![event], mark: None, record: None })
            });
            try_join_all(on_the_way.collect::<Vec<_>>()).await.expect("there is room");
        }
    }
}

fn record(session: usize) -> Value {
    let at = format!("2026-01-01T00:00:{:06.3}Z", session as f64 / 1000.0);
    json!({
        "id": format!("01KAHTXV3M9W6N2Q4ZB8C{session:05}"), "title": format!("session {session}"), "state": "stopped",
        "reason": null, "agent": "greenroom", "model": "demo", "image": null, "sandbox": "process", "directory": null,
        "created_at": at, "updated_at": at, "usage": { "input_tokens": 0, "output_tokens": 0, "cost_usd": null },
        "budget_usd": null, "archived": false,
    })
}

fn event(seq: usize) -> String {
    let words = WORDS.repeat(5);
    format!(
        r#"{{"seq":{seq},"at":"2026-01-01T00:00:00.000Z","source":"agent","item":"i{seq}","observation":"message","extras":{{}},"content":"{words}"}}"#
    )
}

/// Writes events in the format of `greenroom export`.
fn export(sessions: usize, events: usize) -> String {
    let mut out = json!({ "greenroom_journal": 1, "version": "", "at": "" }).to_string();
    let mut overall = Sha256::new();
    for session in 0..sessions {
        let (record, mut digest) = (record(session), Sha256::new());
        write!(out, "\n{}", json!({ "session": record, "mark": null })).expect("a string grows");
        for seq in 1..=events / sessions {
            let event = event(seq);
            digest.update(format!("message\0{event}\n"));
            write!(out, "\n{{\"kind\":\"message\",\"event\":{event}}}").expect("a string grows");
        }
        let digest = hex(digest);
        overall.update(format!("{digest}\n"));
        write!(out, "\n{}", json!({ "end": record["id"], "events": events / sessions, "sha256": digest }))
            .expect("a string grows");
    }
    let total = json!({ "total": { "sessions": sessions, "events": events }, "sha256": hex(overall) });
    out + "\n" + &total.to_string() + "\n"
}

fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
