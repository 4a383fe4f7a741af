//! The server may end at any moment, by request or not: no published event is lost, and turns
//! continue.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, process::Command};

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually, host,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    on_each_driver,
    server::{StoppedServer, TestServer, TestServerOptions, code},
    socket::TestSocket,
    stand_in::wrap_agent,
};

on_each_driver!(
    server_kill_loses_no_event_and_turns_continue,
    server_kill_during_model_answer_repeats_the_step,
    server_end_leaves_sandboxes_for_next_start,
    persisted_effects_are_carried_out_after_restart,
    archived_session_is_restored_and_swept,
    stop_sandboxes_option_stops_sandboxes_at_end,
);

async fn server_kill_loses_no_event_and_turns_continue(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let idle = server.rest.start("first").await;
    server.rest.until_state(&idle, "idle").await;
    let idle_before = server.rest.events(&idle).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    let working = socket.session().await;
    socket.delta("output").await;
    let agents_before = host::agents(server.home());
    let seen = socket.events();

    let server = server.kill9().await.restart().await;
    let listed = server.rest.get("/api/sessions").await.expect(200);
    assert_eq!(listed["total"], 2, "{listed}");
    assert_eq!(server.rest.events(&idle).await[..idle_before.len()], idle_before);
    let journal = server.rest.events(&working).await;
    assert_eq!(journal[..seen.len()], seen, "every event that a client received is on disk");
    assert_eq!(host::agents(server.home()), agents_before, "the sandboxes kept working");

    let mut socket = TestSocket::attach_after(&server.rest, &working, journal.len()).await;
    socket.status("synced").await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["extras"]["exit_code"], 0, "the command kept running: {ran}");
    socket.until("the end of the turn", |frame| frame["content"] == "Saw the mark.").await;
    socket.state("idle").await;
    let runs = server.rest.events(&working).await.into_iter().filter(|event| event["action"] == "run").count();
    assert_eq!(runs, 1, "nothing was done twice");
    for session in [&idle, &working] {
        let of_the_sandbox = |event: &Value| event["observation"] == "sandbox";
        let events: Vec<_> = server.rest.events(session).await.into_iter().filter(of_the_sandbox).collect();
        let phases: Vec<_> = events.iter().filter_map(|event| event["extras"]["phase"].as_str()).collect();
        assert_eq!(phases, ["starting", "ready"], "taking over a sandbox reports no start");
    }

    let mut other = TestSocket::attach_after(&server.rest, &idle, "tail").await;
    other.send_request("message", json!({ "content": "second" })).await;
    other.observation("message").await;
    other.state("idle").await;
    server.leaves_nothing().await;
}

/// A model's stream passes through the server and dies with it. The agent repeats that step by
/// itself.
async fn server_kill_during_model_answer_repeats_the_step(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a short story" })).await;
    let session = socket.session().await;
    let mut received = String::new();
    while received.len() < 50 {
        received.push_str(socket.delta("text").await["content"].as_str().expect("text"));
    }
    let agents = host::agents(server.home());

    let server = server.kill9().await.restart().await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let mut messages = Vec::new();
    while messages.len() < 2 {
        let message = socket.observation("message").await;
        messages.push((message["content"].as_str().expect("text").to_owned(), message["extras"]["partial"].clone()));
    }
    socket.state("idle").await;
    let [(cut, was_cut), (whole, is_cut)] = messages.try_into().expect("two");
    let story = "tick ".repeat(150);
    assert_eq!((was_cut, is_cut), (json!(true), json!(null)));
    assert!(
        cut.starts_with(&received) && story.starts_with(&cut) && cut.len() < story.len(),
        "the text read so far is kept: {cut}"
    );
    assert_eq!(whole.trim_end(), story.trim_end());
    assert_eq!((model.calls().len(), host::agents(server.home())), (2, agents));
    let events = server.rest.events(&session).await;
    let ends = events.iter().filter(|event| event["extras"]["agent_state"] == "idle").count();
    assert_eq!(ends, 1, "one turn that ends once: {events:?}");
    server.leaves_nothing().await;
}

async fn server_end_leaves_sandboxes_for_next_start(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_state(&session_id, "idle").await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.status("synced").await;
    let before = host::agents(server.home());
    assert_eq!(before.len(), 1);
    // One signal: a second one would end the server at once.
    let (closed, (status, ended)) = tokio::join!(socket.closed(), server.terminate());
    assert_eq!((closed, code(status)), (Some(1001), 0));
    assert_eq!(host::agents(ended.home()), before);
    let server = ended.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["content"].as_str().expect("output").trim(), "42");
    assert_eq!(host::agents(server.home()), before, "the same sandbox");
    server.leaves_nothing().await;
}

