//! Models behind the gateway: both formats, their usage, their errors, and a key that stays outside
//! of the sandbox.

use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    host,
    model::ScriptedModel,
    on_each_driver,
    server::{KEY, TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(model_key_reaches_provider_and_no_sandbox);

async fn model_key_reaches_provider_and_no_sandbox(driver: TestDriver) {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    let session = socket.session().await;
    socket.delta("output").await;
    let call = model.calls().pop().expect("the model was asked");
    assert!(call.key.is_some_and(|key| key.contains(KEY)), "the provider gets the key");

    for process in host::processes(server.home()) {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains(KEY), "{process:?}");
        assert!(!environment.contains(&server.rest.token), "{process:?}");
        assert!(!process.command.contains(KEY), "{process:?}");
    }
    let probe = "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; cat /proc/self/mountinfo";
    socket.send_request("run", json!({ "command": probe })).await;
    let seen = socket.until("the probe's output", |frame| frame["extras"]["command"] == probe).await;
    assert!(!seen.to_string().contains(KEY) && !seen.to_string().contains(&server.rest.token));
    let journal = format!("{:?}", server.rest.events(&session).await);
    assert!(!journal.contains(KEY) && !server.log().contains(KEY));
    server.leaves_nothing().await;
}

async fn a_turn(options: TestServerOptions, model: &ScriptedModel, path: &str) {
    let server = TestServer::start(options).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "wait for go" })).await;
    socket.action("run").await;
    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    let usage = socket.observation("usage").await;
    assert_eq!(usage["extras"]["input_tokens"], 10, "{usage}");
    socket.until("the answer", |frame| frame["content"] == "Saw the mark.").await;
    socket.state("idle").await;
    let total = socket.events().into_iter().rfind(|event| event["observation"] == "usage").expect("usage");
    assert_eq!(total["extras"]["total_input_tokens"], 20, "two calls: {total}");
    assert!(model.calls().iter().all(|call| call.path == path), "{:?}", model.calls()[0].path);
}

#[tokio::test]
async fn anthropics_format() {
    let model = ScriptedModel::play("work");
    a_turn(TestServerOptions::anthropic(TestDriver::Process, &model), &model, "/v1/messages").await;
}

#[tokio::test]
async fn openais_format() {
    let model = ScriptedModel::play("work");
    a_turn(TestServerOptions::openai(TestDriver::Process, &model), &model, "/v1/chat/completions").await;
}

#[tokio::test]
async fn provider_error_ends_the_turn_with_its_text() {
    let model = ScriptedModel::play("work");
    let options =
        TestServerOptions::anthropic(TestDriver::Process, &model).env("GREENROOM_MODEL__RETRY__MAX_ATTEMPTS", "2");
    let server = TestServer::start(options.env("GREENROOM_MODEL__RETRY__BASE", "10ms")).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "be overloaded" })).await;
    let error = socket.observation("error").await;
    assert!(error["extras"]["detail"].as_str().expect("words").len() > 10, "{error}");
    socket.state("idle").await;
    assert!(model.calls().len() >= 2, "the model was called again");
    socket.send_request("message", json!({ "content": "and now?" })).await;
    socket.until("an answer", |frame| frame["content"] == "All right.").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn large_output_is_cut_in_event_and_whole_on_disk() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "flood" })).await;
    let ran = socket.observation("run").await;
    let content = ran["content"].as_str().expect("output");
    assert!(content.len() <= 80 * 1024, "{} bytes", content.len());
    assert!(content.starts_with("1\n2\n") && content.trim_end().ends_with("300000"));
    let href = ran["extras"]["truncated"]["href"].as_str().expect("a link to the whole content");
    let whole = server.rest.get(href).await;
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert!(whole.text.trim_end() == expected.trim_end(), "{} bytes of {}", whole.text.len(), expected.len());
    server.leaves_nothing().await;
}

#[tokio::test]
async fn model_without_key_is_rejected_everywhere() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let session_id = server.rest.create(json!({ "title": "as it was" })).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.status("synced").await;
    let before = server.rest.session(&session_id).await;
    assert_eq!(before["model"], "demo");

    let names_the_way_out =
        |reason: String| assert!(reason.contains("`ANTHROPIC_API_KEY`") && reason.contains("`demo`"), "{reason}");
    let keyless = json!({ "model": "claude-sonnet-4-5", "title": "changed" });
    names_the_way_out(server.rest.post("/api/sessions", keyless.clone()).await.error(400, "invalid_args"));
    names_the_way_out(
        server.rest.patch(&format!("/api/sessions/{session_id}"), keyless.clone()).await.error(400, "invalid_args"),
    );
    socket.send_request("initialize", keyless).await;
    names_the_way_out(socket.error("invalid_args").await);
    socket.send_request("set_model", json!({ "model": "claude-sonnet-4-5" })).await;
    names_the_way_out(socket.error("invalid_args").await);
    let after = server.rest.session(&session_id).await;
    assert_eq!((&after["title"], &after["model"]), (&before["title"], &before["model"]), "nothing is changed");

    let offered = server.rest.get("/api/options").await.expect(200)["models"].clone();
    let needs = |name: &str| {
        offered.as_array().expect("models").iter().find(|it| it["name"] == name).expect(name)["needs"].clone()
    };
    assert_eq!((needs("claude-sonnet-4-5"), needs("demo")), (json!("ANTHROPIC_API_KEY"), json!(null)));
    server.leaves_nothing().await;
}

#[tokio::test]
async fn model_change_is_persisted() {
    let model = ScriptedModel::play("work");
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let session_id = server.rest.create(json!({})).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    for (action, model) in [("set_model", "demo"), ("initialize", "anthropic/other"), ("set_model", "demo")] {
        socket.send_request(action, json!({ "model": model })).await;
        assert_eq!(socket.action("set_model").await["args"]["model"], model);
        assert_eq!(server.rest.session(&session_id).await["model"], model, "after `{action}`");
    }
    let server = server.kill9().await.restart().await;
    assert_eq!(server.rest.session(&session_id).await["model"], "demo");
    server.leaves_nothing().await;
}
