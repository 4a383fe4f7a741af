//! `run`: runs a shell command and reports its output as it comes.

use std::{fs, future::Future, io, pin::pin, process::ExitStatus, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{Action, DeltaKind, Observation, ObservationKind};
use serde_json::json;
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::{
    AgentTool, ToolContext, ToolError, ToolResult, not_a_tool, own_action, schema, shorten_label,
    tool_output::{FinishedToolOutput, ToolOutput},
};
use crate::{
    clock::{self, Stopwatch},
    processes::RunningCommand,
    threads::off_thread,
};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "run",
    about: "Run a shell command in the working directory. Its stdout and stderr come back together, with the exit code. \
        It has no terminal and no stdin. Start what must go on running in the background with `&`.",
    arguments: || schema::object(&["command"], json!({ "command": schema::text("The command line.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Run { command } => run(command, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: true,
};

const CHUNK: usize = 16 * 1024;

/// Bytes that are still read after the command has ended. More than a pipe holds, so all output of
/// the command itself is read. Output of processes left in the background ends here.
const DRAIN_LIMIT: usize = 1024 * 1024;

/// End of a command.
enum CommandEnd {
    Exited(ExitStatus),
    /// Killed after this time.
    TimedOut(Duration),
    /// Killed by the user's interrupt.
    Stopped,
}

async fn run(command: &str, context: &ToolContext<'_>) -> Result<ToolResult, ToolError> {
    check_directory(command, context).await?;
    let spawned = context.processes.spawn(context.item, context.owner, command, &context.directory);
    let RunningCommand { mut child, pid, output } = spawned.map_err(|error| {
        ToolError::Failed(format!("the command cannot be started in `{}`: {error}", context.directory.display()))
    })?;
    let mut output = CommandOutput::new(output);
    let mut watch = Stopwatch::start();
    let end = tokio::select! {
        biased;
        () = context.stop.cancelled() => CommandEnd::Stopped,
        status = child.wait() => CommandEnd::Exited(status.map_err(ToolError::from_error)?),
        () = watch.reaches(context.timeout) => CommandEnd::TimedOut(context.timeout),
        never = output.stream(context) => match never {},
    };
    if !matches!(end, CommandEnd::Exited(_)) {
        context.processes.kill_tree(context.item).await;
        // The command is dead; only its exit status is reaped.
        let _ = child.wait().await;
    }
    context.processes.forget_child(pid);
    tokio::select! {
        biased;
        () = context.stop.cancelled() => output.read_available(),
        () = output.drain(context) => {}
    }
    let duration = watch.read();
    let finished = output.finish().finish(context).await;
    let done = tool_result(command, &finished, &end, duration);
    match end {
        CommandEnd::Exited(_) | CommandEnd::TimedOut(_) => Ok(done),
        CommandEnd::Stopped => {
            Err(ToolError::Stopped { what: describe_command(command), partial_result: Some(Box::new(done)) })
        }
    }
}

/// Returns when the directory answers. `spawn` blocks the agent's only thread until the shell has
/// entered the directory.
async fn check_directory(command: &str, context: &ToolContext<'_>) -> Result<(), ToolError> {
    let inside = context.directory.join(".");
    let check = off_thread(move || {
        // `spawn` reports any other problem with the directory.
        let _ = fs::metadata(inside);
    });
    tokio::select! {
        biased;
        () = context.stop.cancelled() => Err(ToolError::Stopped { what: describe_command(command), partial_result: None }),
        () = check => Ok(()),
        () = clock::sleep(context.timeout) => {
            let (directory, limit) = (context.directory.display(), context.timeout.as_secs());
            Err(ToolError::Failed(format!("the command was not started: `{directory}` did not answer within {limit} s")))
        }
    }
}

fn describe_command(command: &str) -> String {
    format!("the command `{}`", shorten_label(command))
}

fn tool_result(command: &str, finished: &FinishedToolOutput, end: &CommandEnd, duration: Duration) -> ToolResult {
    let exit_code = match end {
        CommandEnd::Exited(status) => status.code(),
        CommandEnd::TimedOut(_) | CommandEnd::Stopped => None,
    };
    let mut model_text = finished.for_model();
    if !model_text.is_empty() && !model_text.ends_with('\n') {
        model_text.push('\n');
    }
    model_text.push_str(&match (end, exit_code) {
        (CommandEnd::Exited(_), Some(code)) => format!("[Exit code {code}.]"),
        (CommandEnd::Exited(_), None) => "[It was killed by a signal.]".to_owned(),
        (CommandEnd::TimedOut(limit), _) => format!("[It was killed: it ran longer than {} s.]", limit.as_secs()),
        (CommandEnd::Stopped, _) => "[It was killed: the user stopped it.]".to_owned(),
    });
    let kind = ObservationKind::Run {
        command: command.to_owned(),
        exit_code,
        duration_ms: duration.as_millis() as u64,
        timed_out: matches!(end, CommandEnd::TimedOut(_)),
        truncated: finished.truncated(),
    };
    ToolResult { observation: Observation { kind, content: finished.content() }, model_text }
}

/// Output of a command. Read only as fast as it is sent, so its own pipe holds back a flood.
struct CommandOutput {
    pipe: pipe::Receiver,
    text: ToolOutput,
    /// Beginning of a character whose end has not come yet.
    partial_char: Vec<u8>,
    /// Text that was read and is not sent yet.
    unsent: String,
    ended: bool,
}

enum StreamNever {}

impl CommandOutput {
    fn new(pipe: pipe::Receiver) -> CommandOutput {
        CommandOutput { pipe, text: ToolOutput::new(), partial_char: Vec::new(), unsent: String::new(), ended: false }
    }

    /// Reads and sends until dropped. Cancel-safe: no byte that was read is lost.
    async fn stream(&mut self, context: &ToolContext<'_>) -> StreamNever {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.send(context).await;
            if self.ended {
                std::future::pending::<()>().await;
            }
            match self.pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(n) => self.push_bytes(&chunk[..n]),
            }
        }
    }

    /// Reads and sends what the pipe holds now.
    async fn drain(&mut self, context: &ToolContext<'_>) {
        self.send(context).await;
        let (mut chunk, mut left) = (vec![0; CHUNK], DRAIN_LIMIT);
        while left > 0 && !self.ended {
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    left = left.saturating_sub(n);
                    self.push_bytes(&chunk[..n]);
                    self.send(context).await;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match ready_now(&self.pipe).await {
                    true => {}
                    false => return,
                },
                Err(_) => self.ended = true,
            }
        }
    }

    /// Reads what the pipe holds now, without sending it.
    fn read_available(&mut self) {
        let (mut chunk, mut left) = (vec![0; CHUNK], DRAIN_LIMIT);
        while let (true, Ok(n @ 1..)) = (left > 0, self.pipe.try_read(&mut chunk)) {
            left = left.saturating_sub(n);
            self.push_bytes(&chunk[..n]);
        }
    }

    async fn send(&mut self, context: &ToolContext<'_>) {
        if !self.unsent.is_empty() {
            context.outgoing.delta(DeltaKind::Output, context.item, &self.unsent).await;
            self.unsent.clear();
        }
        self.text.send_full_pieces(context).await;
    }

    fn push_bytes(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.partial_char);
        all.extend_from_slice(bytes);
        let complete = all.len() - incomplete_char_len(&all);
        self.partial_char = all.split_off(complete);
        let text = String::from_utf8_lossy(&all);
        self.text.push(&text);
        self.unsent.push_str(&text);
    }

    /// Returns the text. Background processes of the command may go on writing. Their output is
    /// discarded, and the open pipe keeps them from dying of SIGPIPE.
    fn finish(mut self) -> ToolOutput {
        let partial = std::mem::take(&mut self.partial_char);
        self.text.push(&String::from_utf8_lossy(&partial));
        if !self.ended {
            tokio::spawn(async move { tokio::io::copy(&mut self.pipe, &mut tokio::io::sink()).await });
        }
        self.text
    }
}

/// Returns `true` if the pipe has data now, regardless of the runtime's cached state.
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

/// Returns the number of bytes at the end that begin an incomplete character: 0 to 3.
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
    fn only_incomplete_characters_are_held_back() {
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
