//! Faults: their cost for other sessions, and the time until each client of the session has the
//! report, beside the promised limits.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::{
    crowd::{
        self,
        CrowdArrival::{self, Connected, NewConnection},
    },
    figures::{Figures, ms, table},
    tokens,
};
use greenroom_testkit::{
    driver::TestDriver,
    engine::{IMAGE, TestEngine},
    host,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const ROUNDS: usize = 20;
/// Clients that watch a sandbox die.
const WATCHERS: usize = 10;
const DEAF: usize = 200;
/// Clients that send a request at the same moment.
const AT_ONCE: usize = 2_000;
/// Number of such crowds.
const CROWDS: usize = 5;

pub(crate) async fn run(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    for driver in drivers {
        let mut deaths: Vec<(&str, SandboxKill)> = vec![("a sandbox dies", kill_agent)];
        if *driver == TestDriver::Docker {
            deaths.extend([("`docker kill`", docker_kill as SandboxKill), ("`docker rm --force`", docker_rm)]);
        }
        for (what, death) in deaths {
            let what = format!("{what} ({}): until each of {WATCHERS} clients is told", driver.name());
            rows.push(row(&what, &until_told(*driver, death).await, "1,000 ms"));
        }
    }
    let (gone, seen) = interrupt_amid_a_flood().await;
    rows.push(row("a client that does not read interrupts a flood: until the command is gone", &gone, "250 ms"));
    rows.push(row("… until another client sees it", &seen, "1,000 ms"));
    let (alone, beside) = beside_the_deaf().await;
    rows.push(row("a token, model → client", &alone, ""));
    rows.push(row(&format!("… beside {DEAF} clients of that session that do not read"), &beside, "twice that"));
    let (through, direct) = beside_a_flood().await;
    rows.push(row("… beside a session that prints without end, and a client that reads all of it", &through, ""));
    rows.push(row("… read from the model itself beside those (the floor)", &direct, ""));
    let RejectionTimes { connected, new_connection: anew, alone, floor } = rejection_times().await;
    rows.push(row("2,000 sessions are asked for at once: until one is refused", &connected, "50 ms"));
    rows.push(row("… by clients that connect first", &anew, "50 ms"));
    rows.push(row("… where no place is left for any", &alone, "50 ms"));
    rows.push(row("… 2,000 calls at once that ask for nothing (the floor)", &floor, ""));
    if drivers.contains(&TestDriver::Docker)
        && let Some(engine) = TestEngine::start()
    {
        rows.push(row("the engine stands still: a call of the API", &beside_a_stalled(&engine).await, "100 ms"));
    }
    rows.push(row(
        "SIGTERM with 50 sessions and their clients: until the server has ended",
        &shutdown().await,
        "5,000 ms",
    ));
    table("Faults", &["", "p50", "p99", "promised"], &rows);
}

fn row(what: &str, figures: &Figures, promised: &str) -> Vec<String> {
    vec![what.to_owned(), ms(figures.p(50)), ms(figures.p(99)), promised.to_owned()]
}

/// Kills the sandbox of the only session in that home.
type SandboxKill = fn(&Path);

fn kill_agent(home: &Path) {
    host::agents(home).iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
}

fn docker_kill(home: &Path) {
    docker(&["kill", "--signal=KILL"], home);
}

fn docker_rm(home: &Path) {
    docker(&["rm", "--force"], home);
}

/// The command takes time of its own, before and after the container is dead.
fn docker(what: &[&str], home: &Path) {
    let mut command = Command::new("docker");
    command.args(what).args(host::containers(home)).stdout(Stdio::null());
    std::thread::spawn(move || command.status().expect("docker is installed"));
}

async fn until_told(driver: TestDriver, death: SandboxKill) -> Figures {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut clients = Vec::new();
    for _ in 0..WATCHERS {
        let mut client = TestSocket::attach_after(&server.rest, &session, "tail").await;
        client.status("synced").await;
        clients.push(client);
    }
    let mut told = Figures::default();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        death(server.home());
        for client in &mut clients {
            client.until("the news of its death", |frame| frame["extras"]["phase"] == "lost").await;
        }
        told.add_ms(began.elapsed());
        server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
        for client in &mut clients {
            client.state("idle").await;
        }
    }
    told
}

async fn interrupt_amid_a_flood() -> (Figures, Figures) {
    let tool = Some(ScriptedTool { name: "run".into(), input: json!({ "command": "yes" }) });
    let model = ScriptedModel::with(vec![ScriptedRule { tool, times: 1, ..ScriptedRule::default() }]);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let (mut gone, mut seen) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        let mut deaf = TestSocket::narrow(&server.rest, &session).await;
        deaf.status("synced").await;
        let mut reads = TestSocket::attach_after(&server.rest, &session, "tail").await;
        reads.status("synced").await;
        deaf.send_request("message", json!({ "content": "go" })).await;
        let mut bytes = 0;
        while bytes < 4 << 20 {
            bytes += reads.next().await["content"].as_str().unwrap_or_default().len();
        }
        let began = Instant::now();
        deaf.send_request("interrupt", json!({})).await;
        let home = server.home().to_owned();
        let watch = tokio::task::spawn_blocking(move || {
            while host::processes(&home).iter().any(|process| process.command == "yes") {
                std::thread::sleep(Duration::from_millis(1));
            }
            began.elapsed()
        });
        reads.observation("interrupted").await;
        seen.add_ms(began.elapsed());
        gone.add_ms(watch.await.expect("it only looks"));
        reads.state("idle").await;
    }
    (gone, seen)
}

