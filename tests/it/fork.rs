//! Forks: a new session with the conversation and the files of another one up to an event.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use futures::future::join_all;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::{ScriptedModel, ScriptedRule},
    rest::{RestReply, send},
    server::{StoppedServer, TestServer, TestServerHome, TestServerOptions},
};

fn model() -> ScriptedModel {
    let run = |when: &str, command: &str| {
        let command = format!("{command}; echo MARK");
        json!({ "when": when, "tool": { "name": "run", "input": { "command": command } } })
    };
    let rules = json!([
        run("apples", "echo one > a; mkdir -p d; echo b > d/b"),
        run("bananas", "echo two >> a; rm d/b"),
        run("make many", "mkdir many; for i in $(seq 1 15000); do echo $i > many/$i; done"),
        { "when": "never end", "say": "Well. ", "hang": true },
        { "say": "Done." },
    ]);
    ScriptedModel::with(serde_json::from_value::<Vec<ScriptedRule>>(rules).expect("the rules are valid"))
}

async fn server(model: &ScriptedModel) -> TestServer {
    TestServer::start(TestServerOptions::anthropic(TestDriver::Process, model)).await
}

/// Creates a session that has done the tasks, one turn each.
async fn worked(server: &TestServer, tasks: &[&str]) -> String {
    let session = server.rest.create(json!({ "title": "fruit" })).await;
    for task in tasks {
        say(server, &session, task).await;
        // The capture of the turn ends it.
        let newest = async || server.rest.events(&session).await.pop().expect("something has happened");
        eventually("the checkpoint", || async { newest().await["observation"] == "changes" }).await;
    }
    session
}

async fn say(server: &TestServer, session: &str, content: &str) {
    let before = server.rest.events(session).await.len();
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": content })).await.expect(202);
    eventually("the answer", || async {
        let events = server.rest.events(session).await;
        let mut new = events.iter().skip(before).skip_while(|event| event["observation"] != "chat");
        new.any(|event| event["extras"]["agent_state"] == "idle")
    })
    .await;
}

async fn fork(server: &TestServer, session: &str, body: Value) -> RestReply {
    server.rest.post(&format!("/api/sessions/{session}/fork"), body).await
}

async fn forked(server: &TestServer, session: &str, body: Value) -> (String, Value) {
    let view = fork(server, session, body).await.expect(201);
    (view["id"].as_str().expect("a session has an id").to_owned(), view)
}

/// Returns the number of the event with this message of the user.
fn chat(events: &[Value], content: &str) -> u64 {
    let chat = events.iter().find(|event| event["observation"] == "chat" && event["content"] == content);
    chat.expect("the message is in the journal")["seq"].as_u64().expect("an event has a number")
}

fn file(server: &TestServer, session: &str, path: &str) -> Option<String> {
    fs::read_to_string(server.data().join("workspaces").join(session).join(path)).ok()
}

