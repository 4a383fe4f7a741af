//! From the configuration to what each part is told. The parts do not know the configuration; it does not know the parts.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytesize::ByteSize;
use greenroom_protocol::link::Api;

use crate::{
    config::{self, Id, Span},
    gateway, sandbox,
};

/// Who agents run as where this server is root: a user that owns nothing else on any system known to us.
const NOBODY_ELSE: u32 = 65_532;

/// What the gateway is told.
pub fn gateway_options(model: &config::Model) -> gateway::GatewayOptions {
    let sole = provider_of_sole_key(model);
    let provider = |api, own: &config::Provider| {
        // `LLM_API_KEY` and its base URL fill what the provider of the default model has not been told by name.
        let fallback = (sole == api).then_some(model);
        let key = own.api_key.expose().or_else(|| fallback?.api_key.expose());
        let url = Some(own.base_url.as_str()).filter(|url| !url.is_empty());
        gateway::ProviderOptions {
            api_key: key.map(gateway::Secret::new),
            base_url: url.or_else(|| Some(fallback?.base_url.as_str())).unwrap_or_default().to_owned(),
        }
    };
    gateway::GatewayOptions {
        anthropic: provider(Api::Anthropic, &model.anthropic),
        openai: provider(Api::Openai, &model.openai),
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

/// Whose key `model.api_key` is: that of the default model's provider, else that of the provider whose keys look like it.
fn provider_of_sole_key(model: &config::Model) -> Api {
    let key = model.api_key.expose().unwrap_or_default();
    let anthropic = match model.default.as_str() {
        "" => key.starts_with("sk-ant-"),
        name => name.starts_with("anthropic/") || name.starts_with("claude"),
    };
    if anthropic { Api::Anthropic } else { Api::Openai }
}

fn price(price: &config::Price) -> gateway::Price {
    let config::Price { model, input, output, cache_read, cache_write, context_limit } = price.clone();
    gateway::Price { model, input, output, cache_read, cache_write, context_limit }
}

fn milliseconds(span: Span) -> u64 {
    span.0.as_millis().try_into().unwrap_or(u64::MAX)
}

pub fn limits(sandbox: &config::Sandbox) -> sandbox::Limits {
    let ByteSize(memory_bytes) = sandbox.memory;
    sandbox::Limits { memory_bytes, cpus: sandbox.cpus, pids: sandbox.pids }
}

pub fn network(sandbox: &config::Sandbox) -> sandbox::Network {
    match sandbox.network.as_str() {
        "none" => sandbox::Network::None,
        name => sandbox::Network::Named(name.to_owned()),
    }
}

pub fn volumes(sandbox: &config::Sandbox) -> Vec<sandbox::Volume> {
    let volume = |volume: &config::Volume| sandbox::Volume {
        host: volume.host.clone(),
        inside: volume.inside.clone(),
        access: match volume.access {
            config::Access::ReadOnly => sandbox::Access::ReadOnly,
            config::Access::ReadWrite => sandbox::Access::ReadWrite,
        },
    };
    sandbox.volumes.iter().map(volume).collect()
}

/// What a volume at the workspace's own place means: all sessions share that directory, in place of one each.
pub fn workspace(volumes: Vec<sandbox::Volume>) -> (Option<PathBuf>, Vec<sandbox::Volume>) {
    let (workspaces, others): (Vec<_>, Vec<_>) =
        volumes.into_iter().partition(|volume| volume.inside == Path::new(sandbox::inside::WORKSPACE));
    (workspaces.into_iter().next_back().map(|volume| volume.host), others)
}

/// A volume that has the data directory in it, or a part of it. The directory's mode keeps nobody out who runs as this server's
/// user, and a read-only mount keeps nobody from reading there, or from connecting to another session's gateway.
#[derive(Debug, thiserror::Error)]
#[error(
    "with the volume `{volume}` agents would get at the data directory `{data}`, and so at the token, at keys and at other \
     sessions; choose another data directory with `--data DIR`, or a narrower volume"
)]
pub struct Exposed {
    volume: PathBuf,
    data: PathBuf,
}

/// Refuses volumes, and a workspace that all sessions share, through which agents would get at `data`.
pub fn keep_out_of(volumes: &[sandbox::Volume], data: &Path) -> Result<(), Exposed> {
    match volumes.iter().find(|volume| volume.brings(data)) {
        Some(volume) => Err(Exposed { volume: volume.host.clone(), data: data.to_owned() }),
        None => Ok(()),
    }
}

/// What the Docker driver is told.
pub fn docker_options(sandbox: &config::Sandbox, node: &str) -> sandbox::DockerOptions {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    sandbox::DockerOptions {
        node: node.to_owned(),
        runtime: given(&sandbox.runtime),
        readonly_root: sandbox.readonly_root,
        host: given(&sandbox.docker_host),
    }
}

/// A time after which something happens, where 0 means that it never does.
pub fn never_if_zero(span: Span) -> Duration {
    if span.0.is_zero() { Duration::MAX } else { span.0 }
}

/// User and group that agents run as: never root.
pub fn user(sandbox: &config::Sandbox) -> (u32, u32) {
    let root = rustix::process::geteuid().is_root();
    let own = |id: u32| if root { NOBODY_ELSE } else { id };
    let pick = |wanted: Id, own: u32| match wanted {
        Id::Auto => own,
        Id::Is(id) => id,
    };
    (
        pick(sandbox.uid, own(rustix::process::geteuid().as_raw())),
        pick(sandbox.gid, own(rustix::process::getegid().as_raw())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Secret};

    fn model(default: &str, key: &str, url: &str) -> config::Model {
        let mut model = Config::with_data_dir("/x").model;
        (model.default, model.base_url, model.api_key) = (default.into(), url.into(), Secret::new(key));
        model
    }

    #[test]
    fn a_sole_key_goes_to_the_provider_that_it_belongs_to() {
        let check = |default: &str, key: &str, expected: &str| {
            let options = gateway_options(&model(default, key, "http://u"));
            let (with, without) = match expected {
                "anthropic" => (options.anthropic, options.openai),
                _ => (options.openai, options.anthropic),
            };
            assert_eq!(with.api_key, Some(gateway::Secret::new(key)), "{default}");
            assert_eq!((with.base_url.as_str(), without.base_url.as_str()), ("http://u", ""), "{default}");
            assert_eq!(without.api_key, None, "{default}: a key is shown to nobody but its own provider");
        };
        check("claude-sonnet-4-5", "k", "anthropic");
        check("anthropic/x", "k", "anthropic");
        check("openai/claude-like", "k", "openai");
        check("llama-3", "k", "openai");
        check("", "sk-ant-1", "anthropic");
        check("", "sk-1", "openai");
    }

    #[test]
    fn a_key_by_name_wins_over_the_sole_one() {
        let mut model = model("gpt-5", "sole", "http://u");
        model.openai = config::Provider { api_key: Secret::new("named"), base_url: "http://named".into() };
        let options = gateway_options(&model);
        assert_eq!(options.openai.api_key, Some(gateway::Secret::new("named")));
        assert_eq!(options.openai.base_url, "http://named");
    }

    #[test]
    fn agents_are_never_root() {
        let mut sandbox = Config::with_data_dir("/x").sandbox;
        let (uid, gid) = user(&sandbox);
        assert!(uid != 0 && gid != 0);
        (sandbox.uid, sandbox.gid) = (Id::Is(7), Id::Is(8));
        assert_eq!(user(&sandbox), (7, 8));
    }
}
