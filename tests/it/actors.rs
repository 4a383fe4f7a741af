//! Live actors are listed; the sweep removes what belongs to no session.

use std::{collections::BTreeSet, process::Command};

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::{IMAGE, TestDriver},
    eventually, host,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

#[tokio::test]
async fn every_live_actor_is_listed_until_it_ends() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.start("print hello").await;
    server.rest.until_state(&session_id, "idle").await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.status("synced").await;
    eventually("an actor of each kind", || async { kinds(&server).await == every_kind() }).await;
    for row in rows(&server).await {
        for field in ["kind", "id", "session", "state", "since", "last_active", "handled", "queued"] {
            assert!(row.get(field).is_some(), "no `{field}` in {row}");
        }
    }
    drop(socket);
    eventually("the socket's row to disappear", || async { !kinds(&server).await.contains("frontend_socket") }).await;
    server.leaves_nothing().await;
}

fn every_kind() -> BTreeSet<String> {
    ["agent_link", "directory", "frontend_socket", "session", "sweeper"].map(str::to_owned).into()
}

async fn rows(server: &TestServer) -> Vec<Value> {
    server.rest.get("/api/admin/actors").await.expect(200)["items"].as_array().expect("items").clone()
}

async fn kinds(server: &TestServer) -> BTreeSet<String> {
    rows(server).await.iter().map(|row| row["kind"].as_str().expect("a kind").to_owned()).collect()
}

#[tokio::test]
async fn sweep_removes_leftovers_of_dead_sessions_only() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let live = server.rest.start("print hello").await;
    server.rest.until_state(&live, "idle").await;
    let runs = server.data().join("run");
    assert!(host::directories(&runs).contains(&live), "{:?}", host::directories(&runs));
    let orphan = runs.join("01ARZ3NDEKTSV4RRFFQ69G5FAV");
    std::fs::create_dir_all(orphan.join("agent")).expect("the directory is ours");
    let before = host::agents(server.home());
    server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    eventually("the orphan to be gone", || async { !orphan.exists() }).await;
    assert!(host::directories(&runs).contains(&live));
    assert_eq!(host::agents(server.home()), before);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn sweep_removes_container_without_session() {
    if !TestDriver::Docker.is_here().await {
        return;
    }
    let server = TestServer::start(TestServerOptions::new(TestDriver::Docker)).await;
    let live = server.rest.start("print hello").await;
    server.rest.until_state(&live, "idle").await;
    let ours = host::containers(server.home());
    assert_eq!(ours.len(), 1, "{ours:?}");
    let orphan = twin(&ours[0], &live);
    server.rest.post("/api/admin/sweep", json!({})).await.expect(200);
    eventually("the orphan to be gone", || async { !exists(&orphan) }).await;
    assert_eq!(host::containers(server.home()), ours);
    server.leaves_nothing().await;
}

/// Starts a container with the same labels and a name of the same form, but of an unknown session.
fn twin(of: &str, session: &str) -> String {
    let labels = docker(&["inspect", "--format", "{{json .Config.Labels}}", of]);
    let labels: serde_json::Map<String, Value> = serde_json::from_str(&labels).expect("labels are an object");
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let name = docker(&["inspect", "--format", "{{.Name}}", of]).trim_start_matches('/').to_owned();
    let name = name.replace(session, unknown).replace(&session.to_lowercase(), &unknown.to_lowercase());
    let mut args = ["run", "--rm", "--detach", "--network=none", "--name", &name].map(str::to_owned).to_vec();
    for (name, value) in labels {
        let value = value.as_str().expect("a label is text").replace(session, unknown);
        args.extend(["--label".to_owned(), format!("{name}={value}")]);
    }
    args.extend([IMAGE.to_owned(), "sleep".to_owned(), "1000".to_owned()]);
    docker(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

fn exists(container: &str) -> bool {
    Command::new("docker").args(["inspect", container]).output().is_ok_and(|output| output.status.success())
}

fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().expect("docker is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A purge during the sandbox's start leaves nothing behind and does not wait for the start.
#[tokio::test]
async fn purge_during_start_leaves_nothing() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    for step in 0..30 {
        let session = server.rest.create(json!({})).await;
        let address = format!("/api/sessions/{session}");
        for _ in 0..step {
            server.rest.get(&address).await.expect(200);
        }
        let purged = server.rest.delete(&format!("{address}?purge=true")).await;
        assert!(purged.status.is_success(), "after {step} reads: {} {}", purged.status, purged.text);
        server.rest.get(&address).await.error(404, "not_found");
    }
    let left = || {
        let places = ["run", "workspaces", "homes", "sandboxes"].map(|name| server.data().join(name));
        let left: Vec<_> = places.iter().flat_map(|place| host::directories(place)).collect();
        (host::processes(server.home()), left)
    };
    eventually("no process and no directory to be left", || async { left() == (vec![], vec![]) }).await;
    assert_eq!(server.rest.get("/api/sessions").await.expect(200)["total"], 0);
    server.leaves_nothing().await;
}
