//! Clients that do not read and agents that do not stop: they cost nobody anything.

use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::harness::{
    driver::TestDriver,
    eventually, host,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    within,
};

/// What a server's memory may grow by where fifty megabytes and more are kept for good, KiB.
const GROWTH_KIB: u64 = 24 * 1024;
/// … where clients do not read (P6), and where an agent does not stop (P21).
const SLOW_KIB: u64 = 8 * 1024;
const FLOOD_KIB: u64 = 16 * 1024;
const MIB: usize = 1024 * 1024;

/// How many bytes a piece of output has.
fn len(frame: &Value) -> u64 {
    frame["content"].as_str().unwrap_or_default().len() as u64
}

/// A model that has the agent run `command` when it is told to `go`.
fn model(command: &str) -> ScriptedModel {
    let tool = Some(ScriptedTool { name: "run".into(), input: json!({ "command": command }) });
    let go = ScriptedRule { when: Some("go".into()), times: 1, tool, ..ScriptedRule::default() };
    ScriptedModel::with(vec![go, ScriptedRule { say: Some("Done.".into()), times: 1, ..ScriptedRule::default() }])
}

/// Six hundred megabytes are printed beside them, so long that who reads nothing is given up: then they come back.
#[tokio::test]
async fn deaf_clients_hold_nobody_up_and_catch_up_later() {
    let model = model("yes 0123456789012345678901234567890123456789 | head -c 314572800");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let mut reads = TestSocket::attach(&server.rest, &session_id).await;
    reads.status("synced").await;
    let quiet = host::forget_peak(server.pid());
    print(&mut reads).await;
    let alone = host::peak_kib(server.pid());
    assert!(alone < quiet + FLOOD_KIB, "{quiet} KiB became {alone} KiB");
    let mut deaf = Vec::new();
    for _ in 0..40 {
        deaf.push(TestSocket::attach(&server.rest, &session_id).await);
    }
    host::forget_peak(server.pid());
    let since = Instant::now();
    print(&mut reads).await;
    print(&mut reads).await;
    let beside_them = host::peak_kib(server.pid());
    assert!(beside_them < alone + SLOW_KIB, "{alone} KiB became {beside_them} KiB");
    tokio::time::sleep(Duration::from_secs(60).saturating_sub(since.elapsed())).await;
    let all = server.rest.events(&session_id).await;
    join_all(deaf.into_iter().map(|client| catches_up(client, &server.rest, &session_id, &all))).await;
    server.leaves_nothing().await;
}

/// What a client did not read then, it reads now; where it was given up meanwhile, it comes back for the rest. It answers no
/// ping before it reads, so many of them do it at once.
async fn catches_up(mut client: TestSocket, rest: &RestClient, session: &str, all: &[Value]) {
    let last = all.last().and_then(|event| event["seq"].as_u64());
    while client.newest() < last && client.next_or_close().await.is_ok() {}
    let mut seen = client.events();
    if let Some(next) = all.get(seen.len()) {
        let before = next["seq"].as_u64().expect("an event has a number") - 1;
        let mut again = TestSocket::attach_after(rest, session, before).await;
        while again.newest() < last {
            again.next().await;
        }
        seen.extend(again.events());
    }
    assert_eq!(seen, all);
}

/// Three hundred megabytes are printed. (More takes a server that is not optimised so long that even who reads falls silent.)
async fn print(reads: &mut TestSocket) {
    reads.send_request("message", json!({ "content": "go" })).await;
    let mut came = 0;
    let ran = loop {
        let frame = reads.next().await;
        reads.seen.clear();
        came += frame["content"].as_str().filter(|_| frame["delta"] == "output").map_or(0, str::len);
        if frame["observation"] == "run" {
            break frame;
        }
    };
    assert_eq!(ran["extras"]["exit_code"], 0, "{ran}");
    assert!(came > 16 * MIB, "{came} bytes came while they were printed");
    reads.state("idle").await;
}

/// What a client that does not read may cost beyond what the kernel holds for it, KiB.
const DEAF_KIB: u64 = 16;
/// By how much a server's memory differs from one turn to the next.
const NOISE_KIB: u64 = 2 * 1024;

#[tokio::test]
async fn two_hundred_deaf_clients_cost_next_to_nothing() {
    let model = model("seq 1 1000000");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    let mut reads = TestSocket::attach(&server.rest, &session_id).await;
    let (mut deaf, mut grown, mut since) = (Vec::new(), Vec::new(), 0);
    for clients in [0, 0, 200] {
        since = server.rest.events(&session_id).await.len();
        let before = host::forget_peak(server.pid());
        for _ in 0..clients {
            let mut client = TestSocket::narrow(&server.rest, &session_id).await;
            client.status("synced").await;
            deaf.push(client);
        }
        reads.send_request("message", json!({ "content": "go" })).await;
        reads.observation("run").await;
        reads.state("idle").await;
        reads.seen.clear();
        grown.push(host::peak_kib(server.pid()).saturating_sub(before));
    }
    // Nobody is given up so soon for answering no ping.
    assert_eq!(server.rest.session(&session_id).await["attached"], 201, "they are all there");
    let [_, alone, beside_them] = grown[..] else { unreachable!() };
    assert!(
        beside_them <= alone + 200 * DEAF_KIB + NOISE_KIB,
        "it grew by {alone} KiB, and by {beside_them} KiB beside them"
    );
    let all = server.rest.events(&session_id).await;
    join_all(deaf.into_iter().map(|client| catches_up(client, &server.rest, &session_id, &all[since..]))).await;
    server.leaves_nothing().await;
}

