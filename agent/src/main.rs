//! Starts the agent: one thread, logs to stderr. On failure, logs the reason and exits with code 1.
//! Without a server for too long, exits with [`ORPHANED_EXIT_CODE`].

use std::process::ExitCode;

use greenroom_agent::{AgentEnd, agent_paths::AgentPaths};
use greenroom_protocol::link::ORPHANED_EXIT_CODE;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Only the agent's own messages: the crates below log each failed request, and the agent logs
    // what became of it.
    tracing_subscriber::registry()
        .with(fmt::layer().with_writer(std::io::stderr).without_time().with_ansi(false))
        .with(Targets::new().with_target("greenroom_agent", LevelFilter::INFO))
        .init();
    let paths = AgentPaths::from_env();
    match greenroom_agent::run(paths.clone()).await {
        Ok(AgentEnd::Terminated) => ExitCode::SUCCESS,
        Ok(AgentEnd::Orphaned) => ExitCode::from(ORPHANED_EXIT_CODE),
        Err(error) => {
            tracing::error!(%error, socket = %paths.agent_socket.display(), "the agent ended with an error");
            ExitCode::FAILURE
        }
    }
}
