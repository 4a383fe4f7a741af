//! Terminals: shells of the user, each with a pseudo-terminal and a screen.
//!
//! A terminal outlives its clients. The server reaches terminals over a socket of their own, with
//! the frames of [`greenroom_protocol::terminal`]. See docs/internals/terminal.md.
//!
//! | module | content |
//! |---|---|
//! | `listener` | the socket, and one connection for each client |
//! | `terminal` | task of one terminal: shell, clients, flow control |
//! | `client_output` | queue of one client |
//! | `screen`, `scrollback`, `modes` | what a client that attaches is shown |
//! | `pty` | the pseudo-terminal |

mod client_output;
mod listener;
mod modes;
mod pty;
mod screen;
mod scrollback;
mod terminal;

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use greenroom_protocol::terminal::{TERMINALS_LIMIT, TerminalErrorCode, TerminalStatus, check_terminal_name};
use tokio::{
    sync::{mpsc::UnboundedSender, oneshot},
    time::timeout,
};

pub use self::listener::listen;
use self::{
    client_output::ClientOutput,
    screen::ScreenSize,
    terminal::{TerminalCommand, TerminalInput},
};
use crate::{dispatcher::Dispatcher, processes::ChildProcesses, threads::off_thread};

/// Time in which the session's directory must answer before a shell starts there.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Terminals of the session. Clones share one list.
#[derive(Clone)]
pub struct Terminals(Arc<TerminalsShared>);

struct TerminalsShared {
    processes: ChildProcesses,
    dispatcher: Dispatcher,
    /// Oldest first.
    open: Mutex<Vec<OpenTerminal>>,
}

/// Entry of a terminal whose shell has not ended.
#[derive(Clone)]
struct OpenTerminal {
    name: String,
    /// Unique id, which is the mark of the terminal's processes.
    id: String,
    commands: UnboundedSender<TerminalCommand>,
    input: TerminalInput,
}

/// Reason why a request was rejected.
#[derive(Debug, thiserror::Error)]
enum TerminalError {
    #[error("{0}")]
    InvalidArgs(String),
    #[error("no terminal `{0}` is open; `GET …/terminals` lists the open ones")]
    NoTerminal(String),
    #[error("the name `{0}` is taken by another terminal; choose another name")]
    NameTaken(String),
    #[error("a session may have {TERMINALS_LIMIT} terminals; close one first")]
    TooManyTerminals,
    #[error("{0}")]
    Unavailable(String),
}

impl TerminalError {
    fn code(&self) -> TerminalErrorCode {
        match self {
            TerminalError::InvalidArgs(_) => TerminalErrorCode::InvalidArgs,
            TerminalError::NoTerminal(_) => TerminalErrorCode::NoTerminal,
            TerminalError::NameTaken(_) => TerminalErrorCode::NameTaken,
            TerminalError::TooManyTerminals => TerminalErrorCode::TooManyTerminals,
            TerminalError::Unavailable(_) => TerminalErrorCode::Unavailable,
        }
    }
}

impl Terminals {
    /// Returns a list without terminals. Shells start in the directory of the `dispatcher`'s
    /// settings.
    pub fn new(processes: ChildProcesses, dispatcher: Dispatcher) -> Terminals {
        Terminals(Arc::new(TerminalsShared { processes, dispatcher, open: Mutex::default() }))
    }

    /// Attaches a client. Opens the terminal if it is missing. Returns the terminal's queue of
    /// commands and the output of the client.
    async fn attach(&self, name: &str, cols: u16, rows: u16) -> Result<Attachment, TerminalError> {
        check_terminal_name(name).map_err(TerminalError::InvalidArgs)?;
        if cols == 0 || rows == 0 {
            return Err(TerminalError::InvalidArgs("`cols` and `rows` must be above 0".to_owned()));
        }
        let size = ScreenSize::clamped(cols, rows);
        let directory = self.0.dispatcher.directory();
        if self.find(name).is_none() {
            check_directory(directory.clone()).await?;
        }
        let (terminal, opened) = self.find_or_open(name, size, directory)?;
        let (reply, attached) = oneshot::channel();
        let name_now = terminal.name.clone();
        // A terminal that has just ended drops the request, and with it the reply.
        let _ = terminal.commands.send(TerminalCommand::Attach { size, name: name_now, opened, reply });
        let (client, output) = attached.await.map_err(|_| ended(name))?;
        Ok(Attachment { client, output, commands: terminal.commands, input: terminal.input })
    }

