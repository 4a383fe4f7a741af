//! The server may end at any moment, asked or not: nothing that was seen is lost, and turns go on.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, process::Command};

use serde_json::{Value, json};

use crate::harness::{
    driver::{TestDriver, on_each_driver},
    eventually, host,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    server::{StoppedServer, TestServer, TestServerOptions, code},
    socket::TestSocket,
    stand_in::wrap_agent,
};

on_each_driver!(
    after_a_kill_all_is_there_and_turns_go_on,
    a_kill_amid_the_models_answer_costs_that_answer_and_not_the_turn,
    asked_to_end_it_leaves_the_sandboxes_for_the_next_start,
    what_was_written_down_and_not_carried_out_is_made_good,
    what_is_archived_is_looked_after,
    asked_to_take_the_sandboxes_along_it_does,
);

async fn after_a_kill_all_is_there_and_turns_go_on(driver: TestDriver) {
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
    assert_eq!(journal[..seen.len()], seen, "what a client has seen is on disk");
    assert_eq!(host::agents(server.home()), agents_before, "the sandboxes worked on");

    let mut socket = TestSocket::attach_after(&server.rest, &working, journal.len()).await;
    socket.status("synced").await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["extras"]["exit_code"], 0, "the command that ran all along: {ran}");
    socket.until("the end of the turn", |frame| frame["content"] == "Saw the mark.").await;
    socket.state("idle").await;
    let runs = server.rest.events(&working).await.into_iter().filter(|event| event["action"] == "run").count();
    assert_eq!(runs, 1, "nothing was done twice");
    for session in [&idle, &working] {
        let of_the_sandbox = |event: &Value| event["observation"] == "sandbox";
        let events: Vec<_> = server.rest.events(session).await.into_iter().filter(of_the_sandbox).collect();
        let phases: Vec<_> = events.iter().filter_map(|event| event["extras"]["phase"].as_str()).collect();
        assert_eq!(phases, ["starting", "ready"], "of a sandbox that was taken back nothing is said");
    }

    let mut other = TestSocket::attach_after(&server.rest, &idle, "tail").await;
    other.send_request("message", json!({ "content": "second" })).await;
    other.observation("message").await;
    other.state("idle").await;
    server.leaves_nothing().await;
}

/// A model's stream passes through the server and dies with it. The agent asks that step again by itself.
async fn a_kill_amid_the_models_answer_costs_that_answer_and_not_the_turn(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a short story" })).await;
    let session = socket.session().await;
    let mut heard = String::new();
    while heard.len() < 50 {
        heard.push_str(socket.delta("text").await["content"].as_str().expect("text"));
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
        cut.starts_with(&heard) && story.starts_with(&cut) && cut.len() < story.len(),
        "what was read stays: {cut}"
    );
    assert_eq!(whole.trim_end(), story.trim_end());
    assert_eq!((model.calls().len(), host::agents(server.home())), (2, agents));
    let events = server.rest.events(&session).await;
    let ends = events.iter().filter(|event| event["extras"]["agent_state"] == "idle").count();
    assert_eq!(ends, 1, "one turn, which ended once: {events:?}");
    server.leaves_nothing().await;
}

