//! Exit of a container, its logs and its resource usage.

use std::{pin::pin, time::Duration};

use bollard::{
    errors::Error,
    models::ContainerStatsResponse,
    query_parameters::{LogsOptions, WaitContainerOptions},
};
use futures::{Stream, StreamExt, TryStreamExt};

use super::engine::{DockerEngine, EngineCall, EngineError, is_missing};
use crate::sandbox::{SandboxExit, SandboxStats};

const LOGS: EngineCall = EngineCall { what: "read the container's log", seconds: 10 };

/// Interval of the inspections beside the wait call, and of repeated wait calls.
///
/// An engine that stalled or restarted has forgotten its pending wait calls.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Length of [`SandboxExit::stderr_tail`], bytes.
const TAIL_BYTES: usize = 4096;

/// Result for a container that does not run.
enum ContainerEnd {
    Code(Option<i64>),
    Removed,
}

/// Returns when the container does not run, however long the engine is unreachable.
pub(super) async fn wait(engine: &DockerEngine, name: &str) -> SandboxExit {
    let end = tokio::select! {
        end = end_from_wait(engine, name) => end,
        end = end_from_polling(engine, name) => end,
    };
    match end {
        ContainerEnd::Code(code) => read_exit(engine, name, code).await,
        ContainerEnd::Removed => SandboxExit { code: None, out_of_memory: false, stderr_tail: String::new() },
    }
}

/// Waits for the exit with the engine's wait call.
///
/// If the engine hangs up, the call is repeated. With `live-restore`, containers outlive the
/// engine, and the next engine process answers as soon.
async fn end_from_wait(engine: &DockerEngine, name: &str) -> ContainerEnd {
    loop {
        let options = WaitContainerOptions { condition: "not-running".to_owned() };
        let mut answers = pin!(engine.client.wait_container(name, Some(options)));
        match answers.next().await {
            Some(Ok(answer)) => return ContainerEnd::Code(Some(answer.status_code)),
            // bollard reports every exit code except 0 as an error.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => return ContainerEnd::Code(Some(code)),
            Some(Err(Error::DockerResponseServerError { status_code: 404, message })) if is_missing(&message) => {
                return ContainerEnd::Removed;
            }
            Some(Err(_)) | None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

/// Waits for the exit by repeated inspections.
async fn end_from_polling(engine: &DockerEngine, name: &str) -> ContainerEnd {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        match engine.inspect(name).await {
            Ok(container) if !container.is_running() => return ContainerEnd::Code(container.exit_code()),
            Err(EngineError::Missing { .. }) => return ContainerEnd::Removed,
            Ok(_) | Err(EngineError::Refused { .. } | EngineError::Other(_)) => {}
        }
    }
}

/// Reads memory limit and stderr of an exit.
async fn read_exit(engine: &DockerEngine, name: &str, code: Option<i64>) -> SandboxExit {
    let container = engine.inspect(name).await.ok();
    // The engine also sets this flag for a command whose death the agent survived.
    let out_of_memory = code == Some(137) && container.as_ref().is_some_and(|container| container.out_of_memory());
    let since = container.and_then(|container| container.started_at()).unwrap_or(0);
    let options = LogsOptions {
        stderr: true,
        // The log of a restarted container contains its earlier runs.
        since: i32::try_from(since).unwrap_or(0),
        tail: "100".to_owned(),
        ..LogsOptions::default()
    };
    let stderr_tail = read(engine, name, options, TAIL_BYTES).await.unwrap_or_default();
    SandboxExit { code, out_of_memory, stderr_tail }
}

/// Returns the newest `bytes` of stdout and stderr.
pub(super) async fn logs(engine: &DockerEngine, name: &str, bytes: usize) -> Result<String, EngineError> {
    // `tail` counts lines, and a line has at least one byte.
    let options = LogsOptions { stdout: true, stderr: true, tail: bytes.to_string(), ..LogsOptions::default() };
    read(engine, name, options, bytes).await
}

async fn read(engine: &DockerEngine, name: &str, options: LogsOptions, bytes: usize) -> Result<String, EngineError> {
    let chunks = engine.client.logs(name, Some(options)).map_ok(|chunk| chunk.into_bytes());
    engine.call(LOGS, newest(chunks, bytes)).await
}

/// Returns the last `bytes` of the stream. Uses twice as much memory.
async fn newest<E>(chunks: impl Stream<Item = Result<bytes::Bytes, E>>, bytes: usize) -> Result<String, E> {
    let mut chunks = pin!(chunks);
    let mut buffer = Vec::new();
    while let Some(chunk) = chunks.try_next().await? {
        buffer.extend_from_slice(&chunk);
        if buffer.len() > 2 * bytes {
            buffer.drain(..buffer.len() - bytes);
        }
    }
    let text = String::from_utf8_lossy(&buffer);
    // Cut after the conversion: replacing invalid UTF-8 makes the text longer.
    let start = (text.len().saturating_sub(bytes)..=text.len()).find(|at| text.is_char_boundary(*at));
    Ok(text[start.unwrap_or(text.len())..].to_owned())
}

/// Converts the engine's statistics.
pub(super) fn stats(answer: ContainerStatsResponse) -> SandboxStats {
    let memory = answer.memory_stats.unwrap_or_default();
    let figures = memory.stats.unwrap_or_default();
    // Unmapped file pages are dropped when memory is short, so they are not counted. The figure has
    // one name in cgroup v2 and another in v1.
    let inactive_file = figures.get("inactive_file").or(figures.get("total_inactive_file")).copied().unwrap_or(0);
    let cpu = answer.cpu_stats.and_then(|cpu| cpu.cpu_usage).and_then(|usage| usage.total_usage);
    SandboxStats {
        memory_bytes: memory.usage.unwrap_or(0).saturating_sub(inactive_file),
        cpu_us: cpu.unwrap_or(0) / 1000,
        processes: answer.pids_stats.and_then(|pids| pids.current).unwrap_or(0),
    }
}
