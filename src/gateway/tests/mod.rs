//! Tests of the gateway as an agent uses it: over its socket, with a scripted provider.

mod budget;
mod demo;
mod interrupts;
mod pass_through;
mod recorded;
mod rejections;

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use http_body_util::{BodyExt, Full};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
};

use super::{
    CallDemand, CallGrant, CallSettlement, Gateway, GatewayEndpoint, GatewayNotice, LedgerAnswer, ModelCallDenied,
    SessionAccount, SessionModels, SpendingLedger,
    fake_provider::{FakeModelResponse, FakeProvider},
};
use crate::config::{
    Config, GatewayConfig, ModelConfig, PriceConfig, ProviderConfig, RetryConfig, SecretString, TimeSpan,
};

const MESSAGES: &str = "/anthropic/v1/messages";
const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";

const KEY: &str = "sk-canary-key";

/// Gateway with one session, and the provider behind it.
struct GatewayFixture {
    fake: FakeProvider,
    endpoint: GatewayEndpoint,
    account: Arc<RecordingAccount>,
    directory: tempfile::TempDir,
}

/// Session that records its notices.
#[derive(Default)]
struct RecordingAccount {
    notices: watch::Sender<Vec<GatewayNotice>>,
    denied: Mutex<Option<String>>,
    /// Budget of the session. Default: no limit.
    ledger: Mutex<SpendingLedger>,
    models: Mutex<Option<SessionModels>>,
    has_no_cause: AtomicBool,
    /// Lines of the session's log.
    lines: Mutex<Vec<String>>,
}

impl SessionAccount for RecordingAccount {
    fn may_call(&self) -> Result<(), ModelCallDenied> {
        self.denied
            .lock()
            .expect("the lock is never poisoned: no holder panics")
            .clone()
            .map_or(Ok(()), |reason| Err(ModelCallDenied::Reason(reason)))
    }

    fn has_budget(&self) -> bool {
        self.ledger().limit().is_some()
    }

    fn models(&self) -> SessionModels {
        let models = self.models.lock().expect("the lock is never poisoned: no holder panics");
        models.clone().unwrap_or_else(SessionModels::any)
    }

    fn has_cause(&self) -> Result<(), ModelCallDenied> {
        if self.has_no_cause.load(Ordering::Relaxed) { Err(ModelCallDenied::NothingRuns) } else { Ok(()) }
    }

    fn reserve(&self, demand: CallDemand) -> BoxFuture<'_, Result<CallGrant, ModelCallDenied>> {
        let mut ledger = self.ledger();
        let answer = match ledger.answer(&demand) {
            LedgerAnswer::Grant(output_tokens) => {
                let reserved_usd = demand.reservation(output_tokens);
                ledger.reserve(reserved_usd);
                Ok(CallGrant { output_tokens, reserved_usd })
            }
            LedgerAnswer::Wait | LedgerAnswer::Spent => Err(ModelCallDenied::BudgetSpent("spent".to_owned())),
        };
        Box::pin(ready(answer))
    }

    fn settle(&self, settlement: CallSettlement) {
        self.ledger().settle(settlement.grant.reserved_usd, settlement.cost_usd);
    }

    fn notify(&self, notice: GatewayNotice) {
        self.notices.send_modify(|notices| notices.push(notice));
    }

    fn log(&self, line: &str) {
        self.lines.lock().expect("the lock is never poisoned: no holder panics").push(line.to_owned());
    }
}

impl RecordingAccount {
    fn ledger(&self) -> MutexGuard<'_, SpendingLedger> {
        self.ledger.lock().expect("the lock is never poisoned: no holder panics")
    }

    fn notices(&self) -> Vec<GatewayNotice> {
        self.notices.borrow().clone()
    }

    /// Waits until there are at least `count` notices.
    async fn wait_for(&self, count: usize) -> Vec<GatewayNotice> {
        let mut notices = self.notices.subscribe();
        notices.wait_for(|notices| notices.len() >= count).await.expect("the account holds the sender").clone()
    }
}

