//! Checkpoints of workspaces: taken at the end of turns, compared, restored, and kept when the
//! server dies.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::{ScriptedModel, ScriptedRule},
    server::{StoppedServer, TestServer, TestServerOptions},
    socket::TestSocket,
};

fn model() -> ScriptedModel {
    let run = |when: &str, command: &str| {
        let command = format!("{command}; echo MARK");
        json!({ "when": when, "tool": { "name": "run", "input": { "command": command } } })
    };
    let rules = json!([
        run("make files", "echo one > a; mkdir -p d; echo b > d/b"),
        run("change them", "echo two >> a; rm d/b; printf '\\0' > bin"),
        run("make many", "mkdir many; for i in $(seq 1 15000); do echo $i > many/$i; done"),
        run("remove many", "rm -r many"),
        { "say": "Done." },
    ]);
    ScriptedModel::with(serde_json::from_value::<Vec<ScriptedRule>>(rules).expect("the rules are valid"))
}

async fn server(model: &ScriptedModel) -> TestServer {
    TestServer::start(TestServerOptions::anthropic(TestDriver::Process, model)).await
}

fn workspace(server: &TestServer, session: &str) -> PathBuf {
    server.data().join("workspaces").join(session)
}

fn store(server: &TestServer, session: &str) -> PathBuf {
    server.data().join("checkpoints").join(session)
}

async fn list(server: &TestServer, session: &str) -> Vec<Value> {
    let list = server.rest.get(&format!("/api/sessions/{session}/checkpoints")).await.expect(200);
    list["items"].as_array().expect("a list").clone()
}

/// Describes the changed files of a diff, or of an observation.
fn changed(files: &Value) -> Vec<String> {
    let line =
        |file: &Value| format!("{} {}", file["change"].as_str().unwrap_or("?"), file["path"].as_str().unwrap_or("?"));
    files.as_array().expect("a list of files").iter().map(line).collect()
}

/// Runs one turn, and returns the name of its checkpoint.
async fn turn(socket: &mut TestSocket, task: &str) -> String {
    socket.send_request("message", json!({ "content": task })).await;
    let checkpoint = socket.observation("checkpoint").await;
    checkpoint["extras"]["checkpoint"].as_str().expect("a name").to_owned()
}

#[tokio::test]
async fn turns_are_compared_patched_and_restored() {
    let model = model();
    let server = server(&model).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "make files" })).await;
    let session = socket.session().await;
    // The second message waits in the queue until the checkpoint of the first turn is taken.
    socket.send_request("message", json!({ "content": "change them" })).await;
    let first = socket.observation("changes").await;
    assert_eq!(changed(&first["extras"]["files"]), ["created a", "created d/b"]);
    assert_eq!((&first["extras"]["since"], &first["extras"]["added"]), (&json!("start"), &json!(2)));
    let chat = socket.observation("chat").await;
    assert_eq!(chat["content"], "change them");
    assert!(first["seq"].as_u64() < chat["seq"].as_u64());
    let second = socket.observation("changes").await;
    assert_eq!(changed(&second["extras"]["files"]), ["modified a", "created bin", "deleted d/b"]);
    let (first, second) = (&first["extras"]["checkpoint"], &second["extras"]["checkpoint"]);
    let (first, second) = (first.as_str().expect("a name"), second.as_str().expect("a name"));

    let at = |rest: &str| format!("/api/sessions/{session}/{rest}");
    let check_diff = async || {
        let diff = server.rest.get(&at(&format!("diff?from={first}&to={second}&path=a"))).await.expect(200);
        assert_eq!(diff["files"][0]["diff"], "@@ -1,1 +1,2 @@\n one\n+two\n");
        let patch = server.rest.get(&at("patch")).await;
        assert!(patch.text.contains("diff --git a/a b/a\nnew file mode 100644\n"), "{}", patch.text);
        assert!(patch.text.contains("GIT binary patch\nliteral 1\n"), "{}", patch.text);
        let old = server.rest.get(&at(&format!("checkpoints/{first}/files/d/b"))).await;
        assert_eq!(old.text, "b\n");
    };
    check_diff().await;
    server.rest.post(&at("stop"), json!({})).await;
    server.rest.until_state(&session, "stopped").await;
    check_diff().await;
    let restored = server.rest.post(&at(&format!("checkpoints/{first}/restore")), json!({})).await.expect(200);
    assert_eq!((&restored["restored"], &restored["removed"], &restored["failed"]), (&json!(2), &json!(1), &json!([])));
    let event = socket.until("the restore", |frame| frame["extras"]["kind"] == "restore").await;
    assert_eq!((&event["observation"], &event["extras"]["of"]), (&json!("checkpoint"), &json!(first)));
    assert_eq!(fs::read(workspace(&server, &session).join("d/b")).expect("the file is back"), b"b\n");
    let now = server.rest.get(&at(&format!("diff?from={first}"))).await.expect(200);
    assert_eq!(changed(&now["files"]), [""; 0]);
    let missing = server.rest.post(&at("checkpoints/turn-99/restore"), json!({})).await;
    missing.error(404, "not_found");
    server.rest.get(&at("diff?from=..%2f..")).await.error(400, "invalid_args");

    // The queue goes on after the restore, in a fresh sandbox.
    let third = turn(&mut socket, "change them").await;
    let note = format!("put files of the workspace back to checkpoint `{first}`");
    assert!(model.calls().iter().any(|call| format!("{call:?}").contains(&note)), "the agent is told of the restore");
    assert!(list(&server, &session).await.iter().any(|item| item["checkpoint"] == third));
    server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await;
    assert!(!store(&server, &session).exists(), "a purge removes all checkpoints");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn server_killed_during_a_capture_takes_it_again() {
    let model = model();
    let server = server(&model).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "make many" })).await;
    let session = socket.session().await;
    let begun = store(&server, &session).join("pack.tmp");
    eventually("the capture to begin", || async { begun.exists() }).await;
    let server = StoppedServer::restart(server.kill9().await).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    let checkpoint = socket.observation("checkpoint").await;
    assert_eq!((&checkpoint["extras"]["partial"], &checkpoint["extras"]["files"]), (&json!(true), &json!(15_000)));
    assert_eq!(socket.observation("changes").await["extras"]["more"], 14_900);
    let checkpoints = socket.events().into_iter().filter(|event| event["observation"] == "checkpoint").count();
    assert_eq!((checkpoints, list(&server, &session).await.len()), (1, 1));
    assert!(!store(&server, &session).join("pack.tmp").exists());
    server.leaves_nothing().await;
}

