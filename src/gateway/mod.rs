//! The model gateway: the only holder of model keys.
//!
//! Each session has an endpoint of its own, a Unix socket in its run directory, so the socket itself says who asks and
//! nothing inside a sandbox needs a secret. The endpoint speaks the providers' own formats as a pass-through
//! (`/anthropic/v1/messages`, `/openai/v1/chat/completions`, `/openai/v1/responses`): it sets the real key, passes unknown
//! headers and fields on, streams, meters what passes, and retries what is worth retrying.
//!
//! One request passes through `endpoint` (the socket), `call` (the request), `upstream` (the provider, again where it is
//! worth it) or `demo` (the script), and `relay` (the answer). The other modules are pure: they read, price, and word.

mod call;
mod catalog;
mod demo;
mod endpoint;
mod error_response;
mod external_refs;
#[cfg(test)]
mod fake_provider;
mod headers;
mod line_buffer;
mod meter;
mod options;
mod relay;
mod request_rewrite;
mod retry;
mod route;
#[cfg(test)]
mod tests;
mod upstream;
mod usage_parser;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, ready};
use greenroom_protocol::link::ProviderApi;
use tokio::{net::UnixListener, sync::watch};

pub use self::{
    catalog::ResolvedModel,
    endpoint::GatewayEndpoint,
    options::{GatewayOptions, ModelPrice, ProviderKey, ProviderOptions, RetryOptions, TimeoutOptions},
};

/// What one call took, read from the provider's own stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeteredUsage {
    /// As its provider names it.
    pub model: String,
    /// Without what came from a cache or went into one: the context that the call used is the sum of the three.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// `None` where the price table does not know the model.
    pub cost_usd: Option<f64>,
    /// The model's context, in tokens, where the table knows it.
    pub context_limit: Option<u64>,
    /// The answer was cut before its provider told what it took, or could not be read: the counts that are not told are
    /// estimates.
    pub estimated: bool,
}

/// What an endpoint tells the session that owns it.
#[derive(Debug, Clone, PartialEq)]
pub enum GatewayNotice {
    /// A call ended, whole or cut; this is what it took.
    Used(MeteredUsage),
    /// The provider refused for now; the gateway asks again after `wait_ms`. That will be the attempt number `attempt`, so
    /// the first retry is 2.
    Retrying { attempt: u32, wait_ms: u64, why: String },
    /// The provider refused for good; `why` is for a person.
    Rejected { status: u16, why: String },
}

/// The session behind an endpoint, as the gateway sees it. Called from the gateway's own tasks; must not block.
pub trait SessionAccount: Send + Sync + 'static {
    /// `Err` answers the call with 402. (It ends the prompt on every agent that was tried; 429 and 401 leave several of them
    /// retrying for ever.)
    fn may_call(&self) -> Result<(), ModelCallDenied>;

    /// Whether what the session may spend has an end. Then no call begins of which nobody could say what it took.
    fn has_budget(&self) -> bool;

    fn notify(&self, notice: GatewayNotice);

    /// Waits while the session is behind with what it was told: so long no further call begins.
    fn wait_until_caught_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// Why a session may not call its model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCallDenied {
    /// Its turn is being interrupted, of which the agent may not have heard yet.
    Interrupted,
    /// A spent budget, a stopped session: in words, for the agent and the person.
    Reason(String),
}

/// A model that a client may choose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ModelChoice {
    /// As sessions name it.
    pub name: String,
    pub api: ProviderApi,
    /// Whether it is the scripted demonstration.
    pub demo: bool,
    /// The environment variable that would have to be set before it can be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<&'static str>,
}

/// All that the gateway cannot do. The texts are shown to a person word for word.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("the model `{model}` needs a key: set `{variable}` or `LLM_API_KEY`, or choose the model `demo`")]
    NoKey { model: String, variable: &'static str },
    #[error("the base URL `{url}` is no http or https address: write it like `https://api.example.com/v1`")]
    BaseUrl { url: String },
    #[error("the key in `{variable}` has characters that no key has: copy it again")]
    Key { variable: &'static str },
    #[error("the HTTP client for the model providers cannot be made; does this machine have CA certificates?")]
    Client(#[source] reqwest::Error),
}

/// How long an unused connection to a provider is kept.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// The gateway of one server. Cheap to clone; all clones share one pool of connections.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<GatewayInner>,
}

struct GatewayInner {
    options: GatewayOptions,
    client: reqwest::Client,
    /// Whether every endpoint is to close. Each has a receiver until it has.
    closing: watch::Sender<bool>,
}

impl Gateway {
    /// # Errors
    /// What is wrong with the options, or with this machine's certificates.
    pub fn new(options: GatewayOptions) -> Result<Gateway, GatewayError> {
        for api in [ProviderApi::Anthropic, ProviderApi::Openai] {
            check_provider(api, options.provider(api))?;
        }
        // Refused where there is one already, which is as good.
        let _is_set = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            // A redirect would carry the key to another address.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(options.timeouts.connect_s))
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .tcp_nodelay(true)
            // A connection for each call. One for all sessions would stand still for all when one of them does not read.
            .http1_only()
            .build()
            .map_err(GatewayError::Client)?;
        Ok(Gateway { inner: Arc::new(GatewayInner { options, client, closing: watch::Sender::new(false) }) })
    }

    /// Serves one session on `listener` until the endpoint is dropped. Must be called inside a tokio runtime, which then
    /// runs the endpoint's tasks.
    pub fn open(&self, listener: UnixListener, account: Arc<dyn SessionAccount>) -> GatewayEndpoint {
        GatewayEndpoint::open(self.clone(), listener, account)
    }

    /// Closes every endpoint, also those that are yet to be opened. When it returns, each session was told what its calls took.
    pub async fn close(&self) {
        self.inner.closing.send_replace(true);
        self.inner.closing.closed().await;
    }

    /// Which model `name` means.
    pub fn resolve(&self, name: &str) -> ResolvedModel {
        catalog::resolve(name)
    }

    /// What a client may choose; the default one first, the demo last.
    pub fn models(&self) -> Vec<ModelChoice> {
        self.inner.options.choices()
    }

    /// What a session gets that names no model: `demo` where no provider can be asked.
    pub fn default_model(&self) -> String {
        self.inner.options.default_choice()
    }

    /// Whether a session may work with the model `name`.
    ///
    /// # Errors
    /// [`GatewayError::NoKey`], which names what to set.
    pub fn ready(&self, name: &str) -> Result<(), GatewayError> {
        self.inner.options.ready(name)
    }

    /// When the price table was last checked: a date, or empty.
    pub fn prices_as_of(&self) -> &str {
        &self.inner.options.prices_as_of
    }

    fn options(&self) -> &GatewayOptions {
        &self.inner.options
    }

    fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    fn client(&self) -> &reqwest::Client {
        &self.inner.client
    }
}

fn check_provider(api: ProviderApi, provider: &ProviderOptions) -> Result<(), GatewayError> {
    let url = &provider.base_url;
    if !url.is_empty() && !reqwest::Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
        return Err(GatewayError::BaseUrl { url: url.clone() });
    }
    match &provider.api_key {
        Some(key) if headers::key_header(api, key).is_none() => {
            Err(GatewayError::Key { variable: catalog::key_variable(api) })
        }
        _ => Ok(()),
    }
}
