//! What the server tells a keeper, on its stdin, and what the keeper answers, on its stdout. One JSON document each way.
//!
//! Not by arguments: those can be read by every user of the host, and by the sandbox itself through its first process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// Everything that a keeper needs to build one jail and to keep it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailRequest {
    pub session: String,
    /// The session's state directory on this host.
    #[serde(rename = "place")]
    pub sandbox_dir: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub limits: JailLimits,
    pub sources: JailSources,
    pub volumes: Vec<VolumeBind>,
    /// Where the sandbox is counted, limited and frozen, if this host lets us have such a place.
    pub cgroup: Option<Cgroup>,
    /// Whether the walls are built by an ordinary user, in a user namespace. Otherwise root builds them, and the first
    /// process becomes the user behind them.
    pub user_namespace: bool,
}

/// What a sandbox may take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JailLimits {
    pub memory_bytes: u64,
    /// In CPUs: 1.5 is one and a half.
    pub cpus: f64,
    pub pids: u64,
}

/// The directories and files of this host that become the sandbox's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailSources {
    /// An empty directory, on which the sandbox's root is put together.
    pub root: PathBuf,
    pub agent: PathBuf,
    pub workspace: PathBuf,
    pub home: PathBuf,
    pub run: PathBuf,
    pub run_agent: PathBuf,
}

/// A further directory of this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeBind {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub writable: bool,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailReply {
    /// The agent runs, and the keeper stays with it.
    Started,
    /// Another keeper holds this session already.
    #[serde(rename = "Held")]
    AlreadyLocked,
    /// The kernel refused a wall.
    Unconfinable(String),
    Failed(String),
}