#[tokio::test]
async fn server_killed_during_a_restore_can_take_it_back() {
    let model = model();
    let server = server(&model).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    let full = turn(&mut socket, "make many").await;
    turn(&mut socket, "remove many").await;
    fs::write(workspace(&server, &session).join("last"), "before the restore").expect("the file is written");
    let address = format!("/api/sessions/{session}/checkpoints/{full}/restore");
    let restoring = tokio::spawn({
        let request = server.rest.request(reqwest::Method::POST, &address).json(&json!({}));
        async move { request.send().await.is_ok() }
    });
    let many = workspace(&server, &session).join("many");
    eventually("the restore to begin", || async { fs::read_dir(&many).is_ok_and(|files| files.count() > 10) }).await;
    let server = StoppedServer::restart(server.kill9().await).await;
    assert!(!restoring.await.expect("no panic"), "a killed server answers nothing");
    let restores = async |kind: &str| {
        let items = list(&server, &session).await;
        items.into_iter().find(|item| item["kind"] == kind)
    };
    eventually("the next server's checkpoint", || async { restores("restore").await.is_some() }).await;
    assert_eq!(restores("restore").await.expect("it is listed")["partial"], true);
    let before = restores("before_restore").await.expect("the state before is kept");
    let address =
        format!("/api/sessions/{session}/checkpoints/{}/restore", before["checkpoint"].as_str().expect("a name"));
    server.rest.post(&address, json!({})).await.expect(200);
    assert!(!many.exists());
    let last = fs::read(workspace(&server, &session).join("last")).expect("the file is there");
    assert_eq!(last, b"before the restore");
    // The queue is not held.
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("message", json!({ "content": "make files after the restore" })).await;
    let begun = |frame: &Value| frame["observation"] == "chat" && frame["content"] == "make files after the restore";
    socket.until("the next turn", begun).await;
    server.rest.until_state(&session, "idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn shared_workspace_offers_no_checkpoints() {
    let shared = tempfile::tempdir().expect("a directory");
    let volume = format!("{}:/workspace", shared.path().display());
    let options = TestServerOptions::new(TestDriver::Process).env("SANDBOX_VOLUMES", &volume);
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    let list = server.rest.get(&format!("/api/sessions/{session}/checkpoints")).await.expect(200);
    assert_eq!((&list["offered"], &list["items"]), (&json!(false), &json!([])));
    assert!(list["reason"].as_str().is_some_and(|reason| reason.contains("share one workspace")), "{list}");
    server.rest.get(&format!("/api/sessions/{session}/diff")).await.error(409, "conflict");
    server.leaves_nothing().await;
}
