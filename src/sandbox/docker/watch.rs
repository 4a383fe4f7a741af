//! How a container ends, what it said, and what it takes.

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

/// How often the engine is asked about a container, beside the wait: an engine that stalled, or died and came back, has
/// forgotten that somebody waits. So soon, too, it is asked to wait again.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// As [`Exit::stderr_tail`] promises.
const TAIL_BYTES: usize = 4096;

/// What is known of a container that does not run.
enum ContainerEnd {
    Code(Option<i64>),
    Removed,
}

/// Returns when the container does not run, and not before, however long the engine is away.
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

/// An engine that hung up is asked again: where containers outlive it, as with `live-restore`, the next one tells as soon.
async fn end_from_wait(engine: &DockerEngine, name: &str) -> ContainerEnd {
    loop {
        let options = WaitContainerOptions { condition: "not-running".to_owned() };
        let mut answers = pin!(engine.client.wait_container(name, Some(options)));
        match answers.next().await {
            Some(Ok(answer)) => return ContainerEnd::Code(Some(answer.status_code)),
            // This is how bollard tells every code but 0.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => return ContainerEnd::Code(Some(code)),
            Some(Err(Error::DockerResponseServerError { status_code: 404, message })) if is_missing(&message) => {
                return ContainerEnd::Removed;
            }
            Some(Err(_)) | None => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

async fn end_from_polling(engine: &DockerEngine, name: &str) -> ContainerEnd {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        match engine.inspect(name).await {
            Ok(there) if !there.is_running() => return ContainerEnd::Code(there.exit_code()),
            Err(EngineError::Missing { .. }) => return ContainerEnd::Removed,
            Ok(_) | Err(EngineError::Refused { .. } | EngineError::Other(_)) => {}
        }
    }
}

async fn read_exit(engine: &DockerEngine, name: &str, code: Option<i64>) -> SandboxExit {
    let there = engine.inspect(name).await.ok();
    // The engine remembers it also of a command whose end the agent survived.
    let out_of_memory = code == Some(137) && there.as_ref().is_some_and(|there| there.out_of_memory());
    let since = there.and_then(|there| there.started_at()).unwrap_or(0);
    let options = LogsOptions {
        stderr: true,
        // A container that was started again has the log of its earlier runs too.
        since: i32::try_from(since).unwrap_or(0),
        tail: "100".to_owned(),
        ..LogsOptions::default()
    };
    let stderr_tail = read(engine, name, options, TAIL_BYTES).await.unwrap_or_default();
    SandboxExit { code, out_of_memory, stderr_tail }
}

pub(super) async fn logs(engine: &DockerEngine, name: &str, bytes: usize) -> Result<String, EngineError> {
    // No line is shorter than a byte.
    let options = LogsOptions { stdout: true, stderr: true, tail: bytes.to_string(), ..LogsOptions::default() };
    read(engine, name, options, bytes).await
}

async fn read(engine: &DockerEngine, name: &str, options: LogsOptions, bytes: usize) -> Result<String, EngineError> {
    let pieces = engine.client.logs(name, Some(options)).map_ok(|piece| piece.into_bytes());
    engine.call(LOGS, newest(pieces, bytes)).await
}

/// The last `bytes` of it, in the memory of twice as much.
async fn newest<E>(pieces: impl Stream<Item = Result<bytes::Bytes, E>>, bytes: usize) -> Result<String, E> {
    let mut pieces = pin!(pieces);
    let mut kept = Vec::new();
    while let Some(piece) = pieces.try_next().await? {
        kept.extend_from_slice(&piece);
        if kept.len() > 2 * bytes {
            kept.drain(..kept.len() - bytes);
        }
    }
    let text = String::from_utf8_lossy(&kept);
    // Cut last: what is no UTF-8 has grown.
    let start = (text.len().saturating_sub(bytes)..=text.len()).find(|at| text.is_char_boundary(*at));
    Ok(text[start.unwrap_or(text.len())..].to_owned())
}

pub(super) fn stats(answer: ContainerStatsResponse) -> SandboxStats {
    let memory = answer.memory_stats.unwrap_or_default();
    let figures = memory.stats.unwrap_or_default();
    // Pages of files that nobody maps go when memory is short. Named so by cgroup v2, and by v1.
    let idle = figures.get("inactive_file").or(figures.get("total_inactive_file")).copied().unwrap_or(0);
    let cpu = answer.cpu_stats.and_then(|cpu| cpu.cpu_usage).and_then(|usage| usage.total_usage);
    SandboxStats {
        memory_bytes: memory.usage.unwrap_or(0).saturating_sub(idle),
        cpu_us: cpu.unwrap_or(0) / 1000,
        processes: answer.pids_stats.and_then(|pids| pids.current).unwrap_or(0),
    }
}
