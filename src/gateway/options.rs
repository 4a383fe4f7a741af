//! What the gateway is told at start. Plain data, which the configuration fills.

use std::{fmt, time::Duration};

use serde::Deserialize;

/// Where each provider's own service answers.
pub(super) const ANTHROPIC_URL: &str = "https://api.anthropic.com";
pub(super) const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Everything that the gateway can be told.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayOptions {
    pub anthropic: ProviderOptions,
    pub openai: ProviderOptions,
    /// What a session gets that names no model. Empty: the first of `models` whose provider has a key.
    pub default_model: String,
    /// What a client is offered, as sessions name it. `demo` is always there.
    pub models: Vec<String>,
    /// What is not in here costs an unknown amount. The longest pattern that fits wins.
    pub prices: Vec<ModelPrice>,
    /// When somebody last compared `prices` with the providers' own pages: a date.
    pub prices_as_of: String,
    pub retry: RetryOptions,
    pub timeouts: TimeoutOptions,
    /// How fast the demo model speaks. 0: as fast as it can.
    pub demo_tokens_per_second: u32,
}

/// One provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderOptions {
    /// The base URL as the provider's own SDK takes it. Empty: the provider's own service.
    pub base_url: String,
    /// Sent to `base_url`, and shown to nobody else.
    pub api_key: Option<ProviderKey>,
}

/// USD per million tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// A model as its provider names it; one `*` at the end stands for anything.
    pub model: String,
    pub input: f64,
    pub output: f64,
    #[serde(default)]
    pub cache_read: f64,
    /// For Anthropic's five-minute cache.
    #[serde(default)]
    pub cache_write: f64,
    /// The model's context, in tokens.
    #[serde(default)]
    pub context_limit: Option<u64>,
}

/// How often, and how long apart, the gateway asks a provider that refuses for now.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// The first one included.
    pub max_attempts: u32,
    /// The wait before the second attempt; it doubles with each further one.
    pub base_ms: u64,
    /// The longest wait. A provider that asks for a longer one is not asked again.
    pub max_ms: u64,
}

/// How long the gateway waits for a provider, seconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOptions {
    pub connect_s: u64,
    /// To the first byte of a streamed answer. Long, because some models think before they speak.
    pub first_byte_s: u64,
    /// To the first byte of an answer in one piece, which comes when all of it is made.
    pub whole_answer_s: u64,
    /// Between two pieces of a stream.
    pub idle_s: u64,
}

impl Default for GatewayOptions {
    fn default() -> GatewayOptions {
        GatewayOptions {
            anthropic: ProviderOptions::at(ANTHROPIC_URL),
            openai: ProviderOptions::at(OPENAI_URL),
            default_model: String::new(),
            models: Vec::new(),
            prices: Vec::new(),
            prices_as_of: String::new(),
            retry: RetryOptions::default(),
            timeouts: TimeoutOptions::default(),
            demo_tokens_per_second: 40,
        }
    }
}

impl Default for ProviderOptions {
    fn default() -> ProviderOptions {
        ProviderOptions::at("")
    }
}

impl Default for RetryOptions {
    fn default() -> RetryOptions {
        RetryOptions { max_attempts: 8, base_ms: 500, max_ms: 60_000 }
    }
}

impl Default for TimeoutOptions {
    fn default() -> TimeoutOptions {
        TimeoutOptions { connect_s: 10, first_byte_s: 300, whole_answer_s: 900, idle_s: 300 }
    }
}

impl ProviderOptions {
    fn at(base_url: &str) -> ProviderOptions {
        ProviderOptions { base_url: base_url.to_owned(), api_key: None }
    }
}

impl TimeoutOptions {
    pub(super) fn first_byte(&self, streaming: bool) -> Duration {
        Duration::from_secs(if streaming { self.first_byte_s } else { self.whole_answer_s })
    }

    pub(super) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_s)
    }
}

/// A text that no log, no error and no `Debug` shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ProviderKey(String);

impl ProviderKey {
    pub fn new(text: impl Into<String>) -> ProviderKey {
        ProviderKey(text.into())
    }

    /// The text itself, without the white space that a copied key often brings along.
    pub(super) fn expose(&self) -> &str {
        self.0.trim()
    }
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_shown() {
        let provider = ProviderOptions { api_key: Some(ProviderKey::new("sk-canary")), ..ProviderOptions::default() };
        assert!(!format!("{provider:?}").contains("canary"));
    }

    #[test]
    fn options_are_read_from_a_file() {
        let options: GatewayOptions = toml::from_str(
            r#"
            models = ["claude-x"]
            prices = [{ model = "claude-*", input = 3, output = 15 }]
            anthropic = { api_key = "k" }
            retry = { max_attempts = 2 }
            "#,
        )
        .expect("it is read");
        assert_eq!(options.anthropic.api_key, Some(ProviderKey::new("k")));
        assert_eq!(options.retry, RetryOptions { max_attempts: 2, ..RetryOptions::default() });
        assert_eq!(options.prices[0].output, 15.0);
        let unknown = toml::from_str::<GatewayOptions>("modles = []").expect_err("the key is unknown");
        assert!(unknown.to_string().contains("modles"), "{unknown}");
    }
}