/// Half of a request's head, and then a byte now and again: nobody has to wait for the rest of it.
#[tokio::test]
async fn five_hundred_heads_without_an_end_are_given_up_and_keep_nobody_out() {
    const HALVES: usize = 500;
    host::take_all_descriptors();
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__HEADER_TIMEOUT", "1s");
    let server = TestServer::start(options).await;
    let before = host::descriptors(server.pid());
    let halves = join_all((0..HALVES).map(|_| given_up(&server.rest.authority)));
    let others = async {
        for _ in 0..10 {
            server.rest.get("/healthz").await.expect(200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::join!(within("all of them to be closed", halves), others);
    eventually("their descriptors to be closed", || async { host::descriptors(server.pid()) <= before + 2 }).await;
    server.leaves_nothing().await;
}

/// The same behind a request that was answered, by more of them than the server takes up at once.
#[tokio::test]
async fn second_heads_without_an_end_are_given_up_as_well_and_what_lasts_is_not() {
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__HEADER_TIMEOUT", "1s")
        .env("GREENROOM_SERVER__KEEP_ALIVE", "1s")
        .env("GREENROOM_SERVER__MAX_CONNECTIONS", "16");
    let server = TestServer::start(options).await;
    let (authority, token) = (&server.rest.authority, &server.rest.token);
    let session = server.rest.create(json!({})).await;
    let mut lasting = TcpStream::connect(authority).await.expect("it listens");
    let asked = format!(
        "GET /api/sessions/{session}/events HTTP/1.1\r\nhost: {authority}\r\naccept: text/event-stream\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    lasting.write_all(asked.as_bytes()).await.expect("it is taken");
    let holding = (0..40).map(|_| async {
        let mut client = TcpStream::connect(authority).await.expect("it listens");
        let whole = format!("GET /healthz HTTP/1.1\r\nhost: {authority}\r\n\r\n");
        client.write_all(whole.as_bytes()).await.expect("it is taken");
        assert!(client.read(&mut [0; 4096]).await.expect("it answers") > 0);
        given_up_by(client, authority).await;
    });
    within("all of them to be closed", join_all(holding)).await;
    server.rest.get("/healthz").await.expect(200);
    let mut streamed = [0; 64 * 1024];
    while let Ok(read) = timeout(Duration::from_secs(1), lasting.read(&mut streamed)).await {
        assert!(read.expect("it goes on") > 0, "what is still being answered was closed");
    }
    drop(lasting);
    server.leaves_nothing().await;
}

/// Sends half of a head, and a byte more now and again, until it is not wanted any more.
async fn given_up(authority: &str) {
    given_up_by(TcpStream::connect(authority).await.expect("it listens"), authority).await;
}

async fn given_up_by(mut client: TcpStream, authority: &str) {
    let half = format!("GET /healthz HTTP/1.1\r\nhost: {authority}\r\nslow: ");
    let mut more = half.as_bytes();
    let mut answer = [0; 1024];
    while client.write_all(more).await.is_ok() {
        if let Ok(Ok(0) | Err(_)) = timeout(Duration::from_millis(200), client.read(&mut answer)).await {
            return;
        }
        more = b"x";
    }
}

/// Fifty megabytes that a test can recognise, and how many bytes they have.
const LARGE: &str =
    "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); printf '%s' $i; head -c 10000 /dev/zero | tr '\\0' x; echo; done";

fn large() -> String {
    (1..=5000).map(|n| format!("{n}{}\n", "x".repeat(10_000))).collect()
}

#[tokio::test]
async fn fifty_megabytes_are_one_event_and_can_be_fetched_whole() {
    let model = model(LARGE);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "go" })).await;
    let session = socket.session().await;
    let before = host::forget_peak(server.pid());
    let ran = socket.observation("run").await;
    let content = ran["content"].as_str().expect("output");
    assert!(content.len() < 80 * 1024, "{} bytes in the frame", content.len());
    let expected = large();
    assert!(content.starts_with("1xxx") && content.ends_with("xxx\n"));
    assert_eq!(ran["extras"]["truncated"]["bytes"], expected.len());
    let href = ran["extras"]["truncated"]["href"].as_str().expect("where the whole is");
    let whole = server.rest.get(href).await;
    assert!(whole.text == expected, "{} bytes of {}", whole.text.len(), expected.len());
    let most = host::peak_kib(server.pid());
    assert!(most < before + GROWTH_KIB, "{before} KiB became {most} KiB");
    socket.state("idle").await;
    let events = server.rest.events(&session).await;
    assert!(events.iter().all(|event| event.to_string().len() < 256 * 1024), "no event is large");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_line_of_a_hundred_megabytes_is_one_event_too() {
    let model = model("head -c 100000000 /dev/zero | tr '\\0' x");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    let before = host::forget_peak(server.pid());
    socket.send_request("message", json!({ "content": "go" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["extras"]["exit_code"], 0, "{}", ran["extras"]);
    assert!(ran.to_string().len() < 256 * 1024, "{} bytes in the frame", ran.to_string().len());
    let said = ran["extras"]["truncated"]["bytes"].as_u64().expect("how long it was");
    assert_eq!(said, 100_000_000, "{}", ran["extras"]);
    socket.state("idle").await;
    let most = host::peak_kib(server.pid());
    assert!(most < before + GROWTH_KIB, "{before} KiB became {most} KiB");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn a_server_that_is_killed_amid_fifty_megabytes_has_them_whole() {
    let model = model(LARGE);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session = server.rest.start("go").await;
    let contents = server.data().join("journal/contents").join(&session);
    eventually("pieces on disk", || async {
        let growing = std::fs::read_dir(&contents).into_iter().flatten().flatten();
        growing.map(|file| file.metadata().map_or(0, |about| about.len())).sum::<u64>() > 10_000_000
    })
    .await;
    let server = server.kill9().await.restart().await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["extras"]["exit_code"], 0, "{}", ran["extras"]);
    let href = ran["extras"]["truncated"]["href"].as_str().expect("where the whole is");
    assert!(server.rest.get(href).await.text == large(), "it is whole");
    let left = std::fs::read_dir(&contents).expect("contents").flatten().map(|file| file.path());
    let left: Vec<_> = left.filter(|path| path.extension().is_some_and(|mark| mark != "sums")).collect();
    assert!(left.is_empty(), "nothing is left unfinished: {left:?}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_that_does_not_stop_is_held_back_and_can_be_stopped() {
    let model = model("yes");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut flooded = TestSocket::open(&server.rest).await;
    flooded.send_request("start", json!({ "task": "go" })).await;
    let session = flooded.session().await;
    let first = flooded.delta("output").await;
    let before = host::forget_peak(server.pid());
    let (mut last, began, mut bytes) = (first, Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(10) || bytes < 16 << 20 {
        let frame = flooded.next().await;
        flooded.seen.clear();
        if frame["delta"] == "output" {
            // Who falls behind is shown the newest as if it began there.
            let (began_anew, end) = (last["offset"] == 0, last["offset"].as_u64().expect("an offset") + len(&last));
            assert!(frame["offset"] == 0 || began_anew || frame["offset"] == end, "left out from {end} on: {frame}");
            bytes += len(&frame);
            last = frame;
        }
    }
    let other = server.rest.start("say something").await;
    server.rest.until_state(&other, "idle").await;
    let most = host::peak_kib(server.pid());
    assert!(most < before + FLOOD_KIB, "{before} KiB became {most} KiB over {bytes} bytes");
    // It does not read what it is sent, and is heard all the same.
    flooded.send_request("interrupt", json!({})).await;
    server.rest.until_state(&session, "idle").await;
    eventually("its processes to be gone", || async {
        !host::processes(server.home()).iter().any(|process| process.command == "yes")
    })
    .await;
    flooded.observation("interrupted").await;
    server.leaves_nothing().await;
}

/// As many events as an agent can say, on a disk that takes them.
#[tokio::test]
async fn events_without_end_cost_little_and_their_agent_hears_an_interrupt() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let mut socket = TestSocket::attach_after(&server.rest, &session, "tail").await;
    socket.status("synced").await;
    socket.send_request("message", json!({ "content": "go" })).await;
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("there is nothing else to do") };
    let before = host::forget_peak(server.pid());
    let words = |n: usize| format!("{n}:{}", "x".repeat(1000));
    let flood = async {
        let mut said = 0;
        while !agent.received_command(&AgentCommand::Cancel {}) {
            let body = json!({ "observation": "think", "content": words(said), "extras": {} });
            agent.event(None, body).await;
            said += 1;
        }
        let outcome = WorkOutcome::Cancelled { what: "the words".to_owned(), partial: false };
        agent.report(AgentReport::TurnEnded { turn, outcome }).await.expect("the server listens");
        agent.until_acknowledged().await;
        said
    };
    let person = async {
        let mut bytes = 0;
        while bytes < 4 << 20 {
            bytes += len(&socket.next().await);
            socket.seen.clear();
        }
        // Others have their turns.
        let other = server.rest.start("say something").await;
        server.rest.until_state(&other, "idle").await;
        let most = host::peak_kib(server.pid());
        assert!(most < before + FLOOD_KIB, "{before} KiB became {most} KiB over {bytes} bytes");
        socket.send_request("interrupt", json!({})).await;
    };
    let (said, ()) = join(flood, person).await;
    server.rest.until_state(&session, "idle").await;
    let events = server.rest.events(&session).await;
    let thoughts = events.iter().filter(|event| event["observation"] == "think");
    assert!(
        thoughts.map(|event| event["content"].clone()).eq((0..said).map(words).map(Value::from)),
        "all of it, in order"
    );
    server.leaves_nothing().await;
}
