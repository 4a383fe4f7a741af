//! Addresses of the providers: which key goes to which base URL. Pure.
//!
//! A key and a base URL of one source belong together. Sources are the provider's own settings
//! (`model.openai`, `OPENAI_API_KEY`, `OPENAI_BASE_URL`) and those of a user with one provider
//! (`model.api_key`, `LLM_API_KEY`, `LLM_BASE_URL`).

use greenroom_protocol::link::ProviderApi;

use super::{
    catalog::{self, ResolvedModel},
    error_response::provider_name,
};
use crate::config::{ModelConfig, ProviderConfig};

/// Applies `model.api_key` and its base URL to their provider. Returns a warning for each key that
/// goes to a base URL of another source, and for each source that is not used.
pub(super) fn apply(mut config: ModelConfig) -> (ModelConfig, Vec<String>) {
    let sole = ProviderConfig { api_key: config.api_key.clone(), base_url: config.base_url.clone() };
    let sole_api = provider_of_sole_key(&config);
    let mut warnings = Vec::new();
    for api in ProviderApi::ALL {
        let section = section(api);
        let own = config.provider(api).clone();
        let merged = match api == sole_api {
            true => merge(&own, &sole),
            false => MergedAddress { key: AddressSource::Own, url: AddressSource::Own },
        };
        let name_of = |source: AddressSource, field: &str| match source {
            AddressSource::Own => format!("model.{section}.{field}"),
            AddressSource::Sole => format!("model.{field}"),
        };
        let (key_name, url_name) = (name_of(merged.key, "api_key"), name_of(merged.url, "base_url"));
        let used = ProviderConfig {
            api_key: if merged.key == AddressSource::Own { own.api_key.clone() } else { sole.api_key.clone() },
            base_url: if merged.url == AddressSource::Own { own.base_url.clone() } else { sole.base_url.clone() },
        };
        if used.api_key.expose().is_some() && !used.base_url.is_empty() && !is_one_source(&config, &key_name, &url_name)
        {
            warnings.push(format!(
                "{} is called at the base URL of {} with the key of {}; set both in one place",
                provider_name(api),
                origin(&config, &url_name),
                origin(&config, &key_name),
            ));
        }
        if api == sole_api && used.base_url != sole.base_url && !sole.base_url.is_empty() {
            warnings.push(format!(
                "{} is called at the base URL of {}; the base URL of {} is not used",
                provider_name(api),
                origin(&config, &url_name),
                origin(&config, "model.base_url"),
            ));
        }
        let ignored_key = merged.key == AddressSource::Sole && own.api_key.expose().is_some();
        if ignored_key && own.api_key != sole.api_key {
            warnings.push(format!(
                "{} is called with the key of {}; the key of {} is not used",
                provider_name(api),
                origin(&config, "model.api_key"),
                origin(&config, &format!("model.{section}.api_key")),
            ));
        }
        if merged.url == AddressSource::Sole && !own.base_url.is_empty() && own.base_url != sole.base_url {
            warnings.push(format!(
                "{} is called at the base URL of {}; the base URL of {} is not used",
                provider_name(api),
                origin(&config, "model.base_url"),
                origin(&config, &format!("model.{section}.base_url")),
            ));
        }
        *config.provider_mut(api) = used;
    }
    (config, warnings)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressSource {
    /// Section of the provider.
    Own,
    /// Settings of a user with one provider.
    Sole,
}

/// Sources of the key and the base URL of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MergedAddress {
    key: AddressSource,
    url: AddressSource,
}

/// Merges the two sources of one provider. A source with key and base URL is used whole, the
/// provider's own first. Otherwise the provider's own values come first, one by one.
fn merge(own: &ProviderConfig, sole: &ProviderConfig) -> MergedAddress {
    let whole = |source: &ProviderConfig| source.api_key.expose().is_some() && !source.base_url.is_empty();
    if !whole(own) && whole(sole) {
        return MergedAddress { key: AddressSource::Sole, url: AddressSource::Sole };
    }
    let own_or_sole = |is_own| if is_own { AddressSource::Own } else { AddressSource::Sole };
    MergedAddress { key: own_or_sole(own.api_key.expose().is_some()), url: own_or_sole(!own.base_url.is_empty()) }
}

/// Returns true if both settings come from one source. Code sets values without an origin.
fn is_one_source(config: &ModelConfig, key: &str, url: &str) -> bool {
    match (config.address_origins.get(key), config.address_origins.get(url)) {
        (Some(key), Some(url)) => key.is_same_source(url),
        (key, url) => key.is_none() && url.is_none(),
    }
}

fn origin(config: &ModelConfig, key: &str) -> String {
    config.address_origins.get(key).map_or_else(|| format!("`{key}`"), ToString::to_string)
}

/// Returns the provider's section of the configuration.
fn section(api: ProviderApi) -> &'static str {
    match api {
        ProviderApi::Anthropic => "anthropic",
        ProviderApi::Openai => "openai",
        ProviderApi::Gemini => "gemini",
    }
}

