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
    pub fn turn_of(&self, session: SessionId) -> Arc<Mutex<()>> {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::future::join_all;

    use super::*;

    #[tokio::test]
    async fn so_many_start_at_a_time_and_the_others_as_they_came() {
        const AT_A_TIME: usize = 3;
        let starts = Starts::new(AT_A_TIME, 20);
        let (under_way, most, order) = (AtomicUsize::new(0), AtomicUsize::new(0), RefCell::new(Vec::new()));
        let (starts, under_way, most, order) = (&starts, &under_way, &most, &order);
        let all = (0..20).map(|n| async move {
            let place = starts.place().await.expect("the server stays");
            order.borrow_mut().push(n);
            most.fetch_max(under_way.fetch_add(1, Relaxed) + 1, Relaxed);
            // Some take longer than others.
            for _ in 0..=n % 4 {
                tokio::task::yield_now().await;
            }
            under_way.fetch_sub(1, Relaxed);
            drop(place);
        });
        let waiting = async {
            assert!(starts.are_too_many(4) && !starts.are_too_many(3), "17 wait behind the first three");
        };
        futures::join!(join_all(all), waiting);
        assert_eq!(most.load(Relaxed), AT_A_TIME);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
        assert!(!starts.are_too_many(20), "nobody waits any more");
    }
}
