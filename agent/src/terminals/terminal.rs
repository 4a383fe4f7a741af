//! Task of one terminal: shell, screen, clients, and the flow of bytes between them.
//!
//! The shell runs at the pace of its clients. A client that takes nothing for a while gets a new
//! snapshot later, and does not hold the others up. Without a client, the output is read into the
//! screen at a limited rate.

use std::{io, os::unix::process::ExitStatusExt, path::Path, process::ExitStatus, sync::Arc, time::Duration};

use greenroom_protocol::terminal::{TerminalReply, TerminalStatus};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    sync::{
        Notify, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
    time::{Instant, sleep_until, timeout},
};

use super::{
    client_output::{ClientOutput, OutputPiece},
    pty::Pty,
    screen::{EmulatedScreen, ScreenSize},
};
use crate::processes::{ChildProcesses, CommandExit, TerminalShell};

/// Input that programs have not read, in bytes. When full: the client's connection is not read.
const INPUT_LIMIT: usize = 256 * 1024;

/// Size of one read. The kernel gives at most 4 KiB at a time.
const READ_SIZE: usize = 4096;

/// Time without progress after which a client no longer holds up its terminal, if it is the only
/// client.
const SOLE_GRACE: Duration = Duration::from_secs(2);

/// The same time, if there are other clients.
const SHARED_GRACE: Duration = Duration::from_millis(250);

/// Output that is read in each [`UNATTENDED_INTERVAL`] without a client, in bytes.
const UNATTENDED_BYTES: usize = 100 * 1024;
const UNATTENDED_INTERVAL: Duration = Duration::from_millis(50);

/// Output that is read after the end of the shell, in bytes. The kernel keeps less.
const DRAIN_LIMIT: usize = 64 * 1024;

/// Time that a closed terminal's programs have to end by themselves.
const HANG_UP_TIME: Duration = Duration::from_millis(500);

/// Command to a terminal's task.
pub(super) enum TerminalCommand {
    /// Adds a client. `name` and `opened` are for its first frame.
    Attach {
        size: ScreenSize,
        name: String,
        opened: bool,
        reply: oneshot::Sender<(u64, Arc<ClientOutput>)>,
    },
    Detach {
        client: u64,
    },
    Resize {
        client: u64,
        size: ScreenSize,
    },
    /// Input with as many permits of [`TerminalInput`] as bytes.
    Input(Vec<u8>),
    Renamed {
        name: String,
    },
    Status {
        reply: oneshot::Sender<StatusOfTerminal>,
    },
    Close {
        reply: oneshot::Sender<()>,
    },
}

/// Status without name and command line.
pub(super) struct StatusOfTerminal {
    pub(super) status: TerminalStatus,
    /// Process group in the foreground.
    pub(super) foreground: Option<i32>,
}

/// Clients' end of a terminal's input. Bound: [`INPUT_LIMIT`].
#[derive(Clone)]
pub(super) struct TerminalInput {
    commands: UnboundedSender<TerminalCommand>,
    room: Arc<Semaphore>,
}

/// Notice that the terminal has ended.
#[derive(Debug)]
pub(super) struct TerminalGone;

impl TerminalInput {
    /// Queues input, of at most a frame. Waits until there is room.
    pub(super) async fn push(&self, input: Vec<u8>) -> Result<(), TerminalGone> {
        let permits = self.room.acquire_many(input.len() as u32).await.map_err(|_| TerminalGone)?;
        permits.forget();
        self.commands.send(TerminalCommand::Input(input)).map_err(|_| TerminalGone)
    }
}

/// Started terminal, whose task does not run yet.
pub(super) struct StartedTerminal {
    pub(super) commands: UnboundedSender<TerminalCommand>,
    pub(super) input: TerminalInput,
    received: UnboundedReceiver<TerminalCommand>,
    task: TerminalTask,
}

/// Starts a shell in a new terminal. `id` marks its processes.
///
/// # Errors
/// Fails if no pseudo-terminal is free, or the shell cannot be started.
pub(super) fn start(
    processes: &ChildProcesses,
    id: String,
    size: ScreenSize,
    directory: &Path,
) -> io::Result<StartedTerminal> {
    let (pty, shell_end) = Pty::open(size)?;
    let shell = processes.spawn_terminal(&id, shell_end, directory)?;
    let (commands, received) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(INPUT_LIMIT));
    let input = TerminalInput { commands: commands.clone(), room: room.clone() };
    let task = TerminalTask {
        id,
        processes: processes.clone(),
        shell,
        pty,
        screen: EmulatedScreen::new(size),
        opened: Instant::now(),
        clients: Vec::new(),
        last_client: 0,
        drained: Arc::default(),
        input: Vec::new(),
        room,
        unattended: UnattendedRate { left: UNATTENDED_BYTES, refill: Instant::now() },
        is_hung_up: false,
    };
    Ok(StartedTerminal { commands, input, received, task })
}

