//! Threads that work with a key runs on, one for each core.
//!
//! A key's thread follows from the key, so no lookup is needed. Work with the same key, such as the
//! actors and the sockets of one session, passes data on without waking a second thread. Waking a
//! thread costs more than all other work on a small piece of data.

use std::{
    cell::Cell,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use actix::{Arbiter, ArbiterHandle};

use super::wake_batch::start_batching;

/// Sockets that a key's thread may have beyond the emptiest thread.
///
/// Above this number, the key's next socket goes to the emptiest thread. So hundreds of sockets of
/// one key are served by all threads.
const MAX_IMBALANCE: usize = 64;

thread_local! {
    static CURRENT_THREAD: Cell<Option<ThreadIndex>> = const { Cell::new(None) };
}

/// Index of a keyed thread, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadIndex(usize);

/// Handle to all keyed threads.
#[derive(Clone)]
pub struct KeyedThreads(Arc<[KeyedThread]>);

struct KeyedThread {
    arbiter: ArbiterHandle,
    /// Number of sockets on this thread.
    sockets: AtomicUsize,
}

impl KeyedThreads {
    /// Starts one thread for each core. Must be called inside an actix system.
    pub fn start() -> KeyedThreads {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let start = |index| {
            let arbiter = Arbiter::new().handle();
            arbiter.spawn_fn(move || {
                CURRENT_THREAD.set(Some(ThreadIndex(index)));
                start_batching();
            });
            KeyedThread { arbiter, sockets: AtomicUsize::new(0) }
        };
        KeyedThreads((0..cores).map(start).collect())
    }

    /// Returns the thread that a key's work runs on.
    pub fn thread_of(&self, key: &impl Hash) -> ThreadIndex {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        ThreadIndex((hasher.finish() % self.0.len() as u64) as usize)
    }

    /// Generates a key whose work will run on the thread `near`, if given.
    pub fn generate_key<K: Hash>(&self, near: Option<ThreadIndex>, generate: impl Fn() -> K) -> K {
        loop {
            let key = generate();
            if near.is_none_or(|near| self.thread_of(&key) == near) {
                return key;
            }
        }
    }

    /// Returns the keyed thread that calls this function, if any.
    pub fn current() -> Option<ThreadIndex> {
        CURRENT_THREAD.get()
    }

    /// Returns all thread indexes in ascending order.
    pub fn indexes(&self) -> impl Iterator<Item = ThreadIndex> {
        (0..self.0.len()).map(ThreadIndex)
    }

    /// Runs `work` on a keyed thread. Returns false if that thread has ended.
    pub fn run(&self, thread: ThreadIndex, work: impl FnOnce() + Send + 'static) -> bool {
        self.0[thread.0].arbiter.spawn_fn(work)
    }

    /// Places a socket: on its key's thread, or on the emptiest thread if that one is crowded.
    pub fn place_socket(&self, key: Option<&impl Hash>) -> SocketPlacement {
        let sockets = |thread: &ThreadIndex| self.0[thread.0].sockets.load(Ordering::Relaxed);
        let emptiest = self.indexes().min_by_key(sockets).unwrap_or(ThreadIndex(0));
        let home =
            key.map(|key| self.thread_of(key)).filter(|home| sockets(home) <= sockets(&emptiest) + MAX_IMBALANCE);
        let thread = home.unwrap_or(emptiest);
        self.0[thread.0].sockets.fetch_add(1, Ordering::Relaxed);
        SocketPlacement { threads: self.clone(), thread }
    }
}

/// Placement of a socket. Counts as a socket on its thread until dropped.
pub struct SocketPlacement {
    threads: KeyedThreads,
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
    async fn sockets_share_the_thread_of_their_key_until_it_is_crowded() {
        let threads = KeyedThreads::start();
        let next_key = Cell::new(0_u64);
        for near in threads.indexes() {
            let key = threads.generate_key(Some(near), || next_key.replace(next_key.get() + 1));
            let placements: Vec<_> = (0..MAX_IMBALANCE + 1).map(|_| threads.place_socket(Some(&key))).collect();
            assert!(
                placements.iter().all(|placement| placement.thread == near),
                "the sockets are on their key's thread"
            );
            let count = threads.indexes().count();
            let more: Vec<_> = (0..10 * count).map(|_| threads.place_socket(Some(&key))).collect();
            let elsewhere = more.iter().filter(|placement| placement.thread != near).count();
            assert!(elsewhere >= 9 * (count - 1), "{elsewhere} of {} on {count} threads", more.len());
        }
        let left: usize = threads.0.iter().map(|thread| thread.sockets.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0, "dropped placements are not counted");
    }
}
