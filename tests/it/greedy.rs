//! Clients that do not read, and agents that do not stop: no other session is affected.

use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use greenroom_protocol::link::{AgentCommand, AgentReport, WorkOutcome};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    puppet::PuppetAgent,
    rest::RestClient,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    within,
};

/// Allowed growth of the server's memory when fifty megabytes and more are stored for good, in KiB.
const GROWTH_KIB: u64 = 24 * 1024;
/// The same when clients do not read (P6), and below when an agent does not stop (P21).
const SLOW_KIB: u64 = 8 * 1024;
const FLOOD_KIB: u64 = 16 * 1024;
const MIB: usize = 1024 * 1024;

/// Returns the number of bytes in a piece of output.
fn len(frame: &Value) -> u64 {
    frame["content"].as_str().unwrap_or_default().len() as u64
}

/// Returns a model that lets the agent run `command` on the message `go`.
fn model(command: &str) -> ScriptedModel {
    let tool = Some(ScriptedTool { name: "run".into(), input: json!({ "command": command }) });
    let go = ScriptedRule { when: Some("go".into()), times: 1, tool, ..ScriptedRule::default() };
    ScriptedModel::with(vec![go, ScriptedRule { say: Some("Done.".into()), times: 1, ..ScriptedRule::default() }])
}

