//! Port between a turn's driver and the rest of the agent.
//!
//! A [`TurnDriver`] is independent of links, numbers and sockets. It takes messages from the
//! [`TurnContext`], reports through it, and stops when its token is cancelled. [`TurnDrivers`]
//! lists the drivers, and opens the one that the settings name.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
};

use futures::future::BoxFuture;
use greenroom_protocol::{
    Event,
    link::{AgentSettings, WorkOutcome},
};
use tokio_util::sync::CancellationToken;

use crate::{browser::PageBrowser, outgoing::OutgoingQueue, processes::ChildProcesses, tools::ToolResources};

mod approvals;
mod builtin;
mod call_approval;
mod compaction;
#[cfg(test)]
mod contract;
mod conversation;
mod drivers;
mod history;
mod model;
mod model_asker;
mod model_step;
mod pictures;
mod plan_watch;
mod recovery;
mod reviews;
mod truncate;
mod user_activity;

pub use approvals::{ApprovalAnswer, ApprovalRequest, ApprovalWaiters};
pub use drivers::TurnDrivers;
pub use user_activity::UserActivity;

/// Message of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    pub content: String,
    /// Paths of uploaded files, inside the workspace.
    pub attachments: Vec<String>,
}

/// Carries out turns.
pub trait TurnDriver: Send {
    /// Reads the next part of the journal, to continue the session from its end. Called before the
    /// first turn.
    fn restore(&mut self, part: &[Event]);

    /// Forgets the parts that [`TurnDriver::restore`] read. The journal was cut off, and comes
    /// again from its beginning.
    fn reset(&mut self);

    /// Records a message without acting on it. The user has seen the message sent, and continues
    /// from there.
    fn record_message(&mut self, message: UserMessage, context: &TurnContext);

    /// Works on `message` until there is an outcome. Ends soon after `context.stop` is cancelled,
    /// at any point.
    ///
    /// If `context.stop` is cancelled before the call, the driver only records the message and its
    /// interrupt. A driver whose program accepts prompts only passes both on with the next prompt.
    fn run_turn<'a>(&'a mut self, message: UserMessage, context: &'a TurnContext) -> BoxFuture<'a, WorkOutcome>;
}

/// Access of a turn to the rest of the agent.
pub struct TurnContext {
    pub outgoing: OutgoingQueue,
    pub processes: ChildProcesses,
    pub browser: PageBrowser,
    /// Settings. They may change between steps.
    pub settings: Arc<Mutex<AgentSettings>>,
    /// User actions since the driver last took them.
    pub user_activity: Arc<Mutex<UserActivity>>,
    /// Requests of [`TurnContext::ask`] that wait for a person.
    pub approvals: ApprovalWaiters,
    /// Cancelled by an interrupt.
    pub stop: CancellationToken,
    /// Messages that steer this turn.
    pub steer_queue: SteerQueue,
}

impl TurnContext {
    /// Returns the current settings.
    pub fn settings(&self) -> AgentSettings {
        lock(&self.settings).clone()
    }

    /// Returns the resources that tools share.
    pub fn tool_resources(&self) -> ToolResources<'_> {
        ToolResources { outgoing: &self.outgoing, processes: &self.processes, browser: &self.browser }
    }

    /// Takes the user actions beside the agent. Each is returned once.
    pub fn take_user_activity(&self) -> Vec<String> {
        lock(&self.user_activity).take()
    }
}

/// Message that steers a running turn.
#[derive(Debug)]
pub struct SteerMessage {
    /// Id of the command that brought the message. The server receives a report about it.
    pub command: String,
    pub message: UserMessage,
}

/// Queue of messages that steer a running turn. Bound: none, since people type them. The end of the
/// turn closes the queue.
#[derive(Debug, Clone)]
pub struct SteerQueue(Arc<Mutex<Option<VecDeque<SteerMessage>>>>);

impl Default for SteerQueue {
    fn default() -> SteerQueue {
        SteerQueue(Arc::new(Mutex::new(Some(VecDeque::new()))))
    }
}

impl SteerQueue {
    /// Queues a message for the next step. Returns the message if the queue is closed.
    pub fn offer(&self, steer: SteerMessage) -> Option<SteerMessage> {
        match &mut *lock(&self.0) {
            Some(waiting) => {
                waiting.push_back(steer);
                None
            }
            None => Some(steer),
        }
    }

    /// Takes all queued messages.
    pub fn take(&self) -> Vec<SteerMessage> {
        lock(&self.0).as_mut().map(|waiting| waiting.drain(..).collect()).unwrap_or_default()
    }

    /// Closes the queue if it is empty. Returns `true` if the queue is closed.
    pub fn close_if_empty(&self) -> bool {
        let mut waiting = lock(&self.0);
        let empty = waiting.as_ref().is_none_or(VecDeque::is_empty);
        if empty {
            *waiting = None;
        }
        empty
    }

    /// Closes the queue and returns the messages that still wait.
    pub fn close(&self) -> impl Iterator<Item = SteerMessage> + use<> {
        lock(&self.0).take().into_iter().flatten()
    }
}

fn cancelled(what: &str, partial: bool) -> WorkOutcome {
    WorkOutcome::Cancelled { what: what.to_owned(), partial }
}

fn failed(code: &str, detail: String) -> WorkOutcome {
    WorkOutcome::Failed { code: code.to_owned(), detail }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
