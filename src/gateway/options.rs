//! Options of the gateway. Plain data, filled from the configuration.

use std::{fmt, time::Duration};

use serde::Deserialize;

/// Base URL of Anthropic's official service.
pub(super) const ANTHROPIC_URL: &str = "https://api.anthropic.com";
/// Base URL of OpenAI's official service.
pub(super) const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Options of the gateway.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayOptions {
    pub anthropic: ProviderOptions,
    pub openai: ProviderOptions,
    /// Model of sessions that name none. Empty: the first of `models` that is usable.
    pub default_model: String,
    /// Models offered to clients, by the names that sessions use. `demo` is always offered.
    pub models: Vec<String>,
    /// Price table. The longest matching pattern wins. A model without an entry has an unknown
    /// cost.
    pub prices: Vec<ModelPrice>,
    /// Date on which `prices` was last compared with the providers' pages.
    pub prices_as_of: String,
    pub retry: RetryOptions,
    pub timeouts: TimeoutOptions,
    /// Speed of the demo model in tokens per second. 0: no limit.
    pub demo_tokens_per_second: u32,
}

/// Options of one provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderOptions {
    /// Base URL as the provider's SDK takes it. Empty: the official service.
    pub base_url: String,
    /// API key. Sent to `base_url` and nowhere else.
    pub api_key: Option<ProviderKey>,
}

/// Prices of a model in USD per million tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Model name used by the provider. A final `*` matches any ending.
    pub model: String,
    pub input: f64,
    pub output: f64,
    #[serde(default)]
    pub cache_read: f64,
    /// Price for Anthropic's five-minute cache.
    #[serde(default)]
    pub cache_write: f64,
    /// Context size of the model in tokens.
    #[serde(default)]
    pub context_limit: Option<u64>,
}

/// Number and spacing of the attempts when a provider rejects a call for now.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryOptions {
    /// Attempts per call, including the first.
    pub max_attempts: u32,
    /// Wait before the second attempt, milliseconds. Doubles with each further attempt.
    pub base_ms: u64,
    /// Longest wait, milliseconds. If a provider requests a longer one, the call is not retried.
    pub max_ms: u64,
}

/// Time limits for providers, seconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOptions {
    pub connect_s: u64,
    /// Limit for the first byte of a streamed response. Long, because some models think first.
    pub first_byte_s: u64,
    /// Limit for the first byte of a response in one piece, which arrives once the response is
    /// complete.
    pub whole_answer_s: u64,
    /// Limit between two pieces of a stream.
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

/// API key that no log, error or `Debug` output shows.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct ProviderKey(String);

impl ProviderKey {
    pub fn new(text: impl Into<String>) -> ProviderKey {
        ProviderKey(text.into())
    }

    /// Returns the key without the white space that copying often adds.
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
    fn debug_output_hides_the_key() {
        let provider = ProviderOptions { api_key: Some(ProviderKey::new("sk-canary")), ..ProviderOptions::default() };
        assert!(!format!("{provider:?}").contains("canary"));
    }

    #[test]
    fn options_are_read_from_toml() {
        let options: GatewayOptions = toml::from_str(
            r#"
            models = ["claude-x"]
            prices = [{ model = "claude-*", input = 3, output = 15 }]
            anthropic = { api_key = "k" }
            retry = { max_attempts = 2 }
            "#,
        )
        .expect("the options are valid");
        assert_eq!(options.anthropic.api_key, Some(ProviderKey::new("k")));
        assert_eq!(options.retry, RetryOptions { max_attempts: 2, ..RetryOptions::default() });
        assert_eq!(options.prices[0].output, 15.0);
        let unknown = toml::from_str::<GatewayOptions>("modles = []").expect_err("the key is unknown");
        assert!(unknown.to_string().contains("modles"), "{unknown}");
    }
}