impl StartedTerminal {
    /// Runs the terminal until its shell ends or it is closed.
    pub(super) async fn run(self) {
        let StartedTerminal { mut received, task, commands, input } = self;
        // The list has senders of its own, for as long as the terminal is listed.
        drop((commands, input));
        task.run(&mut received).await;
    }
}

struct TerminalTask {
    id: String,
    processes: ChildProcesses,
    shell: TerminalShell,
    pty: Pty,
    screen: EmulatedScreen,
    opened: Instant,
    /// Oldest first. The oldest answers the queries of programs.
    clients: Vec<AttachedClient>,
    last_client: u64,
    drained: Arc<Notify>,
    /// Input that is not written yet.
    input: Vec<u8>,
    room: Arc<Semaphore>,
    unattended: UnattendedRate,
    /// Set when no program has the terminal open.
    is_hung_up: bool,
}

struct AttachedClient {
    id: u64,
    size: ScreenSize,
    output: Arc<ClientOutput>,
    /// Set when the client has missed output. It gets a snapshot when it has taken everything.
    is_behind: bool,
    announced: Option<TerminalReply>,
}

/// Budget of reads without a client.
struct UnattendedRate {
    left: usize,
    refill: Instant,
}

/// Decision about the next read of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextRead {
    Now,
    /// Decided again at this time, or when a client has taken something.
    NotBefore(Instant),
    Never,
}

impl TerminalTask {
    async fn run(mut self, received: &mut UnboundedReceiver<TerminalCommand>) {
        let mut chunk = vec![0; READ_SIZE];
        let (status, closed) = loop {
            self.catch_up_clients();
            let next_read = self.next_read();
            let drained = self.drained.clone();
            tokio::select! {
                biased;
                command = received.recv() => match command {
                    Some(TerminalCommand::Close { reply }) => break (self.hang_up().await, Some(reply)),
                    Some(command) => self.handle(command),
                    // The agent ends.
                    None => return,
                },
                status = self.shell.child.wait() => break (status, None),
                written = self.pty.write(&self.input), if !self.input.is_empty() => self.wrote(written),
                () = drained.notified() => {}
                () = wait_for(next_read), if matches!(next_read, NextRead::NotBefore(_)) => {}
                read = self.pty.read(&mut chunk), if next_read == NextRead::Now => match read {
                    Ok(count @ 1..) => self.print(&chunk[..count]),
                    Ok(0) | Err(_) => self.is_hung_up = true,
                },
            }
        };
        self.processes.forget_terminal(self.shell.pid);
        self.room.close();
        let mut left = DRAIN_LIMIT;
        while let Ok(count @ 1..) = self.pty.try_read(&mut chunk) {
            self.print(&chunk[..count]);
            left = left.saturating_sub(count);
            if left == 0 {
                break;
            }
        }
        let was_signalled = status.as_ref().is_ok_and(|status| status.signal().is_some());
        let exit = status.map_or(CommandExit { code: -1, signal: None }, CommandExit::from);
        // A shell's own exit code may only look as if a signal had ended it.
        let exit = CommandExit { signal: exit.signal.filter(|_| was_signalled), ..exit };
        for client in &self.clients {
            client
                .output
                .push(OutputPiece::Control(TerminalReply::Exit { code: exit.code, signal: exit.signal.clone() }));
            client.output.finish();
        }
        if let Some(closed) = closed {
            // The connection that asked may be gone.
            let _ = closed.send(());
        }
    }

    fn handle(&mut self, command: TerminalCommand) {
        match command {
            TerminalCommand::Attach { size, name, opened, reply } => self.attach(size, name, opened, reply),
            TerminalCommand::Detach { client } => {
                self.clients.retain(|attached| attached.id != client);
                self.apply_size();
            }
            TerminalCommand::Resize { client, size } => {
                if let Some(client) = self.clients.iter_mut().find(|attached| attached.id == client) {
                    client.size = size;
                }
                self.apply_size();
            }
            TerminalCommand::Input(input) => self.input.extend_from_slice(&input),
            TerminalCommand::Renamed { name } => {
                for client in &self.clients {
                    client.output.push(OutputPiece::Control(TerminalReply::Renamed { name: name.clone() }));
                }
            }
            TerminalCommand::Status { reply } => {
                // The asker may be gone.
                let _ = reply.send(self.status());
            }
            // Handled by the loop.
            TerminalCommand::Close { .. } => {}
        }
    }

    fn attach(
        &mut self,
        size: ScreenSize,
        name: String,
        opened: bool,
        reply: oneshot::Sender<(u64, Arc<ClientOutput>)>,
    ) {
        self.last_client += 1;
        let (id, output) = (self.last_client, Arc::new(ClientOutput::new(self.drained.clone())));
        if reply.send((id, output.clone())).is_err() {
            return;
        }
        output.push(OutputPiece::Control(TerminalReply::Attached { name, opened }));
        // Behind, until the loop sends the screen.
        self.clients.push(AttachedClient { id, size, output, is_behind: true, announced: None });
        self.apply_size();
        self.show_screen(self.clients.len() - 1);
    }

