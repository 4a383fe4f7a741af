//! Configuration of the server, as types. `config/default.toml` lists every key with its default
//! and its reason.
//!
//! [`Config::load`] merges the layers. An error names the layer, the line and the key of the
//! invalid value.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf};

use bytesize::ByteSize;
use greenroom_protocol::link::ReasoningEffort;
use serde::Deserialize;

mod approvals;
mod checkpoints;
mod files;
mod layers;
mod load;
mod network;
mod prices;
mod repositories;
mod sandbox;
mod value;

pub use approvals::{ANALYZER_NAMES, ApprovalRule, ApprovalsConfig, HttpAnalyzerConfig, LoopLimits, RuleAction};
pub use checkpoints::CheckpointsConfig;
pub use files::{FileTypePattern, FilesConfig};
pub use layers::SettingOrigin;
pub use load::{ConfigError, ConfigSources};
pub use network::{BasePath, TlsFiles, TlsSetting, TrustedProxies};
pub use repositories::{RepositoriesConfig, RepositoryCredential, WorkspaceConfig};
pub use sandbox::{DriverChoice, SandboxConfig, SandboxLimits, SandboxNetwork, SharedUserReason};
pub use value::{SandboxVolume, SecretString, TimeSpan, UidRange, UnixId, UsdLimit, VolumeAccess};

/// Complete configuration. Every field is a key of `config/default.toml`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub server: ServerConfig,
    pub data: DataConfig,
    pub sandbox: SandboxConfig,
    pub agent: AgentConfig,
    pub model: ModelConfig,
    pub gateway: GatewayConfig,
    pub budget: BudgetConfig,
    pub quota: QuotaConfig,
    pub files: FilesConfig,
    pub approvals: ApprovalsConfig,
    pub checkpoints: CheckpointsConfig,
    pub workspace: WorkspaceConfig,
    pub repositories: RepositoriesConfig,
    pub sweeper: SweeperConfig,
    pub log: LogConfig,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    pub bind: SocketAddr,
    pub allowed_origins: Vec<String>,
    pub allowed_hosts: Vec<String>,
    pub base_path: BasePath,
    pub trusted_proxies: TrustedProxies,
    pub tls: TlsSetting,
    /// Answers `/readyz` and `/metrics` without a token to clients on this machine.
    pub open_monitoring: bool,
    pub token: SecretString,
    /// Threads that serve HTTP. 0: one per core.
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
    /// Data directory. Never empty once loaded.
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
pub struct AgentConfig {
    /// Time limit for one tool call. The agent gets it in whole seconds, rounded up.
    pub run_timeout: TimeSpan,
    pub max_steps: u32,
}

/// Rules of the model gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayConfig {
    /// Parts of a provider's service that agents may use.
    pub allow: Vec<GatewayPermission>,
    pub foreign_models: ForeignModels,
    /// Model of the names that providers call small. Empty: the session's own model.
    pub small_model: String,
    /// Rejects metered calls without a running turn or user action.
    pub only_while_working: bool,
}

/// Treatment of a model name that the session does not list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignModels {
    /// A model of the session replaces the name.
    #[default]
    Map,
    /// The call is rejected. The error lists the session's models.
    Refuse,
    /// The name passes.
    Pass,
}

/// Spending limits in USD.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetConfig {
    /// Budget of a new session that names none.
    pub per_session: UsdLimit,
    /// Limit of all sessions together in one day, UTC.
    pub per_day: UsdLimit,
    /// Limit of all sessions together, purged ones included.
    pub total: UsdLimit,
}

/// Disk quotas of one session, in bytes. 0: no limit.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// Bytes that the session may add to the journal within an hour of the wall clock.
    pub journal_per_hour: ByteSize,
    pub journal_total: ByteSize,
    /// The same for reports that arrive while neither a turn nor a user action runs.
    pub idle_journal_per_hour: ByteSize,
    pub idle_journal_total: ByteSize,
    /// Size of workspace and home together.
    pub workspace: ByteSize,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// Model of sessions that name none. Empty: the first of `models` that is usable.
    pub default: String,
    /// Reasoning effort of sessions that name none. Empty: the model's own default.
    #[serde(deserialize_with = "value::effort")]
    pub effort: Option<ReasoningEffort>,
    /// Models offered to clients, by the names that sessions use. `demo` is always offered.
    pub models: Vec<String>,
    /// Key of the provider of `default`.
    pub api_key: SecretString,
    /// Base URL of the provider of `default`.
    pub base_url: String,
    /// Speed of the demo model in tokens per second. 0: no limit.
    pub demo_tokens_per_second: u32,
    /// Date on which `prices` was last compared with the providers' pages.
    pub prices_as_of: String,
    /// File with newer price rows. Empty: none. The loader merges the rows into `prices`.
    pub prices_file: PathBuf,
    /// Price of one use of a provider-side tool in USD, by the provider's name of the count. A name
    /// without a price costs as much as the dearest.
    pub server_tool_prices: BTreeMap<String, f64>,
    pub anthropic: ProviderConfig,
    pub openai: ProviderConfig,
    pub gemini: ProviderConfig,
    pub retry: RetryConfig,
    pub timeouts: TimeoutConfig,
    /// Price table. The longest matching pattern wins. A model without an entry has an unknown
    /// cost.
    pub prices: Vec<PriceConfig>,
    /// Origins of keys and base URLs, by configuration key.
    #[serde(skip)]
    pub address_origins: BTreeMap<String, SettingOrigin>,
}

