//! `run`: runs a shell command and reports its output as it comes.

use std::{fs, io, time::Duration};

use futures::FutureExt;
use greenroom_protocol::{Action, DeltaKind, Observation, ObservationKind};
use serde_json::json;

use super::{
    AgentTool, MODEL_TEXT_LIMIT, ToolContext, ToolError, ToolResult, not_a_tool, own_action, schema, shorten_label,
    tool_output::{FinishedToolOutput, ToolOutput},
};
use crate::{
    clock::{self, Stopwatch},
    processes::{CommandExit, OutputReader, RunningCommand},
    terminal_text::TerminalText,
    threads::off_thread,
};

pub(super) const TOOL: AgentTool = AgentTool {
    name: "run",
    about: "Run a shell command in the working directory. Its stdout and stderr come back together, with the exit code. \
        It has no stdin. You read what a terminal shows at the end: no colours, and the last state of a line that is \
        redrawn. Start what must go on running in the background with `&`.",
    arguments: || schema::object(&["command"], json!({ "command": schema::text("The command line.") })),
    parse: own_action,
    run: |action, context| match action {
        Action::Run { command } => run(command, context).boxed(),
        other => not_a_tool(other),
    },
    stops_itself: true,
};

const CHUNK: usize = 16 * 1024;

/// Bytes that are still read after the command has ended. More than a terminal or a pipe holds, so
/// all output of the command itself is read. Output of processes left in the background ends here.
const DRAIN_LIMIT: usize = 1024 * 1024;

/// End of a command.
enum CommandEnd {
    Exited(CommandExit),
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
        status = child.wait() => CommandEnd::Exited(status.map_err(ToolError::from_error)?.into()),
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
    let (text, model_text) = output.finish();
    let finished = text.finish(context).await;
    let kind = observation_kind(command, &finished, &end, duration);
    let observation = Observation { kind, content: finished.content() };
    let done = ToolResult { observation, model_text: with_end(model_text, &end) };
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

fn observation_kind(
    command: &str,
    finished: &FinishedToolOutput,
    end: &CommandEnd,
    duration: Duration,
) -> ObservationKind {
    let exit = match end {
        CommandEnd::Exited(exit) => Some(exit),
        CommandEnd::TimedOut(_) | CommandEnd::Stopped => None,
    };
    ObservationKind::Run {
        command: command.to_owned(),
        exit_code: exit.map(|exit| exit.code),
        signal: exit.and_then(|exit| exit.signal.clone()),
        duration_ms: duration.as_millis() as u64,
        timed_out: matches!(end, CommandEnd::TimedOut(_)),
        truncated: finished.truncated(),
    }
}

/// Appends the end of the command to its output, for the model.
fn with_end(mut text: String, end: &CommandEnd) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&match end {
        CommandEnd::Exited(exit) => exit_text(exit.code, exit.signal.as_deref()),
        CommandEnd::TimedOut(limit) => format!("[It was killed: it ran longer than {} s.]", limit.as_secs()),
        CommandEnd::Stopped => "[It was killed: the user stopped it.]".to_owned(),
    });
    text
}

/// Returns the end of a command, for the model.
pub(crate) fn exit_text(code: i32, signal: Option<&str>) -> String {
    match signal {
        // A sandbox ends a process that exceeds its memory by this signal.
        Some("SIGKILL") => format!("[Exit code {code}: ended by SIGKILL, for example because memory ran out.]"),
        Some(signal) => format!("[Exit code {code}: ended by {signal}.]"),
        None => format!("[Exit code {code}.]"),
    }
}

/// Output of a command. Read only as fast as it is sent, so the command blocks in a flood.
struct CommandOutput {
    reader: OutputReader,
    text: ToolOutput,
    /// The same text as a terminal shows it, for the model.
    shown: TerminalText,
    /// Beginning of a character whose end has not come yet.
    partial_char: Vec<u8>,
    /// Text that was read and is not sent yet.
    unsent: String,
    ended: bool,
}

enum StreamNever {}

impl CommandOutput {
    fn new(reader: OutputReader) -> CommandOutput {
        CommandOutput {
            reader,
            text: ToolOutput::new(),
            shown: TerminalText::new(MODEL_TEXT_LIMIT),
            partial_char: Vec::new(),
            unsent: String::new(),
            ended: false,
        }
    }

    /// Reads and sends until dropped. Cancel-safe: no byte that was read is lost.
    async fn stream(&mut self, context: &ToolContext<'_>) -> StreamNever {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.send(context).await;
            if self.ended {
                std::future::pending::<()>().await;
            }
            match self.reader.read(&mut chunk).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(n) => self.push_bytes(&chunk[..n]),
            }
        }
    }

    /// Reads and sends what is there now.
    async fn drain(&mut self, context: &ToolContext<'_>) {
        self.send(context).await;
        let mut left = DRAIN_LIMIT;
        while left > 0 && self.read_now(&mut left) {
            self.send(context).await;
        }
    }

    /// Reads what is there now, without sending it.
    fn read_available(&mut self) {
        let mut left = DRAIN_LIMIT;
        while left > 0 && self.read_now(&mut left) {}
    }

    /// Reads a chunk and takes its length from `left`. Returns `false` if there is nothing.
    fn read_now(&mut self, left: &mut usize) -> bool {
        let mut chunk = vec![0; CHUNK];
        match self.reader.try_read(&mut chunk) {
            Ok(n @ 1..) => {
                *left = left.saturating_sub(n);
                self.push_bytes(&chunk[..n]);
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Ok(0) | Err(_) => {
                self.ended = true;
                false
            }
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
        self.push_text(&text);
        self.unsent.push_str(&text);
    }

    fn push_text(&mut self, text: &str) {
        self.text.push(text);
        self.shown.push(text);
    }

    /// Returns the text, and the text for the model. Background processes of the command may go on
    /// writing. Their output is discarded, and its open end keeps them from dying of SIGPIPE or
    /// SIGHUP.
    fn finish(mut self) -> (ToolOutput, String) {
        let partial = std::mem::take(&mut self.partial_char);
        self.push_text(&String::from_utf8_lossy(&partial));
        if !self.ended {
            tokio::spawn(async move {
                let mut chunk = vec![0; CHUNK];
                while let Ok(1..) = self.reader.read(&mut chunk).await {}
            });
        }
        (self.text, self.shown.finish())
    }
}

/// Returns the number of bytes at the end that begin an incomplete character: 0 to 3.
pub(crate) fn incomplete_char_len(bytes: &[u8]) -> usize {
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
