//! Fake model provider for tests. Serves both providers' formats and fails as its script says.
//!
//! Uses only tokio and hyper, and nothing of the gateway. Any test or benchmark that needs a model
//! server can use it.

use std::{
    collections::VecDeque,
    convert::Infallible,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{HeaderName, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle};

/// Running server. Dropping it stops the server.
pub(crate) struct FakeProvider {
    /// Base URL: `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    shared: Arc<FakeProviderState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct FakeProviderState {
    script: Mutex<VecDeque<FakeModelResponse>>,
    requests: Mutex<Vec<FakeProviderRequest>>,
    /// Number of responses that are being streamed.
    open_streams: AtomicUsize,
}

/// Received request.
#[derive(Debug, Clone)]
pub(crate) struct FakeProviderRequest {
    pub(crate) method: Method,
    /// Path with its query.
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Scripted response. The constructors create it, and the other methods change it.
#[derive(Debug, Clone)]
pub(crate) struct FakeModelResponse {
    status: u16,
    headers: Vec<(&'static str, String)>,
    /// Delay before the head.
    delay: Duration,
    chunks: Vec<Bytes>,
    /// Pause between two chunks.
    pause: Duration,
    end: FakeResponseEnd,
}

/// End of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FakeResponseEnd {
    Complete,
    /// The connection closes before the response is complete.
    Broken,
    /// No further data is sent, and the connection stays open.
    Hang,
}

impl FakeProvider {
    /// Starts a server that answers each request with the next response of `script`.
    pub(crate) async fn start(script: impl IntoIterator<Item = FakeModelResponse>) -> FakeProvider {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let shared = Arc::new(FakeProviderState {
            script: Mutex::new(script.into_iter().collect()),
            ..FakeProviderState::default()
        });
        let task = tokio::spawn(serve(listener, shared.clone()));
        FakeProvider { url, shared, task }
    }

    /// Returns all requests so far.
    pub(crate) fn requests(&self) -> Vec<FakeProviderRequest> {
        self.shared.requests.lock().expect("the lock is never poisoned: no holder panics").clone()
    }

    /// Waits until exactly `count` responses are being streamed.
    pub(crate) async fn wait_for_streams(&self, count: usize) {
        while self.shared.open_streams.load(Ordering::Acquire) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeModelResponse {
    /// Returns a response in one piece, such as an error.
    pub(crate) fn complete(status: u16, body: impl Into<Bytes>) -> FakeModelResponse {
        FakeModelResponse {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            delay: Duration::ZERO,
            chunks: vec![body.into()],
            pause: Duration::ZERO,
            end: FakeResponseEnd::Complete,
        }
    }

    /// Returns a stream of server-sent events, one per chunk.
    pub(crate) fn stream(events: impl IntoIterator<Item = String>) -> FakeModelResponse {
        let chunks = events.into_iter().map(Bytes::from).collect();
        FakeModelResponse {
            headers: vec![("content-type", "text/event-stream".to_owned())],
            chunks,
            ..FakeModelResponse::complete(200, "")
        }
    }

    /// Returns `tokens` words in the format of Anthropic Messages. Usage: 10 input, 7 cache reads,
    /// 5 cache writes, `tokens` output.
    pub(crate) fn anthropic(tokens: usize) -> FakeModelResponse {
        let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 5, "output_tokens": 1});
        let message = json!({"id": "m", "type": "message", "role": "assistant", "model": "claude-x-1", "usage": usage});
        let block = json!({"type": "text", "text": ""});
        let mut events = vec![
            anthropic(json!({"type": "message_start", "message": message})),
            anthropic(json!({"type": "content_block_start", "index": 0, "content_block": block})),
        ];
        events.extend((0..tokens).map(|n| {
            let delta = json!({"type": "text_delta", "text": format!("w{n} ")});
            anthropic(json!({"type": "content_block_delta", "index": 0, "delta": delta}))
        }));
        events.push(anthropic(json!({"type": "content_block_stop", "index": 0})));
        let delta = json!({"stop_reason": "end_turn"});
        events.push(anthropic(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}})));
        events.push(anthropic(json!({"type": "message_stop"})));
        FakeModelResponse::stream(events)
    }

    /// Returns `tokens` words in the format of Chat Completions. Usage: 10 input, of which 4 are
    /// cached, and `tokens` output.
    pub(crate) fn chat(tokens: usize) -> FakeModelResponse {
        let chunk = |delta: Value, finish: Value| {
            let choices = json!([{"index": 0, "delta": delta, "finish_reason": finish}]);
            openai(json!({"object": "chat.completion.chunk", "model": "gpt-x-1", "choices": choices, "usage": null}))
        };
        let mut events: Vec<String> =
            (0..tokens).map(|n| chunk(json!({"content": format!("w{n} ")}), Value::Null)).collect();
        events.push(chunk(json!({}), json!("stop")));
        let details = json!({"cached_tokens": 4});
        let usage = json!({"prompt_tokens": 10, "completion_tokens": tokens, "prompt_tokens_details": details});
        events.push(openai(json!({"model": "gpt-x-1", "choices": [], "usage": usage})));
        events.push("data: [DONE]\n\n".to_owned());
        FakeModelResponse::stream(events)
    }

    /// Returns `tokens` words in the format of OpenAI Responses, with the usage of
    /// [`FakeModelResponse::chat`].
    pub(crate) fn responses(tokens: usize) -> FakeModelResponse {
        let mut events: Vec<String> = (0..tokens)
            .map(|n| anthropic(json!({"type": "response.output_text.delta", "delta": format!("w{n} ")})))
            .collect();
        let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": tokens});
        events.push(anthropic(json!({"type": "response.completed", "response": {"model": "gpt-x-1", "usage": usage}})));
        FakeModelResponse::stream(events)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> FakeModelResponse {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn with_content_type(mut self, value: &str) -> FakeModelResponse {
        self.headers = vec![("content-type", value.to_owned())];
        self
    }

    pub(crate) fn delayed(mut self, delay: Duration) -> FakeModelResponse {
        self.delay = delay;
        self
    }

    pub(crate) fn tokens_per_second(mut self, rate: u32) -> FakeModelResponse {
        self.pause = Duration::from_secs(1) / rate;
        self
    }

    /// Sends the same bytes in two chunks, split at `at`.
    pub(crate) fn split_at(mut self, at: usize) -> FakeModelResponse {
        let mut text = Bytes::from(self.chunks.concat());
        let first = text.split_to(at.min(text.len()));
        self.chunks = vec![first, text];
        // Without a pause, both chunks would arrive as one.
        self.pause = Duration::from_micros(200);
        self
    }

    /// Ends the response after the first `count` chunks.
    pub(crate) fn ending_after(mut self, count: usize, end: FakeResponseEnd) -> FakeModelResponse {
        self.chunks.truncate(count);
        self.end = end;
        self
    }

    /// Returns all chunks as one text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.chunks.concat()).into_owned()
    }
}

