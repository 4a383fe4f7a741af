//! How the server tells operators what it does: logs on stderr, counters for Prometheus. Never a token, never a key.

use std::{io::IsTerminal, sync::LazyLock};

use prometheus::{IntCounter, IntCounterVec, register_int_counter, register_int_counter_vec};
use tracing_subscriber::EnvFilter;

use crate::config::{LogConfig, LogFormat};

/// Events that are durable in the journal, since the server started.
pub static EVENTS_APPENDED: LazyLock<IntCounter> = LazyLock::new(|| {
    register_int_counter!("greenroom_events_appended_total", "Events made durable in the journal.")
        .expect("the name is valid and registered once")
});

/// Answered HTTP requests, by method and status.
pub static HTTP_REQUESTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    register_int_counter_vec!("greenroom_http_requests_total", "Answered HTTP requests.", &["method", "status"])
        .expect("the name is valid and registered once")
});

/// Sends logs to stderr, from now until the process ends. stdout belongs to the one line that says where the server is.
pub fn init(log: &LogConfig) {
    let filter = EnvFilter::try_new(&log.level).expect("the configuration was checked when it was loaded");
    let on_terminal = std::io::stderr().is_terminal();
    let text = match log.format {
        LogFormat::Auto => on_terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would complain on the stderr that could not be written, and panic over that: whoever has just something to log.
        .log_internal_errors(false);
    // A second server in one process, as in tests, shares the first one's logs.
    let _ = match text {
        true => subscriber.with_ansi(on_terminal).try_init(),
        false => subscriber.json().flatten_event(true).try_init(),
    };
}