/// Part of a provider's service that agents may use only with the operator's permission: a way out
/// of the sandbox, or a cost that the model's price does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayPermission {
    /// Tools that the provider runs: web search and fetch, MCP servers, code execution.
    ProviderTools,
    /// Content that the provider fetches or stores: URLs of pictures and files, file ids, caches.
    RemoteContent,
    /// Service tiers, fast modes and regions, which have prices of their own.
    ServiceTier,
    /// Headers that choose the organization or project of the account.
    Organization,
    /// Beta flags, and the fields that need them.
    Beta,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// API key. Sent to `base_url` and nowhere else.
    pub api_key: SecretString,
    /// Base URL as the provider's SDK takes it. Empty: the provider's official service.
    pub base_url: String,
}

/// Number and spacing of the attempts when a provider rejects a call for now.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryConfig {
    /// Attempts per call, including the first.
    pub max_attempts: u32,
    /// Wait before the second attempt. Doubles with each further attempt.
    pub base: TimeSpan,
    /// Longest wait. If a provider requests a longer one, the call is not retried.
    pub max: TimeSpan,
}

/// Time limits for calls of providers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutConfig {
    pub connect: TimeSpan,
    /// Limit for the first byte of a streamed response. Long, because some models think first.
    pub first_byte: TimeSpan,
    /// Limit for the first byte of a response in one piece, which arrives once the response is
    /// complete.
    pub whole_answer: TimeSpan,
    /// Limit between two pieces of a stream.
    pub idle: TimeSpan,
}

/// Prices of a model in USD per million tokens.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Model name used by the provider. A final `*` matches any ending.
    pub model: String,
    pub input: f64,
    pub output: f64,
    /// Price of input that is read from a cache. Default: `input`.
    pub cache_read: Option<f64>,
    /// Price for Anthropic's five-minute cache. Default: 1.25 times `input`.
    pub cache_write: Option<f64>,
    /// Price for Anthropic's one-hour cache. Default: twice `input`.
    pub cache_write_1h: Option<f64>,
    /// Context size of the model in tokens.
    pub context_limit: Option<u64>,
    /// Largest answer of the model in tokens, thinking included.
    pub output_limit: Option<u64>,
    /// True if the model accepts pictures as input.
    #[serde(default)]
    pub images: bool,
    /// Prices of a call with a long input. Default: those above.
    pub long: Option<LongPriceConfig>,
}

/// Prices in USD per million tokens of a call whose input is longer than `above` tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LongPriceConfig {
    pub above: u64,
    pub input: f64,
    pub output: f64,
    pub cache_read: f64,
}

/// Times of the sweeper. For `pause_after` and `stop_after`, 0 means never.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SweeperConfig {
    /// Time from the end of one sweep to the next.
    pub every: TimeSpan,
    /// Idle time after which a session is paused.
    pub pause_after: TimeSpan,
    /// Idle time after which a paused session is stopped.
    pub stop_after: TimeSpan,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Filter in the syntax of `tracing_subscriber::EnvFilter`.
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

/// Value that has the right type but breaks a rule.
#[derive(Debug, PartialEq)]
struct InvalidValue {
    key: &'static str,
    reason: &'static str,
}

