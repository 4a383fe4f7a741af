//! Sessions on a repository: cloned before the first turn, pushed from the server, with a server
//! that dies on the way. No credential leaves the server.

use std::{fs, path::Path};

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    git_server::{PASSWORD, TestGitServer, USERNAME, git},
    model::{ScriptedModel, ScriptedRule},
    server::{StoppedServer, TestServer, TestServerOptions},
    socket::TestSocket,
};

fn options(git_server: &TestGitServer) -> TestServerOptions {
    let host = git_server.authority();
    let credentials = format!("[{{ host = \"{host}\", username = \"{USERNAME}\", token = \"{PASSWORD}\" }}]");
    TestServerOptions::new(TestDriver::Process).env("GREENROOM_REPOSITORIES__CREDENTIALS", &credentials)
}

async fn initialize(server: &TestServer, args: Value) -> (TestSocket, String) {
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", args).await;
    let session = socket.session().await;
    (socket, session)
}

/// Waits for the end of the clone.
async fn cloned(socket: &mut TestSocket) -> Value {
    let ended = |frame: &Value| frame["observation"] == "repository" && frame["extras"]["phase"] != "cloning";
    socket.until("the end of the clone", ended).await["extras"].clone()
}

/// Fails if a file below `dir` contains the text, or a process has it in its arguments.
fn contains_nowhere(dir: &Path, text: &str) {
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        if kind.is_dir() {
            contains_nowhere(&path, text);
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(&path)
        {
            let found = bytes.windows(text.len()).any(|part| part == text.as_bytes());
            assert!(!found, "`{}` contains the secret", path.display());
        }
    }
}

#[tokio::test]
async fn repository_is_cloned_committed_and_pushed_without_its_credential() {
    let git_server = TestGitServer::new();
    let server = TestServer::start(options(&git_server)).await;
    let (mut socket, session) = initialize(&server, json!({ "repo": git_server.url(), "ref": "main" })).await;
    let clone = cloned(&mut socket).await;
    assert_eq!((&clone["phase"], &clone["url"]), (&json!("cloned"), &json!(git_server.url())), "{clone}");
    socket.state("idle").await;
    let view = server.rest.session(&session).await;
    assert_eq!((&view["repository"]["commit"], &view["repository"]["branch"]), (&clone["commit"], &clone["branch"]));
    let workspace = server.data().join("workspaces").join(&session);
    assert_eq!(fs::read_to_string(workspace.join("readme")).expect("the file is there"), "one\n");

    // The clone is in the checkpoint before the first turn.
    let at = |rest: &str| format!("/api/sessions/{session}/{rest}");
    let diff = server.rest.get(&at("diff")).await.expect(200);
    assert_eq!(diff["files"], json!([]));
    // The agent's user owns the files, and git works there.
    socket.send_request("run", json!({ "command": "echo two > work && git status --short" })).await;
    let output = socket.observation("run").await;
    assert_eq!(output["content"].as_str().map(str::trim), Some("?? work"), "{output}");
    let message = "it's done\n\nwith $(touch x) reasons";
    let accepted = server.rest.post(&at("repository/commit"), json!({ "message": message })).await;
    accepted.expect(202);
    let output = socket.observation("run").await;
    assert_eq!(output["extras"]["exit_code"], 0, "{output}");
    let state = server.rest.get(&at("repository")).await.expect(200);
    assert_eq!((&state["commits"][0]["subject"], &state["commits"][1]), (&json!("it's done"), &json!(null)), "{state}");
    assert_eq!((&state["push"]["possible"], &state["pushed"]), (&json!(true), &json!(null)));
    let pushed = server.rest.post(&at("repository/push"), json!({})).await.expect(200);
    assert_eq!((&pushed["branch"], &pushed["commit"]), (&clone["branch"], &state["head"]));
    let event = socket.observation("pushed").await;
    assert_eq!(event["extras"], pushed);
    let branch = pushed["branch"].as_str().expect("a branch");
    let log = git(&git_server.repository(), &["log", "-1", "--format=%B", branch]);
    assert_eq!(log, message);
    assert!(!workspace.join("x").exists());

    let main = server.rest.post(&at("repository/push"), json!({ "branch": "--force" })).await;
    main.error(400, "invalid_args");
    let recent = server.rest.get("/api/repositories").await.expect(200);
    assert_eq!((&recent["recent"][0]["url"], &recent["recent"][0]["ref"]), (&json!(git_server.url()), &json!("main")));
    contains_nowhere(server.home(), PASSWORD);
    server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await;
    assert!(!server.data().join("repositories").join(format!("{session}.git")).exists());
    server.leaves_nothing().await;
}

