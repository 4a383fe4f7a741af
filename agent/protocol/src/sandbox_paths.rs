//! Where things are inside every sandbox, whatever the driver.

/// The agent's binary, read-only.
pub const AGENT_BINARY: &str = "/greenroom/bin/greenroom-agent";
/// The agent listens here. The only part of the run directory that the sandbox can write.
pub const AGENT_SOCKET: &str = "/greenroom/run/agent/agent.sock";
/// The model gateway listens here, on the server's side.
pub const GATEWAY_SOCKET: &str = "/greenroom/run/gateway/gateway.sock";
/// Where the agent works, and where its commands start.
pub const WORKSPACE: &str = "/workspace";
/// The agent's home, kept beside the workspace over stop and start.
pub const HOME: &str = "/home/agent";
/// Which acts of the user were begun.
pub const EXECUTED_IDS: &str = "/home/agent/.greenroom-acts";
