//! Model gateway: the only holder of model keys.
//!
//! - **Endpoint.** Each session has one Unix socket in its run directory. The socket identifies the
//!   caller, so a sandbox needs no secret.
//! - **Formats.** The providers' own formats pass through (`/anthropic/v1/messages`,
//!   `/openai/v1/chat/completions`, `/openai/v1/responses`, `/gemini/v1beta/models/…`). Bodies keep
//!   every byte, except what [`allow_list`] withholds: ways out of the sandbox, and extra costs.
//! - **Work.** The gateway sets the real key, streams, meters the usage and retries temporary
//!   failures.
//!
//! A request passes through `endpoint` (socket) and `call` (request). Then `upstream` (provider,
//! with retries) or `demo` (script) answers, and `relay` carries the response. The other modules
//! are pure: they parse, price and describe.
//!
//! See docs/internals/gateway.md.

mod allow_list;
mod answered_names;
mod base_url;
mod body_filter;
mod call;
mod catalog;
mod demo;
mod endpoint;
mod error_response;
mod external_refs;
#[cfg(test)]
mod fake_provider;
mod headers;
mod hold_back;
mod line_buffer;
mod memory;
mod meter;
mod question;
mod relay;
mod request_body;
mod request_rewrite;
mod reservation;
mod retry;
mod route;
mod sole_key;
#[cfg(test)]
mod tests;
mod upstream;

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, ready};
use greenroom_protocol::{
    RetryFrame,
    link::{ProviderApi, ReasoningEffort},
};
use tokio::{net::UnixListener, sync::watch};

use self::{allow_list::AllowList, answered_names::AnsweredNames, catalog::ModelPrice, endpoint::GatewayMemory};
pub use self::{
    catalog::{ModelCapabilities, ResolvedModel, SessionModels},
    endpoint::GatewayEndpoint,
    question::{COMMIT_MESSAGE_REQUEST, ModelQuestion, QuestionError},
    reservation::{CallDemand, CallGrant, CallSettlement, InputRatio, LedgerAnswer, SpendingLedger},
};
use crate::config::{GatewayConfig, ModelConfig};

/// Usage of one model call, read from the provider's response.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeteredUsage {
    /// Model name used by the provider.
    pub model: String,
    /// Input tokens without cache reads and cache writes. The context of the call is the sum of all
    /// three.
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    /// Written to a cache of five minutes, or of unknown lifetime.
    pub cache_write_tokens: u64,
    /// Written to a cache of one hour.
    pub cache_write_1h_tokens: u64,
    /// Tokens of kinds that no format defines. They count at the dearest price of the model.
    pub unknown_tokens: u64,
    /// Uses of provider-side tools, by the provider's name of the count.
    pub server_tool_uses: Vec<(String, u64)>,
    /// Cost in USD. `None` if the price table has no entry for the model.
    pub cost_usd: Option<f64>,
    /// Context size of the model in tokens, if the price table has it.
    pub context_limit: Option<u64>,
    /// True if counts are estimates: the response was unreadable, or was cut off before the
    /// provider reported its usage.
    pub estimated: bool,
}

impl MeteredUsage {
    /// Returns the input tokens, cache reads and cache writes included.
    pub fn context_input_tokens(&self) -> u64 {
        [self.cache_read_tokens, self.cache_write_tokens, self.cache_write_1h_tokens]
            .into_iter()
            .fold(self.input_tokens, u64::saturating_add)
    }
}

/// Notice from an endpoint to the session that owns it.
#[derive(Debug, Clone, PartialEq)]
pub enum GatewayNotice {
    /// A call ended, completely or not. Holds its usage.
    Used(MeteredUsage),
    /// A call failed for now, and the gateway retries it after `wait_ms` milliseconds.
    Retrying(RetryFrame),
    /// The retries of a call ended, and [`RetryFrame::call`] of its frames was `call`. `outcome` is
    /// `None` if the call failed or was given up.
    RetriesEnded { call: u64, outcome: Option<RetryOutcome> },
    /// A call failed for good. `why` is shown to the user.
    Rejected { status: u16, why: String },
    /// The gateway rejected a call, because a budget is spent. `why` names the budget.
    BudgetSpent { why: String },
}

/// Success of a call after retries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryOutcome {
    /// Number of attempts, the last one included.
    pub attempts: u32,
    /// Sum of the waits between them, in milliseconds.
    pub waited_ms: u64,
    /// Failure before the last attempt, in words.
    pub why: String,
}

