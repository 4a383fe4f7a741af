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

/// Plays a whole task in a format of a foreign agent, which offers one tool of its own. Returns the
/// call and the last text.
async fn play_foreign(path: &str, task: impl Fn(&[Value]) -> Value, read: impl Fn(&str) -> DemoAnswer) -> String {
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    let first = fixture.post(path, &task(&[]).to_string()).await.text().await;
    let DemoAnswer { call, history, .. } = read(&first);
    let command = call.expect("the demo calls the tool");
    assert!(command.starts_with("cat > hello.sh <<") && command.ends_with("sh hello.sh"), "{command}");
    let second = fixture.post(path, &task(&history).to_string()).await.text().await;
    let DemoAnswer { call, text, .. } = read(&second);
    assert_eq!(call, None);
    let notices = fixture.account.notices();
    assert!(matches!(&notices[..], [GatewayNotice::Used(a), GatewayNotice::Used(_)] if !a.estimated), "{notices:?}");
    text
}

struct DemoAnswer {
    call: Option<String>,
    text: String,
    /// Items that the agent sends back, with a result.
    history: Vec<Value>,
}

fn events_of(stream: &str) -> impl Iterator<Item = Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("the text is JSON"))
}

const FOREIGN_TASK: &str = "write a script that prints hello";

#[tokio::test]
async fn demo_serves_a_foreign_agent_in_responses() {
    let text = play_foreign(
        RESPONSES,
        |history| {
            let task =
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": FOREIGN_TASK}]});
            let parameters = json!({"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
            let tool = json!({"type": "function", "name": "exec_command", "parameters": parameters});
            let input = [&[task][..], history].concat();
            json!({"model": "demo", "stream": true, "tools": [tool], "input": input})
        },
        |stream| {
            let done = events_of(stream).find(|event| event["type"] == "response.completed").expect("the answer ends");
            let output = done["response"]["output"].as_array().expect("the output is a list").clone();
            let items: Vec<Value> = events_of(stream)
                .filter(|event| event["type"] == "response.output_item.done")
                .map(|event| event["item"].clone())
                .collect();
            assert_eq!(items, output, "the events and the last object agree");
            let call = output.iter().find(|item| item["type"] == "function_call").cloned();
            let message = output.iter().find(|item| item["type"] == "message").expect("the demo speaks");
            let streamed: String = events_of(stream)
                .filter(|event| event["type"] == "response.output_text.delta")
                .map(|event| event["delta"].as_str().expect("a delta is text").to_owned())
                .collect();
            assert_eq!(message["content"][0]["text"], streamed);
            let mut history = output.clone();
            if let Some(call) = &call {
                history
                    .push(json!({"type": "function_call_output", "call_id": call["call_id"], "output": "the-output"}));
            }
            let command = call.map(|call| {
                let input: Value = serde_json::from_str(call["arguments"].as_str().expect("text")).expect("JSON");
                input["cmd"].as_str().expect("the command is text").to_owned()
            });
            DemoAnswer { call: command, text: streamed, history }
        },
    )
    .await;
    assert!(text.contains("the-output"), "{text}");
}

#[tokio::test]
async fn demo_serves_a_foreign_agent_in_gemini() {
    let text = play_foreign(
        "/gemini/v1beta/models/demo:streamGenerateContent?alt=sse",
        |history| {
            let task = json!({"role": "user", "parts": [{"text": FOREIGN_TASK}]});
            let parameters =
                json!({"type": "OBJECT", "properties": {"command": {"type": "STRING"}}, "required": ["command"]});
            let declared = json!({"functionDeclarations": [{"name": "run_shell_command", "parameters": parameters}]});
            let contents = [&[task][..], history].concat();
            json!({"contents": contents, "tools": [declared]})
        },
        |stream| {
            let parts: Vec<Value> = events_of(stream)
                .flat_map(|event| event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default())
                .collect();
            let spoken = parts.iter().filter(|part| part["thought"] != true).filter_map(|part| part["text"].as_str());
            let text = spoken.collect();
            let call = parts.iter().find(|part| part["functionCall"].is_object());
            let command = call.map(|call| call["functionCall"]["args"]["command"].as_str().expect("text").to_owned());
            let response = json!({"name": "run_shell_command", "response": {"output": "the-output"}});
            let history = vec![
                json!({"role": "model", "parts": parts}),
                json!({"role": "user", "parts": [{"functionResponse": response}]}),
            ];
            DemoAnswer { call: command, text, history }
        },
    )
    .await;
    assert!(text.contains("the-output"), "{text}");
}

#[tokio::test]
async fn demo_names_itself_in_every_model_list() {
    let fixture = GatewayFixture::new(FakeProvider::start([]).await, no_provider());
    let check = async |path: &str, status: u16, part: &str| {
        let reply = fixture.send(Request::get(path).body(Full::default()).expect("a request")).await;
        assert_eq!(reply.status(), status, "{path}");
        let text = reply.text().await;
        assert!(text.contains(part), "{path}: {text}");
    };
    check("/gemini/v1beta/models", 200, r#""name":"models/demo""#).await;
    check("/openai/v1/models/demo", 200, r#""id":"demo""#).await;
    check("/anthropic/v1/models/other", 404, "there is no model `other`; the models are: `demo`").await;
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
    let gateway = Gateway::new(no_provider(), &GatewayConfig::default()).expect("the options are valid");
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
