//! Agents die. Every client is told, with the exit code, and the next message goes on from the journal.

use std::{path::Path, process::Command, time::Duration};

use greenroom_protocol::{Delta, DeltaKind};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{
    driver::{TestDriver, on_each_driver},
    eventually, host,
    model::ScriptedModel,
    puppet::PuppetAgent,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    stand_in::{replace_agent, wrap_agent},
};

on_each_driver!(
    a_killed_agent_is_told_and_the_next_message_goes_on,
    one_death_is_nobody_elses,
    a_death_that_no_server_saw_is_told_by_the_next_one,
    a_sandbox_that_takes_more_memory_than_it_may_is_told_so,
    an_agent_that_ends_at_once_is_told_with_what_it_said,
    whatever_an_agent_leaves_in_its_own_way_it_starts_again,
    a_tree_deeper_than_any_stack_is_removed_and_takes_nobody_along,
);

/// A session whose agent runs a command that waits, and who listens to it.
async fn at_work(server: &TestServer) -> (TestSocket, String) {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    let session = socket.session().await;
    socket.delta("output").await;
    (socket, session)
}

async fn a_killed_agent_is_told_and_the_next_message_goes_on(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let (mut socket, session) = at_work(&server).await;
    let mut other = TestSocket::attach_after(&server.rest, &session, "tail").await;
    other.status("synced").await;

    kill_agents(server.home());
    for client in [&mut socket, &mut other] {
        let lost = client
            .until("the news of its death", |frame| {
                frame["observation"] == "sandbox" && frame["extras"]["phase"] == "lost"
            })
            .await;
        assert_eq!(lost["extras"]["exit_code"], 137, "{lost}");
        client.state("failed").await;
    }
    let told = server.rest.session(&session).await;
    let reason = told["reason"].as_str().expect("a reason");
    assert!(told["state"] == "failed" && reason.contains("exit code 137"), "REST says the same: {told}");
    assert!(host::processes(server.home()).iter().all(|process| !process.command.contains("sleep 0.05")));

    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    let asked = model.calls().pop().expect("the model was asked").body.to_string();
    assert!(asked.contains("wait for go"), "the agent knows what came before: {asked}");
    server.leaves_nothing().await;
}

/// The engine has other users.
#[tokio::test]
async fn what_others_do_to_a_container_is_told_and_its_workspace_stays() {
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
        let lost = socket.until("the news", |frame| frame["extras"]["phase"] == "lost").await;
        socket.state("failed").await;
        let reason = server.rest.session(&session).await["reason"].clone();
        let reason = reason.as_str().expect("a reason");
        let code = lost["extras"]["exit_code"].as_u64();
        assert!(code == Some(137) || done[0] != "kill", "{lost}");
        assert!(code.is_none_or(|code| reason.contains(&format!("exit code {code}"))), "REST says the same: {reason}");
        socket.send_request("run", json!({ "command": "cat kept" })).await;
        assert_eq!(socket.observation("run").await["content"], "still here", "after `{}`", done[0]);
    }
    server.leaves_nothing().await;
}

async fn one_death_is_nobody_elses(driver: TestDriver) {
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

async fn a_death_that_no_server_saw_is_told_by_the_next_one(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let (_listens, session) = at_work(&server).await;

    let dead = server.kill9().await;
    kill_agents(dead.home());
    gone(dead.home()).await;
    let server = dead.restart().await;
    server.rest.until_state(&session, "failed").await;
    let told = server.rest.session(&session).await;
    assert_eq!(told["reason"], "the sandbox died with exit code 137", "{told}");
    let events = server.rest.events(&session).await;
    let deaths: Vec<_> = events.iter().filter(|event| event["extras"]["phase"] == "lost").collect();
    assert_eq!((deaths.len(), &deaths[0]["extras"]["exit_code"]), (1, &json!(137)), "{deaths:?}");
    assert!(events.iter().any(|event| event["observation"] == "interrupted"), "its turn ends with it: {events:?}");

    let server = server.kill9().await.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session, events.len()).await;
    socket.status("synced").await;
    assert_eq!(server.rest.events(&session).await, events, "it is told once");
    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    server.leaves_nothing().await;
}

