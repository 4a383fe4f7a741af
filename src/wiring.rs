//! Wiring: turns the configuration into the options of each part. The parts and the configuration
//! do not depend on each other.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytesize::ByteSize;
use greenroom_protocol::link::ProviderApi;

use crate::{
    config::{self, TimeSpan, UnixId},
    gateway, sandbox,
};

/// User and group id of agents if this server runs as root. Unused by other accounts on all known
/// systems.
const UNPRIVILEGED_ID: u32 = 65_532;

/// Returns the options of the gateway.
pub fn gateway_options(model: &config::ModelConfig) -> gateway::GatewayOptions {
    let sole = provider_of_sole_key(model);
    let provider = |api, own: &config::ProviderConfig| {
        // `LLM_API_KEY` and its base URL apply to the default model's provider, if that provider
        // has no own values.
        let fallback = (sole == api).then_some(model);
        let key = own.api_key.expose().or_else(|| fallback?.api_key.expose());
        let url = Some(own.base_url.as_str()).filter(|url| !url.is_empty());
        gateway::ProviderOptions {
            api_key: key.map(gateway::ProviderKey::new),
            base_url: url.or_else(|| Some(fallback?.base_url.as_str())).unwrap_or_default().to_owned(),
        }
    };
    gateway::GatewayOptions {
        anthropic: provider(ProviderApi::Anthropic, &model.anthropic),
        openai: provider(ProviderApi::Openai, &model.openai),
        default_model: model.default.clone(),
        models: model.models.clone(),
        prices: model.prices.iter().map(price).collect(),
        prices_as_of: model.prices_as_of.clone(),
        retry: gateway::RetryOptions {
            max_attempts: model.retry.max_attempts,
            base_ms: milliseconds(model.retry.base),
            max_ms: milliseconds(model.retry.max),
        },
        timeouts: gateway::TimeoutOptions {
            connect_s: model.timeouts.connect.0.as_secs(),
            first_byte_s: model.timeouts.first_byte.0.as_secs(),
            whole_answer_s: model.timeouts.whole_answer.0.as_secs(),
            idle_s: model.timeouts.idle.0.as_secs(),
        },
        demo_tokens_per_second: model.demo_tokens_per_second,
    }
}

/// Returns the provider that `model.api_key` belongs to: the provider of the default model. Without
/// a default model: Anthropic if the key begins with `sk-ant-`, else OpenAI.
fn provider_of_sole_key(model: &config::ModelConfig) -> ProviderApi {
    let key = model.api_key.expose().unwrap_or_default();
    let anthropic = match model.default.as_str() {
        "" => key.starts_with("sk-ant-"),
        name => name.starts_with("anthropic/") || name.starts_with("claude"),
    };
    if anthropic { ProviderApi::Anthropic } else { ProviderApi::Openai }
}

fn price(price: &config::PriceConfig) -> gateway::ModelPrice {
    let config::PriceConfig { model, input, output, cache_read, cache_write, context_limit } = price.clone();
    gateway::ModelPrice { model, input, output, cache_read, cache_write, context_limit }
}

fn milliseconds(span: TimeSpan) -> u64 {
    span.0.as_millis().try_into().unwrap_or(u64::MAX)
}

pub fn limits(sandbox: &config::SandboxConfig) -> sandbox::SandboxLimits {
    let ByteSize(memory_bytes) = sandbox.memory;
    sandbox::SandboxLimits { memory_bytes, cpus: sandbox.cpus, pids: sandbox.pids }
}

pub fn network(sandbox: &config::SandboxConfig) -> sandbox::SandboxNetwork {
    match sandbox.network.as_str() {
        "none" => sandbox::SandboxNetwork::None,
        name => sandbox::SandboxNetwork::Named(name.to_owned()),
    }
}

pub fn volumes(sandbox: &config::SandboxConfig) -> Vec<sandbox::SandboxVolume> {
    let volume = |volume: &config::VolumeConfig| sandbox::SandboxVolume {
        host: volume.host.clone(),
        inside: volume.inside.clone(),
        access: match volume.access {
            config::VolumeAccessConfig::ReadOnly => sandbox::VolumeAccess::ReadOnly,
            config::VolumeAccessConfig::ReadWrite => sandbox::VolumeAccess::ReadWrite,
        },
    };
    sandbox.volumes.iter().map(volume).collect()
}

