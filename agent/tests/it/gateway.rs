//! Model gateway that plays a script: one answer per request, in order.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

/// Scripted answer of the model.
#[derive(Clone)]
pub(crate) enum ScriptedAnswer {
    /// Sends everything, then a proper end.
    Complete(Vec<ScriptedPart>),
    /// Sends everything, then stays silent.
    Hangs(Vec<ScriptedPart>),
    /// Sends everything, then breaks the connection.
    Breaks(Vec<ScriptedPart>),
    /// Sends these frames of OpenAI's format, then the end of the body.
    Frames(Vec<Value>),
    /// Sends one JSON value in place of a stream.
    Json(Value),
    Status(u16, &'static str),
}

#[derive(Clone)]
pub(crate) enum ScriptedPart {
    Thinking(&'static str),
    Text(String),
    Call(&'static str, &'static str, Value),
}

pub(crate) fn text(text: &str) -> ScriptedPart {
    ScriptedPart::Text(text.to_owned())
}

pub(crate) fn call(id: &'static str, name: &'static str, arguments: Value) -> ScriptedPart {
    ScriptedPart::Call(id, name, arguments)
}

pub(crate) struct ScriptedGateway {
    socket: PathBuf,
    script: Arc<Mutex<GatewayScript>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct GatewayScript {
    answers: VecDeque<ScriptedAnswer>,
    requests: Vec<Value>,
}

impl ScriptedGateway {
    pub(crate) fn start(socket: &Path, answers: Vec<ScriptedAnswer>) -> ScriptedGateway {
        let script = Arc::new(Mutex::new(GatewayScript { answers: answers.into(), requests: Vec::new() }));
        ScriptedGateway { socket: socket.to_owned(), task: serve(socket, script.clone()), script }
    }

    /// Ends with all connections, like a killed server: the socket file stays, and dials fail.
    pub(crate) fn die(&mut self) {
        self.task.abort();
    }

    pub(crate) fn restart(&mut self) {
        std::fs::remove_file(&self.socket).expect("the old socket file exists");
        self.task = serve(&self.socket, self.script.clone());
    }

