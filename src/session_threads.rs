//! The threads that sessions live on, one for each core.
//!
//! With a session live its link, its gateway socket, and the sockets of those who listen to it: what an agent says goes through
//! all of them without waking a second thread, which costs more than everything that is done with it. On which thread a session
//! lives follows from its id, so nobody has to be asked.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actix::{Arbiter, ArbiterHandle};

use crate::{store::SessionId, wake_batch::start_batching};

/// So many more sockets than on the thread that has fewest, and a session's next listener goes there: an audience of hundreds
/// is served by all threads.
const MAX_IMBALANCE: usize = 64;

thread_local! {
    static HERE: Cell<Option<ThreadIndex>> = const { Cell::new(None) };
}

/// Which thread, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadIndex(usize);

/// All of them.
#[derive(Clone)]
pub struct SessionThreads(Arc<[SessionThread]>);

struct SessionThread {
    arbiter: ArbiterHandle,
    /// How many sockets live on it.
    sockets: AtomicUsize,
}

impl SessionThreads {
    /// Starts one for each core. Must be called inside an actix system.
    pub fn start() -> SessionThreads {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let start = |place| {
            let arbiter = Arbiter::new().handle();
            arbiter.spawn_fn(move || {
                HERE.set(Some(ThreadIndex(place)));
                start_batching();
            });
            SessionThread { arbiter, sockets: AtomicUsize::new(0) }
        };
        SessionThreads((0..cores).map(start).collect())
    }

    /// Where a session lives.
    pub fn thread_of(&self, session: SessionId) -> ThreadIndex {
        let [.., high, low] = session.to_bytes();
        ThreadIndex(usize::from(u16::from_be_bytes([high, low])) % self.0.len())
    }

    /// An id for a session that is to live at `near`.
    pub fn new_session_id(&self, near: Option<ThreadIndex>) -> SessionId {
        loop {
            let id = SessionId::generate();
            if near.is_none_or(|near| self.thread_of(id) == near) {
                return id;
            }
        }
    }

    /// Which of them runs this.
    pub fn current() -> Option<ThreadIndex> {
        HERE.get()
    }

    /// All places, in the order of their numbers.
    pub fn indexes(&self) -> impl Iterator<Item = ThreadIndex> {
        (0..self.0.len()).map(ThreadIndex)
    }

    /// Runs `work` there. False: that thread has ended.
    pub fn run(&self, place: ThreadIndex, work: impl FnOnce() + Send + 'static) -> bool {
        self.0[place.0].arbiter.spawn_fn(work)
    }

    /// A place for a socket: where its session lives, unless that is crowded.
    pub fn place_socket(&self, session: Option<SessionId>) -> SocketPlacement {
        let sockets = |place: &ThreadIndex| self.0[place.0].sockets.load(Ordering::Relaxed);
        let emptiest = self.indexes().min_by_key(sockets).unwrap_or(ThreadIndex(0));
        let home =
            session.map(|id| self.thread_of(id)).filter(|home| sockets(home) <= sockets(&emptiest) + MAX_IMBALANCE);
        let place = home.unwrap_or(emptiest);
        self.0[place.0].sockets.fetch_add(1, Ordering::Relaxed);
        SocketPlacement { threads: self.clone(), thread: place }
    }
}

/// A socket's place, until it is dropped.
pub struct SocketPlacement {
    threads: SessionThreads,
    pub thread: ThreadIndex,
}

impl ThreadIndex {
    pub fn index(self) -> usize {
        self.0
    }
}

impl Drop for SocketPlacement {
    fn drop(&mut self) {
        self.threads.0[self.thread.0].sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix::test]
    async fn an_audience_is_at_home_until_it_is_a_crowd() {
        let threads = SessionThreads::start();
        for near in threads.indexes() {
            let session = threads.new_session_id(Some(near));
            let seats: Vec<_> = (0..MAX_IMBALANCE + 1).map(|_| threads.place_socket(Some(session))).collect();
            assert!(seats.iter().all(|seat| seat.thread == near), "they listen where it lives");
            let count = threads.indexes().count();
            let more: Vec<_> = (0..10 * count).map(|_| threads.place_socket(Some(session))).collect();
            let elsewhere = more.iter().filter(|seat| seat.thread != near).count();
            assert!(elsewhere >= 9 * (count - 1), "{elsewhere} of {} on {count} threads", more.len());
        }
        let left: usize = threads.0.iter().map(|thread| thread.sockets.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0, "whoever leaves is counted no more");
    }
}