/// Six hundred megabytes are printed meanwhile. Clients that read nothing are closed after that
/// time; then they reconnect.
#[tokio::test]
async fn clients_that_do_not_read_delay_no_one_and_catch_up() {
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

/// Reads what the client has not read. A client that was closed meanwhile reconnects for the rest.
///
/// A client answers no ping before it reads, so many clients run at once.
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

/// Prints three hundred megabytes. (With more, an unoptimised server takes so long that even the
/// reading client falls silent.)
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

/// Allowed memory of a client that does not read, beyond what the kernel holds for it, in KiB.
const DEAF_KIB: u64 = 16;
/// Difference of a server's memory from one turn to the next, in KiB.
const NOISE_KIB: u64 = 2 * 1024;

#[tokio::test]
async fn two_hundred_clients_that_do_not_read_cost_little_memory() {
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
    // The run is too short for a client to be closed for answering no ping.
    assert_eq!(server.rest.session(&session_id).await["attached"], 201, "every client is still attached");
    let [_, alone, beside_them] = grown[..] else { unreachable!() };
    assert!(
        beside_them <= alone + 200 * DEAF_KIB + NOISE_KIB,
        "memory grew by {alone} KiB alone, and by {beside_them} KiB with the other clients"
    );
    let all = server.rest.events(&session_id).await;
    join_all(deaf.into_iter().map(|client| catches_up(client, &server.rest, &session_id, &all[since..]))).await;
    server.leaves_nothing().await;
}

/// Half of a request's head, then a byte now and again: the server need not wait for the rest.
#[tokio::test]
async fn endless_request_heads_time_out_and_block_no_one() {
    const HALVES: usize = 500;
    host::take_all_descriptors();
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_SERVER__HEADER_TIMEOUT", "1s");
    let server = TestServer::start(options).await;
    let before = host::descriptors(server.pid());
    let halves = join_all((0..HALVES).map(|_| until_closed(&server.rest.authority)));
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

/// The same after an answered request, on more connections than the server accepts at once.
#[tokio::test]
async fn endless_second_heads_time_out_and_long_answers_do_not() {
    let options = TestServerOptions::new(TestDriver::Process)
        .env("GREENROOM_SERVER__HEADER_TIMEOUT", "1s")
        .env("GREENROOM_SERVER__KEEP_ALIVE", "1s")
        .env("GREENROOM_SERVER__MAX_CONNECTIONS", "16");
    let server = TestServer::start(options).await;
    let (authority, token) = (&server.rest.authority, &server.rest.token);
    let session = server.rest.create(json!({})).await;
    let mut lasting = TcpStream::connect(authority).await.expect("the server listens");
    let asked = format!(
        "GET /api/sessions/{session}/events HTTP/1.1\r\nhost: {authority}\r\naccept: text/event-stream\r\n\
         authorization: Bearer {token}\r\n\r\n"
    );
    lasting.write_all(asked.as_bytes()).await.expect("the server reads");
    let holding = (0..40).map(|_| async {
        let mut client = TcpStream::connect(authority).await.expect("the server listens");
        let whole = format!("GET /healthz HTTP/1.1\r\nhost: {authority}\r\n\r\n");
        client.write_all(whole.as_bytes()).await.expect("the server reads");
        assert!(client.read(&mut [0; 4096]).await.expect("the server answers") > 0);
        send_until_closed(client, authority).await;
    });
    within("all of them to be closed", join_all(holding)).await;
    server.rest.get("/healthz").await.expect(200);
    let mut streamed = [0; 64 * 1024];
    while let Ok(read) = timeout(Duration::from_secs(1), lasting.read(&mut streamed)).await {
        assert!(read.expect("the stream continues") > 0, "an answer in progress was closed");
    }
    drop(lasting);
    server.leaves_nothing().await;
}

/// Sends half of a head, then a byte now and again, until the server closes the connection.
async fn until_closed(authority: &str) {
    send_until_closed(TcpStream::connect(authority).await.expect("the server listens"), authority).await;
}

async fn send_until_closed(mut client: TcpStream, authority: &str) {
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

/// Command that prints fifty megabytes of known text, and the number of its bytes.
const LARGE: &str =
    "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); printf '%s' $i; head -c 10000 /dev/zero | tr '\\0' x; echo; done";

fn large() -> String {
    (1..=5000).map(|n| format!("{n}{}\n", "x".repeat(10_000))).collect()
}

#[tokio::test]
async fn fifty_megabytes_become_one_event_with_whole_content() {
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
    let href = ran["extras"]["truncated"]["href"].as_str().expect("a link to the whole content");
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
async fn line_of_hundred_megabytes_becomes_one_event() {
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
    let length = ran["extras"]["truncated"]["bytes"].as_u64().expect("a length");
    assert_eq!(length, 100_000_000, "{}", ran["extras"]);
    socket.state("idle").await;
    let most = host::peak_kib(server.pid());
    assert!(most < before + GROWTH_KIB, "{before} KiB became {most} KiB");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn server_kill_amid_fifty_megabytes_keeps_whole_content() {
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
    let href = ran["extras"]["truncated"]["href"].as_str().expect("a link to the whole content");
    assert!(server.rest.get(href).await.text == large(), "the answer is complete");
    let left = std::fs::read_dir(&contents).expect("contents").flatten().map(|file| file.path());
    let left: Vec<_> = left.filter(|path| path.extension().is_some_and(|mark| mark != "sums")).collect();
    assert!(left.is_empty(), "no unfinished files may be left: {left:?}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn endless_output_is_throttled_and_interruptible() {
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
            // A client that falls behind receives the newest bytes as if the output began there.
            let (began_anew, end) = (last["offset"] == 0, last["offset"].as_u64().expect("an offset") + len(&last));
            assert!(
                frame["offset"] == 0 || began_anew || frame["offset"] == end,
                "output is missing from {end} on: {frame}"
            );
            bytes += len(&frame);
            last = frame;
        }
    }
    let other = server.rest.start("say something").await;
    server.rest.until_state(&other, "idle").await;
    let most = host::peak_kib(server.pid());
    assert!(most < before + FLOOD_KIB, "{before} KiB became {most} KiB over {bytes} bytes");
    // The client does not read its frames, and its request is still processed.
    flooded.send_request("interrupt", json!({})).await;
    server.rest.until_state(&session, "idle").await;
    eventually("its processes to be gone", || async {
        !host::processes(server.home()).iter().any(|process| process.command == "yes")
    })
    .await;
    flooded.observation("interrupted").await;
    server.leaves_nothing().await;
}

/// The agent sends as many events as it can, on a disk that takes them.
#[tokio::test]
async fn endless_events_cost_little_memory_and_are_interruptible() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let mut socket = TestSocket::attach_after(&server.rest, &session, "tail").await;
    socket.status("synced").await;
    socket.send_request("message", json!({ "content": "go" })).await;
    let AgentCommand::Prompt { turn, .. } = agent.command().await else { panic!("expected a prompt") };
    let before = host::forget_peak(server.pid());
    let words = |n: usize| format!("{n}:{}", "x".repeat(1000));
    let flood = async {
        let mut sent = 0;
        while !agent.received_command(&AgentCommand::Cancel {}) {
            let body = json!({ "observation": "think", "content": words(sent), "extras": {} });
            agent.event(None, body).await;
            sent += 1;
        }
        let outcome = WorkOutcome::Cancelled { what: "the words".to_owned(), partial: false };
        agent.report(AgentReport::TurnEnded { turn, outcome }).await.expect("the server listens");
        agent.until_acknowledged().await;
        sent
    };
    let person = async {
        let mut bytes = 0;
        while bytes < 4 << 20 {
            bytes += len(&socket.next().await);
            socket.seen.clear();
        }
        // Other sessions have their turns meanwhile.
        let other = server.rest.start("say something").await;
        server.rest.until_state(&other, "idle").await;
        let most = host::peak_kib(server.pid());
        assert!(most < before + FLOOD_KIB, "{before} KiB became {most} KiB over {bytes} bytes");
        socket.send_request("interrupt", json!({})).await;
    };
    let (sent, ()) = join(flood, person).await;
    server.rest.until_state(&session, "idle").await;
    let events = server.rest.events(&session).await;
    let thoughts = events.iter().filter(|event| event["observation"] == "think");
    assert!(
        thoughts.map(|event| event["content"].clone()).eq((0..sent).map(words).map(Value::from)),
        "every report arrives, in order"
    );
    server.leaves_nothing().await;
}
