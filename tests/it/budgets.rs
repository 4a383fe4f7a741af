//! Budgets: a hostile agent that tries to spend more than its session may.

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule, ScriptedTool},
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(hostile_agent_stays_within_the_budget);

/// Sends 64 calls at once: foreign names, huge answers, and a hang-up for every fourth call. Then
/// prints the status lines.
const HOSTILE: &str = r#"
port=${ANTHROPIC_BASE_URL#http://127.0.0.1:}; port=${port%%/*}
call() {
  body="{\"model\":\"$1\",\"max_tokens\":$2,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"drain\"}]}"
  exec 3<>/dev/tcp/127.0.0.1/$port
  printf 'POST /anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' ${#body} "$body" >&3
  [ "$3" = hang-up ] || sed -n 1p <&3
}
for i in $(seq 16); do
  call claude-opus-9 1000000000 &
  call claude-haiku-9 null &
  call unheard-of '"many"' &
  call anthropic/scripted 100000 hang-up &
done
wait
"#;

/// Budget of the session in USD.
const BUDGET: f64 = 1.0;

/// Returns a model at 1 USD per million input tokens and 1,000 USD per million output tokens. A
/// hostile call costs a few cents.
fn priced(driver: TestDriver, model: &ScriptedModel) -> TestServerOptions {
    let row = r#"[{model = "anthropic/scripted", input = 1.0, output = 1000.0, context_limit = 100000}]"#;
    TestServerOptions::anthropic(driver, model).env("GREENROOM_MODEL__PRICES", row)
}

fn hostile_model() -> ScriptedModel {
    let rule = |when: Option<&str>, say: Option<&str>, times| ScriptedRule {
        when: when.map(str::to_owned),
        say: say.map(str::to_owned),
        times,
        ..ScriptedRule::default()
    };
    let tool = Some(ScriptedTool { name: "run".into(), input: json!({ "command": "bash hostile.sh" }) });
    let attack = ScriptedRule { tool, ..rule(Some("go"), None, 1) };
    ScriptedModel::with(vec![rule(Some("drain"), Some("word "), 30), attack, rule(None, Some("Done."), 1)])
}

fn spent(session: &Value) -> f64 {
    session["usage"]["cost_usd"].as_f64().expect("every model has a price")
}

async fn hostile_agent_stays_within_the_budget(driver: TestDriver) {
    let model = hostile_model();
    let server = TestServer::start(priced(driver, &model)).await;
    let session_id = server.rest.create(json!({ "budget_usd": BUDGET })).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.send_request("write", json!({ "path": "hostile.sh", "content": HOSTILE })).await;
    socket.observation("write").await;
    socket.send_request("message", json!({ "content": "go" })).await;
    let ran = socket.observation("run").await;
    let statuses = ran["content"].as_str().expect("status lines");
    assert!(statuses.contains(" 200 OK") && statuses.contains(" 402 Payment Required"), "{statuses}");
    let over = socket.until("the end of the turn", |frame| frame["extras"]["reason"] == "budget").await;
    assert_eq!(over["extras"]["agent_state"], "idle", "{over}");

    let session = server.rest.session(&session_id).await;
    assert_eq!((&session["state"], &session["reason"]), (&json!("idle"), &json!("budget")));
    let cost = spent(&session);
    // The error of one estimate is a few hundred input tokens.
    assert!(cost > BUDGET / 2.0 && cost < BUDGET + 0.001, "{cost} USD of {BUDGET}");
    let events = server.rest.events(&session_id).await;
    let of_kind = |kind: &str| events.iter().filter(|event| event["observation"] == kind).count();
    assert_eq!(of_kind("error"), 0, "a spent budget is no failure");
    let calls = of_kind("usage");
    assert!(calls > 4, "{calls} calls");

    // The server remembers, and a message alone continues nothing.
    let server = server.kill9().await.restart().await;
    assert_eq!(spent(&server.rest.session(&session_id).await), cost);
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.status("synced").await;
    socket.send_request("set_budget", json!({ "usd": 50.0 })).await;
    socket.action("set_budget").await;
    socket.send_request("message", json!({ "content": "thanks" })).await;
    socket.until("an answer", |frame| frame["content"] == "Done.").await;
    socket.state("idle").await;
    server.leaves_nothing().await;
}

#[tokio::test]
async fn limit_of_all_sessions_outlives_purge_and_restart() {
    let model = hostile_model();
    let options = priced(TestDriver::Process, &model).env("GREENROOM_BUDGET__TOTAL", "0.3");
    let server = TestServer::start(options).await;
    let session_id = server.rest.create(json!({})).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.send_request("message", json!({ "content": "drain" })).await;
    socket.observation("usage").await;
    server.rest.until_state(&session_id, "idle").await;
    let cost = spent(&server.rest.session(&session_id).await);
    assert!(cost > 0.02 && cost < 0.3, "{cost}");
    server.rest.delete(&format!("/api/sessions/{session_id}?purge=true")).await;

    // 0.3 USD would suffice for two more useful answers. What is left suffices for one.
    let server = server.kill9().await.restart().await;
    let session_id = server.rest.create(json!({})).await;
    let mut socket = TestSocket::attach(&server.rest, &session_id).await;
    socket.send_request("message", json!({ "content": "drain" })).await;
    socket.observation("usage").await;
    socket.send_request("message", json!({ "content": "drain" })).await;
    socket.until("the spent limit", |frame| frame["extras"]["reason"] == "budget").await;
    server.leaves_nothing().await;
}