/// Returns a configuration without providers, models and prices, and with a fast demo model.
pub(super) fn no_provider() -> ModelConfig {
    let defaults = Config::with_data_dir("/x").model;
    ModelConfig { models: Vec::new(), prices: Vec::new(), demo_tokens_per_second: 0, ..defaults }
}

fn options(url: &str) -> ModelConfig {
    let provider = || ProviderConfig { base_url: url.to_owned(), api_key: SecretString::new(KEY) };
    let price = |model: &str| PriceConfig {
        model: model.to_owned(),
        input: 1.0,
        output: 10.0,
        cache_read: Some(0.5),
        cache_write: Some(2.0),
        context_limit: Some(200_000),
        ..PriceConfig::default()
    };
    ModelConfig {
        anthropic: provider(),
        openai: provider(),
        gemini: provider(),
        prices: vec![price("claude-x*"), price("gpt-x*"), price("gemini-x*")],
        retry: RetryConfig {
            max_attempts: 3,
            base: TimeSpan(Duration::from_millis(1)),
            max: TimeSpan(Duration::from_secs(60)),
        },
        ..no_provider()
    }
}

impl GatewayFixture {
    async fn with_script(script: impl IntoIterator<Item = FakeModelResponse>) -> GatewayFixture {
        let fake = FakeProvider::start(script).await;
        let options = options(&fake.url);
        GatewayFixture::new(fake, options)
    }

    fn new(fake: FakeProvider, options: ModelConfig) -> GatewayFixture {
        GatewayFixture::with_rules(fake, options, &GatewayConfig::default())
    }

    fn with_rules(fake: FakeProvider, options: ModelConfig, rules: &GatewayConfig) -> GatewayFixture {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let listener = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let account = Arc::new(RecordingAccount::default());
        let endpoint = Gateway::new(options, rules).expect("the options are valid").open(listener, account.clone());
        GatewayFixture { fake, endpoint, account, directory }
    }

    async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = UnixStream::connect(self.directory.path().join("s")).await.expect("the endpoint listens");
        let (client, connection) = http1::handshake(TokioIo::new(stream)).await.expect("the endpoint serves HTTP");
        tokio::spawn(connection);
        client
    }

    async fn post(&self, path: &str, body: &str) -> GatewayReply {
        let request = Request::post(path).body(Full::from(body.to_owned())).expect("a request");
        self.send(request).await
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> GatewayReply {
        let mut client = self.connect().await;
        GatewayReply { response: client.send_request(request).await.expect("the endpoint responds") }
    }
}

/// Response whose head has arrived.
struct GatewayReply {
    response: Response<Incoming>,
}

impl GatewayReply {
    fn status(&self) -> StatusCode {
        self.response.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Reads until `text` has arrived.
    async fn read_until(&mut self, text: &str) {
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains(text) {
            let frame = self
                .response
                .body_mut()
                .frame()
                .await
                .expect("the text arrives before the end")
                .expect("the body is not aborted");
            read.extend_from_slice(&frame.into_data().expect("there are no trailers"));
        }
    }

    /// Returns the rest of the body, and whether the body is complete.
    async fn read_rest(mut self) -> (String, bool) {
        let mut read = Vec::new();
        let complete = loop {
            match self.response.body_mut().frame().await {
                Some(Ok(frame)) => read.extend_from_slice(&frame.into_data().expect("there are no trailers")),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        (String::from_utf8(read).expect("the body is UTF-8"), complete)
    }

    async fn text(self) -> String {
        let (text, complete) = self.read_rest().await;
        assert!(complete, "the body was aborted after {text}");
        text
    }
}

fn streaming(model: &str) -> String {
    format!(r#"{{"model":"{model}","stream":true,"messages":[]}}"#)
}