/// Returns the ids of all sessions that have something on disk.
fn traces(server: &TestServer) -> BTreeSet<String> {
    let names = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = ["workspaces", "checkpoints", "homes", "journal/contents"];
    let entries = dirs.iter().flat_map(|dir| names(server.data().join(dir)));
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

async fn listed(server: &TestServer) -> usize {
    let list = server.rest.get("/api/sessions").await.expect(200);
    usize::try_from(list["total"].as_u64().expect("a number")).expect("few sessions")
}

#[tokio::test]
async fn fork_goes_on_from_the_conversation_and_files_of_an_event() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["get apples", "get bananas"]).await;
    let before = server.rest.events(&session).await;
    let at = chat(&before, "get bananas") - 1;

    // Edit and resend: the fork ends before the message, and begins with another one.
    let (new, view) = forked(&server, &session, json!({ "at": at, "message": "get cherries" })).await;
    assert_eq!(view["parent"], json!({ "id": session, "seq": at }));
    assert_eq!((&view["title"], &view["usage"]["cost_usd"]), (&json!("fruit"), &json!(0.0)));
    eventually("the answer", || async {
        let events = server.rest.events(&new).await;
        events.iter().any(|event| event["content"] == "get cherries" && event["observation"] == "chat")
            && server.rest.session(&new).await["state"] == "idle"
    })
    .await;
    let events = server.rest.events(&new).await;
    let (copied, own) = events.split_at(usize::try_from(at).expect("few events"));
    assert_eq!(copied, &before[..copied.len()]);
    assert_eq!(own[0]["observation"], "forked");
    assert_eq!(own[0]["extras"], json!({ "from": session, "at": at, "checkpoint": "turn-2" }));
    assert_eq!((file(&server, &new, "a"), file(&server, &new, "d/b")), (Some("one\n".into()), Some("b\n".into())));
    let calls = model.calls();
    let request = calls.iter().map(|call| call.body.to_string()).find(|body| body.contains("get cherries"));
    let request = request.expect("the model was asked");
    assert!(request.contains("get apples") && !request.contains("bananas"), "{request}");
    assert_eq!(request.matches("The user forked this conversation here").count(), 1, "{request}");
    assert!(request.contains("as they were at the checkpoint `turn-2`"), "{request}");
    // The other session goes on without it.
    assert_eq!(server.rest.events(&session).await, before);
    let names = |events: &[Value]| -> Vec<String> {
        events.iter().filter_map(|event| Some(event["extras"]["turn"].as_str()?.to_owned())).collect()
    };
    let (all, own) = (names(&events), names(own));
    assert_eq!((all.len(), own.len()), (2, 1));
    assert!(!names(&before).contains(&own[0]), "{own:?}: a name is used once");

    // By default, the fork begins after the newest turn, and waits.
    let (stopped, view) = forked(&server, &session, json!({ "title": "vegetables" })).await;
    assert_eq!((&view["state"], &view["title"]), (&json!("stopped"), &json!("vegetables")));
    assert_eq!(view["reason"], "a fork starts with its first message");
    assert_eq!(view["parent"]["seq"], before.len());
    assert_eq!(file(&server, &stopped, "a"), Some("one\ntwo\n".into()));
    say(&server, &stopped, "get dates").await;
    let calls = model.calls();
    let request = calls.last().expect("the model was asked").body.to_string();
    assert!(request.contains("get bananas") && request.contains("get dates"), "{request}");
    assert!(server.rest.session(&stopped).await["usage"]["input_tokens"].as_u64() < Some(30), "its own cost only");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn fork_of_a_fork_outlives_its_parents() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["get apples", "get bananas"]).await;
    let events = server.rest.events(&session).await;
    let (first, second) = (chat(&events, "get apples") - 1, chat(&events, "get bananas") - 1);
    let (child, _) = forked(&server, &session, json!({})).await;
    // The child has no checkpoint of the turns before its own beginning. Its parent has.
    let (grandchild, view) = forked(&server, &child, json!({ "at": second })).await;
    assert_eq!(view["parent"], json!({ "id": child, "seq": second }));
    assert_eq!(file(&server, &grandchild, "a"), Some("one\n".into()));
    let (empty, _) = forked(&server, &child, json!({ "at": first })).await;
    assert_eq!(file(&server, &empty, "a"), None);
    // At the child's end, its own first checkpoint counts.
    let (late, _) = forked(&server, &child, json!({})).await;
    assert_eq!(file(&server, &late, "a"), Some("one\ntwo\n".into()));

    server.rest.delete(&format!("/api/sessions/{session}")).await.expect(200);
    let (of_ended, _) = forked(&server, &session, json!({ "at": second })).await;
    assert_eq!(file(&server, &of_ended, "a"), Some("one\n".into()));
    server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await.expect(204);
    let lost = fork(&server, &child, json!({ "at": second })).await.error(409, "no_checkpoint");
    assert!(lost.contains("turn-2") && lost.contains("set `files` to `now` or `none`"), "{lost}");
    fork(&server, &session, json!({})).await.error(404, "not_found");
    for session in [&child, &grandchild, &late] {
        say(&server, session, "go on").await;
    }
    assert_eq!(server.rest.events(&grandchild).await[..second as usize], events[..second as usize]);

    // The parent of a fork is part of an export.
    let (_, ended) = server.terminate().await;
    let whole = ended.run(&["export"]).await.expect("the export succeeds");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("sessions.jsonl");
    fs::write(&path, whole).expect("the file is written");
    let home = tempfile::tempdir().expect("a directory");
    let elsewhere = StoppedServer::nowhere(home, TestServerOptions::anthropic(TestDriver::Process, &model));
    elsewhere.run(&["import", path.to_str().expect("a path")]).await.expect("the import succeeds");
    let server = elsewhere.restart().await;
    assert_eq!(server.rest.session(&grandchild).await["parent"], json!({ "id": child, "seq": second }));
    // Checkpoints are not exported.
    fork(&server, &late, json!({})).await.error(409, "no_checkpoint");
    let (new, _) = forked(&server, &late, json!({ "files": "none" })).await;
    say(&server, &new, "go on").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn fork_takes_the_files_that_were_asked_for() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["get apples"]).await;
    fs::write(server.data().join("workspaces").join(&session).join("late"), "after the turn").expect("it is written");
    let files = |session: &str| ["a", "late"].map(|path| file(&server, session, path).is_some());
    let fork_with = async |files: &str| forked(&server, &session, json!({ "files": files })).await.0;
    let (checkpoint, now, none) = (fork_with("checkpoint").await, fork_with("now").await, fork_with("none").await);
    assert_eq!((files(&checkpoint), files(&now), files(&none)), ([true, false], [true, true], [false, false]));
    for (session, note) in [(&now, "may be newer than this conversation"), (&none, "The workspace was empty then")] {
        say(&server, session, "look").await;
        let request = model.calls().last().expect("the model was asked").body.to_string();
        assert!(request.contains(note), "{request}");
    }

    // Without the contents of the checkpoint, no fork gets half of the files.
    let (before, sessions) = (traces(&server), listed(&server).await);
    for pack in fs::read_dir(server.data().join("checkpoints").join(&session)).expect("a store").flatten() {
        if pack.path().extension().is_some_and(|extension| extension == "pack") {
            fs::write(pack.path(), "damaged").expect("the file is written");
        }
    }
    fork(&server, &session, json!({})).await.error(409, "no_checkpoint");
    assert_eq!((traces(&server), listed(&server).await), (before, sessions), "a failed fork leaves nothing");
    fork_with("none").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn fork_of_a_shared_workspace_begins_without_files() {
    let shared = tempfile::tempdir().expect("a directory");
    fs::set_permissions(shared.path(), Permissions::from_mode(0o777)).expect("the directory is ours");
    let volume = format!("{}:/workspace", shared.path().display());
    let model = model();
    let options = TestServerOptions::anthropic(TestDriver::Process, &model).env("SANDBOX_VOLUMES", &volume);
    let server = TestServer::start(options).await;
    let session = server.rest.create(json!({})).await;
    say(&server, &session, "hello").await;
    for files in ["checkpoint", "now"] {
        let reason = fork(&server, &session, json!({ "files": files })).await.error(400, "invalid_args");
        assert!(reason.contains("share one workspace") && reason.contains("set `files` to `none`"), "{reason}");
    }
    let (new, _) = forked(&server, &session, json!({})).await;
    say(&server, &new, "go on").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn fork_while_a_turn_runs_begins_before_it() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["get apples"]).await;
    let at = server.rest.events(&session).await.len();
    server.rest.post(&format!("/api/sessions/{session}/messages"), json!({ "content": "never end" })).await.expect(202);
    eventually("the model's answer to begin", || async { model.streams() == 1 }).await;
    let events = server.rest.events(&session).await;
    let chat = chat(&events, "never end");
    let inside = fork(&server, &session, json!({ "at": chat })).await.error(400, "invalid_args");
    assert!(inside.contains("still runs") && inside.contains(&format!("use {}", chat - 1)), "{inside}");
    let (new, view) = forked(&server, &session, json!({})).await;
    assert!(view["parent"]["seq"].as_u64().is_some_and(|seq| seq <= at as u64), "{view}");
    assert_eq!(file(&server, &new, "a"), Some("one\n".into()));
    assert_eq!((server.rest.session(&session).await["state"].clone(), model.cut()), (json!("running"), 0));

    // Many at once: each is a session of its own.
    let messages = (0..8).map(|n| format!("fork number {n}"));
    let forks = join_all(messages.map(|message| forked(&server, &session, json!({ "message": message })))).await;
    let ids: BTreeSet<&String> = forks.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), 8);
    for (n, (id, _)) in forks.iter().enumerate() {
        server.rest.until_state(id, "idle").await;
        let content = format!("fork number {n}");
        let events = server.rest.events(id).await;
        assert!(events.iter().any(|event| event["observation"] == "chat" && event["content"] == *content));
        assert_eq!(file(&server, id, "a"), Some("one\n".into()));
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn bad_fork_requests_change_nothing() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["get apples"]).await;
    let events = server.rest.events(&session).await;
    let (chat, last) = (chat(&events, "get apples"), events.len());
    let before = (traces(&server), listed(&server).await);
    let inside = fork(&server, &session, json!({ "at": chat + 1 })).await.error(400, "invalid_args");
    let end = events.iter().rfind(|event| event["extras"]["agent_state"] == "idle").expect("the turn ended");
    assert!(inside.contains(&format!("use {} or {}", chat - 1, end["seq"])), "{inside}");
    for body in [
        json!({ "at": 0 }),
        json!({ "at": last + 100 }),
        json!({ "message": " " }),
        json!({ "title": "t".repeat(201) }),
        json!({ "files": "some" }),
        json!({ "form": 1 }),
    ] {
        fork(&server, &session, body).await.error(400, "invalid_args");
    }
    fork(&server, "01K00000000000000000000000", json!({})).await.error(404, "not_found");
    assert_eq!((traces(&server), listed(&server).await), before);
    assert_eq!(server.rest.events(&session).await, events);
    server.leaves_nothing().await;
}

