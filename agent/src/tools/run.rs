//! `run`: a shell command, with its output as it comes.

use std::{fs, future::Future, io, pin::pin, process::ExitStatus, time::Duration};

use greenroom_protocol::{DeltaKind, Observation, Seen};
use tokio::{io::AsyncReadExt, net::unix::pipe};

use super::{
    Bench, Done, Fault, in_words,
    whole::{Kept, Whole},
};
use crate::{
    clock::{self, Stopwatch},
    processes::Running,
    threads::off_thread,
};

const CHUNK: usize = 16 * 1024;

/// How much is still read after the command has ended: more than a pipe holds, so all that the command itself wrote, and
/// not for ever from what it left in the background.
const LAST_BYTES: usize = 1024 * 1024;

/// How a command ended.
enum End {
    Exited(ExitStatus),
    /// After this long.
    TimedOut(Duration),
    /// By the user.
    Stopped,
}

pub(super) async fn run(command: &str, bench: &Bench<'_>) -> Result<Done, Fault> {
    enter(command, bench).await?;
    let spawned = bench.processes.spawn(bench.item, bench.by, command, &bench.directory);
    let Running { mut child, pid, output } = spawned.map_err(|error| {
        Fault::Failed(format!("the command cannot be started in `{}`: {error}", bench.directory.display()))
    })?;
    let mut output = Output::new(output);
    let mut watch = Stopwatch::start();
    let end = tokio::select! {
        biased;
        () = bench.stop.cancelled() => End::Stopped,
        status = child.wait() => End::Exited(status.map_err(Fault::because)?),
        () = watch.reaches(bench.timeout) => End::TimedOut(bench.timeout),
        never = output.stream(bench) => match never {},
    };
    if !matches!(end, End::Exited(_)) {
        bench.processes.kill_tree(bench.item).await;
        // It is dead; only its exit has to be taken.
        let _ = child.wait().await;
    }
    bench.processes.gone(pid);
    tokio::select! {
        biased;
        () = bench.stop.cancelled() => output.take_what_is_there(),
        () = output.drain(bench) => {}
    }
    let duration = watch.read();
    let kept = output.end().finish(bench).await;
    let done = done(command, &kept, &end, duration);
    match end {
        End::Exited(_) | End::TimedOut(_) => Ok(done),
        End::Stopped => Err(Fault::Stopped { what: named(command), done: Some(Box::new(done)) }),
    }
}

/// Looks whether the directory answers. The one thread starts the shell, and does nothing else before that has entered it.
async fn enter(command: &str, bench: &Bench<'_>) -> Result<(), Fault> {
    let inside = bench.directory.join(".");
    let look = off_thread(move || {
        // What else is wrong with it, the start says.
        let _ = fs::metadata(inside);
    });
    tokio::select! {
        biased;
        () = bench.stop.cancelled() => Err(Fault::Stopped { what: named(command), done: None }),
        () = look => Ok(()),
        () = clock::sleep(bench.timeout) => {
            let (directory, limit) = (bench.directory.display(), bench.timeout.as_secs());
            Err(Fault::Failed(format!("the command was not started: `{directory}` did not answer within {limit} s")))
        }
    }
}

fn named(command: &str) -> String {
    format!("the command `{}`", in_words(command))
}

fn done(command: &str, kept: &Kept, end: &End, duration: Duration) -> Done {
    let exit_code = match end {
        End::Exited(status) => status.code(),
        End::TimedOut(_) | End::Stopped => None,
    };
    let mut told = kept.for_model();
    if !told.is_empty() && !told.ends_with('\n') {
        told.push('\n');
    }
    told.push_str(&match (end, exit_code) {
        (End::Exited(_), Some(code)) => format!("[Exit code {code}.]"),
        (End::Exited(_), None) => "[It was killed by a signal.]".to_owned(),
        (End::TimedOut(limit), _) => format!("[It was killed: it ran longer than {} s.]", limit.as_secs()),
        (End::Stopped, _) => "[It was killed: the user stopped it.]".to_owned(),
    });
    let seen = Seen::Run {
        command: command.to_owned(),
        exit_code,
        duration_ms: duration.as_millis() as u64,
        timed_out: matches!(end, End::TimedOut(_)),
        truncated: kept.truncated(),
    };
    Done { observation: Observation { seen, content: kept.content() }, told }
}

/// What a command prints: read only as fast as it can be told, so that a flood is held back by its own pipe.
struct Output {
    pipe: pipe::Receiver,
    kept: Whole,
    /// The beginning of a character whose end has not come yet.
    half: Vec<u8>,
    /// What was read and kept, and is not told yet.
    untold: String,
    ended: bool,
}

enum Never {}

impl Output {
    fn new(pipe: pipe::Receiver) -> Output {
        Output { pipe, kept: Whole::new(), half: Vec::new(), untold: String::new(), ended: false }
    }

    /// Reads and tells, for ever. May be dropped at any point: nothing read is lost.
    async fn stream(&mut self, bench: &Bench<'_>) -> Never {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.tell(bench).await;
            if self.ended {
                std::future::pending::<()>().await;
            }
            match self.pipe.read(&mut chunk).await {
                Ok(0) | Err(_) => self.ended = true,
                Ok(n) => self.take(&chunk[..n]),
            }
        }
    }

    /// Reads and tells what the pipe holds now.
    async fn drain(&mut self, bench: &Bench<'_>) {
        self.tell(bench).await;
        let (mut chunk, mut left) = (vec![0; CHUNK], LAST_BYTES);
        while left > 0 && !self.ended {
            match self.pipe.try_read(&mut chunk) {
                Ok(0) => self.ended = true,
                Ok(n) => {
                    left = left.saturating_sub(n);
                    self.take(&chunk[..n]);
                    self.tell(bench).await;
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
    fn take_what_is_there(&mut self) {
        let (mut chunk, mut left) = (vec![0; CHUNK], LAST_BYTES);
        while let (true, Ok(n @ 1..)) = (left > 0, self.pipe.try_read(&mut chunk)) {
            left = left.saturating_sub(n);
            self.take(&chunk[..n]);
        }
    }

    async fn tell(&mut self, bench: &Bench<'_>) {
        if !self.untold.is_empty() {
            bench.outgoing.delta(DeltaKind::Output, bench.item, &self.untold).await;
            self.untold.clear();
        }
        self.kept.tell(bench).await;
    }

    fn take(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.half);
        all.extend_from_slice(bytes);
        let whole = all.len() - half_character(&all);
        self.half = all.split_off(whole);
        let text = String::from_utf8_lossy(&all);
        self.kept.push(&text);
        self.untold.push_str(&text);
    }

    /// What is kept. What the command left in the background may go on writing; nobody reads it any more, but it must not
    /// die of that.
    fn end(mut self) -> Whole {
        let half = std::mem::take(&mut self.half);
        self.kept.push(&String::from_utf8_lossy(&half));
        if !self.ended {
            tokio::spawn(async move { tokio::io::copy(&mut self.pipe, &mut tokio::io::sink()).await });
        }
        self.kept
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
fn half_character(bytes: &[u8]) -> usize {
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
        let check = |bytes: &[u8], expected| assert_eq!(half_character(bytes), expected, "{bytes:?}");
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