impl Config {
    /// Returns the first value that has the right type but breaks a rule.
    fn invalid_value(&self) -> Option<InvalidValue> {
        let network = self.sandbox.network.to_string();
        let rules = [
            (
                self.sandbox.limits.memory >= ByteSize::mib(32),
                "sandbox.memory",
                "must be at least 32MiB, which an agent needs",
            ),
            (self.sandbox.limits.cpus > 0.0, "sandbox.cpus", "must be a number of CPUs above 0, such as 1.5"),
            (
                self.sandbox.limits.pids >= 16,
                "sandbox.pids",
                "must be at least 16, which an agent with its tools needs",
            ),
            (self.sandbox.uid != UnixId::Fixed(0), "sandbox.uid", "must not be 0: agents never run as root"),
            (self.sandbox.gid != UnixId::Fixed(0), "sandbox.gid", "must not be 0: agents never run as root"),
            (
                self.sandbox.max_starting > 0,
                "sandbox.max_starting",
                "must be at least 1; with 0 no session could start",
            ),
            (!network.is_empty(), "sandbox.network", "must be `none` or the name of a network"),
            (network != "host", "sandbox.network", "must not be `host`, which gives no isolation"),
            (self.agent.max_steps > 0, "agent.max_steps", "must be at least 1; with 0 an agent could take no step"),
            (
                self.model.retry.max_attempts > 0,
                "model.retry.max_attempts",
                "must be at least 1; the first attempt counts too",
            ),
            (
                self.model.prices.iter().all(PriceConfig::is_valid),
                "model.prices",
                "each price must be a number of at least 0",
            ),
            (
                self.model.server_tool_prices.values().all(|usd| usd.is_finite() && *usd >= 0.0),
                "model.server_tool_prices",
                "each price must be a number of at least 0",
            ),
            (
                !self.sweeper.every.0.is_zero(),
                "sweeper.every",
                "must be more than 0; with 0 the sweeper would run without a pause",
            ),
            (
                !self.server.header_timeout.0.is_zero(),
                "server.header_timeout",
                "must be more than 0; with 0 no request could arrive in time",
            ),
            (
                self.server.max_connections > 0,
                "server.max_connections",
                "must be at least 1; with 0 no client could connect",
            ),
            (
                self.server.max_body >= ByteSize::kib(16),
                "server.max_body",
                "must be at least 16KiB, which a request needs",
            ),
            (
                (1..=FilesConfig::MAX_FILES_LIMIT).contains(&self.files.max_files),
                "files.max_files",
                "must be 1 to 1000; each file of an upload holds a descriptor",
            ),
            (
                !self.approvals.http.timeout.0.is_zero(),
                "approvals.http.timeout",
                "must be more than 0; with 0 each call would have a high risk",
            ),
            (
                self.checkpoints.max_file <= CheckpointsConfig::MAX_FILE_LIMIT,
                "checkpoints.max_file",
                "must be at most 256MiB; a capture holds one file in memory",
            ),
            (
                (1..=CheckpointsConfig::MAX_FILES_LIMIT).contains(&self.checkpoints.max_files),
                "checkpoints.max_files",
                "must be 1 to 1000000; a capture holds their names in memory",
            ),
            (
                (1..=CheckpointsConfig::MAX_TIME_LIMIT.as_secs()).contains(&self.checkpoints.max_time.0.as_secs()),
                "checkpoints.max_time",
                "must be 1s to 1h; a capture that has begun holds a place until then",
            ),
            (
                self.checkpoints.keep >= 2,
                "checkpoints.keep",
                "must be at least 2, the first checkpoint and the newest; set `checkpoints.enabled` to false for none",
            ),
            (
                self.workspace.sources.iter().all(|source| source.is_absolute()),
                "workspace.sources",
                "each directory must be an absolute path, such as `/home/me/code`",
            ),
            (
                !self.repositories.clone_timeout.0.is_zero(),
                "repositories.clone_timeout",
                "must be more than 0; with 0 no clone could end in time",
            ),
            (
                [&self.repositories.author_name, &self.repositories.author_email].into_iter().all(|text| {
                    !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || "<>".contains(c))
                }),
                "repositories.author_name",
                "name and email of the author must be filled, each in one line without `<` and `>`",
            ),
            (
                self.repositories.credentials.iter().all(RepositoryCredential::is_valid),
                "repositories.credentials",
                "each needs `host`, `username` and `token`, each in one line, and a host without a path",
            ),
            (
                self.server.token.is_valid_token(),
                "server.token",
                "must have at least 16 characters (letters, digits, `-._~`); leave it empty to have one generated",
            ),
            (
                self.server.allowed_origins.iter().all(|origin| is_origin(origin)),
                "server.allowed_origins",
                "each origin must be scheme, host and port in lower case without a path, such as `https://tools.example`",
            ),
            (
                tracing_subscriber::EnvFilter::try_new(&self.log.level).is_ok(),
                "log.level",
                "must be error, warn, info, debug or trace, or filters by module such as `info,greenroom::web=debug`",
            ),
        ];
        rules.into_iter().find(|(valid, ..)| !valid).map(|(_, key, reason)| InvalidValue { key, reason })
    }
}

impl PriceConfig {
    fn is_valid(&self) -> bool {
        let long = self.long.map_or([0.0; 3], |long| [long.input, long.output, long.cache_read]).map(Some);
        [Some(self.input), Some(self.output), self.cache_read, self.cache_write, self.cache_write_1h]
            .into_iter()
            .chain(long)
            .flatten()
            .all(|usd| usd.is_finite() && usd >= 0.0)
    }
}

/// Returns true if `text` is an origin as browsers send it: lower case, no path, no trailing slash.
fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '*', '@', '?', '#']) && !host.chars().any(|c| c.is_ascii_uppercase())
    })
}
