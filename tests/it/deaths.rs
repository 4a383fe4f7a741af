//! Agents that die: every client receives the exit code, and the next message continues from the
//! journal.

use std::{path::Path, process::Command, time::Duration};

use greenroom_protocol::{Delta, DeltaKind};
use rustix::process::Signal;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::ScriptedModel,
    on_each_driver,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    stand_in::{replace_agent, wrap_agent},
};

on_each_driver!(
    agent_kill_reports_exit_and_next_message_continues,
    agent_death_does_not_affect_other_sessions,
    agent_death_without_server_is_reported_by_next_server,
    sandbox_above_memory_limit_reports_out_of_memory,
    agent_that_exits_at_once_fails_with_its_stderr,
    agent_starts_again_after_blocking_its_own_paths,
    very_deep_tree_is_removed_without_stack_overflow,
);

/// Returns a session whose agent runs a command that waits, and a client of it.
async fn at_work(server: &TestServer) -> (TestSocket, String) {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    let session = socket.session().await;
    socket.delta("output").await;
    (socket, session)
}

async fn agent_kill_reports_exit_and_next_message_continues(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let (mut socket, session) = at_work(&server).await;
    let mut other = TestSocket::attach_after(&server.rest, &session, "tail").await;
    other.status("synced").await;

    kill_agents(server.home());
    for client in [&mut socket, &mut other] {
        let lost = client
            .until("the sandbox's exit", |frame| {
                frame["observation"] == "sandbox" && frame["extras"]["phase"] == "lost"
            })
            .await;
        assert_eq!(lost["extras"]["exit_code"], 137, "{lost}");
        client.state("failed").await;
    }
    let found = server.rest.session(&session).await;
    let reason = found["reason"].as_str().expect("a reason");
    assert!(found["state"] == "failed" && reason.contains("exit code 137"), "REST returns the same reason: {found}");
    assert!(host::processes(server.home()).iter().all(|process| !process.command.contains("sleep 0.05")));

    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    let asked = model.calls().pop().expect("the model was asked").body.to_string();
    assert!(asked.contains("wait for go"), "the model call contains the history: {asked}");
    server.leaves_nothing().await;
}

/// Other programs use the engine too.
#[tokio::test]
async fn external_container_kill_reports_exit_and_keeps_workspace() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let server = TestServer::start(TestServerOptions::new(TestDriver::Docker)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "print hello" })).await;
    let session = socket.session().await;
    socket.state("idle").await;
    socket.send_request("write", json!({ "path": "kept", "content": "still here" })).await;
    for done in [["kill", "--signal=KILL"], ["rm", "--force"], ["stop", "--time=0"]] {
        socket.state("idle").await;
        let output = Command::new("docker").args(done).args(host::containers(server.home())).output();
        assert!(output.expect("docker is installed").status.success());
        let lost = socket.until("the sandbox's exit", |frame| frame["extras"]["phase"] == "lost").await;
        socket.state("failed").await;
        let reason = server.rest.session(&session).await["reason"].clone();
        let reason = reason.as_str().expect("a reason");
        let code = lost["extras"]["exit_code"].as_u64();
        assert!(code == Some(137) || done[0] != "kill", "{lost}");
        assert!(
            code.is_none_or(|code| reason.contains(&format!("exit code {code}"))),
            "REST returns the same exit code: {reason}"
        );
        socket.send_request("run", json!({ "command": "cat kept" })).await;
        assert_eq!(socket.observation("run").await["content"], "still here", "after `{}`", done[0]);
    }
    server.leaves_nothing().await;
}

async fn agent_death_does_not_affect_other_sessions(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let victim = server.rest.start("wait for go").await;
    server.rest.until_state(&victim, "running").await;
    eventually("the first agent", || async { host::agents(server.home()).len() == 1 }).await;
    let doomed = host::agents(server.home());
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a short story" })).await;
    socket.delta("text").await;
    doomed.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
    let whole = socket.observation("message").await;
    assert_eq!(whole["content"].as_str().expect("a text").trim_end(), "tick ".repeat(150).trim_end());
    server.leaves_nothing().await;
}