fn anthropic(data: Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

fn openai(data: Value) -> String {
    format!("data: {data}\n\n")
}

async fn serve(listener: TcpListener, shared: Arc<FakeProviderState>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("the stream is a TCP socket");
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| respond(request, shared.clone()));
            // A broken response ends its connection with an error, as scripted.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type FakeResponseBody = UnsyncBoxBody<Bytes, io::Error>;

async fn respond(
    request: Request<Incoming>,
    shared: Arc<FakeProviderState>,
) -> Result<Response<FakeResponseBody>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let path = head.uri.to_string();
    let request = FakeProviderRequest { method: head.method, path, headers: head.headers, body };
    shared.requests.lock().expect("the lock is never poisoned: no holder panics").push(request);
    let next = shared.script.lock().expect("the lock is never poisoned: no holder panics").pop_front();
    let scripted = next.unwrap_or_else(|| {
        FakeModelResponse::complete(418, r#"{"error":{"message":"the script has no further response"}}"#)
    });
    tokio::time::sleep(scripted.delay).await;
    let mut response = Response::new(StreamBody::new(scripted.body(shared)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(scripted.status).expect("the scripted status is valid");
    for (name, value) in scripted.headers {
        let value = HeaderValue::from_str(&value).expect("the scripted header value is valid");
        response.headers_mut().append(HeaderName::from_static(name), value);
    }
    Ok(response)
}

impl FakeModelResponse {
    fn body(&self, shared: Arc<FakeProviderState>) -> impl Stream<Item = Result<Frame<Bytes>, io::Error>> + use<> {
        let (pause, end) = (self.pause, self.end);
        let open = FakeStreamGuard::new(shared);
        let chunks = stream::iter(self.chunks.clone()).enumerate().then(move |(n, chunk)| async move {
            if n > 0 && !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            Ok(Frame::data(chunk))
        });
        let last = stream::once(async move {
            let _open = open;
            match end {
                FakeResponseEnd::Complete => None,
                FakeResponseEnd::Broken => {
                    // hyper drops buffered data when a body fails, so it first gets time to write.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    Some(Err(io::Error::other("the script breaks the response here")))
                }
                FakeResponseEnd::Hang => std::future::pending().await,
            }
        });
        chunks.chain(last.filter_map(std::future::ready))
    }
}

/// Counts a response while it is being streamed.
struct FakeStreamGuard(Arc<FakeProviderState>);

impl FakeStreamGuard {
    fn new(shared: Arc<FakeProviderState>) -> FakeStreamGuard {
        shared.open_streams.fetch_add(1, Ordering::AcqRel);
        FakeStreamGuard(shared)
    }
}

impl Drop for FakeStreamGuard {
    fn drop(&mut self) {
        self.0.open_streams.fetch_sub(1, Ordering::AcqRel);
    }
}