/// A server may die after persisting an effect and before carrying it out. Then the sandbox differs
/// from the journal.
async fn persisted_effects_are_carried_out_after_restart(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;

    let dead = server.kill9().await;
    host::set_frozen(dead.home(), driver, true);
    let server = dead.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["content"].as_str().expect("output").trim(), "42", "an idle session must not be frozen");
    socket.state("idle").await;
    socket.send_request("pause", json!({})).await;
    socket.state("paused").await;
    let agent = host::agents(server.home())[0].pid;
    eventually("the sandbox to be frozen", || async { host::is_frozen(agent) }).await;

    let dead = server.kill9().await;
    host::set_frozen(dead.home(), driver, false);
    let server = dead.restart().await;
    eventually("the sandbox to be frozen again", || async { host::is_frozen(agent) }).await;
    assert_eq!(server.rest.session(&session_id).await["state"], "paused");
    server.rest.post(&format!("/api/sessions/{session_id}/stop"), json!({})).await.expect(200);
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;

    if driver == TestDriver::Docker {
        let dead = server.kill9().await;
        let started = Command::new("docker").arg("start").args(host::containers(dead.home())).output();
        assert!(started.expect("docker is installed").status.success());
        let server = dead.restart().await;
        eventually("its processes to be gone again", || async { host::processes(server.home()).is_empty() }).await;
        assert_eq!(server.rest.session(&session_id).await["state"], "stopped");
        server.leaves_nothing().await;
    }
}

/// The archived mark decides in which list a session is, and nothing else.
async fn archived_session_is_restored_and_swept(driver: TestDriver) {
    let impatient = TestServerOptions::new(driver)
        .env("GREENROOM_SWEEPER__PAUSE_AFTER", "1ms")
        .env("GREENROOM_SWEEPER__STOP_AFTER", "1ms");
    let server = TestServer::start(impatient).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;
    let path = format!("/api/sessions/{session_id}");
    server.rest.patch(&path, json!({ "archived": true })).await.expect(200);

    let server = server.kill9().await.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    socket.observation("run").await;
    socket.state("idle").await;
    drop(socket);
    eventually("the session to be stopped", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        server.rest.session(&session_id).await["state"] == "stopped"
    })
    .await;
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
    server.leaves_nothing().await;
}

async fn stop_sandboxes_option_stops_sandboxes_at_end(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver).arg("--stop-sandboxes")).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_state(&session_id, "idle").await;
    let (status, ended) = server.terminate().await;
    assert_eq!(code(status), 0);
    assert_eq!(host::processes(ended.home()), []);
    let server = ended.restart().await;
    let found = server.rest.session(&session_id).await;
    assert_eq!((&found["state"], &found["reason"]), (&json!("stopped"), &json!("the server ended")), "{found}");
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "ls" })).await;
    let ran = socket.observation("run").await;
    assert!(ran["content"].as_str().expect("output").contains("hello"), "the workspace is still there: {ran}");
    server.leaves_nothing().await;
}