async fn agent_death_without_server_is_reported_by_next_server(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let (_listens, session) = at_work(&server).await;

    let dead = server.kill9().await;
    kill_agents(dead.home());
    gone(dead.home()).await;
    let server = dead.restart().await;
    server.rest.until_state(&session, "failed").await;
    let found = server.rest.session(&session).await;
    assert_eq!(found["reason"], "the sandbox died with exit code 137", "{found}");
    let events = server.rest.events(&session).await;
    let deaths: Vec<_> = events.iter().filter(|event| event["extras"]["phase"] == "lost").collect();
    assert_eq!((deaths.len(), &deaths[0]["extras"]["exit_code"]), (1, &json!(137)), "{deaths:?}");
    assert!(
        events.iter().any(|event| event["observation"] == "interrupted"),
        "the turn ends with the sandbox: {events:?}"
    );

    let server = server.kill9().await.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session, events.len()).await;
    socket.status("synced").await;
    assert_eq!(server.rest.events(&session).await, events, "the exit is reported exactly once");
    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    server.leaves_nothing().await;
}

async fn sandbox_above_memory_limit_reports_out_of_memory(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver).env("GREENROOM_SANDBOX__MEMORY", "64MiB")).await;
    let grow = r#"exec sh -c 'all=0123456789abcdef; while :; do all=$all$all; done'"#;
    let script = format!(r#""$agent" & until [ -e "$HOME/end" ]; do sleep 0.02; done; {grow}"#);
    let (session, home) = wrap_agent(&server, &script).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    std::fs::write(home.join("end"), "").expect("the file can be written");
    let lost = socket.until("the sandbox's exit", |frame| frame["extras"]["phase"] == "lost").await;
    socket.state("failed").await;
    let found = server.rest.session(&session).await;
    if driver == TestDriver::Process && host::control_groups(server.home()).is_empty() {
        return assert_ne!(lost["extras"]["exit_code"], 0, "without a control group, the command fails by itself");
    }
    assert_eq!((&lost["extras"]["exit_code"], &lost["extras"]["out_of_memory"]), (&json!(137), &json!(true)), "{lost}");
    assert!(found["reason"].as_str().expect("a reason").contains("memory"), "REST returns the same reason: {found}");
    server.leaves_nothing().await;
}

/// Script that prints to stderr before it ends with code 3.
const PRINT_AND_EXIT: &str =
    r#""$agent" & until [ -e "$HOME/end" ]; do sleep 0.02; done; echo 'no words left' >&2; exit 3"#;

#[tokio::test]
async fn stderr_tail_is_reported_on_socket_and_rest() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, home) = wrap_agent(&server, PRINT_AND_EXIT).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    std::fs::write(home.join("end"), "").expect("the file can be written");
    let lost = socket.until("the sandbox's exit", |frame| frame["extras"]["phase"] == "lost").await;
    assert_eq!(lost["extras"]["exit_code"], 3, "{lost}");
    assert!(lost["extras"]["stderr_tail"].as_str().expect("words").ends_with("no words left\n"), "{lost}");
    socket.state("failed").await;
    assert_eq!(server.rest.session(&session).await["reason"], "the sandbox died with exit code 3");
    assert!(server.rest.events(&session).await.contains(&lost), "REST returns the same event");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn stderr_tail_without_server_is_reported_by_next_server() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, home) = wrap_agent(&server, PRINT_AND_EXIT).await;

    let dead = server.kill9().await;
    std::fs::write(home.join("end"), "").expect("the file can be written");
    gone(dead.home()).await;
    let server = dead.restart().await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let lost = socket.until("the sandbox's exit", |frame| frame["extras"]["phase"] == "lost").await;
    let Value::Object(how) = &lost["extras"] else { panic!("{lost}") };
    assert_eq!((&how["exit_code"], how.get("out_of_memory")), (&json!(3), None), "{lost}");
    assert!(how["stderr_tail"].as_str().expect("words").ends_with("no words left\n"), "{lost}");
    socket.state("failed").await;
    assert_eq!(server.rest.session(&session).await["reason"], "the sandbox died with exit code 3");
    server.leaves_nothing().await;
}

