//! Telemetry: logs on stderr and counters for Prometheus. Neither contains tokens or keys.

use std::{io::IsTerminal, sync::LazyLock};

use prometheus::{IntCounter, IntCounterVec, register_int_counter, register_int_counter_vec};
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Counter of events made durable in the journal since the server started.
pub static EVENTS_APPENDED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!("greenroom_events_appended_total", "Events made durable in the journal.")
        .expect("the name is valid and registered once")
});

/// Counter of answered HTTP requests, by method and status.
pub static HTTP_REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!("greenroom_http_requests_total", "Answered HTTP requests.", &["method", "status"])
        .expect("the name is valid and registered once")
});

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