fn keyed(server: &TestServer, session: &str, key: &str, body: &Value) -> reqwest::RequestBuilder {
    let path = format!("/api/sessions/{session}/fork");
    server.rest.request(reqwest::Method::POST, &path).header("idempotency-key", key).json(body)
}

#[tokio::test]
async fn server_killed_during_a_fork_leaves_no_half_of_it() {
    let model = model();
    let server = server(&model).await;
    let session = worked(&server, &["make many"]).await;
    let before = traces(&server);
    let body = json!({ "message": "get dates" });
    let forking = tokio::spawn({
        let request = keyed(&server, &session, "k", &body);
        async move { request.send().await.is_ok() }
    });
    let new = || traces(&server).difference(&before).next().cloned();
    eventually("the files to be copied", || async { new().is_some_and(|id| file(&server, &id, "many/1").is_some()) })
        .await;
    assert_eq!(listed(&server).await, 1, "an unfinished fork is not listed");
    let server = StoppedServer::restart(server.kill9().await).await;
    assert!(!forking.await.expect("no panic"), "a killed server answers nothing");
    eventually("the unfinished fork to be removed", || async { traces(&server) == before }).await;
    assert_eq!(listed(&server).await, 1);

    let view = send(keyed(&server, &session, "k", &body)).await.expect(201);
    let id = view["id"].as_str().expect("an id");
    server.rest.until_state(id, "idle").await;
    assert_eq!(file(&server, id, "many/15000"), Some("15000\n".into()));
    // The key names this fork, also for the next server.
    assert_eq!(send(keyed(&server, &session, "k", &body)).await.expect(200)["id"], id);
    send(keyed(&server, &session, "k", &json!({}))).await.error(409, "id_reused");
    let server = StoppedServer::restart(server.kill9().await).await;
    assert_eq!(send(keyed(&server, &session, "k", &body)).await.expect(200)["id"], id);
    let chats = server.rest.events(id).await.into_iter().filter(|event| event["content"] == "get dates");
    assert_eq!(chats.filter(|event| event["observation"] == "chat").count(), 1);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn full_disk_rejects_a_fork_as_a_whole() {
    let Some(home) = TestServerHome::on_a_disk() else {
        return eprintln!("skipped: mounting a file system needs root");
    };
    let model = model();
    let server = TestServer::start_in(home, TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session = worked(&server, &["get apples"]).await;
    let disk = server.disk().expect("the data are on a disk of their own");
    let before = traces(&server);
    disk.fill();
    let full = fork(&server, &session, json!({})).await;
    assert!(matches!(full.status.as_u16(), 503 | 507) && full.text.contains("space"), "{}", full.text);
    assert_eq!(listed(&server).await, 1);
    disk.make_room();
    eventually("a fork to succeed", || async { fork(&server, &session, json!({})).await.status == 201 }).await;
    let forks = listed(&server).await - 1;
    eventually("all else to be gone", || async { traces(&server).len() == before.len() + forks }).await;
    server.leaves_nothing().await;
}
