//! The gateway as an agent meets it: over its socket, against a scripted provider.

mod demo;
mod interrupts;
mod passing;
mod refusals;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::{
    Account, Endpoint, Forbidden, Gateway, GatewayOptions, Notice, Price, ProviderOptions, RetryOptions, Secret,
    fake::{Answer, Fake},
};

const MESSAGES: &str = "/anthropic/v1/messages";
const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";

const KEY: &str = "sk-canary-key";

/// A gateway with one session, and the provider behind it.
struct Stand {
    fake: Fake,
    endpoint: Endpoint,
    ledger: Arc<Ledger>,
    directory: tempfile::TempDir,
}

/// A session that writes down what it is told.
#[derive(Default)]
struct Ledger {
    notices: watch::Sender<Vec<Notice>>,
    refusal: Mutex<Option<String>>,
    has_no_budget: AtomicBool,
}

impl Account for Ledger {
    fn may_call(&self) -> Result<(), Forbidden> {
        self.refusal.lock().expect("no test panics with it").clone().map_or(Ok(()), |why| Err(Forbidden::Because(why)))
    }

    fn has_budget(&self) -> bool {
        !self.has_no_budget.load(Ordering::Relaxed)
    }

    fn notice(&self, notice: Notice) {
        self.notices.send_modify(|notices| notices.push(notice));
    }
}

impl Ledger {
    fn all(&self) -> Vec<Notice> {
        self.notices.borrow().clone()
    }

    /// Waits until there are `count` notices.
    async fn wait_for(&self, count: usize) -> Vec<Notice> {
        let mut notices = self.notices.subscribe();
        notices.wait_for(|notices| notices.len() >= count).await.expect("the ledger lives").clone()
    }
}

fn options(url: &str) -> GatewayOptions {
    let provider = || ProviderOptions { base_url: url.to_owned(), api_key: Some(Secret::new(KEY)) };
    let price = |model: &str| Price {
        model: model.to_owned(),
        input: 1.0,
        output: 10.0,
        cache_read: 0.5,
        cache_write: 2.0,
        context_limit: Some(200_000),
    };
    GatewayOptions {
        anthropic: provider(),
        openai: provider(),
        prices: vec![price("claude-x*"), price("gpt-x*")],
        retry: RetryOptions { max_attempts: 3, base_ms: 1, max_ms: 60_000 },
        demo_tokens_per_second: 0,
        ..GatewayOptions::default()
    }
}

impl Stand {
    async fn with(script: impl IntoIterator<Item = Answer>) -> Stand {
        let fake = Fake::start(script).await;
        let options = options(&fake.url);
        Stand::new(fake, options)
    }

    fn new(fake: Fake, options: GatewayOptions) -> Stand {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let ledger = Arc::new(Ledger::default());
        let endpoint = Gateway::new(options).expect("the options are right").open(listener, ledger.clone());
        Stand { fake, endpoint, ledger, directory }
    }

    async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = UnixStream::connect(self.directory.path().join("s")).await.expect("it listens");
        let (client, connection) = http1::handshake(TokioIo::new(stream)).await.expect("it speaks HTTP");
        tokio::spawn(connection);
        client
    }

    async fn post(&self, path: &str, body: &str) -> Reply {
        let request = Request::post(path).body(Full::from(body.to_owned())).expect("a request");
        self.send(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let mut client = self.connect().await;
        Reply { response: client.send_request(request).await.expect("it answers") }
    }
}

/// An answer whose head is here.
struct Reply {
    response: Response<Incoming>,
}

impl Reply {
    fn status(&self) -> StatusCode {
        self.response.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Reads on until `text` has come.
    async fn read_until(&mut self, text: &str) {
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(text) {
            let frame = self.response.body_mut().frame().await.expect("the text comes first").expect("it is not cut");
            read.extend_from_slice(&frame.into_data().expect("there are no trailers"));
        }
    }

    /// The rest, and whether it is whole.
    async fn rest(mut self) -> (String, bool) {
        let mut read = Vec::new();
        let whole = loop {
            match self.response.body_mut().frame().await {
                Some(Ok(frame)) => read.extend_from_slice(&frame.into_data().expect("there are no trailers")),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        (String::from_utf8(read).expect("it is text"), whole)
    }

    async fn text(self) -> String {
        let (text, whole) = self.rest().await;
        assert!(whole, "it was cut after {text}");
        text
    }
}

fn streaming(model: &str) -> String {
    format!(r#"{{"model":"{model}","stream":true,"messages":[]}}"#)
}
