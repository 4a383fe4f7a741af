//! Program inside the sandbox: drives a model, runs tools, and reports everything to the server
//! exactly once.
//!
//! The server dials the agent. The agent does not depend on how many servers there were. Modules in
//! reading order:
//!
//! | module | content |
//! |---|---|
//! | [`agent_paths`] | fixed paths inside the sandbox |
//! | [`link`] | the server's connection; the newest wins |
//! | [`outgoing`] | everything to send: [`outbox`] (reports), [`pending_reviews`], [`open_items`] |
//! | `orphan`, [`saved_reports`] | end of an agent without a server; reports for the next one |
//! | [`dispatcher`] | takes commands: one turn at a time, one user action beside it |
//! | [`executed_ids`] | turns and user actions that were begun, over all starts |
//! | [`turn`] | the port [`turn::TurnDriver`], and the registry of its drivers |
//! | [`tools`] | what a model, or the user, can do here: a file and a registry line per tool |
//! | [`browser`] | headless Chromium that the tools drive |
//! | [`processes`] | commands in process groups of their own; kills everything they started |
//! | `leftover_watch` | reports the processes that commands left behind |
//! | `threads` | work off the agent's only thread, such as slow file systems |
//! | [`terminals`] | shells of the user: a socket, a screen and a pseudo-terminal for each |
//! | [`gateway`] | a loopback port through which any program reaches the model gateway |
//! | [`clock`] | timeouts that stand still while the sandbox is paused |
//! | [`headtail`] | long texts in little memory |
//! | [`terminal_text`] | a program's output as a terminal shows it |
//!
//! The agent has no model key, no actor, no wall-clock time and no `seq`. The server has these.

pub mod agent_paths;
pub mod browser;
pub mod clock;
pub mod dispatcher;
pub mod executed_ids;
pub mod gateway;
pub mod headtail;
mod leftover_watch;
pub mod link;
pub mod open_items;
mod orphan;
pub mod outbox;
pub mod outgoing;
pub mod pending_reviews;
pub mod processes;
pub mod saved_reports;
pub mod terminal_text;
pub mod terminals;
mod threads;
mod tls;
pub mod tools;
pub mod turn;

use std::{convert::Infallible, io, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use crate::{
    agent_paths::AgentPaths, dispatcher::Dispatcher, outgoing::OutgoingQueue, processes::ChildProcesses,
    terminals::Terminals, turn::TurnDrivers,
};

/// Idle time after which the agent releases memory that only work needs.
const IDLE_DELAY: Duration = Duration::from_secs(2);

/// Reason why the agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentEnd {
    Terminated,
    /// No server came for the time that the settings say.
    Orphaned,
}

/// Runs the agent until SIGTERM, or until it has been without a server for too long. Then kills all
/// processes below it.
///
/// # Errors
/// Fails if signals cannot be handled, orphans cannot be adopted, or the agent's socket cannot be
/// made.
pub async fn run(paths: AgentPaths) -> io::Result<AgentEnd> {
    let mut terminate = signal(SignalKind::terminate())?;
    let gateway_url = match gateway::open(paths.gateway_socket.clone()).await {
        Ok(url) => Some(url),
        Err(error) => {
            // Without a loopback device, other programs have no model. The agent itself dials the
            // socket.
            tracing::warn!(%error, "no loopback port for the model gateway");
            None
        }
    };
    let processes = ChildProcesses::new(gateway_url)?;
    let outgoing = OutgoingQueue::resuming(&paths.saved_reports());
    let dispatcher = Dispatcher::new(outgoing.clone(), processes.clone(), &paths, TurnDrivers::new(&paths));
    let terminal_socket = paths.terminal_socket();
    let terminals = Terminals::new(processes.clone(), dispatcher.clone());
    let result = tokio::select! {
        result = terminals::listen(&terminal_socket, terminals) => result.map(|()| AgentEnd::Terminated),
        result = link::listen(&paths.agent_socket, dispatcher.clone(), outgoing.clone()) => result.map(|()| AgentEnd::Terminated),
        never = release_memory_when_idle(&dispatcher) => match never {},
        never = leftover_watch::report_leftovers(&processes, &outgoing) => match never {},
        result = processes.clone().reap_orphans() => result.map(|()| AgentEnd::Terminated),
        _ = terminate.recv() => Ok(AgentEnd::Terminated),
        () = orphan::until_orphaned(&dispatcher, &outgoing) => Ok(AgentEnd::Orphaned),
    };
    if let Ok(AgentEnd::Orphaned) = result {
        orphan::stop_work(&dispatcher, &outgoing).await;
        let boot = dispatcher.boot();
        if let Err(error) = outgoing.unacknowledged(boot).write(&paths.saved_reports()) {
            tracing::error!(%error, "the reports cannot be saved for the next server");
        }
    }
    dispatcher.close_browser().await;
    processes.kill_all().await;
    result
}

/// Releases the agent's code pages and free memory after each [`IDLE_DELAY`] without work.
async fn release_memory_when_idle(dispatcher: &Dispatcher) -> Infallible {
    loop {
        sleep(IDLE_DELAY).await;
        if !dispatcher.is_busy() {
            greenroom_memory::release_free_memory();
            greenroom_memory::release_code_pages();
        }
        dispatcher.work_finished().await;
    }
}
