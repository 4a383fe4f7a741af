//! `run`: a shell command, with its output as it comes.

use std::{fs, future::Future, io, pin::pin, process::ExitStatus, time::Duration};

use greenroom_protocol::{DeltaKind, Observation, ObservationKind};
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::{
    ToolContext, ToolError, ToolResult, shorten_label,
    tool_output::{FinishedToolOutput, ToolOutput},
};
use crate::{
    clock::{self, Stopwatch},
    processes::RunningCommand,
    threads::off_thread,
};

const CHUNK: usize = 16 * 1024;

/// How much is still read after the command has ended: more than a pipe holds, so all that the command itself wrote, and
/// not for ever from what it left in the background.
const DRAIN_LIMIT: usize = 1024 * 1024;

/// How a command ended.
enum CommandEnd {
    Exited(ExitStatus),
    /// After this long.
    TimedOut(Duration),
    /// By the user.
    Stopped,
}

pub(super) async fn run(command: &str, bench: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    check_directory(command, bench).await?;
    let spawned = bench.processes.spawn(bench.item, bench.owner, command, &bench.directory);
    let RunningCommand { mut child, pid, output } = spawned.map_err(|error| {
        ToolError::Failed(format!("the command cannot be started in `{}`: {error}", bench.directory.display()))
    })?;
    let mut output = CommandOutput::new(output);
    let mut watch = Stopwatch::start();
    let end = tokio::select! {
        biased;
        () = bench.stop.cancelled() => CommandEnd::Stopped,
        status = child.wait() => CommandEnd::Exited(status.map_err(ToolError::from_error)?),
        () = watch.reaches(bench.timeout) => CommandEnd::TimedOut(bench.timeout),
        never = output.stream(bench) => match never {},
    };
    if !matches!(end, CommandEnd::Exited(_)) {
        bench.processes.kill_tree(bench.item).await;
        // It is dead; only its exit has to be taken.
        let _ = child.wait().await;
    }
    bench.processes.forget_child(pid);
    tokio::select! {
        biased;
        () = bench.stop.cancelled() => output.read_available(),
        () = output.drain(bench) => {}
    }
    let duration = watch.read();
    let kept = output.finish().finish(bench).await;
    let done = tool_result(command, &kept, &end, duration);
    match end {
        CommandEnd::Exited(_) | CommandEnd::TimedOut(_) => Ok(done),
        CommandEnd::Stopped => {
            Err(ToolError::Stopped { what: describe_command(command), partial_result: Some(Box::new(done)) })
        }
    }
}

/// Looks whether the directory answers. The one thread starts the shell, and does nothing else before that has entered it.
async fn check_directory(command: &str, bench: &ToolContext<'_>) -> Result<(), ToolError> {
    let inside = bench.directory.join(".");
    let look = off_thread(move || {
        // What else is wrong with it, the start says.
        let _ = fs::metadata(inside);
    });
    tokio::select! {
        biased;
        () = bench.stop.cancelled() => Err(ToolError::Stopped { what: describe_command(command), partial_result: None }),
        () = look => Ok(()),
        () = clock::sleep(bench.timeout) => {
            let (directory, limit) = (bench.directory.display(), bench.timeout.as_secs());
            Err(ToolError::Failed(format!("the command was not started: `{directory}` did not answer within {limit} s")))
        }
    }
}

fn describe_command(command: &str) -> String {
    format!("the command `{}`", shorten_label(command))
}

fn tool_result(command: &str, kept: &FinishedToolOutput, end: &CommandEnd, duration: Duration) -> ToolResult {
    let exit_code = match end {
        CommandEnd::Exited(status) => status.code(),
        CommandEnd::TimedOut(_) | CommandEnd::Stopped => None,
    };
    let mut told = kept.for_model();
    if !told.is_empty() && !told.ends_with('\n') {
        told.push('\n');
    }
    told.push_str(&match (end, exit_code) {
        (CommandEnd::Exited(_), Some(code)) => format!("[Exit code {code}.]"),
        (CommandEnd::Exited(_), None) => "[It was killed by a signal.]".to_owned(),
        (CommandEnd::TimedOut(limit), _) => format!("[It was killed: it ran longer than {} s.]", limit.as_secs()),
        (CommandEnd::Stopped, _) => "[It was killed: the user stopped it.]".to_owned(),
    });
    let seen = ObservationKind::Run {
        command: command.to_owned(),
        exit_code,
        duration_ms: duration.as_millis() as u64,
        timed_out: matches!(end, CommandEnd::TimedOut(_)),
        truncated: kept.truncated(),
    };
    ToolResult { observation: Observation { kind: seen, content: kept.content() }, model_text: told }
}

