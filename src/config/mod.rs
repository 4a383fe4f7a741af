//! What an operator can set, as types. `config/default.toml` has every key with its default and its reason.
//!
//! [`Config::load`] merges the layers; a value that is wrong is reported with the layer, the line and the key it stands in.

use std::{net::SocketAddr, path::PathBuf};

use bytesize::ByteSize;
use serde::Deserialize;

mod layers;
mod load;
mod value;

pub use load::{ConfigError, ConfigSources};
pub use value::{SecretString, TimeSpan, UnixId, VolumeAccessConfig, VolumeConfig};

/// All of it. Every field is a key of `config/default.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub server: ServerConfig,
    pub data: DataConfig,
    pub sandbox: SandboxConfig,
    pub agent: AgentConfig,
    pub model: ModelConfig,
    pub sweeper: SweeperConfig,
    pub log: LogConfig,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    pub bind: SocketAddr,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
    pub token: SecretString,
    /// 0: one per core.
    pub workers: usize,
    pub max_connections: usize,
    pub header_timeout: TimeSpan,
    pub keep_alive: TimeSpan,
    pub max_body: ByteSize,
    pub max_upload: ByteSize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Never empty once loaded.
    pub dir: PathBuf,
    pub journal: JournalBackend,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JournalBackend {
    Local,
    Memory,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SandboxConfig {
    pub driver: DriverChoice,
    /// Empty: `unix:///var/run/docker.sock`.
    pub docker_host: String,
    pub image: String,
    pub memory: ByteSize,
    pub cpus: f64,
    pub pids: u64,
    /// `none`, or an engine's network.
    pub network: String,
    pub volumes: Vec<VolumeConfig>,
    pub uid: UnixId,
    pub gid: UnixId,
    pub readonly_root: bool,
    /// Empty: the engine's default.
    pub runtime: String,
    pub max_starting: usize,
    pub max_waiting: usize,
    pub unconfined: bool,
    pub stop_with_server: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum DriverChoice {
    /// Docker where an engine answers, else process.
    Auto,
    /// Containers.
    Docker,
    /// Confined processes of this host.
    Process,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentConfig {
    pub run_timeout: TimeSpan,
    pub max_steps: u32,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Empty: the first of `models` that can be asked.
    pub default: String,
    pub models: Vec<String>,
    /// Of the provider of `default`.
    pub api_key: SecretString,
    pub base_url: String,
    pub demo_tokens_per_second: u32,
    pub prices_as_of: String,
    pub anthropic: ProviderConfig,
    pub openai: ProviderConfig,
    pub retry: RetryConfig,
    pub timeouts: TimeoutConfig,
    pub prices: Vec<PriceConfig>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    pub api_key: SecretString,
    /// Empty: the provider's own service.
    pub base_url: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryConfig {
    pub max_attempts: u32,
    pub base: TimeSpan,
    pub max: TimeSpan,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutConfig {
    pub connect: TimeSpan,
    pub first_byte: TimeSpan,
    pub whole_answer: TimeSpan,
    pub idle: TimeSpan,
}

/// USD per million tokens.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// A model as its provider names it; one `*` at the end stands for anything.
    pub model: String,
    pub input: f64,
    pub output: f64,
    #[serde(default)]
    pub cache_read: f64,
    #[serde(default)]
    pub cache_write: f64,
    /// The model's context, in tokens.
    pub context_limit: Option<u64>,
}

/// 0 means never.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweeperConfig {
    pub every: TimeSpan,
    pub pause_after: TimeSpan,
    pub stop_after: TimeSpan,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// What `tracing_subscriber::EnvFilter` reads.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    Text,
    Json,
}

/// A value that has the right type and still makes no sense.
#[derive(Debug, PartialEq)]
struct InvalidValue {
    key: &'static str,
    why: &'static str,
}

impl Config {
    /// The first value that has the right type and still makes no sense.
    fn invalid_value(&self) -> Option<InvalidValue> {
        let rules = [
            (self.sandbox.memory >= ByteSize::mib(32), "sandbox.memory", "an agent needs 32MiB at least"),
            (self.sandbox.cpus > 0.0, "sandbox.cpus", "it is in CPUs, such as 1.5, and more than 0"),
            (self.sandbox.pids >= 16, "sandbox.pids", "an agent with its tools needs 16 at least"),
            (self.sandbox.uid != UnixId::Fixed(0), "sandbox.uid", "agents never run as root"),
            (self.sandbox.gid != UnixId::Fixed(0), "sandbox.gid", "agents never run as root"),
            (self.sandbox.max_starting > 0, "sandbox.max_starting", "with 0 no session would ever start"),
            (!self.sandbox.network.is_empty(), "sandbox.network", "it is `none`, or the name of a network"),
            (self.sandbox.network != "host", "sandbox.network", "the host's own network would be no wall"),
            (self.agent.max_steps > 0, "agent.max_steps", "with 0 no agent could take a step"),
            (self.model.retry.max_attempts > 0, "model.retry.max_attempts", "it counts the first attempt too"),
            (!self.sweeper.every.0.is_zero(), "sweeper.every", "it would never rest"),
            (!self.server.header_timeout.0.is_zero(), "server.header_timeout", "no request would arrive in time"),
            (self.server.max_connections > 0, "server.max_connections", "with 0 nobody could connect"),
            (self.server.max_body >= ByteSize::kib(16), "server.max_body", "a request needs 16KiB at least"),
            (
                self.server.token.is_valid_token(),
                "server.token",
                "it has 16 letters, digits or `-._~` at least, or is empty",
            ),
            (
                self.server.allowed_origins.iter().all(|origin| is_origin(origin)),
                "server.allowed_origins",
                "an origin is scheme, host and port without a path, such as `https://tools.example`",
            ),
            (
                tracing_subscriber::EnvFilter::try_new(&self.log.level).is_ok(),
                "log.level",
                "it is error, warn, info, debug or trace, or by module such as `info,greenroom::web=debug`",
            ),
        ];
        rules.into_iter().find(|(fine, ..)| !fine).map(|(_, key, why)| InvalidValue { key, why })
    }
}

/// An origin as browsers send it: lower case, no path, no slash at the end.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '*', '@', '?', '#']) && !host.chars().any(|c| c.is_ascii_uppercase())
    })
}