/// Session behind an endpoint, as the gateway sees it. The methods run on the gateway's tasks and
/// must not block.
pub trait SessionAccount: Send + Sync + 'static {
    /// Checks that the session may call a model.
    ///
    /// # Errors
    /// An error answers the call with 402. Every agent that was tried ends its prompt after 402.
    /// After 429 and 401, several of them retry forever.
    fn may_call(&self) -> Result<(), ModelCallDenied>;

    /// Returns true if the session has a spending limit. Calls of unbounded usage are then
    /// rejected.
    fn has_budget(&self) -> bool;

    /// Returns the models that the session may call. Default: any.
    fn models(&self) -> SessionModels {
        SessionModels::any()
    }

    /// Checks that metered calls have a cause: a running turn or a user action. Default: none is
    /// needed.
    ///
    /// # Errors
    /// An error answers the call with 403.
    fn has_cause(&self) -> Result<(), ModelCallDenied> {
        Ok(())
    }

    /// Estimates the input tokens of a body, by the session's earlier calls.
    fn estimate_input(&self, body_bytes: u64) -> u64 {
        InputRatio::default().estimate(body_bytes)
    }

    /// Reserves the worst case of a call. Waits while other calls hold the rest of a limit.
    /// Default: grants everything.
    ///
    /// # Errors
    /// An error answers the call with 402.
    fn reserve(&self, demand: CallDemand) -> BoxFuture<'_, Result<CallGrant, ModelCallDenied>> {
        Box::pin(ready(Ok(CallGrant { output_tokens: demand.wanted_tokens, reserved_usd: 0.0 })))
    }

    /// Replaces a reservation by the cost of its call. Called exactly once for each grant. Default:
    /// does nothing.
    fn settle(&self, _settlement: CallSettlement) {}

    /// Passes `notice` to the session.
    fn notify(&self, notice: GatewayNotice);

    /// Writes a line about the session to the server's log.
    fn log(&self, line: &str);

    /// Completes once the session has caught up with its notices. No further call starts before.
    /// Default: completes at once.
    fn wait_until_caught_up(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }
}

/// Reason for a rejected model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelCallDenied {
    /// The turn is being interrupted. The agent may not have received the interrupt yet.
    Interrupted,
    /// Reason in words, for the agent and the user: a stopped session.
    Reason(String),
    /// A budget is spent. The reason is in words.
    BudgetSpent(String),
    /// Neither a turn nor a user action runs.
    NothingRuns,
}

/// Model that a client may choose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct ModelChoice {
    /// Model name used by sessions.
    pub name: String,
    #[schema(value_type = crate::api_schema::ProviderApiSchema)]
    pub api: ProviderApi,
    /// True for the scripted demo model.
    pub demo: bool,
    /// True if the model accepts pictures as input.
    pub takes_images: bool,
    /// Environment variable that must be set before the model can be chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<&'static str>,
}