/// What a command prints: read only as fast as it can be told, so that a flood is held back by its own pipe.
struct CommandOutput {
    pipe: pipe::Receiver,
    text: ToolOutput,
    /// The beginning of a character whose end has not come yet.
    partial_char: Vec<u8>,
    /// What was read and kept, and is not told yet.
    unsent: String,
    ended: bool,
}

enum StreamNever {}

impl CommandOutput {
    fn new(pipe: pipe::Receiver) -> CommandOutput {
        CommandOutput { pipe, text: ToolOutput::new(), partial_char: Vec::new(), unsent: String::new(), ended: false }
    }

    /// Reads and tells, for ever. May be dropped at any point: nothing read is lost.
    async fn stream(&mut self, bench: &ToolContext<'_>) -> StreamNever {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.send(bench).await;
            if self.ended {
                std::future::pending::<()>().await;
            }
            match self.pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(n) => self.push_bytes(&chunk[..n]),
            }
        }
    }

    /// Reads and tells what the pipe holds now.
    async fn drain(&mut self, bench: &ToolContext<'_>) {
        self.send(bench).await;
        let (mut chunk, mut left) = (vec![0; CHUNK], DRAIN_LIMIT);
        while left > 0 && !self.ended {
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    left = left.saturating_sub(n);
                    self.push_bytes(&chunk[..n]);
                    self.send(bench).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match ready_now(&self.pipe).await {
                    true => {}
                    false => return,
                },
                Err(_) => self.ended = true,
            }
        }
    }

    /// Reads what the pipe holds now, and tells nothing more.
    fn read_available(&mut self) {
        let (mut chunk, mut left) = (vec![0; CHUNK], DRAIN_LIMIT);
        while let (true, Ok(n @ 1..)) = (left > 0, self.pipe.try_read(&mut chunk)) {
            left = left.saturating_sub(n);
            self.push_bytes(&chunk[..n]);
        }
    }

    async fn send(&mut self, bench: &ToolContext<'_>) {
        if !self.unsent.is_empty() {
            bench.outgoing.delta(DeltaKind::Output, bench.item, &self.unsent).await;
            self.unsent.clear();
        }
        self.text.send_full_pieces(bench).await;
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.partial_char);
        all.extend_from_slice(bytes);
        let whole = all.len() - incomplete_char_len(&all);
        self.partial_char = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.text.push(&text);
        self.unsent.push_str(&text);
    }

    /// What is kept. What the command left in the background may go on writing; nobody reads it any more, but it must not
    /// die of that.
    fn finish(mut self) -> ToolOutput {
        let half = std::mem::take(&mut self.partial_char);
        self.text.push(&String::from_utf8_lossy(&half));
        if !self.ended {
            tokio::spawn(async move { tokio::io::copy(&mut self.pipe, &mut tokio::io::sink()).await });
        }
        self.text
    }
}

/// Whether the pipe has something at this moment, whatever the runtime last knew of it.
async fn ready_now(pipe: &pipe::Receiver) -> bool {
    let mut readable = pin!(pipe.readable());
    for _ in 0..2 {
        let ready = futures::future::poll_fn(|cx| std::task::Poll::Ready(readable.as_mut().poll(cx).is_ready())).await;
        if ready {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// How many bytes at the end are the beginning of a character that may yet be completed: 0 to 3.
fn incomplete_char_len(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    let invalid = last.invalid();
    let incomplete = std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
    if incomplete { invalid.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_character_that_may_be_completed_is_held_back() {
        let check = |bytes: &[u8], expected| assert_eq!(incomplete_char_len(bytes), expected, "{bytes:?}");
        check(b"", 0);
        check(b"abc", 0);
        check("ä".as_bytes(), 0);
        check(&"ä".as_bytes()[..1], 1);
        check(&"a€".as_bytes()[..3], 2);
        check(&"😀".as_bytes()[..3], 3);
        check(b"a\xff", 0);
        check(b"\xff\xc3", 1);
    }
}