#[tokio::test]
async fn failed_clone_says_why_and_the_next_message_tries_again() {
    let git_server = TestGitServer::new();
    let server = TestServer::start(options(&git_server)).await;
    let (mut socket, session) = initialize(&server, json!({ "repo": git_server.url(), "ref": "later" })).await;
    let failed = cloned(&mut socket).await;
    assert_eq!(failed["phase"], "failed");
    assert!(failed["detail"].as_str().is_some_and(|detail| detail.contains("`later`")), "{failed}");
    socket.state("failed").await;
    let view = server.rest.session(&session).await;
    assert!(view["reason"].as_str().is_some_and(|reason| reason.contains("`later`")), "{view}");
    let state = server.rest.get(&format!("/api/sessions/{session}/repository")).await.expect(200);
    assert_eq!((&state["base_commit"], &state["push"]["possible"]), (&json!(null), &json!(false)));
    let push = server.rest.post(&format!("/api/sessions/{session}/repository/push"), json!({})).await;
    push.error(409, "not_cloned");
    git(&git_server.repository(), &["branch", "later", "main"]);
    socket.send_request("message", json!({ "content": "hello" })).await;
    assert_eq!(cloned(&mut socket).await["phase"], "cloned");
    socket.state("idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn wrong_and_missing_credentials_are_named_and_not_shown() {
    let git_server = TestGitServer::new();
    let wrong = format!("[{{ host = \"{}\", username = \"me\", token = \"wrong-secret-2\" }}]", git_server.authority());
    for (credentials, expected) in [("[]", "asks for a credential"), (wrong.as_str(), "rejects the credential")] {
        let options = options(&git_server).env("GREENROOM_REPOSITORIES__CREDENTIALS", credentials);
        let server = TestServer::start(options).await;
        let (mut socket, _) = initialize(&server, json!({ "repo": git_server.url() })).await;
        let failed = cloned(&mut socket).await;
        assert!(failed["detail"].as_str().is_some_and(|detail| detail.contains(expected)), "{failed}");
        assert!(
            failed["detail"].as_str().is_some_and(|detail| detail.contains("repositories.credentials")),
            "{failed}"
        );
        contains_nowhere(server.home(), "wrong-secret-2");
        server.leaves_nothing().await;
    }
}

#[tokio::test]
async fn helper_of_the_server_user_answers_for_a_host_without_an_entry() {
    let git_server = TestGitServer::new();
    let helper = format!("!f() {{ test \"$1\" = get && echo username={USERNAME} && echo password={PASSWORD}; }}; f");
    let options = options(&git_server)
        .env("GREENROOM_REPOSITORIES__CREDENTIALS", "[]")
        .env("GIT_CONFIG_COUNT", "1")
        .env("GIT_CONFIG_KEY_0", "credential.helper")
        .env("GIT_CONFIG_VALUE_0", &helper);
    let server = TestServer::start(options.clone()).await;
    let (mut socket, session) = initialize(&server, json!({ "repo": git_server.url() })).await;
    assert_eq!(cloned(&mut socket).await["phase"], "cloned");
    socket.state("idle").await;
    server.rest.post(&format!("/api/sessions/{session}/repository/push"), json!({})).await.expect(200);
    contains_nowhere(server.home(), PASSWORD);
    server.leaves_nothing().await;

    let server = TestServer::start(options.env("GREENROOM_REPOSITORIES__USE_CREDENTIAL_HELPER", "false")).await;
    let (mut socket, _) = initialize(&server, json!({ "repo": git_server.url() })).await;
    let failed = cloned(&mut socket).await;
    assert!(failed["detail"].as_str().is_some_and(|detail| detail.contains("asks for a credential")), "{failed}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn bad_repositories_are_rejected_and_create_nothing() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    for body in [
        json!({ "repo": "ext::sh -c true" }),
        json!({ "repo": "ssh://git@git.example/a" }),
        json!({ "repo": "https://me:secret@git.example/a" }),
        json!({ "repo": "/etc" }),
        json!({ "repo": "https://git.example/a", "ref": "--upload-pack=x" }),
        json!({ "repo": "https://git.example/a", "ref": "../x" }),
        json!({ "ref": "main" }),
    ] {
        server.rest.post("/api/sessions", body).await.error(400, "invalid_args");
    }
    let plain = server.rest.create(json!({})).await;
    server.rest.get(&format!("/api/sessions/{plain}/repository")).await.error(404, "no_repository");
    let list = server.rest.get("/api/sessions").await.expect(200);
    assert_eq!(list["total"], 1);
    server.leaves_nothing().await;
}

#[tokio::test]
async fn server_killed_during_a_clone_clones_once() {
    let git_server = TestGitServer::new();
    let server = TestServer::start(options(&git_server)).await;
    git_server.hold(Some("git-upload-pack"));
    let (_socket, session) = initialize(&server, json!({ "repo": git_server.url() })).await;
    eventually("the clone to begin", || async { git_server.requests("/git-upload-pack") > 0 }).await;
    let stopped = server.kill9().await;
    git_server.hold(None);
    let server = StoppedServer::restart(stopped).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    assert_eq!(cloned(&mut socket).await["phase"], "cloned");
    socket.state("idle").await;
    let events = server.rest.events(&session).await;
    let ends = events.iter().filter(|event| event["extras"]["phase"] == "cloned").count();
    assert_eq!(ends, 1);
    let clones = fs::read_dir(server.data().join("repositories")).expect("a directory").flatten();
    let names: Vec<_> = clones.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert!(names.iter().all(|name| !name.contains("attempt")), "{names:?}");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn server_killed_during_a_push_pushes_again() {
    let git_server = TestGitServer::new();
    let server = TestServer::start(options(&git_server)).await;
    let (mut socket, session) = initialize(&server, json!({ "repo": git_server.url() })).await;
    assert_eq!(cloned(&mut socket).await["phase"], "cloned");
    socket.state("idle").await;
    socket.send_request("run", json!({ "command": "echo two > work && git add -A && git commit -qm two" })).await;
    socket.observation("run").await;
    git_server.hold(Some("git-receive-pack"));
    let address = format!("/api/sessions/{session}/repository/push");
    let pushing = tokio::spawn({
        let request = server.rest.request(reqwest::Method::POST, &address).json(&json!({}));
        async move { request.send().await.is_ok() }
    });
    eventually("the push to begin", || async { git_server.requests("/git-receive-pack") > 0 }).await;
    let stopped = server.kill9().await;
    assert!(!pushing.await.expect("no panic"), "a killed server answers nothing");
    git_server.hold(None);
    let server = StoppedServer::restart(stopped).await;
    server.rest.until_state(&session, "idle").await;
    let pushed = server.rest.post(&address, json!({})).await.expect(200);
    let branch = pushed["branch"].as_str().expect("a branch");
    assert_eq!(json!(git(&git_server.repository(), &["rev-parse", branch])), pushed["commit"]);
    server.leaves_nothing().await;
}

/// Changes a file in a clone, and waits until the session is stopped.
async fn changed_clone(server: &TestServer, git_server: &TestGitServer, budget: Value) -> String {
    let session = server.rest.create(json!({ "repo": git_server.url(), "budget_usd": budget })).await;
    let mut socket = TestSocket::attach(&server.rest, &session).await;
    socket.send_request("run", json!({ "command": "echo two > work" })).await;
    let output = socket.observation("run").await;
    assert_eq!(output["extras"]["exit_code"], 0, "{output}");
    socket.send_request("stop", json!({})).await;
    socket.state("stopped").await;
    session
}

#[tokio::test]
async fn model_proposes_a_commit_message_and_its_cost_counts() {
    let git_server = TestGitServer::new();
    let rule = |when: &str, say: Option<&str>, status| ScriptedRule {
        when: Some(when.to_owned()),
        say: say.map(str::to_owned),
        times: 1,
        status,
        ..ScriptedRule::default()
    };
    let model =
        ScriptedModel::with(vec![rule("+broken", None, Some(400)), rule("+two", Some("```\nAdd the work\n```"), None)]);
    let row = r#"[{model = "anthropic/scripted", input = 1.0, output = 1000.0, context_limit = 100000}]"#;
    let host = git_server.authority();
    let credentials = format!("[{{ host = \"{host}\", username = \"{USERNAME}\", token = \"{PASSWORD}\" }}]");
    let options = TestServerOptions::anthropic(TestDriver::Process, &model)
        .env("GREENROOM_REPOSITORIES__CREDENTIALS", &credentials)
        .env("GREENROOM_MODEL__PRICES", row);
    let server = TestServer::start(options).await;
    let session = changed_clone(&server, &git_server, json!(50.0)).await;
    let address = format!("/api/sessions/{session}/repository/message");
    let proposed = server.rest.post(&address, json!({})).await.expect(200);
    assert_eq!(proposed, json!({ "message": "Add the work" }));
    let calls = model.calls();
    let question = calls.last().expect("a call").body["messages"].to_string();
    assert!(question.contains("added work") && question.contains("+two"), "{question}");
    let usage = || async { server.rest.session(&session).await["usage"].clone() };
    eventually("the usage of the call", || async { usage().await["output_tokens"].as_u64() > Some(0) }).await;
    let cost = usage().await["cost_usd"].as_f64().expect("a cost");
    assert!(cost > 0.0, "{cost}");
    let events = server.rest.events(&session).await;
    assert_eq!(events.iter().filter(|event| event["observation"] == "usage").count(), 1);
    assert_eq!(server.rest.session(&session).await["state"], "stopped", "no sandbox starts");

    // A failure of the model is the user's, and not the session's.
    fs::write(server.data().join("workspaces").join(&session).join("a"), "broken\n").expect("a file");
    server.rest.post(&address, json!({})).await.error(502, "model_failed");
    assert_eq!(server.rest.session(&session).await["state"], "stopped");

    let poor = changed_clone(&server, &git_server, json!(0.000001)).await;
    let address = format!("/api/sessions/{poor}/repository/message");
    server.rest.post(&address, json!({})).await.error(402, "budget_spent");
    assert_eq!(model.calls().len(), 2, "a denied call reaches no model");
    fs::remove_file(server.data().join("workspaces").join(&poor).join("work")).expect("the file was there");
    server.rest.post(&address, json!({})).await.error(409, "no_changes");
    server.leaves_nothing().await;
}

#[tokio::test]
async fn demo_model_proposes_a_commit_message() {
    let git_server = TestGitServer::new();
    let server = TestServer::start(options(&git_server)).await;
    let session = changed_clone(&server, &git_server, json!(null)).await;
    let proposed = server.rest.post(&format!("/api/sessions/{session}/repository/message"), json!({})).await;
    assert_eq!(proposed.expect(200), json!({ "message": "Change work" }));
    server.leaves_nothing().await;
}
