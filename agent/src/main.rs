//! Starts the agent: one thread, logs to stderr, exit code 1 with a sentence where it cannot.

use std::process::ExitCode;

use greenroom_agent::agent_paths::AgentPaths;
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Only our own words: the crates below log each failed request, and we say what became of it.
    tracing_subscriber::registry()
        .with(fmt::layer().with_writer(std::io::stderr).without_time().with_ansi(false))
        .with(Targets::new().with_target("greenroom_agent", LevelFilter::INFO))
        .init();
    let places = AgentPaths::from_env();
    match greenroom_agent::run(places.clone()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, socket = %places.agent_socket.display(), "the agent cannot go on");
            ExitCode::FAILURE
        }
    }
}
