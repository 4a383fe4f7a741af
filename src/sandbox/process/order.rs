//! What the server tells a keeper, on its stdin, and what the keeper answers, on its stdout. One JSON document each way.
//!
//! Not by arguments: those can be read by every user of the host, and by the sandbox itself through its first process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::cgroup::Cgroup;

/// Everything that a keeper needs to build one jail and to keep it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) session: String,
    /// The session's state directory on this host.
    pub(super) place: PathBuf,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) memory_bytes: u64,
    pub(super) pids: u64,
    pub(super) sources: Sources,
    pub(super) volumes: Vec<Bind>,
    /// Where the sandbox is counted, limited and frozen, if this host lets us have such a place.
    pub(super) cgroup: Option<Cgroup>,
    /// Whether a wall that this kernel cannot build may be left out. Never the user, mount and pid namespaces.
    pub(super) unconfined: bool,
}

/// The directories and files of this host that become the sandbox's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Sources {
    /// An empty directory, on which the sandbox's root is put together.
    pub(super) root: PathBuf,
    pub(super) agent: PathBuf,
    pub(super) workspace: PathBuf,
    pub(super) home: PathBuf,
    pub(super) run: PathBuf,
    pub(super) run_agent: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bind {
    pub(super) host: PathBuf,
    pub(super) inside: PathBuf,
    pub(super) writable: bool,
}

/// What became of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The agent runs, and the keeper stays with it.
    Started,
    /// Another keeper holds this session already.
    Held,
    /// The kernel refused a wall.
    Unconfinable(String),
    Failed(String),
}
