//! The model gateway: the only holder of model keys.
//!
//! Each session has an endpoint of its own, a Unix socket in its run directory, so the socket itself says who asks and
//! nothing inside a sandbox needs a secret. The endpoint speaks the providers' own formats as a pass-through
//! (`/anthropic/v1/messages`, `/openai/v1/chat/completions`, `/openai/v1/responses`): it sets the real key, passes unknown
//! headers and fields on, streams, meters what passes, and retries what is worth retrying.

use std::sync::Arc;

use greenroom_protocol::link::Api;

/// What one call took, read from the provider's own stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metered {
    pub model: String,
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// `None` where the price table does not know the model.
    pub cost_usd: Option<f64>,
    /// The model's context, in tokens, where the table knows it.
    pub context_limit: Option<u64>,
}

/// What an endpoint tells the session that owns it.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A call ended, whole or cut; this is what it took.
    Used(Metered),
    /// The provider refused for now; the gateway asks again after `wait_ms`.
    Retrying { attempt: u32, wait_ms: u64, why: String },
    /// The provider refused for good; `why` is for a person.
    Refused { status: u16, why: String },
}

/// The session behind an endpoint, as the gateway sees it. Called from the gateway's own tasks; must not block.
pub trait Account: Send + Sync + 'static {
    /// `Err` answers the call with 402 and this text: a spent budget, a stopped session. (402 ends the prompt on every
    /// agent that was tried; 429 and 401 leave several of them retrying for ever.)
    fn may_call(&self) -> Result<(), String>;

    fn notice(&self, notice: Notice);
}

/// A model that a client may choose.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ModelChoice {
    /// As sessions name it.
    pub name: String,
    pub api: Api,
    /// Whether it is the scripted demonstration.
    pub demo: bool,
}

/// An account that only a type needs: kept alive by the endpoint that it was opened with.
pub type SharedAccount = Arc<dyn Account>;
