//! The program inside the sandbox: drives a model, runs tools, and tells the server all of it exactly once.
//!
//! The server dials; nothing here knows how many servers there were. In reading order:
//!
//! | module | what it is |
//! |---|---|
//! | [`places`] | where things are inside the sandbox |
//! | [`link`] | the server's connection; the newest wins |
//! | [`outgoing`] | all there is to say, in one order: [`outbox`] (durable reports) and [`items`] (what still grows) |
//! | [`desk`] | takes commands: one turn at a time, one act of the user beside it |
//! | [`turn`] | what drives a turn ([`turn::Driver`]), and our own loop as the first such driver |
//! | [`tools`] | what a model, or the user, can do here: one file for each |
//! | [`processes`] | commands in groups of their own, and the end of everything that came of them |
//! | `threads` | work beside the one thread: what may have to wait for a file system |
//! | [`gateway`] | a loopback port through which any program reaches the model gateway |
//! | [`clock`], [`headtail`] | timeouts that stand still while the sandbox is frozen; long texts in little memory |
//!
//! What does not happen here: no model key, no actor, no clock time, no `seq`; those are the server's.

pub mod agent_paths;
pub mod clock;
pub mod dispatcher;
pub mod executed_ids;
pub mod gateway;
pub mod headtail;
pub mod link;
pub mod open_items;
pub mod outbox;
pub mod outgoing;
pub mod processes;
mod threads;
mod tls;
pub mod tools;
pub mod turn;

use std::{convert::Infallible, io, time::Duration};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use crate::{agent_paths::AgentPaths, dispatcher::Dispatcher, outgoing::OutgoingQueue, processes::ChildProcesses};

/// How long after it was last at work an agent lets go of what it needs for work only.
const IDLE_DELAY: Duration = Duration::from_secs(2);

/// Runs the agent until SIGTERM, and leaves no process behind.
pub async fn run(places: AgentPaths) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let gateway_url = match gateway::open(places.gateway_socket.clone()).await {
        Ok(url) => Some(url),
        Err(error) => {
            // Without a loopback device other programs have no model; the agent itself dials the socket.
            tracing::warn!(%error, "there is no loopback door to the model gateway");
            None
        }
    };
    let processes = ChildProcesses::new(gateway_url)?;
    let outgoing = OutgoingQueue::default();
    let desk = Dispatcher::new(outgoing.clone(), processes.clone(), &places);
    let result = tokio::select! {
        result = link::listen(&places.agent_socket, desk.clone(), outgoing) => result,
        never = release_memory_when_idle(&desk) => match never {},
        result = processes.clone().reap_orphans() => result,
        _ = terminate.recv() => Ok(()),
    };
    processes.kill_all().await;
    result
}

/// Lets go of the agent's code, and of what its work took, whenever it has been without work for a while.
async fn release_memory_when_idle(desk: &Dispatcher) -> Infallible {
    loop {
        sleep(IDLE_DELAY).await;
        if !desk.is_busy() {
            greenroom_memory::release_free_memory();
            greenroom_memory::release_code_pages();
        }
        desk.work_finished().await;
    }
}
