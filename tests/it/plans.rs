//! Plan of the agent, edited by the user.

use reqwest::Method;
use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule},
    on_each_driver,
    rest::send,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(saved_plan_is_recorded_and_reaches_next_request);

fn rules() -> Vec<ScriptedRule> {
    let wait = "echo waiting; until [ -e go ]; do sleep 0.05; done; echo MARK";
    let rules = json!([
        { "when": "MARK", "say": "Saw the mark." },
        { "when": "The plan is kept", "tool": { "name": "run", "input": { "command": wait } } },
        { "when": "make a plan", "tool": { "name": "plan", "input": { "content": "- [ ] one\n- [~] two\n" } } },
        { "say": "All right." }
    ]);
    serde_json::from_value(rules).expect("rules")
}

/// Returns source and text of each plan.
fn plans(events: &[Value]) -> Vec<(&str, &str)> {
    let plans = events.iter().filter(|event| event["observation"] == "plan");
    plans.filter_map(|event| event["source"].as_str().zip(event["content"].as_str())).collect()
}

async fn saved_plan_is_recorded_and_reaches_next_request(driver: TestDriver) {
    let model = ScriptedModel::with(rules());
    let server = TestServer::start(TestServerOptions::anthropic(driver, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "make a plan" })).await;
    let session = socket.session().await;
    let plan = socket.observation("plan").await;
    assert_eq!(plan["extras"]["path"], ".greenroom/plan.md");
    assert_eq!(plan["extras"]["items"][1], json!({ "text": "two", "done": false, "state": "in_progress" }));
    socket.delta("output").await;

    let address = format!("/api/sessions/{session}/files/.greenroom/plan.md");
    let file = server.rest.get(&address).await;
    let tag = file.headers["etag"].to_str().expect("a tag").to_owned();
    let save = async |tag: &str, text: &'static str| {
        let request = server.rest.request(Method::PUT, &address).header("content-type", "text/markdown");
        send(request.header("if-match", tag).body(text)).await
    };
    save(&tag, "- [x] one\n- [x] two\n").await.expect(200);
    let saved = socket.observation("plan").await;
    assert_eq!((&saved["source"], &saved["content"]), (&json!("user"), &json!("- [x] one\n- [x] two\n")));
    assert_eq!(saved["extras"]["items"][1]["state"], "completed");
    save(&tag, "- [ ] late\n").await.error(412, "changed");

    socket.send_request("write", json!({ "path": "go", "content": "" })).await;
    socket.state("idle").await;
    let last = model.calls().pop().expect("a call").body.to_string();
    assert!(last.contains("was changed, by the user") && last.contains("- [x] one"), "{last}");

    // The journal also has the plan of a stopped session, and the next turn reads the file.
    server.rest.post(&format!("/api/sessions/{session}/stop"), json!({})).await.expect(200);
    server.rest.until_state(&session, "stopped").await;
    save("*", "- [ ] three\n").await.expect(200);
    let events = server.rest.events(&session).await;
    assert_eq!(plans(&events).last(), Some(&("user", "- [ ] three\n")));
    socket.send_request("message", json!({ "content": "go on" })).await;
    socket.until("the answer", |frame| frame["observation"] == "message").await;
    let last = model.calls().pop().expect("a call").body.to_string();
    assert!(last.contains("- [ ] three"), "{last}");
    server.leaves_nothing().await;
}
