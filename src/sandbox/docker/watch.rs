//! How a container ends, what it said, and what it takes.

use std::{pin::pin, time::Duration};

use bollard::{
    errors::Error,
    models::ContainerStatsResponse,
    query_parameters::{LogsOptions, WaitContainerOptions},
};
use futures::{Stream, StreamExt, TryStreamExt};

use super::engine::{Call, Engine, Trouble, is_missing};
use crate::sandbox::{Exit, Stats};

const LOGS: Call = Call { what: "read the container's log", seconds: 10 };

/// How often the engine is asked about a container, beside the wait: an engine that stalled, or died and came back, has
/// forgotten that somebody waits. So soon, too, it is asked to wait again.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// As [`Exit::stderr_tail`] promises.
const TAIL_BYTES: usize = 4096;

/// What is known of a container that does not run.
enum End {
    Code(Option<i64>),
    Removed,
}

/// Returns when the container does not run, and not before, however long the engine is away.
pub(super) async fn wait(engine: &Engine, name: &str) -> Exit {
    let end = tokio::select! {
        end = told_by_wait(engine, name) => end,
        end = seen_by_looking(engine, name) => end,
    };
    match end {
        End::Code(code) => last_words(engine, name, code).await,
        End::Removed => Exit { code: None, out_of_memory: false, stderr_tail: String::new() },
    }
}

/// An engine that hung up is asked again: where containers outlive it, as with `live-restore`, the next one tells as soon.
async fn told_by_wait(engine: &Engine, name: &str) -> End {
    loop {
        let options = WaitContainerOptions { condition: "not-running".to_owned() };
        let mut answers = pin!(engine.client.wait_container(name, Some(options)));
        match answers.next().await {
            Some(Ok(answer)) => return End::Code(Some(answer.status_code)),
            // This is how bollard tells every code but 0.
            Some(Err(Error::DockerContainerWaitError { code, .. })) => return End::Code(Some(code)),
            Some(Err(Error::DockerResponseServerError { status_code: 404, message })) if is_missing(&message) => {
                return End::Removed;
            }
            Some(Err(_)) | None => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

async fn seen_by_looking(engine: &Engine, name: &str) -> End {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        match engine.inspect(name).await {
            Ok(there) if !there.runs() => return End::Code(there.exit_code()),
            Err(Trouble::Missing { .. }) => return End::Removed,
            Ok(_) | Err(Trouble::Refused { .. } | Trouble::Other(_)) => {}
        }
    }
}

async fn last_words(engine: &Engine, name: &str, code: Option<i64>) -> Exit {
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
    Exit { code, out_of_memory, stderr_tail }
}

pub(super) async fn logs(engine: &Engine, name: &str, bytes: usize) -> Result<String, Trouble> {
    // No line is shorter than a byte.
    let options = LogsOptions { stdout: true, stderr: true, tail: bytes.to_string(), ..LogsOptions::default() };
    read(engine, name, options, bytes).await
}

async fn read(engine: &Engine, name: &str, options: LogsOptions, bytes: usize) -> Result<String, Trouble> {
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

pub(super) fn stats(answer: ContainerStatsResponse) -> Stats {
    let memory = answer.memory_stats.unwrap_or_default();
    let figures = memory.stats.unwrap_or_default();
    // Pages of files that nobody maps go when memory is short. Named so by cgroup v2, and by v1.
    let idle = figures.get("inactive_file").or(figures.get("total_inactive_file")).copied().unwrap_or(0);
    let cpu = answer.cpu_stats.and_then(|cpu| cpu.cpu_usage).and_then(|usage| usage.total_usage);
    Stats {
        memory_bytes: memory.usage.unwrap_or(0).saturating_sub(idle),
        cpu_us: cpu.unwrap_or(0) / 1000,
        processes: answer.pids_stats.and_then(|pids| pids.current).unwrap_or(0),
    }
}