/// Waits until no process of the server's sandboxes is left.
async fn gone(home: &Path) {
    eventually("its processes to be gone", || async { host::processes(home).is_empty() }).await;
}

fn kill_agents(home: &Path) {
    let agents = host::agents(home);
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
}

/// Returns the reason of a session that cannot start, and its sandbox's stderr.
async fn fails(server: &TestServer) -> (String, String) {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let failed = socket.until("the failed start", |frame| frame["extras"]["phase"] == "failed").await;
    socket.state("failed").await;
    let stderr = failed["extras"]["stderr_tail"].as_str().unwrap_or_default().to_owned();
    (failed["content"].as_str().expect("a reason").to_owned(), stderr)
}

async fn agent_that_exits_at_once_fails_with_its_stderr(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    replace_agent(&server, "#!/bin/sh\ndate +%s%N >> \"$HOME/starts\"\necho 'no such brain' >&2\nexit 3\n");
    let (reason, stderr) = fails(&server).await;
    let homes = std::fs::read_dir(server.data().join("homes")).expect("homes").flatten();
    let starts: Vec<_> = homes.filter_map(|home| std::fs::read_to_string(home.path().join("starts")).ok()).collect();
    let starts: Vec<u64> = starts.concat().lines().map(|at| at.parse().expect("nanoseconds")).collect();
    assert_eq!(starts.len(), 4);
    let waited = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000);
    assert!(
        waited.zip([200, 800, 3_200]).all(|(ms, least)| ms >= least),
        "delays between starts must grow: {starts:?}"
    );
    assert!(reason.contains("4 times") && reason.contains("exit code 3"), "{reason}");
    assert!(stderr.contains("no such brain"), "{stderr}");
    assert!(host::processes(server.home()).is_empty(), "no process of the sandbox is left");
    server.leaves_nothing().await;
}

async fn agent_starts_again_after_blocking_its_own_paths(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    let lay =
        "cd /greenroom/run/agent && rm agent.sock && mkdir -p agent.sock/x agent.new/x && chmod 0 . /workspace $HOME";
    socket.send_request("run", json!({ "command": lay })).await;
    assert_eq!(socket.observation("run").await["extras"]["exit_code"], 0);
    socket.state("idle").await;
    for _ in 0..2 {
        socket.send_request("stop", json!({})).await;
        socket.state("stopped").await;
        socket.send_request("run", json!({ "command": "pwd" })).await;
        assert_eq!(socket.observation("run").await["content"], "/workspace\n");
        socket.state("idle").await;
    }
    server.leaves_nothing().await;
}

