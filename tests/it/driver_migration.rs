//! Server that starts with another sandbox driver than before: no session is ever in two sandboxes,
//! and nothing that runs ends.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    engine::{IMAGE, TestEngine},
    eventually, host,
    model::ScriptedModel,
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(driver_change_keeps_running_sandboxes_and_moves_new_starts,);

async fn driver_change_keeps_running_sandboxes_and_moves_new_starts(driver: TestDriver) {
    let other = driver.other();
    if !other.is_here().await {
        return;
    }
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    let session = socket.session().await;
    socket.delta("output").await;
    let before = host::agents(server.home());
    assert_eq!(before.len(), 1);

    let server = server.kill9().await.restart_with(|options| options.sandbox(other.name())).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.status("synced").await;
    server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    assert_eq!(host::agents(server.home()), before, "the same, and no other");
    assert_eq!(server.rest.session(&session).await["sandbox"], driver.name());
    let listed = server.rest.get("/api/admin/sandboxes").await.expect(200)["items"].clone();
    assert_eq!((&listed[0]["driver"], &listed[0]["state"]), (&json!(driver.name()), &json!("running")), "{listed}");
    socket.send_request("pause", json!({})).await;
    socket.state("paused").await;
    eventually("the sandbox to be frozen", || async { host::is_frozen(before[0].pid) }).await;
    socket.send_request("resume", json!({})).await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    socket.until("the end of the turn", |frame| frame["content"] == "Saw the mark.").await;
    socket.state("idle").await;

    server.rest.post(&format!("/api/sessions/{session}/stop"), json!({})).await.expect(200);
    eventually("its processes to be gone", || async { host::processes(server.home()).is_empty() }).await;
    socket.send_request("run", json!({ "command": "ls" })).await;
    let ran = socket.until("the list", |frame| frame["observation"] == "run").await;
    assert!(ran["content"].as_str().expect("output").contains("go"), "the workspace is the same: {ran}");
    assert_eq!(host::agents(server.home()).len(), 1);
    assert_eq!(
        host::containers(server.home()).len(),
        usize::from(other == TestDriver::Docker),
        "the previous driver has nothing left"
    );
    assert_eq!(server.rest.session(&session).await["sandbox"], other.name());

    server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await.expect(204);
    assert_eq!((host::processes(server.home()), host::containers(server.home())), (vec![], vec![]));
    for named in ["docker", "process"] {
        assert_eq!(host::directories(&server.data().join("drivers").join(named)), [].into());
    }
    server.leaves_nothing().await;
}

/// The sandbox was gone when the server died. With its driver note still there, a later server
/// would search for it.
#[tokio::test]
async fn sweep_completes_an_end_cut_by_a_kill() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let (run, note) = (server.data().join("run").join(&session), server.data().join("drivers/process").join(&session));
    let noted = std::fs::read(&note).expect("the driver note can be read");
    server.rest.delete(&format!("/api/sessions/{session}")).await.expect(200);
    eventually("the end of the session", || async { !run.exists() && !note.exists() }).await;
    std::fs::create_dir(&run).expect("creation succeeds");
    std::fs::write(&note, noted).expect("the file can be written");

    let server = server.kill9().await.restart().await;
    eventually("the leftovers to be removed", || async {
        server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
        !run.exists() && !note.exists()
    })
    .await;
    server.leaves_nothing().await;
}

/// The session keeps working in its engine: it is started nowhere else, and it is not given up.
#[tokio::test]
async fn session_of_unreachable_engine_is_retried() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let server = TestServer::start(TestServerOptions::new(TestDriver::Docker)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let at_rest = server.rest.create(json!({})).await;
    server.rest.until_state(&at_rest, "idle").await;
    server.rest.post(&format!("/api/sessions/{at_rest}/stop"), json!({})).await.expect(200);
    eventually("its processes to be gone", || async { host::agents(server.home()).len() == 1 }).await;
    let before = host::agents(server.home());
    let nowhere = server.home().join("no-engine.sock");
    let address = format!("unix://{}", nowhere.display());
    let without =
        |options: TestServerOptions| options.sandbox("process").env("GREENROOM_SANDBOX__DOCKER_HOST", &address);

    let server = server.kill9().await.restart_with(without).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let is_news = |frame: &serde_json::Value| frame["extras"]["phase"] == "connecting";
    let reason = socket.until("the reason of the missing connection", is_news).await["content"].to_string();
    assert!(reason.contains("docker") && reason.contains("no-engine.sock") && reason.contains("/drivers/"), "{reason}");
    server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    assert_eq!(server.rest.session(&session).await["state"], "idle");
    // This session's container may have been started again by another program.
    server.rest.post(&format!("/api/sessions/{at_rest}/messages"), json!({ "content": "hello" })).await.expect(202);
    server.rest.until_state(&at_rest, "failed").await;
    let another = server.rest.create(json!({})).await;
    server.rest.until_state(&another, "idle").await;
    let agents = host::agents(server.home());
    assert!(agents.len() == 2 && agents.contains(&before[0]), "{agents:?}: one of each that is up, {before:?} still");

    std::os::unix::fs::symlink("/var/run/docker.sock", &nowhere).expect("creation succeeds");
    socket.send_request("run", json!({ "command": "echo $((6 * 7))" })).await;
    assert_eq!(socket.observation("run").await["content"], "42\n");
    let agents = host::agents(server.home());
    assert!(agents.len() == 2 && agents.contains(&before[0]), "{agents:?}: it worked on");
    assert_eq!(server.rest.session(&session).await["sandbox"], "docker");
    server.leaves_nothing().await;
}

/// An engine may still be starting when the server starts.
#[tokio::test]
async fn auto_driver_waits_for_engine_with_live_sessions() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let Some(engine) = TestEngine::start() else { return };
    let options = TestServerOptions::new(TestDriver::Docker)
        .sandbox("auto")
        .env("GREENROOM_SANDBOX__DOCKER_HOST", &engine.address())
        .env("GREENROOM_SANDBOX__IMAGE", IMAGE);
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;

    let dead = server.kill9().await;
    engine.signal(Signal::STOP);
    let (server, ()) = tokio::join!(dead.restart(), async {
        tokio::time::sleep(Duration::from_secs(8)).await;
        engine.signal(Signal::CONT);
    });
    let mut socket = TestSocket::attach_after(&server.rest, &session, "tail").await;
    socket.send_request("run", json!({ "command": "echo still here" })).await;
    assert_eq!(socket.observation("run").await["content"], "still here\n");
    assert_eq!(server.rest.get("/api/options").await.expect(200)["sandbox"]["driver"], "docker");
    assert_eq!(engine.containers(), 1);
    server.leaves_nothing().await;
}
