//! Model catalog: resolves model names, checks that a model is usable, and prices usage. Pure.

use std::net::IpAddr;

use greenroom_protocol::link::ProviderApi;

use super::{GatewayError, MeteredUsage, ModelChoice, route::GatewayRoute};
use crate::{
    config::{ForeignModels, LongPriceConfig, ModelConfig, PriceConfig, ProviderConfig},
    telemetry::metrics::{METRICS, OTHER},
};

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

/// Words of a model name that its provider calls small.
const SMALL_WORDS: [&str; 5] = ["haiku", "mini", "nano", "flash", "luna"];

/// Models that a session may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionModels {
    /// Names as sessions use them, the session's own model first.
    pub names: Vec<String>,
    /// Model for names that providers call small. One of `names`.
    pub small: Option<String>,
    pub foreign: ForeignModels,
}

impl SessionModels {
    /// Returns the models of a session that may call any.
    pub fn any() -> SessionModels {
        SessionModels { names: Vec::new(), small: None, foreign: ForeignModels::Pass }
    }
}

/// Prices of one model in USD per million tokens, without gaps.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ModelPrice {
    pub(super) input: f64,
    pub(super) output: f64,
    cache_read: f64,
    cache_write: f64,
    cache_write_1h: f64,
    pub(super) context_limit: Option<u64>,
    pub(super) output_limit: Option<u64>,
    long: Option<LongPriceConfig>,
}

impl ModelPrice {
    pub(super) fn of_row(row: &PriceConfig) -> ModelPrice {
        ModelPrice {
            input: row.input,
            output: row.output,
            cache_read: row.cache_read.unwrap_or(row.input),
            // Factors of Anthropic's price list.
            cache_write: row.cache_write.unwrap_or(1.25 * row.input),
            cache_write_1h: row.cache_write_1h.unwrap_or(2.0 * row.input),
            context_limit: row.context_limit,
            output_limit: row.output_limit,
            long: row.long,
        }
    }

    /// Returns the price of a call with this many input tokens, cache reads and writes included.
    pub(super) fn at(self, input_tokens: u64) -> ModelPrice {
        match self.long {
            Some(LongPriceConfig { above, input, output, cache_read }) if input_tokens > above => {
                ModelPrice { input, output, cache_read, ..self }
            }
            Some(_) | None => self,
        }
    }

    /// Returns the price of an input token that is read, or written to a cache. Only Anthropic's
    /// format has a price for writes.
    pub(super) fn dearest_input(&self, route: GatewayRoute, has_long_cache: bool) -> f64 {
        match route {
            GatewayRoute::Messages if has_long_cache => self.input.max(self.cache_write).max(self.cache_write_1h),
            GatewayRoute::Messages => self.input.max(self.cache_write),
            GatewayRoute::Chat
            | GatewayRoute::Responses
            | GatewayRoute::CompactResponses
            | GatewayRoute::Embeddings
            | GatewayRoute::GeminiGenerate
            | GatewayRoute::GeminiStream
            | GatewayRoute::CountTokens
            | GatewayRoute::GeminiCountTokens
            | GatewayRoute::AnthropicModels
            | GatewayRoute::OpenaiModels
            | GatewayRoute::GeminiModels => self.input,
        }
    }

    pub(super) fn is_free(&self) -> bool {
        self.dearest() == 0.0
    }

