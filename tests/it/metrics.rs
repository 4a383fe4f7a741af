//! Metrics of the real product after a turn and an interrupt.

use std::collections::BTreeMap;

use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Returns the value of each series.
async fn series(server: &TestServer) -> BTreeMap<String, f64> {
    let text = server.rest.get("/metrics").await.text;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let values = lines.map(|line| line.rsplit_once(' ').unwrap_or_else(|| panic!("no series: {line}")));
    values.map(|(series, value)| (series.to_owned(), value.parse().expect("a number"))).collect()
}

const CALLS: &str = r#"greenroom_model_calls_total{model="scripted",provider="anthropic"}"#;
const ERRORS: &str = r#"greenroom_model_errors_total{model="scripted",provider="anthropic"}"#;
const OUTPUT: &str = r#"greenroom_model_tokens_total{kind="output",model="scripted",provider="anthropic"}"#;
const STARTS: &str = r#"greenroom_sandbox_start_seconds_count{driver="process"}"#;
const RUNNING: &str = r#"greenroom_sandboxes{driver="process",state="running"}"#;
const INTERRUPTS: &str = "greenroom_interrupt_seconds_count";

#[tokio::test]
async fn metrics_follow_a_turn_and_an_interrupt() {
    let model = ScriptedModel::play("work");
    let options = TestServerOptions::anthropic(TestDriver::Process, &model);
    let server = TestServer::start(options).await;
    let before = series(&server).await;
    for name in [CALLS, ERRORS, OUTPUT, STARTS, RUNNING, INTERRUPTS, r#"greenroom_restarts_total{part="agent"}"#] {
        assert_eq!(before.get(name), Some(&0.0), "`{name}` exists at zero: {before:#?}");
    }
    assert!(before["process_cpu_seconds_total"].fract() > 0.0);

    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("start", json!({ "task": "tell a long story" })).await;
    socket.delta("text").await;
    socket.send_request("interrupt", json!({})).await;
    socket.observation("interrupted").await;
    socket.state("idle").await;
    // The usage of the interrupted call is booked beside the interrupt.
    eventually("the call to be counted", || async { series(&server).await[CALLS] == 1.0 }).await;
    let after = series(&server).await;
    assert_eq!((after[STARTS], after[RUNNING], after[INTERRUPTS], after[ERRORS]), (1.0, 1.0, 1.0, 0.0), "{after:#?}");
    assert!(after[OUTPUT] > 0.0, "{after:#?}");
    let names = ["greenroom_journal_bytes_total", "greenroom_journal_commit_seconds_count"];
    for name in [&names[..], &["greenroom_events_appended_total", "process_cpu_seconds_total"]].concat() {
        assert!(after[name] > before[name], "`{name}` grows");
    }
}