async fn a_sandbox_that_takes_more_memory_than_it_may_is_told_so(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver).env("GREENROOM_SANDBOX__MEMORY", "64MiB")).await;
    let grow = r#"exec sh -c 'all=0123456789abcdef; while :; do all=$all$all; done'"#;
    let script = format!(r#""$agent" & until [ -e "$HOME/end" ]; do sleep 0.02; done; {grow}"#);
    let (session, home) = wrap_agent(&server, &script).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    std::fs::write(home.join("end"), "").expect("it is written");
    let lost = socket.until("the news of its death", |frame| frame["extras"]["phase"] == "lost").await;
    socket.state("failed").await;
    let told = server.rest.session(&session).await;
    if driver == TestDriver::Process && host::control_groups(server.home()).is_empty() {
        return assert_ne!(lost["extras"]["exit_code"], 0, "refused the memory, it ends itself");
    }
    assert_eq!((&lost["extras"]["exit_code"], &lost["extras"]["out_of_memory"]), (&json!(137), &json!(true)), "{lost}");
    assert!(told["reason"].as_str().expect("a reason").contains("memory"), "REST says the same: {told}");
    server.leaves_nothing().await;
}

/// It has something to say before it goes.
const LAST_WORDS: &str =
    r#""$agent" & until [ -e "$HOME/end" ]; do sleep 0.02; done; echo 'no words left' >&2; exit 3"#;

#[tokio::test]
async fn last_words_are_told_to_who_listens_and_by_rest() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, home) = wrap_agent(&server, LAST_WORDS).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    std::fs::write(home.join("end"), "").expect("it is written");
    let lost = socket.until("the news of its death", |frame| frame["extras"]["phase"] == "lost").await;
    assert_eq!(lost["extras"]["exit_code"], 3, "{lost}");
    assert!(lost["extras"]["stderr_tail"].as_str().expect("words").ends_with("no words left\n"), "{lost}");
    socket.state("failed").await;
    assert_eq!(server.rest.session(&session).await["reason"], "the sandbox died with exit code 3");
    assert!(server.rest.events(&session).await.contains(&lost), "REST says the same");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn last_words_that_no_server_heard_are_told_by_the_next_one() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session, home) = wrap_agent(&server, LAST_WORDS).await;

    let dead = server.kill9().await;
    std::fs::write(home.join("end"), "").expect("it is written");
    gone(dead.home()).await;
    let server = dead.restart().await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let lost = socket.until("the news of its death", |frame| frame["extras"]["phase"] == "lost").await;
    let Value::Object(how) = &lost["extras"] else { panic!("{lost}") };
    assert_eq!((&how["exit_code"], how.get("out_of_memory")), (&json!(3), None), "{lost}");
    assert!(how["stderr_tail"].as_str().expect("words").ends_with("no words left\n"), "{lost}");
    socket.state("failed").await;
    assert_eq!(server.rest.session(&session).await["reason"], "the sandbox died with exit code 3");
    server.leaves_nothing().await;
}

/// Waits until nothing of a server's sandboxes runs, or is kept.
async fn gone(home: &Path) {
    eventually("its processes to be gone", || async { host::processes(home).is_empty() }).await;
}

fn kill_agents(home: &Path) {
    let agents = host::agents(home);
    assert_eq!(agents.len(), 1, "{agents:?}");
    agents.iter().for_each(|agent| host::kill(agent.pid, Signal::KILL));
}

/// The state's reason, and what the sandbox wrote, of a session that cannot start.
async fn fails(server: &TestServer) -> (String, String) {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let failed = socket.until("the failure", |frame| frame["extras"]["phase"] == "failed").await;
    socket.state("failed").await;
    let stderr = failed["extras"]["stderr_tail"].as_str().unwrap_or_default().to_owned();
    (failed["content"].as_str().expect("a reason").to_owned(), stderr)
}

