//! Paths, and the gateway's port, inside every sandbox, with any driver.

/// Agent's binary, read-only.
pub const AGENT_BINARY: &str = "/greenroom/bin/greenroom-agent";
/// Agent's listening socket, in the only part of the run directory that the sandbox can write.
pub const AGENT_SOCKET: &str = "/greenroom/run/agent/agent.sock";
/// Name of the terminals' listening socket, in the directory of the agent's socket.
pub const TERMINAL_SOCKET_NAME: &str = "terminal.sock";
/// Listening socket of the model gateway, on the server's side.
pub const GATEWAY_SOCKET: &str = "/greenroom/run/gateway/gateway.sock";
/// Agent's working directory, and the initial directory of its commands.
pub const WORKSPACE: &str = "/workspace";
/// Agent's home directory. Kept beside the workspace when the sandbox stops and starts.
pub const HOME: &str = "/home/agent";
/// File with the ids of the user actions and turns that the agent has begun.
pub const EXECUTED_IDS: &str = "/home/agent/.greenroom-acts";
/// Loopback port of the model gateway. Fixed, because agents write their base URL into files.
pub const GATEWAY_PORT: u16 = 7380;