    fn dearest(&self) -> f64 {
        [self.output, self.cache_read, self.cache_write, self.cache_write_1h].into_iter().fold(self.input, f64::max)
    }
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

/// Returns the label of a provider in the metrics.
fn metric_provider(api: ProviderApi) -> &'static str {
    match api {
        ProviderApi::Anthropic => "anthropic",
        ProviderApi::Openai => "openai",
        ProviderApi::Gemini => "gemini",
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

    /// Returns the labels of a model in the metrics, provider and model. Models that the
    /// configuration does not list share one label.
    pub(super) fn metric_labels(&self, api: ProviderApi, upstream_model: &str) -> (&'static str, String) {
        if upstream_model == DEMO {
            return (DEMO, DEMO.to_owned());
        }
        // A server that imitates a provider may get the name with the provider's prefix.
        let listed = self.listed().find_map(|name| {
            let ResolvedModel { api: of, model, .. } = resolve(name);
            (of == api && (model == upstream_model || self.upstream_name(api, name) == upstream_model)).then_some(model)
        });
        (metric_provider(api), listed.unwrap_or_else(|| OTHER.to_owned()))
    }

    /// Creates the metrics of all listed models at zero.
    pub(super) fn declare_metrics(&self) {
        METRICS.declare_model(DEMO, DEMO);
        ProviderApi::ALL.into_iter().for_each(|api| METRICS.declare_model(metric_provider(api), OTHER));
        for ResolvedModel { api, model, demo } in self.listed().map(|name| resolve(name)) {
            if !demo {
                METRICS.declare_model(metric_provider(api), &model);
            }
        }
    }

    /// Returns the models that the configuration lists.
    fn listed(&self) -> impl Iterator<Item = &String> {
        self.models.iter().chain(Some(&self.default)).filter(|name| !name.is_empty())
    }

    /// Returns the field that limits an answer, for a request without one. `None`: the route has no
    /// such field.
    ///
    /// OpenAI's newer models reject `max_tokens`. Most servers that imitate its chat know no other
    /// field. Gemini's field is inside `generationConfig`.
    pub(super) fn output_limit_field(&self, route: GatewayRoute) -> Option<&'static str> {
        match route {
            GatewayRoute::Chat if self.is_official_service(ProviderApi::Openai) => Some("max_completion_tokens"),
            GatewayRoute::Responses => Some("max_output_tokens"),
            GatewayRoute::GeminiGenerate | GatewayRoute::GeminiStream => Some("maxOutputTokens"),
            GatewayRoute::Messages | GatewayRoute::Chat => Some("max_tokens"),
            GatewayRoute::CompactResponses
            | GatewayRoute::Embeddings
            | GatewayRoute::CountTokens
            | GatewayRoute::GeminiCountTokens
            | GatewayRoute::AnthropicModels
            | GatewayRoute::OpenaiModels
            | GatewayRoute::GeminiModels => None,
        }
    }

    /// Returns what the price table states about `name`, with or without its provider prefix.
    pub(super) fn capabilities(&self, name: &str) -> ModelCapabilities {
        if resolve(name).demo {
            return ModelCapabilities { context_limit: Some(DEMO_CONTEXT), takes_images: false };
        }
        let price = self.row_of(name);
        price.map_or_else(ModelCapabilities::default, |price| ModelCapabilities {
            context_limit: price.context_limit,
            takes_images: price.images,
        })
    }

