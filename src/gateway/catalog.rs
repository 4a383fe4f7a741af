//! Model catalog: resolves model names, checks that a model is usable, and prices usage. Pure.

use greenroom_protocol::link::ProviderApi;

use super::{GatewayError, MeteredUsage, ModelChoice};
use crate::config::{ModelConfig, PriceConfig, ProviderConfig};

/// Base URL of Anthropic's official service.
const ANTHROPIC_URL: &str = "https://api.anthropic.com";
/// Base URL of OpenAI's official service.
const OPENAI_URL: &str = "https://api.openai.com/v1";
/// Base URL of Google's official service.
const GEMINI_URL: &str = "https://generativelanguage.googleapis.com";

/// Name of the scripted demo model.
pub(super) const DEMO: &str = "demo";

/// Context size that the demo model reports, in tokens.
const DEMO_CONTEXT: u64 = 100_000;

/// Resolved model name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedModel {
    /// API that serves the model.
    pub api: ProviderApi,
    /// Model name used by the provider.
    pub model: String,
    /// True for the scripted demo model.
    pub demo: bool,
}

/// Size of a model's context, and the input that the model accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelCapabilities {
    /// Context in tokens. `None`: unknown.
    pub context_limit: Option<u64>,
    /// True if the model accepts pictures as input.
    pub takes_images: bool,
}

/// Resolves a model name.
///
/// The prefixes `anthropic/`, `openai/` and `gemini/` name the provider. Without a prefix,
/// `claude…` is Anthropic's, `gemini-…` is Google's, and `demo` is the demo model. All other names
/// go to the OpenAI endpoint, which most other providers imitate.
pub(super) fn resolve(name: &str) -> ResolvedModel {
    let resolved = |api, model: &str, demo| ResolvedModel { api, model: model.to_owned(), demo };
    match name.split_once('/') {
        Some(("anthropic", model)) => resolved(ProviderApi::Anthropic, model, false),
        Some(("openai", model)) => resolved(ProviderApi::Openai, model, false),
        Some(("gemini", model)) => resolved(ProviderApi::Gemini, model, false),
        _ if name == DEMO => resolved(ProviderApi::Anthropic, DEMO, true),
        _ if name.starts_with("claude") => resolved(ProviderApi::Anthropic, name, false),
        _ if name.starts_with("gemini-") => resolved(ProviderApi::Gemini, name, false),
        _ => resolved(ProviderApi::Openai, name, false),
    }
}

impl ModelConfig {
    pub(super) fn provider(&self, api: ProviderApi) -> &ProviderConfig {
        match api {
            ProviderApi::Anthropic => &self.anthropic,
            ProviderApi::Openai => &self.openai,
            ProviderApi::Gemini => &self.gemini,
        }
    }

    pub(super) fn provider_mut(&mut self, api: ProviderApi) -> &mut ProviderConfig {
        match api {
            ProviderApi::Anthropic => &mut self.anthropic,
            ProviderApi::Openai => &mut self.openai,
            ProviderApi::Gemini => &mut self.gemini,
        }
    }

    /// Returns true if `api` can be called: a key is set, or the base URL is another server, which
    /// may need no key.
    pub(super) fn usable(&self, api: ProviderApi) -> bool {
        self.provider(api).api_key.expose().is_some() || !self.is_official_service(api)
    }

    /// Returns true if `api` uses the provider's official service.
    fn is_official_service(&self, api: ProviderApi) -> bool {
        self.provider(api).base_url.is_empty()
    }

    pub(super) fn ready(&self, name: &str) -> Result<(), GatewayError> {
        let ResolvedModel { api, demo, .. } = resolve(name);
        if demo || self.usable(api) {
            return Ok(());
        }
        Err(GatewayError::NoKey { model: name.to_owned(), variable: key_variable(api) })
    }

    pub(super) fn default_choice(&self) -> String {
        let configured = Some(self.default.as_str()).filter(|name| !name.is_empty());
        let no_provider = !ProviderApi::ALL.into_iter().any(|api| self.usable(api));
        let chosen = if no_provider {
            None
        } else {
            configured.or_else(|| self.models.iter().map(String::as_str).find(|name| self.ready(name).is_ok()))
        };
        chosen.unwrap_or(DEMO).to_owned()
    }

