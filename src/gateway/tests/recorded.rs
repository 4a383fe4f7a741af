//! Requests that agents really send, from `src/gateway/recorded/`: each completes, and loses only
//! what its file names.

use serde_json::{Value, json};

use super::*;

const RECORDED: [(&str, &str); 8] = [
    ("Claude Code", include_str!("../recorded/claude.json")),
    ("Codex", include_str!("../recorded/codex.json")),
    ("Gemini CLI", include_str!("../recorded/gemini.json")),
    ("goose", include_str!("../recorded/goose.json")),
    ("Kimi Code", include_str!("../recorded/kimi.json")),
    ("opencode", include_str!("../recorded/opencode.json")),
    ("Qwen Code", include_str!("../recorded/qwen.json")),
    ("Vibe", include_str!("../recorded/vibe.json")),
];

fn recordings() -> impl Iterator<Item = (&'static str, Value)> {
    RECORDED.into_iter().map(|(agent, text)| (agent, serde_json::from_str(text).expect("the recording is JSON")))
}

fn request(recorded: &Value, path: &str, body: &Value) -> Request<Full<Bytes>> {
    let mut request = Request::post(path);
    for (name, value) in recorded["headers"].as_object().expect("the headers are an object") {
        request = request.header(name, value.as_str().expect("a header is text"));
    }
    request.body(Full::from(body.to_string())).expect("a request")
}

/// Removes what the recording names.
fn without_removed(recorded: &Value) -> Value {
    let mut body = recorded["body"].clone();
    for removed in recorded["removed"].as_array().expect("the list is an array") {
        let removed = removed.as_str().expect("the name is text");
        let name = removed.split('`').nth(1).expect("the name is quoted");
        let fields = body.as_object_mut().expect("the body is an object");
        if removed.starts_with("the field") {
            assert!(fields.shift_remove(name).is_some(), "{removed}");
        } else if removed.starts_with("the tool") {
            fields["tools"].as_array_mut().expect("the tools are a list").retain(|tool| tool["type"] != name);
        }
    }
    body
}

fn answer(recorded: &Value) -> FakeModelResponse {
    match recorded["answer"].as_str() {
        Some("messages") => FakeModelResponse::anthropic(3),
        Some("responses") => FakeModelResponse::responses(3),
        Some("chat") => FakeModelResponse::chat(3),
        _ => {
            let content = json!({"role": "model", "parts": [{"text": "hello"}]});
            let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 3});
            let candidate = json!({"content": content, "finishReason": "STOP"});
            let chunk = json!({"candidates": [candidate], "usageMetadata": usage});
            FakeModelResponse::stream([format!("data: {chunk}\r\n\r\n")])
        }
    }
}

#[tokio::test]
async fn recorded_requests_complete() {
    for (agent, recorded) in recordings() {
        let fixture = GatewayFixture::with_script([answer(&recorded)]).await;
        let path = recorded["path"].as_str().expect("the path is text");
        let reply = fixture.send(request(&recorded, path, &recorded["body"])).await;
        assert_eq!(reply.status(), 200, "{agent}");
        assert_eq!(reply.text().await, answer(&recorded).text(), "{agent}");
        let received = &fixture.fake.requests()[0];
        let body: Value = serde_json::from_slice(&received.body).expect("the body is JSON");
        assert_eq!(body, without_removed(&recorded), "{agent}");
        assert!(!received.headers.contains_key("anthropic-beta"), "{agent}");
        let lines = fixture.account.lines.lock().expect("the lock is never poisoned: no holder panics").clone();
        let mut named: Vec<&str> = lines
            .iter()
            .map(|line| line.split_once(" removed ").and_then(|(_, rest)| Some(rest.split_once(" from ")?.0)))
            .map(|name| name.expect("a line names a part"))
            .collect();
        named.sort_unstable();
        assert_eq!(json!(named), recorded["removed"], "{agent}");
        let notices = fixture.account.notices();
        assert!(matches!(&notices[..], [GatewayNotice::Used(used)] if !used.estimated), "{agent}: {notices:?}");
    }
}

#[tokio::test]
async fn demo_model_calls_the_command_tool_of_each_agent() {
    for (agent, recorded) in recordings() {
        let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
        let mut body = recorded["body"].clone();
        if body.get("model").is_some() {
            body["model"] = json!("demo");
        }
        let path = recorded["path"].as_str().expect("the path is text").replace("gemini-2.5-pro", "demo");
        let reply = fixture.send(request(&recorded, &path, &body)).await;
        assert_eq!(reply.status(), 200, "{agent}");
        let text = reply.text().await;
        match recorded["command_tool"].as_str() {
            Some(tool) => assert!(text.contains(&format!(r#""name":"{tool}""#)), "{agent}: {text}"),
            None => assert!(text.contains(r#":"demo""#), "{agent}: {text}"),
        }
    }
}
