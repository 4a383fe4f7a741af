//! A model that plays a script: a local HTTP server that speaks the providers' streaming formats.
//!
//! A script is a JSON file of `tests/scenarios/`: a list of [`Rule`]s. The first whose `when` occurs in what was said
//! since the model spoke last answers it, so a step that is asked again is answered the same again, whoever asks.

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

/// One answer, and what it answers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedRule {
    /// Part of what was said since the model spoke last; absent fits all.
    pub(crate) when: Option<String>,
    /// What it thinks first.
    pub(crate) think: Option<String>,
    /// What it says then, `times` times over, a word each `every_ms`.
    pub(crate) say: Option<String>,
    #[serde(default = "once")]
    pub(crate) times: usize,
    #[serde(default)]
    pub(crate) every_ms: u64,
    /// Each word is the time at which it leaves, in microseconds since 1970, in place of the word.
    #[serde(default)]
    pub(crate) stamped: bool,
    /// Which tool it calls in the end.
    pub(crate) tool: Option<ScriptedTool>,
    /// Answers with this status, and no stream.
    pub(crate) status: Option<u16>,
    /// How many tokens it says that it was given; a few where nothing is said.
    pub(crate) input_tokens: Option<u64>,
    /// Says nothing more and does not end.
    #[serde(default)]
    pub(crate) hang: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedTool {
    pub(crate) name: String,
    pub(crate) input: Value,
}

fn once() -> usize {
    1
}

/// What was asked of the model.
#[derive(Debug, Clone)]
pub(crate) struct ScriptedCall {
    pub(crate) path: String,
    /// The key that came with it, of whichever header.
    pub(crate) key: Option<String>,
    pub(crate) body: Value,
}

/// A running model. Ends when dropped.
pub(crate) struct ScriptedModel {
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

/// How many calls are kept. A soak makes tens of thousands, each with all that its session has said.
const MAX_CALLS: usize = 64;

impl ScriptedModelState {
    fn called(&self, call: ScriptedCall) {
        let mut calls = self.calls.lock().expect("nobody panics while holding this");
        let too_many = (calls.len() + 1).saturating_sub(MAX_CALLS);
        calls.drain(..too_many);
        calls.push(call);
    }
}

impl ScriptedModel {
    /// Plays `tests/scenarios/<name>.json`.
    pub(crate) fn play(name: &str) -> ScriptedModel {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios").join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()));
        ScriptedModel::with(serde_json::from_str(&text).unwrap_or_else(|e| panic!("`{}`: {e}", path.display())))
    }

    /// Plays these rules, on a thread of its own: a test that blocks does not silence it.
    pub(crate) fn with(rules: Vec<ScriptedRule>) -> ScriptedModel {
        let state = Arc::new(ScriptedModelState { rules, ..ScriptedModelState::default() });
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be told so");
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

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked so far, the newest last.
    pub(crate) fn calls(&self) -> Vec<ScriptedCall> {
        self.state.calls.lock().expect("no test panics while it holds this").clone()
    }

    /// How many streams are open.
    pub(crate) fn streams(&self) -> usize {
        self.state.streams.load(Ordering::SeqCst)
    }

    /// How many streams the caller left before their end.
    pub(crate) fn cut(&self) -> usize {
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
    let said = sse::news(&body);
    let rule = state.rules.iter().find(|rule| rule.when.as_deref().is_none_or(|part| said.contains(part))).cloned();
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
    // One place: a caller that reads slowly holds the model back, as a real provider's socket does.
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

/// The caller has left.
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
