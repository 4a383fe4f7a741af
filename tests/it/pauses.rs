//! Pause freezes a session in the middle of a token or a tool; resume continues with the next. Stop
//! frees the memory.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::timeout;

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::ScriptedModel,
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
    within,
};

on_each_driver!(
    in_a_stream,
    in_a_tool,
    stopped_session_resumes_with_its_files,
    message_starts_a_stopped_session,
    sweep_reconciles_sandbox_with_session,
    idle_agent_releases_its_code_pages,
);

/// More than an idle agent has (1.1 to 5.6 MiB: the kernel may map 2 MiB for each page that is
/// needed), and less than a working agent (7). Only 0.3 MiB are the agent's own.
const WAITS_KIB: u64 = 6 << 10;

async fn in_a_stream(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a short story" })).await;
    socket.delta("text").await;
    let agent = host::agents(server.home())[0].pid;
    socket.send_request("pause", json!({})).await;
    socket.state("paused").await;
    // The state is persisted before the sandbox is frozen. Frames that were in flight at that
    // moment still arrive.
    eventually("the sandbox to be frozen", || async { host::is_frozen(agent) }).await;
    within("silence", async { while timeout(Duration::from_millis(300), socket.next()).await.is_ok() {} }).await;
    // The model continues its answer, and the server may report the cost.
    let is_its_own = |frame: &Value| frame["delta"].is_string() || frame["source"] == "agent";
    let word = timeout(Duration::from_secs(1), socket.until("a word", is_its_own)).await;
    assert!(word.is_err(), "{word:?} arrived from a paused sandbox");
    socket.send_request("resume", json!({})).await;
    socket.state("running").await;
    let whole = socket.observation("message").await;
    assert_eq!(
        whole["content"].as_str().expect("a text").trim_end(),
        "tick ".repeat(150).trim_end(),
        "no word is lost"
    );
    assert_eq!(model.calls().len(), 1, "the same stream continues without a second model call");
    socket.state("idle").await;
    server.leaves_nothing().await;
}

/// Time limit of the command. The pause lasts longer.
const RUN_TIMEOUT: &str = "8s";
const STANDS: Duration = Duration::from_secs(9);

async fn in_a_tool(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(
        TestServerOptions::anthropic(driver, &model).env("GREENROOM_AGENT__RUN_TIMEOUT", RUN_TIMEOUT),
    )
    .await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tick into a file" })).await;
    socket.action("run").await;
    eventually("the command to tick", || async { ticks(&server) > 3 }).await;
    socket.send_request("pause", json!({})).await;
    socket.state("paused").await;
    // The state is persisted before the sandbox is frozen. A command that is not frozen ticks five
    // times in between.
    eventually("the command to be frozen", || async {
        let before = ticks(&server);
        tokio::time::sleep(Duration::from_millis(100)).await;
        ticks(&server) == before
    })
    .await;
    let frozen_at = ticks(&server);
    tokio::time::sleep(STANDS).await;
    assert_eq!(ticks(&server), frozen_at, "a paused command continued");
    socket.send_request("resume", json!({})).await;
    socket.state("running").await;
    eventually("the command to tick again", || async { ticks(&server) > frozen_at }).await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(
        (&ran["extras"]["exit_code"], ran["extras"].get("timed_out")),
        (&json!(0), None),
        "the command's time limit is suspended during a pause"
    );
    socket.state("idle").await;
    let numbers: Vec<usize> = read(&server).lines().map(|line| line.parse().expect("a number")).collect();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "the same command continues and does not run twice");
    server.leaves_nothing().await;
}

async fn stopped_session_resumes_with_its_files(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    socket.send_request("run", json!({ "command": "echo kept > kept; echo kept > ~/kept" })).await;
    socket.observation("run").await;
    socket.state("idle").await;
    socket.send_request("stop", json!({})).await;
    socket.state("stopped").await;
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
    server.rest.post(&format!("/api/sessions/{session}/resume"), json!({})).await.expect(200);
    socket.state("idle").await;
    socket.send_request("run", json!({ "command": "cat kept ~/kept" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["content"].as_str().expect("output").trim(), "kept\nkept");
    server.leaves_nothing().await;
}

async fn message_starts_a_stopped_session(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let session_id = server.rest.start("first").await;
    server.rest.until_state(&session_id, "idle").await;
    server.rest.post(&format!("/api/sessions/{session_id}/stop"), json!({})).await.expect(200);
    server.rest.until_state(&session_id, "stopped").await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("message", json!({ "content": "second" })).await;
    socket.observation("message").await;
    socket.state("idle").await;
    let asked = model.calls().pop().expect("the model was asked").body;
    assert!(asked.to_string().contains("first"), "the model call contains the history: {asked}");
    server.leaves_nothing().await;
}

fn ticks(server: &TestServer) -> usize {
    read(server).lines().count()
}

fn read(server: &TestServer) -> String {
    find(&server.data(), "ticks").and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
}

/// Returns a file of that name anywhere below `dir`.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let paths: Vec<PathBuf> = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = paths.iter().find(|path| path.is_file() && path.file_name().is_some_and(|found| found == name));
    here.cloned().or_else(|| paths.iter().filter(|path| path.is_dir()).find_map(|path| find(path, name)))
}

/// An engine may carry out a call long after its deadline, and other programs use the engine too.
async fn sweep_reconciles_sandbox_with_session(driver: TestDriver) {
    // The sweeper must not do so first.
    let server = TestServer::start(TestServerOptions::new(driver).env("GREENROOM_SWEEPER__EVERY", "1h")).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let agent = host::agents(server.home())[0].pid;
    for (state, stands) in [("idle", false), ("paused", true)] {
        if stands {
            server.rest.post(&format!("/api/sessions/{session}/pause"), json!({})).await.expect(200);
            eventually("the sandbox to be frozen", || async { host::is_frozen(agent) }).await;
        }
        // An engine's list may lag behind its actions.
        for righted in [1, 0] {
            eventually("a sweep with the expected count of reconciled sandboxes", || async {
                // The session's own effect, if still being carried out, or the sweep at the start
                // may reconcile the sandbox first.
                if righted == 1 && host::is_frozen(agent) == stands {
                    host::set_frozen(server.home(), driver, !stands);
                }
                let swept = server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
                assert_eq!(swept["stopped"], 0, "{swept}");
                swept["righted"] == righted
            })
            .await;
            eventually("the sandbox to match its session", || async { host::is_frozen(agent) == stands }).await;
        }
        assert_eq!(server.rest.session(&session).await["state"], state);
    }
    server.leaves_nothing().await;
}

async fn idle_agent_releases_its_code_pages(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    socket.state("idle").await;
    let resident = || host::agents(server.home()).iter().map(|agent| host::resident_kib(agent.pid)).sum::<u64>();
    for _ in 0..2 {
        eventually("the agent to release its code pages", || async { (1..WAITS_KIB).contains(&resident()) }).await;
        socket.send_request("message", json!({ "content": "tell a short story" })).await;
        socket.observation("message").await;
        assert!(resident() > WAITS_KIB, "{} KiB at work", resident());
        socket.state("idle").await;
    }
    server.leaves_nothing().await;
}
