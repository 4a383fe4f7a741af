//! What drives a turn, and the stage on which it does so.
//!
//! A [`Driver`] knows nothing of links, numbers or sockets: it takes messages from the [`Stage`], says what happens through
//! it, and stops when the stage says so. Our own loop is one driver; another program spoken to over stdio can be another.

use std::{
    collections::VecDeque,
    future::Future,
    sync::{Arc, Mutex, MutexGuard},
};

use greenroom_protocol::{
    Event,
    link::{AgentSettings, WorkOutcome},
};
use tokio_util::sync::CancellationToken;

use crate::{outgoing::OutgoingQueue, processes::ChildProcesses};

mod builtin;
mod conversation;
mod history;
mod model;
mod model_step;
mod provider_errors;
mod tool_call_parser;
mod truncate;
mod user_activity;

pub use builtin::BuiltinDriver;
pub use user_activity::UserActivity;

/// What the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMessage {
    pub content: String,
    /// Paths of uploaded files, inside the workspace.
    pub attachments: Vec<String>,
}

/// Something that can carry out a turn.
pub trait TurnDriver {
    /// Takes in the next part of the journal, to take up the session where that leaves it. Comes before the first turn.
    fn restore(&mut self, part: &[Event]);

    /// Forgets what [`Driver::restore`] took in: the journal was cut off, and comes again from its beginning.
    fn reset(&mut self);

    /// Takes in a message that nothing is done about: the person has seen it said, and speaks on from there.
    fn record_message(&mut self, message: UserMessage, stage: &TurnContext);

    /// Works on `message` until there is an outcome. Ends soon after `stage.stop` is cancelled, whatever it is doing. Where that
    /// was cancelled before, it does nothing, but takes in the message and that the user interrupted it there: a driver whose
    /// program can be told only by a prompt tells it so with the next one.
    fn run_turn(&mut self, message: UserMessage, stage: &TurnContext) -> impl Future<Output = WorkOutcome> + Send;
}

/// What a turn has to do with the world.
pub struct TurnContext {
    pub outgoing: OutgoingQueue,
    pub processes: ChildProcesses,
    /// May change between steps.
    pub settings: Arc<Mutex<AgentSettings>>,
    /// What the user did beside the agent since it last looked.
    pub user_activity: Arc<Mutex<UserActivity>>,
    pub stop: CancellationToken,
    pub steer_queue: SteerQueue,
}

impl TurnContext {
    /// The settings as they are now.
    pub fn settings(&self) -> AgentSettings {
        lock(&self.settings).clone()
    }

    /// What the user did beside the agent; each is told once.
    pub fn take_user_activity(&self) -> Vec<String> {
        lock(&self.user_activity).take()
    }
}

/// A message that steers a turn while it runs.
#[derive(Debug)]
pub struct SteerMessage {
    /// The command that brought it; the server is told what became of it.
    pub command: String,
    pub message: UserMessage,
}

/// Where messages wait that steer a turn while it runs. Bounded by what people type.
#[derive(Debug, Clone)]
pub struct SteerQueue(Arc<Mutex<Option<VecDeque<SteerMessage>>>>);

impl Default for SteerQueue {
    fn default() -> SteerQueue {
        SteerQueue(Arc::new(Mutex::new(Some(VecDeque::new()))))
    }
}

impl SteerQueue {
    /// Leaves a message for the next step, or gives it back where there will be none.
    pub fn offer(&self, steer: SteerMessage) -> Option<SteerMessage> {
        match &mut *lock(&self.0) {
            Some(waiting) => {
                waiting.push_back(steer);
                None
            }
            None => Some(steer),
        }
    }

    /// All that waits.
    pub fn take(&self) -> Vec<SteerMessage> {
        lock(&self.0).as_mut().map(|waiting| waiting.drain(..).collect()).unwrap_or_default()
    }

    /// Ends the taking if nothing waits, and says whether it has.
    pub fn close_if_empty(&self) -> bool {
        let mut waiting = lock(&self.0);
        let empty = waiting.as_ref().is_none_or(VecDeque::is_empty);
        if empty {
            *waiting = None;
        }
        empty
    }

    /// Ends the taking. What still waits is given back.
    pub fn close(&self) -> impl Iterator<Item = SteerMessage> + use<> {
        lock(&self.0).take().into_iter().flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