    /// Returns the bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.script.lock().expect("lock is never poisoned: no holder panics").requests.clone()
    }
}

impl Drop for ScriptedGateway {
    fn drop(&mut self) {
        self.die();
    }
}

fn serve(socket: &Path, script: Arc<Mutex<GatewayScript>>) -> JoinHandle<()> {
    let listener = UnixListener::bind(socket).expect("the directory exists");
    tokio::spawn(async move {
        // Dropped, and so aborted, together with this task.
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(answer(stream, script.clone()));
        }
    })
}

async fn answer(mut stream: UnixStream, script: Arc<Mutex<GatewayScript>>) {
    let Some((path, body)) = request(&mut stream).await else { return };
    let answer = {
        let mut script = script.lock().expect("lock is never poisoned: no holder panics");
        script.requests.push(body);
        script
            .answers
            .pop_front()
            .unwrap_or(ScriptedAnswer::Status(500, r#"{"error":{"message":"the script is over"}}"#))
    };
    let anthropic = path.starts_with("/anthropic/");
    let events = if anthropic { anthropic_events } else { openai_events };
    let event = |frame: &Value| format!("data: {frame}\n\n");
    let (events, complete, hangs) = match answer {
        ScriptedAnswer::Status(status, body) => {
            let head = format!(
                "HTTP/1.1 {status} No\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // The agent may be gone, so the result is ignored.
            let _ = stream.write_all((head + body).as_bytes()).await;
            return;
        }
        ScriptedAnswer::Json(value) => {
            let body = value.to_string();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
            return;
        }
        ScriptedAnswer::Complete(parts) => (events(&parts, true), true, false),
        ScriptedAnswer::Hangs(parts) => (events(&parts, false), false, true),
        ScriptedAnswer::Breaks(parts) => (events(&parts, false), false, false),
        ScriptedAnswer::Frames(frames) => (frames.iter().map(event).collect(), true, false),
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut out = vec![head.to_owned()];
    let chunk = |event: String| format!("{:x}\r\n{event}\r\n", event.len());
    out.extend(events.into_iter().map(chunk));
    for piece in out {
        if stream.write_all(piece.as_bytes()).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
    if complete {
        let _ = stream.write_all(b"0\r\n\r\n").await;
    }
    if hangs {
        std::future::pending::<()>().await;
    }
}

async fn request(stream: &mut UnixStream) -> Option<(String, Value)> {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).to_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a body");
            let body = end + 4;
            if received.len() >= body + length.trim().parse::<usize>().expect("a number") {
                let path = head.split(' ').nth(1).expect("a path").to_owned();
                return Some((path, serde_json::from_slice(&received[body..]).expect("JSON")));
            }
        }
        match stream.read(&mut piece).await {
            Ok(n @ 1..) => received.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
}

fn halves(text: &str) -> [&str; 2] {
    let (a, b) = text.split_at(text.floor_char_boundary(text.len() / 2));
    [a, b]
}

fn anthropic_events(parts: &[ScriptedPart], complete: bool) -> Vec<String> {
    let event = |value: Value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().expect("a type"));
    let usage = json!({ "input_tokens": 1, "output_tokens": 1 });
    let mut events = vec![event(json!({ "type": "message_start", "message": { "usage": usage } }))];
    let mut calls = false;
    for (index, part) in parts.iter().enumerate() {
        let (block, deltas): (Value, Vec<Value>) = match part {
            ScriptedPart::Thinking(text) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": text }),
                    json!({ "type": "signature_delta", "signature": "signed" }),
                ],
            ),
            ScriptedPart::Text(text) => (
                json!({ "type": "text", "text": "" }),
                halves(text).map(|half| json!({ "type": "text_delta", "text": half })).into(),
            ),
            ScriptedPart::Call(id, name, arguments) => {
                calls = true;
                let input = match arguments {
                    Value::String(broken) => broken.clone(),
                    arguments => arguments.to_string(),
                };
                (
                    json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                    halves(&input).map(|half| json!({ "type": "input_json_delta", "partial_json": half })).into(),
                )
            }
        };
        events.push(event(json!({ "type": "content_block_start", "index": index, "content_block": block })));
        for delta in deltas {
            events.push(event(json!({ "type": "content_block_delta", "index": index, "delta": delta })));
        }
        if complete || index + 1 < parts.len() {
            events.push(event(json!({ "type": "content_block_stop", "index": index })));
        }
    }
    if complete {
        let reason = if calls { "tool_use" } else { "end_turn" };
        events.push(event(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage })));
        events.push(event(json!({ "type": "message_stop" })));
    }
    events
}

fn openai_events(parts: &[ScriptedPart], complete: bool) -> Vec<String> {
    let event = |delta: Value| format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta }] }));
    let (mut events, mut calls) = (Vec::new(), 0);
    for part in parts {
        match part {
            ScriptedPart::Thinking(text) => events.push(event(json!({ "reasoning_content": text }))),
            ScriptedPart::Text(text) => events.extend(halves(text).map(|half| event(json!({ "content": half })))),
            ScriptedPart::Call(id, name, arguments) => {
                let [first, rest] = halves(&arguments.to_string()).map(str::to_owned);
                let start = json!({ "index": calls, "id": id, "type": "function", "function": { "name": name, "arguments": first } });
                events.push(event(json!({ "tool_calls": [start] })));
                events.push(event(json!({ "tool_calls": [{ "index": calls, "function": { "arguments": rest } }] })));
                calls += 1;
            }
        }
    }
    if complete {
        let reason = if calls > 0 { "tool_calls" } else { "stop" };
        events.push(format!(
            "data: {}\n\n",
            json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
        ));
        events.push("data: [DONE]\n\n".to_owned());
    }
    events
}
