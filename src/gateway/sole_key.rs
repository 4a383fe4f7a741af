//! Key of a user with one provider (`LLM_API_KEY`, `LLM_BASE_URL`): finds its provider. Pure.

use greenroom_protocol::link::ProviderApi;

use crate::config::ModelConfig;

/// Applies `model.api_key` and its base URL to their provider. The provider's own values win.
pub(super) fn apply(mut config: ModelConfig) -> ModelConfig {
    let (key, base_url) = (config.api_key.clone(), config.base_url.clone());
    let provider = match provider_of_sole_key(&config) {
        ProviderApi::Anthropic => &mut config.anthropic,
        ProviderApi::Openai => &mut config.openai,
    };
    if provider.api_key.expose().is_none() {
        provider.api_key = key;
    }
    if provider.base_url.is_empty() {
        provider.base_url = base_url;
    }
    config
}

/// Returns the provider that `model.api_key` belongs to: the provider of the default model. Without
/// a default model: Anthropic if the key begins with `sk-ant-`, else OpenAI.
fn provider_of_sole_key(config: &ModelConfig) -> ProviderApi {
    let key = config.api_key.expose().unwrap_or_default();
    let anthropic = match config.default.as_str() {
        "" => key.starts_with("sk-ant-"),
        name => name.starts_with("anthropic/") || name.starts_with("claude"),
    };
    if anthropic { ProviderApi::Anthropic } else { ProviderApi::Openai }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ProviderConfig, SecretString};

    fn config(default: &str, key: &str, url: &str) -> ModelConfig {
        let mut config = Config::with_data_dir("/x").model;
        (config.default, config.base_url, config.api_key) = (default.into(), url.into(), SecretString::new(key));
        config
    }

    #[test]
    fn sole_key_goes_to_its_provider() {
        let check = |default: &str, key: &str, expected: &str| {
            let config = apply(config(default, key, "http://u"));
            let (with, without) = match expected {
                "anthropic" => (config.anthropic, config.openai),
                _ => (config.openai, config.anthropic),
            };
            assert_eq!(with.api_key, SecretString::new(key), "{default}");
            assert_eq!((with.base_url.as_str(), without.base_url.as_str()), ("http://u", ""), "{default}");
            assert_eq!(without.api_key.expose(), None, "{default}: a key goes only to its own provider");
        };
        check("claude-sonnet-4-5", "k", "anthropic");
        check("anthropic/x", "k", "anthropic");
        check("openai/claude-like", "k", "openai");
        check("llama-3", "k", "openai");
        check("", "sk-ant-1", "anthropic");
        check("", "sk-1", "openai");
    }

    #[test]
    fn named_key_wins_over_the_sole_key() {
        let mut config = config("gpt-5", "sole", "http://u");
        config.openai = ProviderConfig { api_key: SecretString::new("named"), base_url: "http://named".into() };
        assert_eq!(apply(config.clone()).openai, config.openai);
    }
}