/// The journal records the end of the turn and the restart of the agent; the server dies at that
/// moment.
#[tokio::test]
async fn agent_due_for_restart_reports_nothing_after_server_kill() {
    let model = ScriptedModel::play("work");
    let mut tries = 0;
    let (dead, session_id, old) = loop {
        tries += 1;
        match kill_during_agent_restart(&model).await {
            Some(killed) => break killed,
            None => assert!(tries < 5, "the kill came too late in every attempt"),
        }
    };
    let server = dead.restart().await;
    server.rest.until_state(&session_id, "idle").await;
    assert_ne!(wrapped(server.home()), old);
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    socket.observation("write").await;
    socket.send_request("message", json!({ "content": "and now?" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    let events = server.rest.events(&session_id).await;
    assert!(!events.iter().any(|event| event["content"] == "Saw the mark."), "an event of the ended turn: {events:?}");
    server.leaves_nothing().await;
}

/// Returns the killed server, the session, and its agent, which keeps working. Returns `None` if
/// the kill was too late and the agent is gone.
async fn kill_during_agent_restart(
    model: &ScriptedModel,
) -> Option<(StoppedServer, String, Vec<host::SandboxProcess>)> {
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, model)).await;
    // The wrapper ignores the signal to end, so there is half a second to kill the server.
    let (session, _) = wrap_agent(&server, r#"trap '' TERM; "$agent" & wait"#).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    socket.delta("output").await;
    let old = wrapped(server.home());
    // The agent does not receive the end of its turn either.
    let dir = server.data().join("run").join(&session).join("agent");
    let (place, aside) = (dir.join("agent.sock"), dir.join("aside.sock"));
    std::fs::rename(&place, &aside).expect("the agent listens");
    let _held = std::os::unix::net::UnixStream::connect(&aside).expect("the agent still listens");
    for state in ["interrupting", "starting"] {
        socket.send_request("interrupt", json!({})).await;
        socket.state(state).await;
    }
    let dead = server.kill9().await;
    if wrapped(dead.home()) != old {
        return None;
    }
    std::fs::rename(&aside, &place).expect("it exists");
    Some((dead, session, old))
}

/// Returns the agents that run in a wrapper.
fn wrapped(home: &Path) -> Vec<host::SandboxProcess> {
    host::processes(home).into_iter().filter(|process| process.command.ends_with("/agent")).collect()
}

#[tokio::test]
async fn purge_survives_server_kill() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let gone = server.rest.create(json!({ "title": "gone" })).await;
    let kept = server.rest.create(json!({ "title": "kept" })).await;
    server.rest.delete(&format!("/api/sessions/{gone}?purge=true")).await;
    let server = server.kill9().await.restart().await;
    server.rest.get(&format!("/api/sessions/{gone}")).await.error(404, "not_found");
    assert_eq!(server.rest.session(&kept).await["title"], "kept");
    server.leaves_nothing().await;
}

/// A hundred turns, some of which end while no server runs.
#[tokio::test]
async fn hundred_sessions_are_taken_over_with_their_offline_work() {
    const SESSIONS: usize = 100;
    const MEANWHILE: usize = 30;
    // A hundred loops that poll for a file would keep the machine busy.
    let tool = ScriptedTool { name: "run".into(), input: json!({ "command": "mkfifo go; cat go" }) };
    let wait = ScriptedRule { when: Some("wait".into()), tool: Some(tool), times: 1, ..ScriptedRule::default() };
    let model = ScriptedModel::with(vec![
        wait,
        ScriptedRule { say: Some("Done.".into()), times: 1, ..ScriptedRule::default() },
    ]);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let asked = (0..SESSIONS).map(|_| server.rest.create(json!({ "task": "wait" })));
    let sessions = futures::future::join_all(asked).await;
    let waiting = |home: &Path| host::processes(home).iter().filter(|it| it.command == "cat go").count();
    // Each start gets a deadline of its own.
    for so_many in 1..=SESSIONS {
        eventually("one more to be at work", || async { waiting(server.home()) >= so_many }).await;
    }
    let agents = host::agents(server.home());
    assert_eq!(agents.len(), SESSIONS);

    let dead = server.kill9().await;
    for session in &sessions[..MEANWHILE] {
        std::fs::write(dead.data().join("workspaces").join(session).join("go"), "gone on")
            .expect("the file can be read");
    }
    eventually("some commands to continue without a server", || async { waiting(dead.home()) == SESSIONS - MEANWHILE })
        .await;

    let server = dead.restart().await;
    eventually("all sessions to be taken over", || async {
        let actors = server.rest.get("/api/admin/actors").await.expect(200);
        let links = actors["items"].as_array().expect("items").iter();
        links.filter(|row| row["kind"] == "agent_link" && row["state"] == "connected").count() == SESSIONS
    })
    .await;
    assert_eq!(host::agents(server.home()), agents, "the same sandboxes and no others");
    for (n, session) in sessions.iter().enumerate() {
        if n < MEANWHILE {
            server.rest.until_state(session, "idle").await;
        }
        let events = server.rest.events(session).await;
        let ran: Vec<_> = events.iter().filter(|event| event["observation"] == "run").collect();
        assert_eq!(ran.len(), usize::from(n < MEANWHILE), "{session}: {ran:?}");
        assert!(ran.iter().all(|event| event["content"] == "gone on"), "{ran:?}");
        assert_eq!(events.iter().filter(|event| event["action"] == "run").count(), 1, "nothing was done twice");
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn export_moves_session_with_history() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session = server.rest.start("flood").await;
    server.rest.until_state(&session, "idle").await;
    let before = server.rest.events(&session).await;
    let large = before.iter().find_map(|event| event["extras"]["truncated"]["href"].as_str()).expect("a large content");
    let whole = server.rest.get(large).await.text;
    let (home, file) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let file = file.path().join("sessions.jsonl");
    let path = file.to_str().expect("a path");
    let (_, old) = server.terminate().await;
    old.run(&["export", "--output", path]).await.expect("the export succeeds");

    let new = StoppedServer::nowhere(home, TestServerOptions::anthropic(TestDriver::Process, &model));
    new.run(&["import", path]).await.expect("the import succeeds");
    new.run(&["import", path]).await.expect("an import of a known session changes nothing");
    std::fs::write(&file, "half").expect("the file can be written");
    let refused = new.run(&["import", path]).await.expect_err("it is damaged");
    assert!(refused.contains("line 1"), "{refused}");
    let server = new.restart().await;
    let busy = server.run(&["export"]).await.expect_err("a server runs");
    assert!(busy.contains("in use by another server"), "{busy}");
    let after = server.rest.events(&session).await;
    assert_eq!(after[..before.len()], before);
    assert_eq!(server.rest.get(large).await.text, whole);
    server.rest.until_state(&session, "idle").await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "turn left" })).await.expect(202);
    let is_answer = |event: &Value| event["content"] == "Turning left.";
    eventually("an answer", || async { server.rest.events(&session).await.iter().any(is_answer) }).await;
    server.leaves_nothing().await;
}

