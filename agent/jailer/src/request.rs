//! Jail request and reply: one JSON document on the jailer's stdin, one on its stdout.
//!
//! Arguments are not used. Every user of the host can read them, and so can the sandbox through its
//! first process.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// Request to build one jail and to hold it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailRequest {
    pub session: String,
    /// Session's state directory on this host.
    #[serde(rename = "place")]
    pub sandbox_dir: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub limits: JailLimits,
    pub sources: JailSources,
    pub volumes: Vec<VolumeBind>,
    /// Control group that counts, limits and pauses the sandbox. `None` if this host permits none.
    pub cgroup: Option<Cgroup>,
    /// True if an ordinary user builds the jail in a user namespace. Otherwise root builds the
    /// jail, and the first process changes its user inside.
    pub user_namespace: bool,
}

/// Resource limits of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JailLimits {
    pub memory_bytes: u64,
    /// CPU limit, in CPUs: 1.5 is one and a half.
    pub cpus: f64,
    pub pids: u64,
}

/// Directories and files of this host that become the sandbox's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JailSources {
    /// Empty directory on which the sandbox's root is assembled.
    pub root: PathBuf,
    pub agent: PathBuf,
    pub workspace: PathBuf,
    pub home: PathBuf,
    pub run: PathBuf,
    pub run_agent: PathBuf,
}

/// Additional directory of this host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeBind {
    pub host: PathBuf,
    pub inside: PathBuf,
    pub writable: bool,
}

/// Result of a jail request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JailReply {
    /// The agent runs, and the jailer holds its jail.
    Started,
    /// Another jailer holds this session's lock.
    #[serde(rename = "Held")]
    AlreadyLocked,
    /// The kernel rejected a part of the isolation. The text is the reason.
    Unconfinable(String),
    Failed(String),
}