    /// Returns the terminals, oldest first.
    async fn list(&self) -> Vec<TerminalStatus> {
        let open = self.open().clone();
        let mut items = Vec::new();
        for terminal in open {
            let (reply, status) = oneshot::channel();
            let _ = terminal.commands.send(TerminalCommand::Status { reply });
            if let Ok(status) = status.await {
                let command = off_thread(move || status.foreground.and_then(pty::command_line)).await;
                items.push(TerminalStatus { name: terminal.name, command, ..status.status });
            }
        }
        items
    }

    fn rename(&self, name: &str, to: &str) -> Result<(), TerminalError> {
        check_terminal_name(to).map_err(TerminalError::InvalidArgs)?;
        let mut open = self.open();
        if !open.iter().any(|terminal| terminal.name == name) {
            return Err(TerminalError::NoTerminal(name.to_owned()));
        }
        if name != to && open.iter().any(|terminal| terminal.name == to) {
            return Err(TerminalError::NameTaken(to.to_owned()));
        }
        if let Some(terminal) = open.iter_mut().find(|terminal| terminal.name == name) {
            to.clone_into(&mut terminal.name);
            let _ = terminal.commands.send(TerminalCommand::Renamed { name: to.to_owned() });
        }
        Ok(())
    }

    /// Ends a terminal. Returns when its processes are gone.
    async fn close(&self, name: &str) -> Result<(), TerminalError> {
        let terminal = self.find(name).ok_or_else(|| TerminalError::NoTerminal(name.to_owned()))?;
        let (reply, closed) = oneshot::channel();
        let _ = terminal.commands.send(TerminalCommand::Close { reply });
        // A terminal that ended by itself meanwhile is closed too.
        let _ = closed.await;
        Ok(())
    }

    fn find(&self, name: &str) -> Option<OpenTerminal> {
        self.open().iter().find(|terminal| terminal.name == name && !terminal.commands.is_closed()).cloned()
    }

    /// Returns the terminal, and true if it was opened now.
    fn find_or_open(
        &self,
        name: &str,
        size: ScreenSize,
        directory: PathBuf,
    ) -> Result<(OpenTerminal, bool), TerminalError> {
        let mut open = self.open();
        open.retain(|terminal| !terminal.commands.is_closed());
        if let Some(found) = open.iter().find(|terminal| terminal.name == name) {
            return Ok((found.clone(), false));
        }
        if open.len() >= TERMINALS_LIMIT {
            return Err(TerminalError::TooManyTerminals);
        }
        let id = format!("terminal-{}", ulid::Ulid::generate());
        let started = terminal::start(&self.0.processes, id.clone(), size, &directory).map_err(|error| {
            TerminalError::Unavailable(format!("the shell cannot be started in `{}`: {error}", directory.display()))
        })?;
        let (commands, input) = (started.commands.clone(), started.input.clone());
        let terminal = OpenTerminal { name: name.to_owned(), id: id.clone(), commands, input };
        open.push(terminal.clone());
        drop(open);
        let terminals = self.clone();
        tokio::spawn(async move {
            started.run().await;
            terminals.open().retain(|terminal| terminal.id != id);
        });
        Ok((terminal, true))
    }

    fn open(&self) -> MutexGuard<'_, Vec<OpenTerminal>> {
        self.0.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Client's ends of a terminal.
struct Attachment {
    client: u64,
    output: Arc<ClientOutput>,
    commands: UnboundedSender<TerminalCommand>,
    input: TerminalInput,
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // A terminal that has ended has no clients.
        let _ = self.commands.send(TerminalCommand::Detach { client: self.client });
    }
}

/// Returns when the directory answers. A start blocks the agent's only thread until the shell has
/// entered the directory.
async fn check_directory(directory: PathBuf) -> Result<(), TerminalError> {
    let inside = directory.join(".");
    // The start itself reports any other problem with the directory.
    let check = off_thread(move || drop(fs::metadata(inside)));
    timeout(DIRECTORY_TIMEOUT, check).await.map_err(|_| {
        let (directory, limit) = (directory.display(), DIRECTORY_TIMEOUT.as_secs());
        TerminalError::Unavailable(format!("the shell was not started: `{directory}` did not answer within {limit} s"))
    })
}

fn ended(name: &str) -> TerminalError {
    TerminalError::Unavailable(format!("the terminal `{name}` has just ended; open it again"))
}