    /// Applies the smallest size of all clients, and announces changes.
    fn apply_size(&mut self) {
        let smallest = self
            .clients
            .iter()
            .map(|client| client.size)
            .reduce(|a, b| ScreenSize { cols: a.cols.min(b.cols), rows: a.rows.min(b.rows) });
        if let Some(size) = smallest
            && size != self.screen.size()
        {
            self.screen.resize(size);
            if let Err(error) = self.pty.resize(size) {
                tracing::warn!(%error, "a terminal cannot be resized");
            }
        }
        for at in 0..self.clients.len() {
            if !self.clients[at].is_behind {
                self.announce(at);
            }
        }
    }

    /// Sends the size in force to a client that has another one.
    fn announce(&mut self, at: usize) {
        let ScreenSize { cols, rows } = self.screen.size();
        let reply = TerminalReply::Size { cols, rows, clients: self.clients.len() as u32, answers: at == 0 };
        let client = &mut self.clients[at];
        if client.announced.as_ref() != Some(&reply) {
            client.output.push(OutputPiece::Control(reply.clone()));
            client.announced = Some(reply);
        }
    }

    /// Sends the screen to clients that have missed output and have taken everything else.
    fn catch_up_clients(&mut self) {
        for at in 0..self.clients.len() {
            if self.clients[at].is_behind && self.clients[at].output.is_idle() {
                self.show_screen(at);
            }
        }
    }

    fn show_screen(&mut self, at: usize) {
        self.announce(at);
        let client = &mut self.clients[at];
        client.is_behind = false;
        for piece in self.screen.snapshot() {
            client.output.push(OutputPiece::Bytes(piece));
        }
    }

    fn next_read(&mut self) -> NextRead {
        if self.is_hung_up {
            return NextRead::Never;
        }
        let now = Instant::now();
        let active = self.clients.iter().filter(|client| !client.is_behind).count();
        let grace = if active > 1 { SHARED_GRACE } else { SOLE_GRACE };
        let mut wait: Option<Instant> = None;
        for client in self.clients.iter_mut().filter(|client| !client.is_behind) {
            let Some(stalled) = client.output.stalled_since() else { continue };
            if now >= stalled + grace {
                client.is_behind = true;
                client.announced = None;
                client.output.drop_queued();
            } else {
                wait = Some(wait.map_or(stalled + grace, |wait| wait.min(stalled + grace)));
            }
        }
        if let Some(wait) = wait {
            return NextRead::NotBefore(wait);
        }
        if self.clients.iter().any(|client| !client.is_behind) {
            return NextRead::Now;
        }
        if now >= self.unattended.refill {
            self.unattended = UnattendedRate { left: UNATTENDED_BYTES, refill: now + UNATTENDED_INTERVAL };
        }
        if self.unattended.left > 0 { NextRead::Now } else { NextRead::NotBefore(self.unattended.refill) }
    }

    fn print(&mut self, output: &[u8]) {
        self.screen.print(output);
        self.unattended.left = self.unattended.left.saturating_sub(output.len());
        let output: Arc<[u8]> = output.into();
        for client in self.clients.iter().filter(|client| !client.is_behind) {
            client.output.push(OutputPiece::Bytes(output.clone()));
        }
    }

    fn wrote(&mut self, written: io::Result<usize>) {
        // Without a program that reads, input is lost as on any terminal.
        let count = written.unwrap_or(self.input.len());
        self.input.drain(..count);
        self.room.add_permits(count);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
    }

    fn status(&self) -> StatusOfTerminal {
        let ScreenSize { cols, rows } = self.screen.size();
        let status = TerminalStatus {
            name: String::new(),
            title: self.screen.title().map(str::to_owned),
            cols,
            rows,
            clients: self.clients.len() as u32,
            command: None,
            age_s: self.opened.elapsed().as_secs(),
        };
        StatusOfTerminal { status, foreground: self.pty.foreground() }
    }

    /// Ends the terminal's processes: first as a lost connection would, then by force.
    async fn hang_up(&mut self) -> io::Result<ExitStatus> {
        let groups = [self.pty.foreground(), Some(self.shell.pid)];
        for group in groups.into_iter().flatten().filter_map(Pid::from_raw) {
            // A stopped group reads the signal when it continues. It may be gone already.
            let _ = kill_process_group(group, Signal::HUP);
            let _ = kill_process_group(group, Signal::CONT);
        }
        let has_ended = timeout(HANG_UP_TIME, self.shell.child.wait()).await.is_ok();
        // Another process may have the pid of a shell that was waited for.
        let shell = (!has_ended).then_some(self.shell.pid);
        self.processes.kill_terminal(&self.id, shell).await;
        self.shell.child.wait().await
    }
}

async fn wait_for(next_read: NextRead) {
    if let NextRead::NotBefore(time) = next_read {
        sleep_until(time).await;
    }
}
