//! Who may start a sandbox now: so many at a time, the others one after the other as they came, and of one session one only.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::{sandbox::Turns, store::SessionId};

/// The queue of sandboxes on their way up. Those of sessions that are there already always get in; new sessions ask first
/// whether it is too long.
#[derive(Debug)]
pub struct Starts {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
    turns: Turns,
}

impl Starts {
    pub fn new(at_a_time: usize, most_waiting: usize) -> Starts {
        let places = Arc::new(Semaphore::new(at_a_time));
        Starts { places, waiting: AtomicUsize::new(0), most_waiting, turns: Turns::default() }
    }

    /// Whether `more` new ones had better not come.
    pub fn are_too_many(&self, more: usize) -> bool {
        self.waiting.load(Relaxed) + more > self.most_waiting
    }

    /// How many wait at most.
    pub fn most_waiting(&self) -> usize {
        self.most_waiting
    }

    /// Held by whoever starts this session's sandbox, or takes it away.
    pub(super) fn turn_of(&self, session: SessionId) -> Arc<Mutex<()>> {
        self.turns.of(session)
    }

    /// A place, held until it is dropped; `None` where the server is going.
    pub(super) async fn place(&self) -> Option<OwnedSemaphorePermit> {
        let _counted = Waiting::of(&self.waiting);
        self.places.clone().acquire_owned().await.ok()
    }
}

/// Counts somebody for as long as they wait, also if they give up.
struct Waiting<'a>(&'a AtomicUsize);

impl Waiting<'_> {
    fn of(waiting: &AtomicUsize) -> Waiting<'_> {
        waiting.fetch_add(1, Relaxed);
        Waiting(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
