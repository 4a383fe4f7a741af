//! Mistakes of models, and of services that imitate one. No call is made twice or lost, and the
//! session goes on.

use greenroom_protocol::link::{ProviderApi, WorkOutcome};
use serde_json::{Value, json};

use crate::{
    agent::{AgentProcess, tool_list},
    gateway::{
        ScriptedAnswer::{self, Complete, Frames},
        ScriptedPart, call, text,
    },
    session::AgentTestSession,
};

/// Runs a turn with these answers and returns its requests.
async fn requests_of(api: ProviderApi, answers: Vec<ScriptedAnswer>, expected: &[&str]) -> Vec<Value> {
    let mut agent = AgentProcess::start(answers);
    agent.settings.api = api;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events(), expected);
    session.agent.gateway.requests()
}

fn frame(delta: &Value, finish: Option<&str>) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] })
}

fn calls(parts: &Value) -> Value {
    frame(&json!({ "tool_calls": parts }), Some("tool_calls"))
}

fn once(id: &str) -> Value {
    let arguments = json!({ "command": "echo x >> n; wc -l < n" }).to_string();
    json!({ "id": id, "type": "function", "function": { "name": "run", "arguments": arguments } })
}

#[tokio::test]
async fn call_with_any_index_is_made_once() {
    for index in [json!(0), json!(1), json!(300), json!(4_000_000_000_u64), Value::Null] {
        let mut call = once("c1");
        call["index"] = index;
        let answers = vec![Frames(vec![calls(&json!([call]))]), Complete(vec![text("Done.")])];
        requests_of(ProviderApi::Openai, answers, &["run! c1", "run c1: [0] 1\n", "message _: Done."]).await;
    }
}

#[tokio::test]
async fn answer_with_finish_reason_needs_no_done_frame() {
    let answer = Frames(vec![frame(&json!({ "content": "All of it." }), None), frame(&json!({}), Some("stop"))]);
    let requests = requests_of(ProviderApi::Openai, vec![answer], &["message _: All of it."]).await;
    assert_eq!(requests.len(), 1);
}

/// Returns the ids of all calls in a request, and of all results, in order.
fn ids(request: &Value) -> (Vec<String>, Vec<String>) {
    let (mut made, mut answered) = (Vec::new(), Vec::new());
    for message in request["messages"].as_array().expect("messages") {
        let parts = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        made.extend(parts(&message["tool_calls"]).iter().filter_map(|call| text(&call["id"])));
        answered.extend(text(&message["tool_call_id"]));
        for part in parts(&message["content"]) {
            made.extend(text(&part["id"]));
            answered.extend(text(&part["tool_use_id"]));
        }
    }
    (made, answered)
}

/// Asserts that the next request satisfies every provider.
async fn check_accepted(api: ProviderApi, parts: Vec<ScriptedPart>, expected: &[&str]) {
    let requests = requests_of(api, vec![Complete(parts), Complete(vec![text("Done.")])], expected).await;
    let (made, answered) = ids(&requests[1]);
    let is_plain = |id: &String| {
        id.len() <= 40 && !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
    };
    assert!(made.iter().all(is_plain), "{made:?}");
    let mut distinct = made.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), made.len(), "{made:?}");
    assert_eq!(made, answered);
}

#[tokio::test]
async fn ids_that_providers_reject_are_not_sent_back() {
    let think = |id| call(id, "think", json!({ "content": "x" }));
    for api in [ProviderApi::Anthropic, ProviderApi::Openai] {
        check_accepted(
            api,
            vec![think("c1"), think("c1")],
            &["think! c1", "think c1: x", "think! _", "think _: x", "message _: Done."],
        )
        .await;
        check_accepted(
            api,
            vec![think(""), think("")],
            &["think! _", "think _: x", "think! _", "think _: x", "message _: Done."],
        )
        .await;
        let odd = "functions.think:0";
        check_accepted(
            api,
            vec![think(odd)],
            &["think! functions.think:0", "think functions.think:0: x", "message _: Done."],
        )
        .await;
    }
}

#[tokio::test]
async fn blank_text_and_unknown_tool_name_are_not_sent_back() {
    for api in [ProviderApi::Anthropic, ProviderApi::Openai] {
        for name in ["functions.run", ""] {
            let answers = vec![Complete(vec![text(" \n"), call("c1", name, json!({}))]), Complete(vec![text("Done.")])];
            let error = format!("error c1: there is no tool `{name}`; the tools are {}", tool_list());
            let requests = requests_of(api, answers, &["message _:  \n", &error, "message _: Done."]).await;
            let sent = requests[1]["messages"].to_string();
            assert!(sent.contains("no_such_tool") && !sent.contains("\" \\n\""), "{sent}");
        }
    }
}

#[tokio::test]
async fn thousands_of_calls_in_one_answer_are_all_made() {
    let all = (0..3000).map(|n| {
        let mut call = json!({ "id": format!("c{n}"), "function": { "name": "dance", "arguments": "{}" } });
        call["index"] = json!(n);
        frame(&json!({ "tool_calls": [call] }), None)
    });
    let answers =
        vec![Frames(all.chain([frame(&json!({}), Some("tool_calls"))]).collect()), Complete(vec![text("Done.")])];
    let mut agent = AgentProcess::start(answers);
    agent.settings.api = ProviderApi::Openai;
    let mut session = AgentTestSession::with_history(agent, Vec::new()).await;
    session.prompt("t1", "go").await;
    assert_eq!(session.outcome("t1").await, WorkOutcome::Done);
    assert_eq!(session.events().iter().filter(|event| event.starts_with("error c")).count(), 3000);
}

#[tokio::test]
async fn arguments_with_one_meaning_are_read() {
    let write = json!({ "path": "t", "content": "a\nb\n" });
    let edit = json!({ "path": "t", "change": "replace", "line": "2", "lines": "[\"B\"]" });
    let answers = vec![
        // All arguments as a JSON string within JSON.
        Complete(vec![call("c1", "write", json!(write.to_string()))]),
        Complete(vec![call("c2", "edit", edit)]),
        Frames(vec![calls(
            &json!([{ "index": 0, "id": "c3", "function": { "name": "run", "arguments": "{}{\"command\":\"cat t;\necho c\"}" } }]),
        )]),
        Complete(vec![text("Done.")]),
    ];
    let expected =
        ["write! c1", "write c1: ", "edit! c2", "edit c2: ", "run! c3", "run c3: [0] a\nB\nc\n", "message _: Done."];
    requests_of(ProviderApi::Openai, answers, &expected).await;
}