async fn very_deep_tree_is_removed_without_stack_overflow(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    socket.state("idle").await;
    // The tree grows in parts, each hung below the next one: in a Landlock domain, the cost of an
    // operation grows with the depth.
    let dig = r#"perl -e '
        for my $place ("/greenroom/run/agent", "/workspace") {
            for my $piece (1..8) {
                chdir($place) && mkdir("piece") && chdir("piece") or die $!;
                mkdir("d") && chdir("d") or die $! for 1..1000;
                rename("$place/all", "d") or die $! if $piece > 1;
                chdir($place) && rename("piece", "all") or die $!;
            }
        }
        print "dug\n"'"#;
    socket.send_request("run", json!({ "command": dig })).await;
    let dug = socket.observation("run").await;
    assert!(dug["content"].as_str().is_some_and(|content| content.ends_with("dug\n")), "{dug}");
    let purged = server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await;
    assert_eq!(purged.status.as_u16() / 100, 2, "{}", purged.text);
    server.rest.get("/healthz").await.expect(200);
    for place in ["run", "workspaces"] {
        assert!(!server.data().join(place).join(&session).exists(), "{place}");
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn invalid_frames_at_start_stop_the_sandbox() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let before = host::forget_peak(server.pid());
    for (script, expected) in INVALID_FRAMES {
        replace_agent(&server, &stranger(script));
        let (reason, _) = fails(&server).await;
        assert!(
            reason.contains("does not speak the link's protocol") && reason.contains(expected),
            "{script}: {reason}"
        );
        assert_eq!(server.rest.get("/healthz").await.status, 200, "{script}");
    }
    let grown = host::peak_kib(server.pid()).saturating_sub(before);
    assert!(grown < INVALID_FRAMES_KIB, "memory grew by {grown} KiB");
    server.leaves_nothing().await;
}

/// Invalid frames of a scripted agent, each with a part of the reason that the session reports.
const INVALID_FRAMES: [(&str, &str); 9] = [
    (r#"say(b'{"frame":7}')"#, "outside the protocol"),
    ("say(b'x' * (17 << 20))", "too long"),
    // Announces such a length, and sends nothing of it.
    (r#"raw(b"\x81\x7f" + (1 << 62).to_bytes(8, "big"))"#, "too long"),
    ("say(b'x' * (1 << 20), 0x01); [say(b'x' * (1 << 20), 0x00) for _ in range(17)]", "too long"),
    ("say(b'[' * 60_000)", "outside the protocol"),
    ("say(b'[' * (15 << 20))", "values"),
    (
        r#"say(b'{"frame":"report","n":1,"report":' + b'{"report":' * 10_000 + b'7' + b'}' * 10_001)"#,
        "outside the protocol",
    ),
    (r#"say(b'{"frame":"\xff\xfe"}')"#, "not UTF-8"),
    (r#"say(b'{"frame":"hello"', 0x01); say(b'\xc3', 0x00); say(b'\x28', 0x80)"#, "not UTF-8"),
];

/// Allowed growth of the server's memory, in KiB: a message of 16 MiB, and as much again in
/// buffers.
const INVALID_FRAMES_KIB: u64 = 32 << 10;

#[tokio::test]
async fn invalid_frames_later_fail_the_session_and_next_agent_works() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let deep =
        format!(r#"{{"frame":"report","n":1,"report":{}7{}}}"#, "{\"report\":".repeat(10_000), "}".repeat(10_000));
    let invalid_frames = [
        ("x".repeat(17 << 20).into_bytes(), "too long"),
        (deep.into_bytes(), "outside the protocol"),
        (b"{\"frame\":\"\xff\xfe\"}".to_vec(), "not UTF-8"),
    ];
    for (frame, expected) in invalid_frames {
        let before = host::forget_peak(server.pid());
        agent.say(frame).await;
        has_failed(&server, &session_id, expected).await;
        let grown = host::peak_kib(server.pid()).saturating_sub(before);
        assert!(grown < INVALID_FRAMES_KIB, "{expected}: memory grew by {grown} KiB");

        let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
        socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
        assert_eq!(socket.observation("run").await["content"].as_str().expect("output").trim(), "42");
        socket.state("idle").await;
        agent = PuppetAgent::take_over(&server, &session_id).await;
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn silent_agent_is_stopped_with_reason() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let silent =
        stranger("").replace("peer, _ = server.accept()", "held = server.accept(); import time; time.sleep(999)");
    replace_agent(&server, &silent);
    let session = server.rest.create(json!({})).await;
    // Longer than any other wait in this test.
    tokio::time::sleep(std::time::Duration::from_secs(25)).await;
    has_failed(&server, &session, "did not answer within 30 s").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn report_gap_before_disconnect_fails_the_session() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    agent.leave_out(6);
    agent.event(None, json!({ "observation": "message", "content": "the seventh", "extras": {} })).await;
    drop(agent);
    has_failed(&server, &session_id, "report 7 arrived, but report 1 was expected").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn report_gap_fails_the_session_and_next_agent_works() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    agent.leave_out(6);
    agent.event(None, json!({ "observation": "message", "content": "the seventh", "extras": {} })).await;
    has_failed(&server, &session_id, "report 7 arrived, but report 1 was expected").await;

    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    assert_eq!(socket.observation("run").await["content"].as_str().expect("output").trim(), "42");
    socket.send_request("stop", json!({})).await;
    eventually("the sandbox to be stopped", || async { host::processes(server.home()).is_empty() }).await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn memory_of_growing_items_is_bounded() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (_, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let before = host::forget_peak(server.pid());
    for n in 0..400 {
        let content = "x".repeat(1 << 20);
        let delta = Delta { kind: DeltaKind::Text, item: format!("item-{n}"), offset: 0, content };
        agent.grow(delta).await.expect("the server listens");
    }
    agent.event(None, json!({ "observation": "message", "content": "that was all", "extras": {} })).await;
    agent.until_acknowledged().await;
    let grown = host::peak_kib(server.pid()).saturating_sub(before);
    assert!(grown < 48 << 10, "the server grew by {grown} KiB over 400 MiB of deltas");
    server.leaves_nothing().await;
}

/// Returns an agent that opens a WebSocket and sends `says` to each connection.
fn stranger(says: &str) -> String {
    format!("{STRANGER}    {says}\n")
}

const STRANGER: &str = r#"#!/usr/bin/python3
import base64, hashlib, socket
def say(payload, first=0x81):
    length = len(payload)
    raw(bytes([first]) + (bytes([length]) if length < 126 else b"\x7f" + length.to_bytes(8, "big")) + payload)
def raw(content):
    try:
        peer.sendall(content)
    except OSError:
        pass # Nobody listens to the end of it.
server = socket.socket(socket.AF_UNIX)
server.bind("/greenroom/run/agent/agent.sock")
server.listen()
while True:
    peer, _ = server.accept()
    request = peer.recv(4096).decode()
    key = next(line.split(": ")[1] for line in request.split("\r\n") if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
    raw(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
         + accept + "\r\n\r\n").encode())
"#;

/// From outside, the stopped agent looks like an agent at a long command. A second session has such
/// an agent.
#[tokio::test]
async fn stopped_agent_fails_and_busy_agent_continues() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (stopped, busy) = (server.rest.create(json!({})).await, server.rest.create(json!({})).await);
    for (session, command) in [(&stopped, "echo mine > kept; kill -STOP -1"), (&busy, "sleep 70; echo awake")] {
        let mut client = TestSocket::attach(&server.rest, session).await;
        client.send_request("run", json!({ "command": command })).await;
        client.until("the user action", |frame| frame["action"] == "run").await;
    }

    tokio::time::sleep(Duration::from_secs(40)).await;
    server.rest.until_state(&stopped, "failed").await;
    let failed = server.rest.session(&stopped).await;
    assert!(failed["reason"].as_str().expect("a reason").contains("unresponsive"), "{failed}");
    let mut client = TestSocket::attach(&server.rest, &stopped).await;
    client.send_request("run", json!({ "command": "cat kept" })).await;
    client
        .until("the output of the fresh agent", |frame| frame["observation"] == "run" && frame["content"] == "mine\n")
        .await;
    let mut other = TestSocket::attach(&server.rest, &busy).await;
    assert_eq!(other.observation("run").await["content"], "awake\n");
    server.leaves_nothing().await;
}

/// Checks the reason of a failed session, and waits until no process of its sandbox runs.
async fn has_failed(server: &TestServer, session: &str, reason: &str) {
    server.rest.until_state(session, "failed").await;
    let failed = server.rest.session(session).await;
    assert!(failed["reason"].as_str().unwrap_or_default().contains(reason), "{failed}");
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
}
