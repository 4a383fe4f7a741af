//! Metrics of the real product after a turn and an interrupt.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    eventually,
    model::ScriptedModel,
    rest::send,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

/// Sends requests without the token, as Prometheus on this machine does.
#[tokio::test]
async fn monitoring_opens_to_this_machine_by_a_switch() {
    let options = TestServerOptions::new(TestDriver::Process);
    let closed = TestServer::start(options.clone()).await;
    let open = TestServer::start(options.env("GREENROOM_SERVER__OPEN_MONITORING", "true")).await;
    let status = async |server: &TestServer, method: Method, path: &str, headers: &[(&str, &str)]| {
        let request = server.rest.bare(method, path);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        send(request).await.status.as_u16()
    };
    for path in ["/readyz", "/metrics"] {
        assert_eq!(status(&closed, Method::GET, path, &[]).await, 401, "{path}");
        assert_eq!(status(&open, Method::GET, path, &[]).await, 200, "{path}");
        assert_eq!(status(&open, Method::HEAD, path, &[]).await, 200, "{path}");
        for (name, value) in [("x-forwarded-for", "127.0.0.1"), ("forwarded", "for=127.0.0.1"), ("via", "1.1 x")] {
            assert_eq!(status(&open, Method::GET, path, &[(name, value)]).await, 401, "{path} {name}");
        }
        assert_eq!(status(&open, Method::GET, path, &[("host", "evil.test")]).await, 403, "{path}");
        assert_ne!(status(&open, Method::GET, path, &[("origin", "https://evil.test")]).await, 200, "{path}");
        assert_eq!(status(&open, Method::POST, path, &[]).await, 401, "{path}");
    }
    for path in ["/api/sessions", "/metrics/x", "/readyzz"] {
        assert_eq!(status(&open, Method::GET, path, &[]).await, 401, "{path}");
    }
}

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
