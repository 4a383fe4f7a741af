//! Fixed paths inside the sandbox. The sandbox driver puts the sockets and the workspace there;
//! tests use paths of their own.

use std::{env, path::PathBuf};

use greenroom_protocol::sandbox_paths;

/// Paths of one agent.
#[derive(Debug, Clone)]
pub struct AgentPaths {
    /// Socket at which the agent listens for the server.
    pub agent_socket: PathBuf,
    /// Socket of the model gateway.
    pub gateway_socket: PathBuf,
    /// Working directory until the first settings arrive.
    pub workspace: PathBuf,
    /// File with the ids of the turns and user actions that were begun.
    pub executed_ids: PathBuf,
}

impl AgentPaths {
    /// Socket at which the agent serves its terminals.
    pub fn terminal_socket(&self) -> PathBuf {
        self.agent_socket.with_file_name(sandbox_paths::TERMINAL_SOCKET_NAME)
    }

    /// File with the reports that an agent without a server left for the next server.
    pub fn saved_reports(&self) -> PathBuf {
        self.executed_ids.with_file_name(".greenroom-reports")
    }

    /// Returns the fixed paths. An environment variable overrides each of them.
    pub fn from_env() -> AgentPaths {
        let path_or = |variable, default: &str| env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
        AgentPaths {
            agent_socket: path_or("GREENROOM_AGENT_SOCKET", sandbox_paths::AGENT_SOCKET),
            gateway_socket: path_or("GREENROOM_GATEWAY_SOCKET", sandbox_paths::GATEWAY_SOCKET),
            workspace: path_or("GREENROOM_WORKSPACE", sandbox_paths::WORKSPACE),
            executed_ids: path_or("GREENROOM_ACTS", sandbox_paths::EXECUTED_IDS),
        }
    }
}