/// Returns the provider that `model.api_key` belongs to: the provider of the default model. Without
/// a default model: Anthropic if the key begins with `sk-ant-`, else OpenAI.
fn provider_of_sole_key(config: &ModelConfig) -> ProviderApi {
    let key = config.api_key.expose().unwrap_or_default();
    match catalog::resolve(&config.default) {
        ResolvedModel { demo: false, api, .. } if !config.default.is_empty() => api,
        _ if key.starts_with("sk-ant-") => ProviderApi::Anthropic,
        _ => ProviderApi::Openai,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SecretString, SettingOrigin};

    fn config(default: &str, key: &str, url: &str) -> ModelConfig {
        let mut config = Config::with_data_dir("/x").model;
        (config.default, config.base_url, config.api_key) = (default.into(), url.into(), SecretString::new(key));
        config
    }

    #[test]
    fn sole_key_goes_to_its_provider() {
        let check = |default: &str, key: &str, expected: ProviderApi| {
            let (config, warnings) = apply(config(default, key, "http://u"));
            for api in ProviderApi::ALL {
                let expected = if api == expected { (key, "http://u") } else { ("", "") };
                let provider = config.provider(api);
                let got = (provider.api_key.expose().unwrap_or_default(), provider.base_url.as_str());
                assert_eq!(got, expected, "{default}: a key goes only to its own provider");
            }
            assert_eq!(warnings, Vec::<String>::new());
        };
        check("claude-sonnet-4-5", "k", ProviderApi::Anthropic);
        check("anthropic/x", "k", ProviderApi::Anthropic);
        check("openai/claude-like", "k", ProviderApi::Openai);
        check("gemini-2.5-pro", "k", ProviderApi::Gemini);
        check("gemini/x", "k", ProviderApi::Gemini);
        check("llama-3", "k", ProviderApi::Openai);
        check("", "sk-ant-1", ProviderApi::Anthropic);
        check("", "sk-1", ProviderApi::Openai);
    }

    /// Checks which key goes to which base URL. A warning holds `words`; without words there is
    /// none.
    #[test]
    fn key_and_base_url_come_from_one_source() {
        let check = |variables: &[&str], key: &str, url: &str, words: &[&str]| {
            let mut config = config("gpt-5", "", "");
            for variable in variables {
                let setting = match *variable {
                    "OPENAI_API_KEY" => {
                        config.openai.api_key = SecretString::new(*variable);
                        "model.openai.api_key"
                    }
                    "LLM_API_KEY" => {
                        config.api_key = SecretString::new(*variable);
                        "model.api_key"
                    }
                    "OPENAI_BASE_URL" => {
                        config.openai.base_url = "http://own".into();
                        "model.openai.base_url"
                    }
                    _ => {
                        config.base_url = "http://sole".into();
                        "model.base_url"
                    }
                };
                config.address_origins.insert(setting.into(), SettingOrigin::Variable((*variable).into()));
            }
            let (config, warnings) = apply(config);
            let openai = (config.openai.api_key.expose().unwrap_or_default(), config.openai.base_url.as_str());
            assert_eq!(openai, (key, url), "{variables:?}");
            assert_eq!(warnings.is_empty(), words.is_empty(), "{variables:?}: {warnings:?}");
            assert!(words.iter().all(|words| warnings.concat().contains(words)), "{variables:?}: {warnings:?}");
        };
        let (own_key, own_url) = ("OPENAI_API_KEY", "OPENAI_BASE_URL");
        let (sole_key, sole_url) = ("LLM_API_KEY", "LLM_BASE_URL");
        check(&[own_key], own_key, "", &[]);
        check(&[own_key, own_url], own_key, "http://own", &[]);
        check(&[sole_key, sole_url], sole_key, "http://sole", &[]);
        check(&[own_key, sole_key], own_key, "", &[]);
        check(&[own_url], "", "http://own", &[]);
        check(&[own_key, sole_url], own_key, "http://sole", &["`LLM_BASE_URL` with the key of", "`OPENAI_API_KEY`;"]);
        check(&[sole_key, own_url], sole_key, "http://own", &["`OPENAI_BASE_URL` with the key of", "`LLM_API_KEY`;"]);
        let unused = ["`LLM_API_KEY`; the key of environment variable `OPENAI_API_KEY` is not used"];
        check(&[own_key, sole_key, sole_url], sole_key, "http://sole", &unused);
        let unused = ["`LLM_BASE_URL`; the base URL of environment variable `OPENAI_BASE_URL` is not used"];
        check(&[own_url, sole_key, sole_url], sole_key, "http://sole", &unused);
        let unused = ["`OPENAI_BASE_URL`; the base URL of environment variable `LLM_BASE_URL` is not used"];
        check(&[own_key, own_url, sole_key, sole_url], own_key, "http://own", &unused);
    }

    #[test]
    fn key_of_a_file_and_base_url_of_a_variable_get_a_warning() {
        let mut config = config("gpt-5", "", "");
        config.anthropic = ProviderConfig { api_key: SecretString::new("k"), base_url: "http://elsewhere".into() };
        let file = SettingOrigin::File { path: "/x/greenroom.toml".into(), line: 3 };
        let variable = SettingOrigin::Variable("ANTHROPIC_BASE_URL".into());
        config.address_origins =
            [("model.anthropic.api_key".into(), file), ("model.anthropic.base_url".into(), variable)].into();
        let (config, warnings) = apply(config);
        assert_eq!(config.anthropic.base_url, "http://elsewhere");
        assert!(
            warnings[0].contains("`ANTHROPIC_BASE_URL` with the key of `/x/greenroom.toml` line 3"),
            "{warnings:?}"
        );
    }
}
