//! Where things are inside the sandbox, in one place. A driver puts them there; tests put them elsewhere.

use std::{env, path::PathBuf};

use greenroom_protocol::sandbox_paths;

/// The paths of one agent.
#[derive(Debug, Clone)]
pub struct AgentPaths {
    pub agent_socket: PathBuf,
    pub gateway_socket: PathBuf,
    pub workspace: PathBuf,
    /// Which turns and acts were begun; a file.
    pub executed_ids: PathBuf,
}

impl AgentPaths {
    /// The fixed paths, each of which a variable of the environment may override.
    pub fn from_env() -> AgentPaths {
        let place = |variable, default: &str| env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
        AgentPaths {
            agent_socket: place("GREENROOM_AGENT_SOCKET", sandbox_paths::AGENT_SOCKET),
            gateway_socket: place("GREENROOM_GATEWAY_SOCKET", sandbox_paths::GATEWAY_SOCKET),
            workspace: place("GREENROOM_WORKSPACE", sandbox_paths::WORKSPACE),
            executed_ids: place("GREENROOM_ACTS", sandbox_paths::EXECUTED_IDS),
        }
    }
}