async fn asked_to_end_it_leaves_the_sandboxes_for_the_next_start(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_state(&session_id, "idle").await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.status("synced").await;
    let before = host::agents(server.home());
    assert_eq!(before.len(), 1);
    // Asked once: a second time would be an order to end at once.
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

/// A server may die between writing an order down and giving it: the sandbox is as it was before, and the journal says otherwise.
async fn what_was_written_down_and_not_carried_out_is_made_good(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session_id = server.rest.create(json!({})).await;
    server.rest.until_state(&session_id, "idle").await;

    let dead = server.kill9().await;
    host::set_frozen(dead.home(), driver, true);
    let server = dead.restart().await;
    let mut socket = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    let ran = socket.observation("run").await;
    assert_eq!(ran["content"].as_str().expect("output").trim(), "42", "it was not to stand still");
    socket.state("idle").await;
    socket.send_request("pause", json!({})).await;
    socket.state("paused").await;
    let agent = host::agents(server.home())[0].pid;
    eventually("it to stand still", || async { host::is_frozen(agent) }).await;

    let dead = server.kill9().await;
    host::set_frozen(dead.home(), driver, false);
    let server = dead.restart().await;
    eventually("it to stand still again", || async { host::is_frozen(agent) }).await;
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

/// Being archived says where a session is listed, and nothing of what it does.
async fn what_is_archived_is_looked_after(driver: TestDriver) {
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
    eventually("it to be put to rest", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        server.rest.session(&session_id).await["state"] == "stopped"
    })
    .await;
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
    server.leaves_nothing().await;
}

async fn asked_to_take_the_sandboxes_along_it_does(driver: TestDriver) {
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

/// The journal says that its turn is over and that it is to be started again, and the server dies over that.
#[tokio::test]
async fn an_agent_that_was_to_be_taken_away_says_nothing_more() {
    let model = ScriptedModel::play("work");
    let mut tries = 0;
    let (dead, session_id, old) = loop {
        tries += 1;
        match killed_while_it_takes_an_agent_away(&model).await {
            Some(killed) => break killed,
            None => assert!(tries < 5, "the server dies too late each time"),
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
    assert!(!events.iter().any(|event| event["content"] == "Saw the mark."), "of what is over: {events:?}");
    server.leaves_nothing().await;
}

/// What is left, the session, and its agent, which works on; `None` where this was too slow, and the agent is gone.
async fn killed_while_it_takes_an_agent_away(
    model: &ScriptedModel,
) -> Option<(StoppedServer, String, Vec<host::SandboxProcess>)> {
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, model)).await;
    // It does not end as soon as it is asked to, so there is half a second to kill the server over it.
    let (session, _) = wrap_agent(&server, r#"trap '' TERM; "$agent" & wait"#).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    socket.delta("output").await;
    let old = wrapped(server.home());
    // Nor does it hear that its turn is over.
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
    std::fs::rename(&aside, &place).expect("it is there");
    Some((dead, session, old))
}

/// The agents that run in a wrapper.
fn wrapped(home: &Path) -> Vec<host::SandboxProcess> {
    host::processes(home).into_iter().filter(|process| process.command.ends_with("/agent")).collect()
}

#[tokio::test]
async fn a_purged_session_stays_purged() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let gone = server.rest.create(json!({ "title": "gone" })).await;
    let kept = server.rest.create(json!({ "title": "kept" })).await;
    server.rest.delete(&format!("/api/sessions/{gone}?purge=true")).await;
    let server = server.kill9().await.restart().await;
    server.rest.get(&format!("/api/sessions/{gone}")).await.error(404, "not_found");
    assert_eq!(server.rest.session(&kept).await["title"], "kept");
    server.leaves_nothing().await;
}

/// A hundred turns, of which a part ends while no server is there.
#[tokio::test]
async fn many_sessions_are_taken_back_as_they_are_with_what_they_did_meanwhile() {
    const SESSIONS: usize = 100;
    const MEANWHILE: usize = 30;
    // A hundred loops that look for a file would keep the machine busy.
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
    // Each in its own time.
    for so_many in 1..=SESSIONS {
        eventually("one more to be at work", || async { waiting(server.home()) >= so_many }).await;
    }
    let agents = host::agents(server.home());
    assert_eq!(agents.len(), SESSIONS);

    let dead = server.kill9().await;
    for session in &sessions[..MEANWHILE] {
        std::fs::write(dead.data().join("workspaces").join(session).join("go"), "gone on").expect("it is read");
    }
    eventually("some to go on without a server", || async { waiting(dead.home()) == SESSIONS - MEANWHILE }).await;

    let server = dead.restart().await;
    eventually("all to be taken back", || async {
        let actors = server.rest.get("/api/admin/actors").await.expect(200);
        let links = actors["items"].as_array().expect("items").iter();
        links.filter(|row| row["kind"] == "agent_link" && row["state"] == "connected").count() == SESSIONS
    })
    .await;
    assert_eq!(host::agents(server.home()), agents, "the same sandboxes, and none besides");
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
async fn a_session_moves_to_another_machine_with_its_history() {
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
    old.run(&["export", "--output", path]).await.expect("it is exported");

    let new = StoppedServer::nowhere(home, TestServerOptions::anthropic(TestDriver::Process, &model));
    new.run(&["import", path]).await.expect("it is imported");
    new.run(&["import", path]).await.expect("it is known already");
    std::fs::write(&file, "half").expect("it is written");
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
    let said = |event: &Value| event["content"] == "Turning left.";
    eventually("an answer", || async { server.rest.events(&session).await.iter().any(said) }).await;
    server.leaves_nothing().await;
}

/// Made by `greenroom export` of that version: whoever changes what is stored must still read it.
#[tokio::test]
async fn what_version_0_1_exported_is_still_understood() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/export-0.1.jsonl");
    let home = tempfile::tempdir().expect("a directory");
    let fresh = StoppedServer::nowhere(home, TestServerOptions::new(TestDriver::Process));
    fresh.run(&["import", file.to_str().expect("a path")]).await.expect("it is imported");
    is_what_it_was(&fresh, &[hello(), large(9, EXPORTED)]).await;
    let server = fresh.restart().await;
    check_the_past(&server).await;
    server.leaves_nothing().await;
}

/// The journal of a server of that version, which was killed: log, archive, index and contents as they stood on disk.
#[tokio::test]
async fn what_version_0_1_left_on_disk_is_still_understood() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/journal-0.1.tar.gz");
    let ended =
        StoppedServer::nowhere(tempfile::tempdir().expect("a directory"), TestServerOptions::new(TestDriver::Process));
    DirBuilder::new().mode(0o700).create(ended.data()).expect("it is made");
    let unpacked =
        Command::new("tar").arg("--no-same-owner").arg("-xzf").arg(file).arg("-C").arg(ended.data()).status();
    assert!(unpacked.expect("`tar` is installed").success());
    is_what_it_was(&ended, &[hello(), large(16, ON_DISK)]).await;
    let server = ended.restart().await;
    check_the_past(&server).await;
    assert!(!server.log().contains("damaged"), "{}", server.log());
    server.leaves_nothing().await;
}

/// What that version told of the session that has ended.
fn hello() -> Value {
    let sha256 = "f3d877bc9b436492dae1a942e41de1b71c9f9a405eb181f930f93eb85f9b2a1a";
    json!({ "end": "01M7YDF2PV2DGM26BFW5BKRHZG", "events": 27, "sha256": sha256 })
}

/// … and of the one that can go on, which was exported and then said more.
fn large(events: u64, sha256: &str) -> Value {
    json!({ "end": "01M7YDF2QMJTHQFB3GXAGYDY68", "events": events, "sha256": sha256 })
}

const EXPORTED: &str = "8dab9d449e576b2577e1532e948d5248ed9f4e654994de8041056d24647a3d8f";
const ON_DISK: &str = "160f04dc4f5b845a8df0d1d992c89af0a6f5dd80a9adcb494235ec785eaa2b43";

/// As many events of each session as that version had, with the digests that it told.
async fn is_what_it_was(now: &StoppedServer, ends: &[Value]) {
    let exported = now.run(&["export"]).await.expect("it is exported");
    let told = exported.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let mut told: Vec<_> = told.filter(|line| line["end"].is_string()).collect();
    told.sort_by_key(|end| end["end"].to_string());
    assert_eq!(told, ends);
}

/// Two sessions, one that has ended and one that can go on.
async fn check_the_past(server: &TestServer) {
    let listed = server.rest.get("/api/sessions").await.expect(200);
    let find = |title: &str| listed["items"].as_array().expect("items").iter().find(|it| it["title"] == title).cloned();
    let (ended, stopped) = (find("hello").expect("it is there"), find("large").expect("it is there"));
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
