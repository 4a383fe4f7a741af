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
    link::{Outcome, Settings},
};
use tokio_util::sync::CancellationToken;

use crate::{outgoing::Outgoing, processes::Processes};

mod asides;
mod calls;
mod conversation;
mod cut;
mod history;
mod model;
mod own;
mod refused;
mod step;

pub use asides::Asides;
pub use own::OwnLoop;

/// What the user said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub content: String,
    /// Paths of uploaded files, inside the workspace.
    pub attachments: Vec<String>,
}

/// Something that can carry out a turn.
pub trait Driver {
    /// Takes in the next part of the journal, to take up the session where that leaves it. Comes before the first turn.
    fn restore(&mut self, part: &[Event]);

    /// Forgets what [`Driver::restore`] took in: the journal was cut off, and comes again from its beginning.
    fn forget(&mut self);

    /// Takes in a message that nothing is done about: the person has seen it said, and speaks on from there.
    fn hear(&mut self, message: Message, stage: &Stage);

    /// Works on `message` until there is an outcome. Ends soon after `stage.stop` is cancelled, whatever it is doing. Where that
    /// was cancelled before, it does nothing, but takes in the message and that the user interrupted it there: a driver whose
    /// program can be told only by a prompt tells it so with the next one.
    fn turn(&mut self, message: Message, stage: &Stage) -> impl Future<Output = Outcome> + Send;
}

/// What a turn has to do with the world.
pub struct Stage {
    pub outgoing: Outgoing,
    pub processes: Processes,
    /// May change between steps.
    pub settings: Arc<Mutex<Settings>>,
    /// What the user did beside the agent since it last looked.
    pub asides: Arc<Mutex<Asides>>,
    pub stop: CancellationToken,
    pub intake: Intake,
}

impl Stage {
    /// The settings as they are now.
    pub fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// What the user did beside the agent; each is told once.
    pub fn take_asides(&self) -> Vec<String> {
        lock(&self.asides).take()
    }
}

/// A message that steers a turn while it runs.
#[derive(Debug)]
pub struct Steer {
    /// The command that brought it; the server is told what became of it.
    pub command: String,
    pub message: Message,
}

/// Where messages wait that steer a turn while it runs. Bounded by what people type.
#[derive(Debug, Clone)]
pub struct Intake(Arc<Mutex<Option<VecDeque<Steer>>>>);

impl Default for Intake {
    fn default() -> Intake {
        Intake(Arc::new(Mutex::new(Some(VecDeque::new()))))
    }
}

impl Intake {
    /// Leaves a message for the next step, or gives it back where there will be none.
    pub fn offer(&self, steer: Steer) -> Option<Steer> {
        match &mut *lock(&self.0) {
            Some(waiting) => {
                waiting.push_back(steer);
                None
            }
            None => Some(steer),
        }
    }

    /// All that waits.
    pub fn take(&self) -> Vec<Steer> {
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
    pub fn close(&self) -> impl Iterator<Item = Steer> + use<> {
        lock(&self.0).take().into_iter().flatten()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
