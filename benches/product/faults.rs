//! What a fault costs those whom it does not concern, and how soon those are told whom it does; beside what is promised.

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
        Come::{self, Anew, Connected},
    },
    figures::{Figures, ms, table},
    harness::{
        driver::Driver,
        engine::{Engine, IMAGE},
        host,
        model::{Model, Rule, Tool},
        rest::Rest,
        server::{Options, Server},
        socket::Socket,
    },
    tokens,
};

const ROUNDS: usize = 20;
/// Clients that watch a sandbox die.
const WATCHERS: usize = 10;
const DEAF: usize = 200;
/// Clients that ask for something in the same moment.
const AT_ONCE: usize = 2_000;
/// How often they come.
const CROWDS: usize = 5;

pub(crate) async fn run(drivers: &[Driver]) {
    let mut rows = Vec::new();
    for driver in drivers {
        let mut deaths: Vec<(&str, Death)> = vec![("a sandbox dies", kill_agent)];
        if *driver == Driver::Docker {
            deaths.extend([("`docker kill`", docker_kill as Death), ("`docker rm --force`", docker_rm)]);
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
    let Refusals { connected, anew, alone, floor } = refusals().await;
    rows.push(row("2,000 sessions are asked for at once: until one is refused", &connected, "50 ms"));
    rows.push(row("… by clients that connect first", &anew, "50 ms"));
    rows.push(row("… where no place is left for any", &alone, "50 ms"));
    rows.push(row("… 2,000 calls at once that ask for nothing (the floor)", &floor, ""));
    if drivers.contains(&Driver::Docker)
        && let Some(engine) = Engine::start()
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

/// What ends the sandbox of the only session in that home.
type Death = fn(&Path);

fn kill_agent(home: &Path) {
    host::agents(home).iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
}

fn docker_kill(home: &Path) {
    docker(&["kill", "--signal=KILL"], home);
}

fn docker_rm(home: &Path) {
    docker(&["rm", "--force"], home);
}

/// The command takes its time, too, before and after the container is dead.
fn docker(what: &[&str], home: &Path) {
    let mut command = Command::new("docker");
    command.args(what).args(host::containers(home)).stdout(Stdio::null());
    std::thread::spawn(move || command.status().expect("docker is installed"));
}

async fn until_told(driver: Driver, death: Death) -> Figures {
    let server = Server::start(Options::new(driver)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut clients = Vec::new();
    for _ in 0..WATCHERS {
        let mut client = Socket::attach_after(&server.rest, &session, "tail").await;
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
    let tool = Some(Tool { name: "run".into(), input: json!({ "command": "yes" }) });
    let model = Model::with(vec![Rule { tool, times: 1, ..Rule::default() }]);
    let server = Server::start(Options::anthropic(Driver::Process, &model)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let (mut gone, mut seen) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        let mut deaf = Socket::narrow(&server.rest, &session).await;
        deaf.status("synced").await;
        let mut reads = Socket::attach_after(&server.rest, &session, "tail").await;
        reads.status("synced").await;
        deaf.act("message", json!({ "content": "go" })).await;
        let mut bytes = 0;
        while bytes < 4 << 20 {
            bytes += reads.next().await["content"].as_str().unwrap_or_default().len();
        }
        let began = Instant::now();
        deaf.act("interrupt", json!({})).await;
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
    let server = Server::start(Options::anthropic(Driver::Process, &model)).await;
    let mut quiet = tokens::client(&server).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut crowded = Socket::attach_after(&server.rest, &session, "tail").await;
    let mut deaf = Vec::new();
    for _ in 0..DEAF {
        let mut client = Socket::narrow(&server.rest, &session).await;
        client.status("synced").await;
        deaf.push(client);
    }
    // More than any of them may be sent, so from now on each is behind.
    crowded.act("run", json!({ "command": "seq 1000000" })).await;
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

/// Of another session than the one that floods, and of somebody who reads the model directly meanwhile: both wait for a core.
async fn beside_a_flood() -> (Figures, Figures) {
    let model = tokens::stamped();
    let server = Server::start(Options::anthropic(Driver::Process, &model)).await;
    let (mut quiet, mut floods) = (tokens::client(&server).await, tokens::client(&server).await);
    let (mut through, mut direct) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS / 2 {
        floods.act("run", json!({ "command": "yes" })).await;
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
        floods.act("interrupt", json!({})).await;
        floods.state("idle").await;
    }
    (through, direct)
}

/// How long each token took, in milliseconds.
async fn turn(socket: &mut Socket) -> Figures {
    tokens::turn(socket, Duration::ZERO).await.map(|us| us / 1000.0)
}

struct Refusals {
    /// While those that were let in start: of clients that are connected.
    connected: Figures,
    /// … and of such that have to connect.
    anew: Figures,
    alone: Figures,
    floor: Figures,
}

/// Of so many at once each waits for the others: that is what the floor is for.
async fn refusals() -> Refusals {
    const CREATE: &str = "POST /api/sessions";
    let [mut connected, mut anew, mut alone, mut floor] = [const { Vec::new() }; 4];
    host::take_all_descriptors();
    for _ in 0..CROWDS {
        let kinds = [("40", Connected, &mut connected), ("40", Anew, &mut anew), ("0", Connected, &mut alone)];
        for (places, come, refused) in kinds {
            let options = Options::new(Driver::Process).env("GREENROOM_SANDBOX__MAX_WAITING", places);
            let server = Server::start(options).await;
            // The code itself comes from disk.
            at_once(&server, Connected, "GET /healthz", 200).await;
            floor.extend(at_once(&server, Connected, "GET /healthz", 200).await);
            refused.extend(at_once(&server, come, CREATE, 429).await);
        }
    }
    let [connected, anew, alone, floor] = [connected, anew, alone, floor].map(|all| all.into_iter().collect());
    Refusals { connected, anew, alone, floor }
}

/// Two thousand clients ask the same in the same moment: how long those waited who got this answer.
async fn at_once(server: &Server, come: Come, line: &str, status: u16) -> Vec<f64> {
    let Rest { authority, token, .. } = server.rest.clone();
    let call = format!(
        "{line} HTTP/1.1\r\nhost: {authority}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         content-length: 2\r\n\r\n{{}}"
    );
    let waited = spawn_blocking(move || crowd::at_once(AT_ONCE, come, &authority, &call, status)).await;
    let waited = waited.expect("it does not panic");
    assert!(waited.len() > AT_ONCE / 2, "only {} of {AT_ONCE} were answered with {status}", waited.len());
    waited
}

async fn beside_a_stalled(engine: &Engine) -> Figures {
    let options = Options::new(Driver::Docker)
        .env("GREENROOM_SANDBOX__DOCKER_HOST", &engine.address())
        .env("GREENROOM_SANDBOX__IMAGE", IMAGE);
    let server = Server::start(options).await;
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
    let mut server = Server::start(Options::new(Driver::Process)).await;
    let mut sessions = Vec::new();
    for _ in 0..50 {
        sessions.push(server.rest.create(json!({})).await);
    }
    for _ in 0..5 {
        let mut clients = Vec::new();
        for session in &sessions {
            let mut client = Socket::attach_after(&server.rest, session, "tail").await;
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
