//! Where things are inside the sandbox, in one place. A driver puts them there; tests put them elsewhere.

use std::{env, path::PathBuf};

use greenroom_protocol::inside;

/// The paths of one agent.
#[derive(Debug, Clone)]
pub struct Places {
    pub agent_socket: PathBuf,
    pub gateway_socket: PathBuf,
    pub workspace: PathBuf,
    /// Which turns and acts were begun; a file.
    pub acts: PathBuf,
}

impl Places {
    /// The fixed paths, each of which a variable of the environment may override.
    pub fn from_env() -> Places {
        let place = |variable, default: &str| env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
        Places {
            agent_socket: place("GREENROOM_AGENT_SOCKET", inside::AGENT_SOCKET),
            gateway_socket: place("GREENROOM_GATEWAY_SOCKET", inside::GATEWAY_SOCKET),
            workspace: place("GREENROOM_WORKSPACE", inside::WORKSPACE),
            acts: place("GREENROOM_ACTS", inside::ACTS),
        }
    }
}