    pub(super) fn choices(&self) -> Vec<ModelChoice> {
        let mut names: Vec<&str> = self.models.iter().map(String::as_str).collect();
        if !self.default.is_empty() {
            names.insert(0, &self.default);
        }
        names.push(DEMO);
        let mut choices: Vec<ModelChoice> = Vec::new();
        for name in names {
            if choices.iter().all(|choice| choice.name != name) {
                let ResolvedModel { api, demo, .. } = resolve(name);
                let needs = self.ready(name).is_err().then(|| key_variable(api));
                let takes_images = self.capabilities(name).takes_images;
                choices.push(ModelChoice { name: name.to_owned(), api, demo, takes_images, needs });
            }
        }
        choices
    }

    /// Returns the upstream name of `name`, as received at the endpoint of `api`.
    ///
    /// An official service has no names with a slash, so a provider prefix is removed. Other
    /// servers may have such names.
    pub(super) fn upstream_name<'a>(&self, api: ProviderApi, name: &'a str) -> &'a str {
        let prefix = match api {
            ProviderApi::Anthropic => "anthropic/",
            ProviderApi::Openai => "openai/",
            ProviderApi::Gemini => "gemini/",
        };
        if self.is_official_service(api) { name.strip_prefix(prefix).unwrap_or(name) } else { name }
    }

    /// Fills in price and context size of `metered.model`. If the table has no entry, the entry of
    /// `requested_model` applies.
    pub(super) fn apply_price(&self, metered: &mut MeteredUsage, requested_model: &str) {
        if metered.model == DEMO {
            metered.cost_usd = Some(0.0);
            metered.context_limit = Some(DEMO_CONTEXT);
        } else if let Some(price) = self.price_of(&metered.model).or_else(|| self.price_of(requested_model)) {
            metered.context_limit = price.context_limit;
            if metered.estimated {
                // A picture has many bytes and few tokens, and so does a response with token
                // probabilities. No call uses more than the model's context.
                let limit = price.context_limit.unwrap_or(u64::MAX);
                metered.input_tokens = metered.input_tokens.min(limit);
                metered.output_tokens = metered.output_tokens.min(limit);
            }
            metered.cost_usd = Some(cost(price, metered));
        }
    }

    /// Returns what the price table states about `name`, with or without its provider prefix.
    pub(super) fn capabilities(&self, name: &str) -> ModelCapabilities {
        let ResolvedModel { model, demo, .. } = resolve(name);
        if demo {
            return ModelCapabilities { context_limit: Some(DEMO_CONTEXT), takes_images: false };
        }
        let price = self.price_of(&model).or_else(|| self.price_of(name));
        price.map_or_else(ModelCapabilities::default, |price| ModelCapabilities {
            context_limit: price.context_limit,
            takes_images: price.images,
        })
    }

    pub(super) fn price_of(&self, model: &str) -> Option<&PriceConfig> {
        self.prices.iter().filter(|price| matches_pattern(&price.model, model)).max_by_key(|price| price.model.len())
    }
}

/// Returns the environment variable of the provider's key, for an error text.
pub(super) fn key_variable(api: ProviderApi) -> &'static str {
    match api {
        ProviderApi::Anthropic => "ANTHROPIC_API_KEY",
        ProviderApi::Openai => "OPENAI_API_KEY",
        ProviderApi::Gemini => "GEMINI_API_KEY",
    }
}

pub(super) fn official_url(api: ProviderApi) -> &'static str {
    match api {
        ProviderApi::Anthropic => ANTHROPIC_URL,
        ProviderApi::Openai => OPENAI_URL,
        ProviderApi::Gemini => GEMINI_URL,
    }
}

/// Joins `base`, a normalized base URL, and `path`, which begins with `/v1`. Anthropic's SDK takes
/// a base URL without `/v1`, OpenAI's with it. Both forms are accepted.
pub(super) fn upstream_url(api: ProviderApi, base: &str, path: &str) -> String {
    let base = if base.is_empty() { official_url(api) } else { base };
    let after_scheme = base.split_once("://").map_or(base, |(_, rest)| rest);
    let has_version = match api {
        ProviderApi::Anthropic => base.ends_with("/v1") || base.ends_with('/'),
        ProviderApi::Openai => after_scheme.contains('/'),
        ProviderApi::Gemini => false,
    };
    let base = base.trim_end_matches('/');
    let path = if has_version { path.strip_prefix("/v1").unwrap_or(path) } else { path };
    format!("{base}{path}")
}

