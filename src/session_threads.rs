//! Threads that sessions run on, one for each core.
//!
//! A session's link, its gateway socket and its clients' sockets run on the session's thread. The
//! agent's output passes all of them without waking a second thread. Waking a thread costs more
//! than all other work on that output. A session's thread follows from its id, so no lookup is
//! needed.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actix::{Arbiter, ArbiterHandle};

use crate::{store::SessionId, wake_batch::start_batching};

/// Sockets that a session's thread may have beyond the emptiest thread.
///
/// Above this number, the session's next socket goes to the emptiest thread. So hundreds of sockets
/// of one session are served by all threads.
const MAX_IMBALANCE: usize = 64;

thread_local! {
    static CURRENT_THREAD: Cell<Option<ThreadIndex>> = const { Cell::new(None) };
}

/// Index of a session thread, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadIndex(usize);

/// Handle to all session threads.
#[derive(Clone)]
pub struct SessionThreads(Arc<[SessionThread]>);

struct SessionThread {
    arbiter: ArbiterHandle,
    /// Number of sockets on this thread.
    sockets: AtomicUsize,
}

impl SessionThreads {
    /// Starts one thread for each core. Must be called inside an actix system.
    pub fn start() -> SessionThreads {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let start = |index| {
            let arbiter = Arbiter::new().handle();
            arbiter.spawn_fn(move || {
                CURRENT_THREAD.set(Some(ThreadIndex(index)));
                start_batching();
            });
            SessionThread { arbiter, sockets: AtomicUsize::new(0) }
        };
        SessionThreads((0..cores).map(start).collect())
    }

    /// Returns the thread that a session runs on.
    pub fn thread_of(&self, session: SessionId) -> ThreadIndex {
        let [.., high, low] = session.to_bytes();
        ThreadIndex(usize::from(u16::from_be_bytes([high, low])) % self.0.len())
    }

    /// Generates an id for a session. The session will run on the thread `near`, if given.
    pub fn new_session_id(&self, near: Option<ThreadIndex>) -> SessionId {
        loop {
            let id = SessionId::generate();
            if near.is_none_or(|near| self.thread_of(id) == near) {
                return id;
            }
        }
    }

    /// Returns the session thread that calls this function, if any.
    pub fn current() -> Option<ThreadIndex> {
        CURRENT_THREAD.get()
    }

    /// Returns all thread indexes in ascending order.
    pub fn indexes(&self) -> impl Iterator<Item = ThreadIndex> {
        (0..self.0.len()).map(ThreadIndex)
    }

    /// Runs `work` on a session thread. Returns false if that thread has ended.
    pub fn run(&self, thread: ThreadIndex, work: impl FnOnce() + Send + 'static) -> bool {
        self.0[thread.0].arbiter.spawn_fn(work)
    }

    /// Places a socket: on its session's thread, or on the emptiest thread if that one is crowded.
    pub fn place_socket(&self, session: Option<SessionId>) -> SocketPlacement {
        let sockets = |thread: &ThreadIndex| self.0[thread.0].sockets.load(Ordering::Relaxed);
        let emptiest = self.indexes().min_by_key(sockets).unwrap_or(ThreadIndex(0));
        let home =
            session.map(|id| self.thread_of(id)).filter(|home| sockets(home) <= sockets(&emptiest) + MAX_IMBALANCE);
        let thread = home.unwrap_or(emptiest);
        self.0[thread.0].sockets.fetch_add(1, Ordering::Relaxed);
        SocketPlacement { threads: self.clone(), thread }
    }
}

/// Placement of a socket. Counts as a socket on its thread until dropped.
pub struct SocketPlacement {
    threads: SessionThreads,
    pub thread: ThreadIndex,
}

impl ThreadIndex {
    /// Returns the index as a number.
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
    async fn sockets_share_session_thread_until_it_is_crowded() {
        let threads = SessionThreads::start();
        for near in threads.indexes() {
            let session = threads.new_session_id(Some(near));
            let placements: Vec<_> = (0..MAX_IMBALANCE + 1).map(|_| threads.place_socket(Some(session))).collect();
            assert!(
                placements.iter().all(|placement| placement.thread == near),
                "the sockets are on their session's thread"
            );
            let count = threads.indexes().count();
            let more: Vec<_> = (0..10 * count).map(|_| threads.place_socket(Some(session))).collect();
            let elsewhere = more.iter().filter(|placement| placement.thread != near).count();
            assert!(elsewhere >= 9 * (count - 1), "{elsewhere} of {} on {count} threads", more.len());
        }
        let left: usize = threads.0.iter().map(|thread| thread.sockets.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0, "dropped placements are not counted");
    }
}
