//! Starts the agent: one thread, logs to stderr, exit code 1 with a sentence where it cannot.

use std::process::ExitCode;

use greenroom_agent::places::Places;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .without_time()
        .with_ansi(false)
        .init();
    let places = Places::from_env();
    match greenroom_agent::run(places.clone()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, socket = %places.agent_socket.display(), "the agent cannot go on");
            ExitCode::FAILURE
        }
    }
}