/// Separates volumes at the workspace's path from the others. All sessions share such a directory
/// as their workspace.
pub fn split_shared_workspace(volumes: Vec<sandbox::SandboxVolume>) -> (Option<PathBuf>, Vec<sandbox::SandboxVolume>) {
    let (workspaces, others): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|volume| volume.inside == Path::new(sandbox::sandbox_paths::WORKSPACE));
    (workspaces.into_iter().next_back().map(|volume| volume.host), others)
}

/// Volume that overlaps the data directory.
///
/// The directory's mode does not protect it from agents that run as this server's user. A read-only
/// mount still allows reading, and connecting to another session's gateway.
#[derive(Debug, thiserror::Error)]
#[error(
    "volume `{volume}` must not overlap the data directory `{data}`: agents could reach the token, keys and other \
     sessions; choose another data directory with `--data DIR`, or a narrower volume"
)]
pub struct DataDirExposed {
    volume: PathBuf,
    data: PathBuf,
}

/// Checks that no volume, including a shared workspace, gives agents access to `data`.
///
/// # Errors
/// Names the first volume that overlaps `data`.
pub fn check_volumes_exclude(volumes: &[sandbox::SandboxVolume], data: &Path) -> Result<(), DataDirExposed> {
    match volumes.iter().find(|volume| volume.overlaps(data)) {
        Some(volume) => Err(DataDirExposed { volume: volume.host.clone(), data: data.to_owned() }),
        None => Ok(()),
    }
}

/// Returns the options of the Docker driver.
pub fn docker_options(sandbox: &config::SandboxConfig, node: &str) -> sandbox::DockerOptions {
    let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    sandbox::DockerOptions {
        node: node.to_owned(),
        runtime: non_empty(&sandbox.runtime),
        readonly_root: sandbox.readonly_root,
        host: non_empty(&sandbox.docker_host),
    }
}

/// Converts a delay. 0 becomes [`Duration::MAX`], which means never.
pub fn never_if_zero(span: TimeSpan) -> Duration {
    if span.0.is_zero() { Duration::MAX } else { span.0 }
}

/// Returns the user and group that agents run as. Never root.
pub fn user(sandbox: &config::SandboxConfig) -> (u32, u32) {
    let root = rustix::process::geteuid().is_root();
    let own = |id: u32| if root { UNPRIVILEGED_ID } else { id };
    let pick = |configured: UnixId, own: u32| match configured {
        UnixId::Auto => own,
        UnixId::Fixed(id) => id,
    };
    (
        pick(sandbox.uid, own(rustix::process::geteuid().as_raw())),
        pick(sandbox.gid, own(rustix::process::getegid().as_raw())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, SecretString};

    fn model(default: &str, key: &str, url: &str) -> config::ModelConfig {
        let mut model = Config::with_data_dir("/x").model;
        (model.default, model.base_url, model.api_key) = (default.into(), url.into(), SecretString::new(key));
        model
    }

    #[test]
    fn sole_key_goes_to_its_provider() {
        let check = |default: &str, key: &str, expected: &str| {
            let options = gateway_options(&model(default, key, "http://u"));
            let (with, without) = match expected {
                "anthropic" => (options.anthropic, options.openai),
                _ => (options.openai, options.anthropic),
            };
            assert_eq!(with.api_key, Some(gateway::ProviderKey::new(key)), "{default}");
            assert_eq!((with.base_url.as_str(), without.base_url.as_str()), ("http://u", ""), "{default}");
            assert_eq!(without.api_key, None, "{default}: a key goes only to its own provider");
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
        let mut model = model("gpt-5", "sole", "http://u");
        model.openai = config::ProviderConfig { api_key: SecretString::new("named"), base_url: "http://named".into() };
        let options = gateway_options(&model);
        assert_eq!(options.openai.api_key, Some(gateway::ProviderKey::new("named")));
        assert_eq!(options.openai.base_url, "http://named");
    }

    #[test]
    fn agents_are_never_root() {
        let mut sandbox = Config::with_data_dir("/x").sandbox;
        let (uid, gid) = user(&sandbox);
        assert!(uid != 0 && gid != 0);
        (sandbox.uid, sandbox.gid) = (UnixId::Fixed(7), UnixId::Fixed(8));
        assert_eq!(user(&sandbox), (7, 8));
    }
}
