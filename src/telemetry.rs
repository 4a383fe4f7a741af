//! Telemetry: logs on stderr and metrics for Prometheus. Neither contains tokens or keys.

pub mod metrics;

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Sends logs to stderr until the process ends. stdout is reserved for the line with the server's
/// address.
pub fn init(log: &LogConfig) {
    let filter = EnvFilter::try_new(&log.level).expect("log level was checked when the configuration was loaded");
    let on_terminal = std::io::stderr().is_terminal();
    let text = match log.format {
        LogFormat::Auto => on_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Without this, a failed write to stderr causes another write to stderr, and a panic in the
        // thread that logs.
        .log_internal_errors(false);
    // A second server in one process, as in tests, shares the logs of the first.
    let _ = match text {
        true => subscriber.with_ansi(on_terminal).try_init(),
        false => subscriber.json().flatten_event(true).try_init(),
    };
}