/// Error in the gateway's options or in the choice of a model. The text is shown to the user
/// verbatim.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("the model `{model}` needs a key: set `{variable}` or `LLM_API_KEY`, or choose the model `demo`")]
    NoKey { model: String, variable: &'static str },
    #[error("the base URL `{url}` of {provider} {rule}")]
    BaseUrl { provider: &'static str, url: String, rule: &'static str },
    #[error("the key in `{variable}` contains invalid characters; copy it again")]
    Key { variable: &'static str },
    #[error("cannot create the HTTP client for the model providers; check the CA certificates of this machine")]
    Client(#[source] reqwest::Error),
}

/// Time that an unused connection to a provider is kept open.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(90);

/// Gateway of one server. Cheap to clone: all clones share one connection pool.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<GatewayInner>,
}

struct GatewayInner {
    /// Section `model` of the configuration, with the sole key at its provider and normalized base
    /// URLs.
    options: ModelConfig,
    /// Keys and base URLs of different sources, in words.
    warnings: Vec<String>,
    allow: AllowList,
    memory: GatewayMemory,
    answered_names: AnsweredNames,
    client: reqwest::Client,
    /// True once every endpoint has to close. Each endpoint holds a receiver until it is closed.
    closing: watch::Sender<bool>,
}

impl Gateway {
    /// Creates a gateway.
    ///
    /// # Errors
    /// Fails if an option is invalid, or if the HTTP client cannot be created (CA certificates).
    pub fn new(options: ModelConfig, rules: &GatewayConfig) -> Result<Gateway, GatewayError> {
        let (mut options, warnings) = sole_key::apply(options);
        for api in ProviderApi::ALL {
            check_provider(api, &mut options)?;
        }
        options.declare_metrics();
        // Fails if a crypto provider is installed already. The installed one serves as well.
        let _is_set = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            // A redirect would send the key to another address.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(options.timeouts.connect.0)
            .pool_idle_timeout(IDLE_CONNECTION_TIMEOUT)
            .tcp_nodelay(true)
            // One connection per call. A session that reads nothing would block a connection shared
            // by all.
            .http1_only()
            .build()
            .map_err(GatewayError::Client)?;
        let inner = GatewayInner {
            options,
            warnings,
            allow: AllowList::new(&rules.allow),
            answered_names: AnsweredNames::default(),
            memory: GatewayMemory::default(),
            client,
            closing: watch::Sender::new(false),
        };
        Ok(Gateway { inner: Arc::new(inner) })
    }

    /// Serves one session on `listener` until the endpoint is dropped.
    ///
    /// Must be called inside a tokio runtime, which then runs the endpoint's tasks.
    pub fn open(&self, listener: UnixListener, account: Arc<dyn SessionAccount>) -> GatewayEndpoint {
        GatewayEndpoint::open(self.clone(), listener, account)
    }

    /// Closes every endpoint, including endpoints that are opened later. Returns after each session
    /// has received the usage of its calls.
    pub async fn close(&self) {
        self.inner.closing.send_replace(true);
        self.inner.closing.closed().await;
    }

    /// Resolves the model name `name`.
    pub fn resolve(&self, name: &str) -> ResolvedModel {
        catalog::resolve(name)
    }

    /// Returns warnings about keys and base URLs of different sources, for the server's start.
    pub fn warnings(&self) -> &[String] {
        &self.inner.warnings
    }

    /// Returns the models that a client may choose: the default first, the demo model last.
    pub fn models(&self) -> Vec<ModelChoice> {
        self.inner.options.choices()
    }

    /// Returns the model of sessions that name none. `demo` if no provider is usable.
    pub fn default_model(&self) -> String {
        self.inner.options.default_choice()
    }

    /// Checks that a session may use the model `name`.
    ///
    /// # Errors
    /// [`GatewayError::NoKey`], which names the variable to set.
    pub fn ready(&self, name: &str) -> Result<(), GatewayError> {
        self.inner.options.ready(name)
    }

    /// Returns the reasoning effort of sessions that name none.
    pub fn default_effort(&self) -> Option<ReasoningEffort> {
        self.inner.options.effort
    }

    /// Returns what the configuration states about the model `name`.
    pub fn capabilities(&self, name: &str) -> ModelCapabilities {
        self.inner.options.capabilities(name)
    }

    fn options(&self) -> &ModelConfig {
        &self.inner.options
    }

    /// Returns the price of a model by its own row, or by the row of the model that answers for it.
    fn price_of(&self, api: ProviderApi, model: &str) -> Option<ModelPrice> {
        let answered = if self.options().has_row(model) { None } else { self.inner.answered_names.get(model) };
        self.options().price_of(api, answered.as_deref().unwrap_or(model))
    }

    /// Fills in price and context size of `metered.model`, which answered for `requested_model`.
    fn apply_price(&self, api: ProviderApi, metered: &mut MeteredUsage, requested_model: &str) {
        let options = self.options();
        let answered = self.inner.answered_names.get(requested_model);
        options.apply_price(api, metered, answered.as_deref().unwrap_or(requested_model));
        if options.has_row(&metered.model) && !options.has_row(requested_model) {
            self.inner.answered_names.insert(requested_model, &metered.model);
        }
    }

    fn closing(&self) -> watch::Receiver<bool> {
        self.inner.closing.subscribe()
    }

    fn client(&self) -> &reqwest::Client {
        &self.inner.client
    }

    fn allow(&self) -> &AllowList {
        &self.inner.allow
    }

    fn memory(&self) -> &GatewayMemory {
        &self.inner.memory
    }
}

/// Normalizes the base URL of a provider, and checks its key.
fn check_provider(api: ProviderApi, options: &mut ModelConfig) -> Result<(), GatewayError> {
    let provider = options.provider_mut(api);
    provider.base_url = base_url::normalize(api, &provider.base_url).map_err(|rule| GatewayError::BaseUrl {
        provider: error_response::provider_name(api),
        url: provider.base_url.clone(),
        rule,
    })?;
    match provider.api_key.expose() {
        Some(key) if headers::key_header(api, key).is_none() => {
            Err(GatewayError::Key { variable: catalog::key_variable(api) })
        }
        _ => Ok(()),
    }
}