/// Made by `greenroom export` of version 0.1. Every later version must read it.
#[tokio::test]
async fn export_of_version_0_1_is_imported() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export-0.1.jsonl");
    let home = tempfile::tempdir().expect("a directory");
    let fresh = StoppedServer::nowhere(home, TestServerOptions::new(TestDriver::Process));
    fresh.run(&["import", file.to_str().expect("a path")]).await.expect("the import succeeds");
    check_digests(&fresh, &[hello(), large(9, EXPORTED)]).await;
    let server = fresh.restart().await;
    check_sessions_of_0_1(&server).await;
    server.leaves_nothing().await;
}

/// Journal of a killed server of version 0.1: log, archive, index and contents as they were on
/// disk.
#[tokio::test]
async fn journal_of_version_0_1_is_opened() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journal-0.1.tar.gz");
    let ended =
        StoppedServer::nowhere(tempfile::tempdir().expect("a directory"), TestServerOptions::new(TestDriver::Process));
    DirBuilder::new().mode(0o700).create(ended.data()).expect("creation succeeds");
    let unpacked =
        Command::new("tar").arg("--no-same-owner").arg("-xzf").arg(file).arg("-C").arg(ended.data()).status();
    assert!(unpacked.expect("`tar` is installed").success());
    check_digests(&ended, &[hello(), large(16, ON_DISK)]).await;
    let server = ended.restart().await;
    check_sessions_of_0_1(&server).await;
    assert!(!server.log().contains("damaged"), "{}", server.log());
    server.leaves_nothing().await;
}

/// Export trailer of the session that has ended, from version 0.1.
fn hello() -> Value {
    let sha256 = "f3d877bc9b436492dae1a942e41de1b71c9f9a405eb181f930f93eb85f9b2a1a";
    json!({ "end": "01M7YDF2PV2DGM26BFW5BKRHZG", "events": 27, "sha256": sha256 })
}

/// Export trailer of the session that can continue, which had more events after the export.
fn large(events: u64, sha256: &str) -> Value {
    json!({ "end": "01M7YDF2QMJTHQFB3GXAGYDY68", "events": events, "sha256": sha256 })
}

const EXPORTED: &str = "8dab9d449e576b2577e1532e948d5248ed9f4e654994de8041056d24647a3d8f";
const ON_DISK: &str = "160f04dc4f5b845a8df0d1d992c89af0a6f5dd80a9adcb494235ec785eaa2b43";

/// Checks that each session has as many events as version 0.1 exported, with the same digests.
async fn check_digests(now: &StoppedServer, ends: &[Value]) {
    let exported = now.run(&["export"]).await.expect("the export succeeds");
    let trailers = exported.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let mut trailers: Vec<_> = trailers.filter(|line| line["end"].is_string()).collect();
    trailers.sort_by_key(|end| end["end"].to_string());
    assert_eq!(trailers, ends);
}

/// Checks the two sessions: one has ended, the other can continue.
async fn check_sessions_of_0_1(server: &TestServer) {
    let listed = server.rest.get("/api/sessions").await.expect(200);
    let find = |title: &str| listed["items"].as_array().expect("items").iter().find(|it| it["title"] == title).cloned();
    let (ended, stopped) = (find("hello").expect("it exists"), find("large").expect("it exists"));
    assert_eq!(
        (&ended["state"], &ended["last_seq"], &stopped["state"]),
        (&json!("ended"), &json!(27), &json!("stopped"))
    );
    let id = stopped["id"].as_str().expect("an id");
    let events = server.rest.events(id).await;
    let large = events.iter().find_map(|event| event["extras"]["truncated"]["href"].as_str()).expect("a large content");
    assert!(server.rest.get(large).await.text.ends_with("14999\n15000\n"));
    let mut socket = TestSocket::attach_after(&server.rest, id, "tail").await;
    socket.send_request("message", json!({ "content": "and now?" })).await;
    socket.observation("message").await;
    socket.state("idle").await;
}
