//! Demo model, driven by a small agent without a sandbox.

use serde_json::{Value, json};

use super::*;

const TOOLS: [&str; 4] = ["plan", "write", "run", "finish"];

/// Plays `task` until the demo calls `finish` or no tool. Returns each call with its input.
async fn play_messages(fixture: &GatewayFixture, task: &str) -> Vec<(String, Value)> {
    let tools: Vec<Value> = TOOLS.iter().map(|name| json!({ "name": name })).collect();
    let mut messages = vec![json!({"role": "user", "content": task})];
    let mut calls = Vec::new();
    loop {
        let body = json!({"model": "demo", "stream": true, "tools": tools, "messages": messages}).to_string();
        let blocks = blocks_of(&fixture.post(MESSAGES, &body).await.text().await);
        let call = blocks.iter().find(|block| block["type"] == "tool_use").cloned();
        messages.push(json!({"role": "assistant", "content": blocks}));
        let Some(call) = call else { return calls };
        calls.push((call["name"].as_str().expect("the name is a string").to_owned(), call["input"].clone()));
        if call["name"] == "finish" {
            return calls;
        }
        let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "hello"});
        messages.push(json!({"role": "user", "content": [result]}));
    }
}

/// Assembles the blocks of a stream, as an agent does.
fn blocks_of(stream: &str) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Vec<String> = Vec::new();
    for data in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let event: Value = serde_json::from_str(data).expect("the text is JSON");
        let at = event["index"].as_u64().unwrap_or_default() as usize;
        let delta = &event["delta"];
        match (event["type"].as_str(), delta["type"].as_str()) {
            (Some("content_block_start"), _) => {
                assert_eq!(at, blocks.len());
                blocks.push(event["content_block"].clone());
                inputs.push(String::new());
            }
            (_, Some("text_delta")) => append(&mut blocks[at]["text"], &delta["text"]),
            (_, Some("thinking_delta")) => append(&mut blocks[at]["thinking"], &delta["thinking"]),
            (_, Some("input_json_delta")) => {
                inputs[at] += delta["partial_json"].as_str().expect("the value is a string")
            }
            (Some("content_block_stop"), _) if !inputs[at].is_empty() => {
                blocks[at]["input"] = serde_json::from_str(&inputs[at]).expect("the input is JSON");
            }
            _ => {}
        }
    }
    blocks
}

fn append(text: &mut Value, more: &Value) {
    *text =
        json!(text.as_str().expect("the value is a string").to_owned() + more.as_str().expect("the value is a string"));
}

#[tokio::test]
async fn demo_does_the_main_job_without_a_key() {
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    let calls = play_messages(&fixture, "write a bash script that prints hello").await;
    let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plan", "write", "run", "plan", "finish"]);
    assert_eq!(calls[1].1, json!({"content": "#!/bin/sh\necho 'hello'\n", "path": "hello.sh"}));
    assert_eq!(calls[2].1, json!({"command": "sh hello.sh"}));

    let notices = fixture.account.notices();
    assert_eq!(notices.len(), 5);
    for notice in notices {
        let GatewayNotice::Used(used) = notice else { panic!("{notice:?}") };
        assert_eq!((used.cost_usd, used.estimated, used.model.as_str()), (Some(0.0), false, "demo"));
        assert!(used.output_tokens > 5 && used.input_tokens > 10);
    }
}

#[tokio::test]
async fn demo_serves_chat_completions() {
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    let tools: Vec<Value> = TOOLS.iter().map(|name| json!({"type": "function", "function": {"name": name}})).collect();
    let body = json!({"model": "demo", "tools": tools, "messages": [{"role": "user", "content": "run: uname -a"}]});

    let in_one_piece: Value =
        serde_json::from_str(&fixture.post(CHAT, &body.to_string()).await.text().await).expect("the text is JSON");
    let choice = &in_one_piece["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["name"], "run");
    assert_eq!(choice["message"]["tool_calls"][0]["function"]["arguments"], r#"{"command":"uname -a"}"#);

    let mut streamed = body;
    streamed["stream"] = json!(true);
    let text = fixture.post(CHAT, &streamed.to_string()).await.text().await;
    let (mut text_so_far, mut arguments) = (String::new(), String::new());
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]") {
        let event: Value = serde_json::from_str(data).expect("the text is JSON");
        let delta = &event["choices"][0]["delta"];
        text_so_far += delta["content"].as_str().unwrap_or_default();
        arguments += delta["tool_calls"][0]["function"]["arguments"].as_str().unwrap_or_default();
    }
    assert_eq!(text_so_far, choice["message"]["content"].as_str().expect("the value is a string"));
    assert_eq!(arguments, r#"{"command":"uname -a"}"#);
    assert!(text.ends_with("data: [DONE]\n\n"));
    let notices = fixture.account.notices();
    assert!(
        matches!(&notices[..], [GatewayNotice::Used(a), GatewayNotice::Used(b)] if a.output_tokens == b.output_tokens)
    );
}

#[tokio::test]
async fn slow_command_can_be_interrupted() {
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    let body = json!({"model": "demo", "stream": true, "messages": [{"role": "user", "content": "slow: 5000"}]});
    let mut reply = fixture.post(MESSAGES, &body.to_string()).await;
    reply.read_until("2 ").await;
    fixture.endpoint.abort_calls();
    let (text, _) = reply.read_rest().await;
    assert!(!text.contains("5000 ") && text.contains("event: error"), "{text}");
}

#[tokio::test]
async fn demo_is_the_default_model_without_a_key() {
    let gateway = Gateway::new(no_provider()).expect("the options are valid");
    assert_eq!(gateway.default_model(), "demo");
    assert!(gateway.ready("demo").is_ok() && gateway.ready("claude-x").is_err());
    assert!(gateway.models().iter().all(|choice| choice.demo));

    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    for path in ["/anthropic/v1/models", "/openai/v1/models"] {
        let listed = fixture.send(Request::get(path).body(Full::default()).expect("a request")).await;
        let listed: Value = serde_json::from_str(&listed.text().await).expect("the text is JSON");
        assert_eq!(listed["data"][0]["id"], "demo");
    }
}