async fn beside_the_deaf() -> (Figures, Figures) {
    let model = tokens::stamped();
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut quiet = tokens::client(&server).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut crowded = TestSocket::attach_after(&server.rest, &session, "tail").await;
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let mut client = TestSocket::narrow(&server.rest, &session).await;
        client.status("synced").await;
        deaf.push(client);
    }
    // Larger than any send buffer, so every client is behind from now on.
    crowded.send_request("run", json!({ "command": "seq 1000000" })).await;
    crowded.observation("run").await;
    crowded.state("idle").await;
    let (mut alone, mut beside) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS / 2 {
        for (socket, figures) in [(&mut quiet, &mut alone), (&mut crowded, &mut beside)] {
            figures.extend(turn(socket).await);
        }
    }
    (alone, beside)
}

/// Token times of a session beside the flooding one, and of a client that reads the model directly.
/// Both wait for a core.
async fn beside_a_flood() -> (Figures, Figures) {
    let model = tokens::stamped();
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let (mut quiet, mut floods) = (tokens::client(&server).await, tokens::client(&server).await);
    let (mut through, mut direct) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS / 2 {
        floods.send_request("run", json!({ "command": "yes" })).await;
        let reads = async {
            loop {
                floods.next().await;
                floods.seen.clear();
            }
        };
        let speaks = async {
            through.extend(turn(&mut quiet).await);
            direct.extend(tokens::read(model.url(), Duration::ZERO).await.map(|us| us / 1000.0));
        };
        tokio::select! {
            () = reads => {}
            () = speaks => {}
        }
        floods.send_request("interrupt", json!({})).await;
        floods.state("idle").await;
    }
    (through, direct)
}

/// Returns the time of each token, in milliseconds.
async fn turn(socket: &mut TestSocket) -> Figures {
    tokens::turn(socket, Duration::ZERO).await.map(|us| us / 1000.0)
}

struct RejectionTimes {
    /// Connected clients, while the admitted sessions start.
    connected: Figures,
    /// Clients that have to connect first.
    new_connection: Figures,
    alone: Figures,
    floor: Figures,
}

/// Floor for the crowd: each of so many clients waits for the others.
async fn rejection_times() -> RejectionTimes {
    const CREATE: &str = "POST /api/sessions";
    let [mut connected, mut anew, mut alone, mut floor] = [const { Vec::new() }; 4];
    host::take_all_descriptors();
    for _ in 0..CROWDS {
        let kinds = [("40", Connected, &mut connected), ("40", NewConnection, &mut anew), ("0", Connected, &mut alone)];
        for (places, come, refused) in kinds {
            let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SANDBOX__MAX_WAITING", places);
            let server = TestServer::start(options).await;
            // The code itself comes from disk.
            at_once(&server, Connected, "GET /healthz", 200).await;
            floor.extend(at_once(&server, Connected, "GET /healthz", 200).await);
            refused.extend(at_once(&server, come, CREATE, 429).await);
        }
    }
    let [connected, anew, alone, floor] = [connected, anew, alone, floor].map(|all| all.into_iter().collect());
    RejectionTimes { connected, new_connection: anew, alone, floor }
}

/// Waits of two thousand simultaneous clients that got this answer, in milliseconds.
async fn at_once(server: &TestServer, come: CrowdArrival, line: &str, status: u16) -> Vec<f64> {
    let RestClient { authority, token, .. } = server.rest.clone();
    let call = format!(
        "{line} HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    let waited = spawn_blocking(move || crowd::at_once(AT_ONCE, come, &authority, &call, status)).await;
    let waited = waited.expect("it does not panic");
    assert!(waited.len() > AT_ONCE / 2, "only {} of {AT_ONCE} were answered with {status}", waited.len());
    waited
}

async fn beside_a_stalled(engine: &TestEngine) -> Figures {
    let options = TestServerOptions::new(TestDriver::Docker)
        .env("GREENROOM_SANDBOX__DOCKER_HOST", &engine.address())
        .env("GREENROOM_SANDBOX__IMAGE", IMAGE);
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    engine.signal(Signal::STOP);
    let mut figures = Figures::default();
    let late = server.rest.create(json!({})).await;
    for _ in 0..ROUNDS * 10 {
        for path in ["/api/sessions", &format!("/api/sessions/{session}"), &format!("/api/sessions/{late}/events")] {
            let began = Instant::now();
            server.rest.get(path).await.expect(200);
            figures.add_ms(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.signal(Signal::CONT);
    figures
}

async fn shutdown() -> Figures {
    let mut figures = Figures::default();
    let mut server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let mut sessions = Vec::new();
    for _ in 0..50 {
        sessions.push(server.rest.create(json!({})).await);
    }
    for _ in 0..5 {
        let mut clients = Vec::new();
        for session in &sessions {
            let mut client = TestSocket::attach_after(&server.rest, session, "tail").await;
            client.status("synced").await;
            clients.push(client);
        }
        let began = Instant::now();
        let (_, ended) = server.terminate().await;
        figures.add_ms(began.elapsed());
        server = ended.restart().await;
    }
    figures
}
