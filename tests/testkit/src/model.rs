//! Model that plays a script: a local HTTP server that speaks the providers' streaming formats.
//!
//! A script is a JSON file of `tests/scenarios/`: a list of [`ScriptedRule`]s. The first rule whose
//! `when` occurs in the text since the model's last answer produces the answer. A repeated request
//! therefore gets the same answer, from any caller.

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::{Request, Response, body::Frame, service::service_fn};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
};

use super::sse::{self, ScriptedDialect};

/// Answer, and the text that it answers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedRule {
    /// Part of the text since the model's last answer. If absent, the rule matches any text.
    pub when: Option<String>,
    /// Thinking before the answer.
    pub think: Option<String>,
    /// Text of the answer: repeated `times` times, a word every `every_ms` milliseconds.
    pub say: Option<String>,
    #[serde(default = "once")]
    pub times: usize,
    #[serde(default)]
    pub every_ms: u64,
    /// Replaces each word by the time at which it leaves, in microseconds since 1970.
    #[serde(default)]
    pub stamped: bool,
    /// Tool call at the end.
    pub tool: Option<ScriptedTool>,
    /// HTTP status of the answer, which then has no stream.
    pub status: Option<u16>,
    /// Reported number of input tokens. Default: 10.
    pub input_tokens: Option<u64>,
    /// Leaves the stream open after the text.
    #[serde(default)]
    pub hang: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedTool {
    pub name: String,
    pub input: Value,
}

fn once() -> usize {
    1
}

/// Call that the model received.
#[derive(Debug, Clone)]
pub struct ScriptedCall {
    pub path: String,
    /// Key of the call, from either provider's header.
    pub key: Option<String>,
    pub body: Value,
}

/// Running model. Ends when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    state: Arc<ScriptedModelState>,
    _stop: oneshot::Sender<()>,
}

#[derive(Default)]
struct ScriptedModelState {
    rules: Vec<ScriptedRule>,
    calls: Mutex<Vec<ScriptedCall>>,
    streams: AtomicUsize,
    cut: AtomicUsize,
}

/// Number of calls that are kept. A soak makes tens of thousands, each with its session's whole
/// conversation.
const MAX_CALLS: usize = 64;

impl ScriptedModelState {
    fn called(&self, call: ScriptedCall) {
        let mut calls = self.calls.lock().expect("lock is never poisoned: no holder panics");
        let too_many = (calls.len() + 1).saturating_sub(MAX_CALLS);
        calls.drain(..too_many);
        calls.push(call);
    }
}

impl ScriptedModel {
    /// Plays `tests/scenarios/<name>.json`.
    pub fn play(name: &str) -> ScriptedModel {
        let path = Path::new(crate::WORKSPACE).join("tests/scenarios").join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()));
        ScriptedModel::with(serde_json::from_str(&text).unwrap_or_else(|e| panic!("`{}`: {e}", path.display())))
    }

    /// Plays these rules on a thread of its own: a test that blocks does not silence the model.
    pub fn with(rules: Vec<ScriptedRule>) -> ScriptedModel {
        let state = Arc::new(ScriptedModelState { rules, ..ScriptedModelState::default() });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel::<()>();
        let served = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("it is a listener");
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        ScriptedModel { address, state, _stop: stop }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the newest calls, the newest last.
    pub fn calls(&self) -> Vec<ScriptedCall> {
        self.state.calls.lock().expect("lock is never poisoned: no holder panics").clone()
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.state.streams.load(Ordering::SeqCst)
    }

    /// Returns the number of streams that the caller left before their end.
    pub fn cut(&self) -> usize {
        self.state.cut.load(Ordering::SeqCst)
    }
}

async fn serve(listener: TcpListener, state: Arc<ScriptedModelState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let _unbuffered_if_it_can = stream.set_nodelay(true);
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, state.clone()));
            // An error here is a caller that left, which `cut` counts.
            let _left =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type ScriptedBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

async fn answer(
    request: Request<hyper::body::Incoming>,
    state: Arc<ScriptedModelState>,
) -> Result<Response<ScriptedBody>, Infallible> {
    let path = request.uri().path().to_owned();
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let key = header("x-api-key").or_else(|| header("authorization"));
    let Ok(body) = request.into_body().collect().await else { return Ok(plain(400, "the request was cut")) };
    let Ok(body) = serde_json::from_slice::<Value>(&body.to_bytes()) else { return Ok(plain(400, "no JSON")) };
    let dialect = if path.ends_with("/messages") {
        ScriptedDialect::Anthropic
    } else if path.ends_with("/chat/completions") {
        ScriptedDialect::OpenAi
    } else {
        return Ok(plain(404, "unknown path"));
    };
    let news = sse::news(&body);
    let rule = state.rules.iter().find(|rule| rule.when.as_deref().is_none_or(|part| news.contains(part))).cloned();
    state.called(ScriptedCall { path, key, body });
    let Some(rule) = rule else { return Ok(plain(400, "the script has no rule for this")) };
    match rule.status {
        Some(status) => {
            Ok(plain(status, r#"{"type":"error","error":{"type":"overloaded_error","message":"scripted"}}"#))
        }
        None => Ok(stream(dialect, rule, state)),
    }
}

fn plain(status: u16, text: &'static str) -> Response<ScriptedBody> {
    let body = http_body_util::Full::new(Bytes::from_static(text.as_bytes())).boxed();
    let response = Response::builder().status(status).header("content-type", "application/json").body(body);
    response.expect("status and header are fitting")
}

fn stream(dialect: ScriptedDialect, rule: ScriptedRule, state: Arc<ScriptedModelState>) -> Response<ScriptedBody> {
    // Capacity one: a caller that reads slowly holds the model back, as a real provider's socket
    // does.
    let (sender, mut receiver) = mpsc::channel::<Bytes>(1);
    state.streams.fetch_add(1, Ordering::SeqCst);
    tokio::spawn(async move {
        let left = speak(dialect, &rule, &sender).await.is_err();
        state.streams.fetch_sub(1, Ordering::SeqCst);
        if left {
            state.cut.fetch_add(1, Ordering::SeqCst);
        }
    });
    let pieces = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx)).map(|bytes| Ok(Frame::data(bytes)));
    let response =
        Response::builder().header("content-type", "text/event-stream").body(BodyExt::boxed(StreamBody::new(pieces)));
    response.expect("the header is fitting")
}

/// Error of a stream whose caller has left.
struct CallerLeft;

async fn speak(dialect: ScriptedDialect, rule: &ScriptedRule, to: &mpsc::Sender<Bytes>) -> Result<(), CallerLeft> {
    for piece in sse::pieces(rule) {
        if rule.every_ms > 0 && piece.is_word() {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(rule.every_ms)) => {}
                () = to.closed() => return Err(CallerLeft),
            }
        }
        to.send(dialect.encode(&piece)).await.map_err(|_| CallerLeft)?;
    }
    if rule.hang {
        to.closed().await;
        return Err(CallerLeft);
    }
    Ok(())
}
