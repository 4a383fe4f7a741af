//! An engine that stops answering: the server goes on, says so, and never starts a second container in place of one that it
//! cannot see. The engine is the test's own, as others use the machine's at the same time.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{
    driver::Driver,
    eventually, host,
    server::{Options, Server},
    socket::Socket,
};

/// Small enough to be copied from engine to engine.
const IMAGE: &str = "greenroom-test-busybox:latest";

struct Engine {
    home: tempfile::TempDir,
    child: Child,
}

impl Engine {
    /// `None` where there is nothing to start one from.
    fn start() -> Option<Engine> {
        let saved = Command::new("docker").args(["save", IMAGE]).stderr(Stdio::null()).output().ok()?;
        if !saved.status.success() {
            return None;
        }
        let home = tempfile::Builder::new().prefix("greenroom-engine-").tempdir().expect("a directory");
        let child = Engine::spawn(home.path());
        let engine = Engine { home, child };
        engine.until_it_answers();
        let archive = engine.home.path().join("image.tar");
        std::fs::write(&archive, saved.stdout).expect("there is room");
        engine.docker(&["load", "--input", archive.to_str().expect("a path")]).expect("the image is loaded");
        Some(engine)
    }

    fn spawn(home: &Path) -> Child {
        let log = std::fs::File::create(home.join("log")).expect("a log");
        let at = |name: &str| home.join(name).display().to_string();
        Command::new("dockerd")
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &format!("unix://{}", at("sock")), "--bridge", "none"])
            .args(["--iptables=false", "--ip6tables=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("it was there a moment ago")
    }

    fn until_it_answers(&self) {
        let answers = (0..150).any(|_| {
            std::thread::sleep(Duration::from_millis(200));
            self.docker(&["version"]).is_some()
        });
        let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        assert!(answers, "the engine does not start: {}", log.lines().last().unwrap_or_default());
    }

    /// As a service manager does it.
    fn restart(&mut self) {
        self.signal(Signal::TERM);
        let _ended = self.child.wait();
        self.child = Engine::spawn(self.home.path());
        self.until_it_answers();
    }

    fn address(&self) -> String {
        format!("unix://{}", self.home.path().join("sock").display())
    }

    fn docker(&self, args: &[&str]) -> Option<String> {
        let output = Command::new("docker").args(["--host", &self.address()]).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn containers(&self) -> usize {
        self.docker(&["ps", "--all", "--quiet"]).expect("it answers").lines().count()
    }

    fn signal(&self, signal: Signal) {
        host::kill(self.child.id() as i32, signal);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        if let Some(containers) = self.docker(&["ps", "--all", "--quiet"]) {
            let ids: Vec<&str> = containers.lines().collect();
            self.docker(&[&["rm", "--force"], &ids[..]].concat());
        }
        self.signal(Signal::TERM);
        let _ended = self.child.wait();
    }
}

/// A session whose container the engine runs, and a client of it.
async fn stage(engine: &Engine) -> (Server, String, Socket) {
    let options = Options::new(Driver::Docker)
        .env("GREENROOM_SANDBOX__DOCKER_HOST", &engine.address())
        .env("GREENROOM_SANDBOX__IMAGE", IMAGE);
    let server = Server::start(options).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let mut client = Socket::attach(&server.rest, &session).await;
    client.status("synced").await;
    (server, session, client)
}

#[tokio::test]
async fn an_engine_that_stalls_stalls_nobody() {
    if !Driver::Docker.is_here().await {
        return;
    }
    let Some(engine) = Engine::start() else { return };
    let (server, _, mut client) = stage(&engine).await;

    engine.signal(Signal::STOP);
    let late = server.rest.create(json!({})).await;
    eventually("the server to say that the engine does not answer", || async {
        server.rest.get("/readyz").await.status == 503
    })
    .await;
    for _ in 0..50 {
        server.rest.get("/api/sessions").await.expect(200);
        client.send(json!({ "action": "ping" })).await;
        client.status("pong").await;
    }
    // What runs in the sandbox needs no engine.
    client.act("run", json!({ "command": "echo still here" })).await;
    assert_eq!(client.observation("run").await["content"], "still here\n");
    assert_eq!(server.rest.session(&late).await["state"], "starting");
    tokio::time::sleep(Duration::from_secs(30)).await;
    server.rest.get("/api/sessions").await.expect(200);
    engine.signal(Signal::CONT);

    eventually("the server to be ready again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    let state = server.rest.session(&late).await["state"].clone();
    if state != "starting" && state != "idle" {
        // Its start was given up within the stall, and it said so: a person tries again.
        assert_eq!(state, "failed");
        server.rest.post(&format!("/api/sessions/{late}/resume"), json!({})).await.expect(200);
    }
    server.rest.until_state(&late, "idle").await;
    assert_eq!(engine.containers(), 2, "one for each session");
    client.act("run", json!({ "command": "echo and still" })).await;
    assert_eq!(client.observation("run").await["content"], "and still\n", "it is the same socket");
}

/// An engine that ends takes its containers along, unless it is configured otherwise.
#[tokio::test]
async fn an_engine_that_is_restarted_costs_the_sandbox_and_nothing_else() {
    if !Driver::Docker.is_here().await {
        return;
    }
    let Some(mut engine) = Engine::start() else { return };
    let (server, session, mut client) = stage(&engine).await;
    client.act("run", json!({ "command": "echo kept > file" })).await;
    client.observation("run").await;
    client.state("idle").await;
    engine.restart();
    eventually("the server to see its engine again", || async { server.rest.get("/readyz").await.status == 200 }).await;
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "go on" })).await.expect(202);
    client.observation("message").await;
    server.rest.until_state(&session, "idle").await;
    client.act("run", json!({ "command": "cat file" })).await;
    let ran = client
        .until("what it prints", |frame| frame["extras"]["command"] == "cat file" && frame["observation"] == "run");
    assert_eq!(ran.await["content"], "kept\n");
    assert_eq!(engine.containers(), 1, "one for the session");
}