fn matches_pattern(pattern: &str, model: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => model.starts_with(prefix),
        None => model == pattern,
    }
}

fn cost(price: &PriceConfig, metered: &MeteredUsage) -> f64 {
    let tokens_and_prices = [
        (metered.input_tokens, price.input),
        (metered.output_tokens, price.output),
        (metered.cache_read_tokens, price.cache_read),
        (metered.cache_write_tokens, price.cache_write),
    ];
    tokens_and_prices.iter().map(|&(tokens, usd)| tokens as f64 * usd).sum::<f64>() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::SecretString, gateway::tests::no_provider};

    #[test]
    fn model_names_select_provider_and_model() {
        fn check(name: &str, api: ProviderApi, model: &str, demo: bool) {
            assert_eq!(resolve(name), ResolvedModel { api, model: model.to_owned(), demo }, "{name}");
        }
        check("claude-sonnet-4-5", ProviderApi::Anthropic, "claude-sonnet-4-5", false);
        check("anthropic/claude-sonnet-4-5", ProviderApi::Anthropic, "claude-sonnet-4-5", false);
        check("openai/gpt-5", ProviderApi::Openai, "gpt-5", false);
        check("openai/anthropic/claude-x", ProviderApi::Openai, "anthropic/claude-x", false);
        check("gpt-5", ProviderApi::Openai, "gpt-5", false);
        check("qwen/qwen3", ProviderApi::Openai, "qwen/qwen3", false);
        check("gemini-2.5-pro", ProviderApi::Gemini, "gemini-2.5-pro", false);
        check("gemini/learnlm", ProviderApi::Gemini, "learnlm", false);
        check("openai/gemini-2.5-pro", ProviderApi::Openai, "gemini-2.5-pro", false);
        check("demo", ProviderApi::Anthropic, "demo", true);
        check("openai/demo", ProviderApi::Openai, "demo", false);
    }

    #[test]
    fn base_url_and_path_are_joined() {
        fn check(api: ProviderApi, base: &str, expected: &str) {
            let path = match api {
                ProviderApi::Anthropic => "/v1/messages",
                ProviderApi::Openai => "/v1/chat/completions",
                ProviderApi::Gemini => "/v1beta/models",
            };
            assert_eq!(upstream_url(api, base, path), expected);
        }
        check(ProviderApi::Anthropic, "", "https://api.anthropic.com/v1/messages");
        check(ProviderApi::Anthropic, "http://h:1/v1", "http://h:1/v1/messages");
        check(ProviderApi::Anthropic, "http://h/proxy", "http://h/proxy/v1/messages");
        check(ProviderApi::Openai, "", "https://api.openai.com/v1/chat/completions");
        check(ProviderApi::Openai, "http://h:8000", "http://h:8000/v1/chat/completions");
        check(ProviderApi::Openai, "http://h/v1beta/openai/", "http://h/v1beta/openai/chat/completions");
    }

    fn options(anthropic_key: bool, default_model: &str) -> ModelConfig {
        let mut options = ModelConfig {
            default: default_model.to_owned(),
            models: vec!["gpt-5".into(), "claude-x".into()],
            ..no_provider()
        };
        options.anthropic.api_key = SecretString::new(if anthropic_key { "k" } else { "" });
        options
    }

    #[test]
    fn default_model_is_usable() {
        fn check(options: ModelConfig, expected: &str) {
            assert_eq!(options.default_choice(), expected);
        }
        check(options(false, "claude-y"), "demo");
        check(options(false, ""), "demo");
        check(options(true, ""), "claude-x");
        check(options(true, "claude-y"), "claude-y");
        check(options(true, "gpt-5"), "gpt-5");
    }

    #[test]
    fn model_without_key_names_the_variable() {
        let error = options(true, "").ready("gpt-5").expect_err("there is no key");
        assert!(error.to_string().contains("`gpt-5`"), "{error}");
        assert!(error.to_string().contains("`OPENAI_API_KEY`"), "{error}");
        assert!(options(true, "").ready("claude-x").is_ok());
        let needs: Vec<_> = options(true, "").choices().into_iter().map(|choice| (choice.name, choice.needs)).collect();
        assert_eq!(needs, [("gpt-5".into(), Some("OPENAI_API_KEY")), ("claude-x".into(), None), ("demo".into(), None)]);
        assert!(options(false, "").ready("demo").is_ok());
        let mut own_server = options(false, "");
        own_server.openai.base_url = "http://127.0.0.1:11434/v1".into();
        assert!(own_server.ready("gpt-5").is_ok());
        assert_eq!(own_server.upstream_name(ProviderApi::Openai, "openai/gpt-oss"), "openai/gpt-oss");
        assert_eq!(options(true, "").upstream_name(ProviderApi::Openai, "openai/gpt-5"), "gpt-5");
    }

    #[test]
    fn longest_matching_price_wins() {
        let price = |model: &str, input| PriceConfig {
            model: model.into(),
            input,
            output: 10.0,
            cache_read: 0.5,
            cache_write: 2.0,
            context_limit: Some(200_000),
            images: false,
        };
        let options = ModelConfig {
            prices: vec![price("claude-*", 1.0), price("claude-big*", 4.0), price("claude-*x", 9.0)],
            ..no_provider()
        };
        let check = |model: &str, requested_model: &str, expected: Option<f64>| {
            let mut metered = MeteredUsage {
                model: model.into(),
                input_tokens: 1_000_000,
                output_tokens: 100_000,
                cache_read_tokens: 2_000_000,
                cache_write_tokens: 500_000,
                ..MeteredUsage::default()
            };
            options.apply_price(&mut metered, requested_model);
            assert_eq!(metered.cost_usd, expected, "{model}");
        };
        check("claude-big-2", "", Some(4.0 + 1.0 + 1.0 + 1.0));
        check("claude-small", "", Some(1.0 + 1.0 + 1.0 + 1.0));
        check("its-own-alias", "claude-small", Some(4.0));
        check("gpt-5", "gpt-5", None);
        check("demo", "demo", Some(0.0));

        let mut estimate = MeteredUsage {
            model: "claude-x".into(),
            input_tokens: 9_000_000,
            estimated: true,
            ..MeteredUsage::default()
        };
        options.apply_price(&mut estimate, "");
        assert_eq!((estimate.input_tokens, estimate.cost_usd), (200_000, Some(0.2)));
        let mut estimate = MeteredUsage {
            model: "claude-x".into(),
            output_tokens: 9_000_000,
            estimated: true,
            ..MeteredUsage::default()
        };
        options.apply_price(&mut estimate, "");
        assert_eq!((estimate.output_tokens, estimate.cost_usd), (200_000, Some(2.0)));
    }

    #[test]
    fn each_model_is_offered_once() {
        let names: Vec<String> = options(true, "claude-x").choices().into_iter().map(|choice| choice.name).collect();
        assert_eq!(names, ["claude-x", "gpt-5", "demo"]);
    }
    #[test]
    fn price_row_states_what_a_model_takes() {
        let defaults = crate::config::Config::with_data_dir("/x").model;
        let takes = |context_limit, takes_images| ModelCapabilities { context_limit, takes_images };
        assert_eq!(defaults.capabilities("claude-sonnet-4-5"), takes(Some(200_000), true));
        assert_eq!(defaults.capabilities("anthropic/claude-sonnet-4-5"), takes(Some(200_000), true));
        assert_eq!(defaults.capabilities("openai/gpt-5"), takes(Some(400_000), true));
        assert_eq!(defaults.capabilities("llama"), ModelCapabilities::default());
        assert_eq!(defaults.capabilities("demo"), takes(Some(DEMO_CONTEXT), false));
        let offered = |name: &str| defaults.choices().into_iter().find(|choice| choice.name == name).expect(name);
        assert!(offered("gpt-5").takes_images && !offered("demo").takes_images);
    }
}