async fn an_agent_that_ends_at_once_is_told_with_what_it_said(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    replace_agent(&server, "#!/bin/sh\ndate +%s%N >> \"$HOME/starts\"\necho 'no such brain' >&2\nexit 3\n");
    let (why, stderr) = fails(&server).await;
    let homes = std::fs::read_dir(server.data().join("homes")).expect("homes").flatten();
    let starts: Vec<_> = homes.filter_map(|home| std::fs::read_to_string(home.path().join("starts")).ok()).collect();
    let starts: Vec<u64> = starts.concat().lines().map(|at| at.parse().expect("nanoseconds")).collect();
    assert_eq!(starts.len(), 4);
    let waited = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000_000);
    assert!(waited.zip([200, 800, 3_200]).all(|(ms, least)| ms >= least), "ever longer apart: {starts:?}");
    assert!(why.contains("4 times") && why.contains("exit code 3"), "{why}");
    assert!(stderr.contains("no such brain"), "{stderr}");
    assert!(host::processes(server.home()).is_empty(), "nothing is left of it");
    server.leaves_nothing().await;
}

async fn whatever_an_agent_leaves_in_its_own_way_it_starts_again(driver: TestDriver) {
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

async fn a_tree_deeper_than_any_stack_is_removed_and_takes_nobody_along(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    socket.state("idle").await;
    // In pieces, each hung below the next: behind a wall of Landlock, what lies deep takes as long as it is deep.
    let dig = r#"perl -e '
        for my $place ("/greenroom/run/agent", "/workspace") {
            for my $piece (1..16) {
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
async fn an_agent_that_talks_nonsense_is_told_and_stopped() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let before = host::forget_peak(server.pid());
    for (says, told) in NONSENSE {
        replace_agent(&server, &stranger(says));
        let (why, _) = fails(&server).await;
        assert!(why.contains("does not speak the link's protocol") && why.contains(told), "{says}: {why}");
        assert_eq!(server.rest.get("/healthz").await.status, 200, "{says}");
    }
    let grown = host::peak_kib(server.pid()).saturating_sub(before);
    assert!(grown < NONSENSE_KIB, "it grew by {grown} KiB");
    server.leaves_nothing().await;
}

/// What a stranger says in the agent's place, and what is told of it.
const NONSENSE: [(&str, &str); 9] = [
    (r#"say(b'{"frame":7}')"#, "none of the protocol"),
    ("say(b'x' * (17 << 20))", "too long"),
    // It says so, and sends nothing of it.
    (r#"raw(b"\x81\x7f" + (1 << 62).to_bytes(8, "big"))"#, "too long"),
    ("say(b'x' * (1 << 20), 0x01); [say(b'x' * (1 << 20), 0x00) for _ in range(17)]", "too long"),
    ("say(b'[' * 60_000)", "none of the protocol"),
    ("say(b'[' * (15 << 20))", "values"),
    (
        r#"say(b'{"frame":"report","n":1,"report":' + b'{"report":' * 10_000 + b'7' + b'}' * 10_001)"#,
        "none of the protocol",
    ),
    (r#"say(b'{"frame":"\xff\xfe"}')"#, "not UTF-8"),
    (r#"say(b'{"frame":"hello"', 0x01); say(b'\xc3', 0x00); say(b'\x28', 0x80)"#, "not UTF-8"),
];

/// What a server may grow by for all of that, KiB: a message of 16 MiB, and as much again on its way there.
const NONSENSE_KIB: u64 = 32 << 10;

#[tokio::test]
async fn an_agent_that_begins_to_talk_nonsense_is_told_and_a_fresh_one_obeys() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    let deep =
        format!(r#"{{"frame":"report","n":1,"report":{}7{}}}"#, "{\"report\":".repeat(10_000), "}".repeat(10_000));
    let nonsense = [
        ("x".repeat(17 << 20).into_bytes(), "too long"),
        (deep.into_bytes(), "none of the protocol"),
        (b"{\"frame\":\"\xff\xfe\"}".to_vec(), "not UTF-8"),
    ];
    for (says, told) in nonsense {
        let before = host::forget_peak(server.pid());
        agent.say(says).await;
        has_failed(&server, &session_id, told).await;
        let grown = host::peak_kib(server.pid()).saturating_sub(before);
        assert!(grown < NONSENSE_KIB, "{told}: it grew by {grown} KiB");

        let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
        socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
        assert_eq!(socket.observation("run").await["content"].as_str().expect("output").trim(), "42");
        socket.state("idle").await;
        agent = PuppetAgent::take_over(&server, &session_id).await;
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_told_and_stopped() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let silent =
        stranger("").replace("peer, _ = server.accept()", "held = server.accept(); import time; time.sleep(999)");
    replace_agent(&server, &silent);
    let session = server.rest.create(json!({})).await;
    // Longer than anything else is waited for.
    tokio::time::sleep(std::time::Duration::from_secs(25)).await;
    has_failed(&server, &session, "did not answer within 30 s").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_that_leaves_reports_out_and_hangs_up_is_told() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    agent.leave_out(6);
    agent.event(None, json!({ "observation": "message", "content": "the seventh", "extras": {} })).await;
    drop(agent);
    has_failed(&server, &session_id, "report 7 came where 1 was to come").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_that_leaves_reports_out_is_told_and_a_fresh_one_obeys() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (session_id, mut agent) = PuppetAgent::in_a_new_session(&server, json!({})).await;
    agent.leave_out(6);
    agent.event(None, json!({ "observation": "message", "content": "the seventh", "extras": {} })).await;
    has_failed(&server, &session_id, "report 7 came where 1 was to come").await;

    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    assert_eq!(socket.observation("run").await["content"].as_str().expect("output").trim(), "42");
    socket.send_request("stop", json!({})).await;
    eventually("what is ordered to be done", || async { host::processes(server.home()).is_empty() }).await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn an_agent_that_begins_ever_new_items_costs_its_server_little() {
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
    assert!(grown < 48 << 10, "400 MiB were said; it grew by {grown} KiB");
    server.leaves_nothing().await;
}

/// Opens a WebSocket as an agent would, and says something else to each that dials.
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

/// From outside it looks as one does that is at a long command, of which there is one beside it.
#[tokio::test]
async fn an_agent_that_its_own_command_stopped_is_told_and_one_at_a_long_command_goes_on() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let (stopped, busy) = (server.rest.create(json!({})).await, server.rest.create(json!({})).await);
    for (session, command) in [(&stopped, "echo mine > kept; kill -STOP -1"), (&busy, "sleep 70; echo awake")] {
        let mut client = TestSocket::attach(&server.rest, session).await;
        client.send_request("run", json!({ "command": command })).await;
        client.until("its act", |frame| frame["action"] == "run").await;
    }

    tokio::time::sleep(Duration::from_secs(40)).await;
    server.rest.until_state(&stopped, "failed").await;
    let failed = server.rest.session(&stopped).await;
    assert!(failed["reason"].as_str().expect("a reason").contains("stood still"), "{failed}");
    let mut client = TestSocket::attach(&server.rest, &stopped).await;
    client.send_request("run", json!({ "command": "cat kept" })).await;
    client.until("a fresh one", |frame| frame["observation"] == "run" && frame["content"] == "mine\n").await;
    let mut other = TestSocket::attach(&server.rest, &busy).await;
    assert_eq!(other.observation("run").await["content"], "awake\n");
    server.leaves_nothing().await;
}

/// The session says why it failed, and nothing of its sandbox runs on.
async fn has_failed(server: &TestServer, session: &str, why: &str) {
    server.rest.until_state(session, "failed").await;
    let failed = server.rest.session(session).await;
    assert!(failed["reason"].as_str().unwrap_or_default().contains(why), "{failed}");
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
}
