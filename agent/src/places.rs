//! Where things are inside the sandbox, in one place. A driver puts them there; tests put them elsewhere.

use std::{env, path::PathBuf};

/// The agent listens here; the only part of the run directory that it can write.
const AGENT_SOCKET: &str = "/greenroom/run/agent/agent.sock";
/// The model gateway listens here, on the server's side.
const GATEWAY_SOCKET: &str = "/greenroom/run/gateway/gateway.sock";
/// Where the agent works unless its settings name another directory.
const WORKSPACE: &str = "/workspace";

/// The paths of one agent.
#[derive(Debug, Clone)]
pub struct Places {
    pub agent_socket: PathBuf,
    pub gateway_socket: PathBuf,
    pub workspace: PathBuf,
}

impl Places {
    /// The fixed paths, each of which a variable of the environment may override.
    pub fn from_env() -> Places {
        let place = |variable, default: &str| env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
        Places {
            agent_socket: place("GREENROOM_AGENT_SOCKET", AGENT_SOCKET),
            gateway_socket: place("GREENROOM_GATEWAY_SOCKET", GATEWAY_SOCKET),
            workspace: place("GREENROOM_WORKSPACE", WORKSPACE),
        }
    }
}