    /// Returns the upstream names of the session's models that `api` serves. `None`: any.
    pub(super) fn permitted<'a>(&self, api: ProviderApi, models: &'a SessionModels) -> Option<Vec<&'a str>> {
        if models.foreign == ForeignModels::Pass {
            return None;
        }
        let served = models.names.iter().filter(|name| {
            let resolved = resolve(name);
            resolved.demo || resolved.api == api
        });
        Some(served.map(|name| self.upstream_name(api, name)).collect())
    }

    /// Returns the upstream name of the model that a session's call for `requested` gets.
    ///
    /// # Errors
    /// Returns the reason in words if the session may not call the model.
    pub(super) fn admit(&self, route: GatewayRoute, requested: &str, models: &SessionModels) -> Result<String, String> {
        let api = route.api();
        let requested = self.upstream_name(api, requested);
        let Some(permitted) = self.permitted(api, models) else { return Ok(requested.to_owned()) };
        if permitted.contains(&requested) {
            return Ok(requested.to_owned());
        }
        let small = models.small.as_deref().map(|small| self.upstream_name(api, small));
        let replacement = match models.foreign {
            // No model of a conversation makes embeddings.
            ForeignModels::Map if route == GatewayRoute::Embeddings => None,
            ForeignModels::Map => small
                .filter(|small| is_small(requested) && permitted.contains(small))
                .or_else(|| permitted.first().copied()),
            ForeignModels::Refuse | ForeignModels::Pass => None,
        };
        replacement.map(str::to_owned).ok_or_else(|| {
            let names: Vec<_> = models.names.iter().map(|name| format!("`{name}`")).collect();
            format!("this session may not call `{requested}`; its models are {}", names.join(", "))
        })
    }

    /// Fills in price and context size of `metered.model`. If the table has no entry, the entry of
    /// `requested_model` applies.
    pub(super) fn apply_price(&self, api: ProviderApi, metered: &mut MeteredUsage, requested_model: &str) {
        let answered = self.row_of(&metered.model).filter(|_| metered.model != DEMO).map(ModelPrice::of_row);
        let price = answered.or_else(|| self.price_of(api, requested_model));
        let Some(price) = price else { return };
        metered.context_limit = price.context_limit;
        if metered.estimated {
            // A picture has many bytes and few tokens, and so does a response with token
            // probabilities. No call uses more than the model's context.
            let limit = price.context_limit.unwrap_or(u64::MAX);
            metered.input_tokens = metered.input_tokens.min(limit);
            metered.output_tokens = metered.output_tokens.min(limit);
        }
        let price = price.at(metered.context_input_tokens());
        metered.cost_usd = Some(cost(&price, metered) + self.cost_of_server_tools(&metered.server_tool_uses));
    }

    /// Returns the price of a model of `api`. The demo model is free, and so is a model at a
    /// loopback address unless a row has its price.
    pub(super) fn price_of(&self, api: ProviderApi, model: &str) -> Option<ModelPrice> {
        if model == DEMO {
            return Some(ModelPrice { context_limit: Some(DEMO_CONTEXT), ..ModelPrice::default() });
        }
        let free = || is_loopback(&self.provider(api).base_url).then(ModelPrice::default);
        self.row_of(model).map(ModelPrice::of_row).or_else(free)
    }

    /// Returns true if a row has the price of the model.
    pub(super) fn has_row(&self, model: &str) -> bool {
        self.row_of(model).is_some()
    }

    /// Returns the row of a model, with or without the path before its name.
    fn row_of(&self, model: &str) -> Option<&PriceConfig> {
        let best = |name: &str| {
            let matching = self.prices.iter().filter(|price| matches_pattern(&price.model, name));
            matching.max_by_key(|price| price.model.len())
        };
        best(model).or_else(|| best(model.rsplit_once('/')?.1))
    }

    fn cost_of_server_tools(&self, uses: &[(String, u64)]) -> f64 {
        let dearest = || self.server_tool_prices.values().copied().fold(0.0, f64::max);
        let price = |name| self.server_tool_prices.get(name).copied().unwrap_or_else(dearest);
        uses.iter().map(|(name, count)| *count as f64 * price(name)).sum()
    }
}

/// Returns true if a provider calls the model small: a word of its name says so.
fn is_small(model: &str) -> bool {
    model.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| SMALL_WORDS.contains(&word))
}

/// Returns true if `url` is an address of this machine's loopback interface.
fn is_loopback(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else { return false };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host.parse::<IpAddr>().map_or(host == "localhost" || host.ends_with(".localhost"), |address| address.is_loopback())
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

fn cost(price: &ModelPrice, metered: &MeteredUsage) -> f64 {
    let tokens_and_prices = [
        (metered.input_tokens, price.input),
        (metered.output_tokens, price.output),
        (metered.cache_read_tokens, price.cache_read),
        (metered.cache_write_tokens, price.cache_write),
        (metered.cache_write_1h_tokens, price.cache_write_1h),
        (metered.unknown_tokens, price.dearest()),
    ];
    tokens_and_prices.iter().map(|&(tokens, usd)| tokens as f64 * usd).sum::<f64>() / 1e6
}

#[cfg(test)]
mod tests;
