//! Memory of the gateway: one budget for the whole process, shared fairly among sessions.
//!
//! Bodies of requests and buffered answers have a pool each, so paused sandboxes with full answer
//! buffers leave room for requests. A session has a limit of its own and a small share beside the
//! pool. So no session can take a pool alone, and with full pools each session still gets on.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory of one kind, shared by all sessions. FIFO: a large request is not overtaken for ever.
pub(super) struct MemoryPool {
    free: Arc<Semaphore>,
    /// Limit of one session, bytes.
    session_limit: usize,
    /// Part of the limit that each session has beside the pool, bytes.
    own_share: usize,
}

/// Access of one session to a pool.
pub(super) struct MemoryShare {
    pool: Arc<Semaphore>,
    session: Arc<Semaphore>,
    own: Arc<Semaphore>,
    own_share: usize,
}

/// Reserved memory. Free again when dropped.
pub(super) struct MemoryPermit {
    session: OwnedSemaphorePermit,
    room: OwnedSemaphorePermit,
    is_pooled: bool,
}

impl MemoryPool {
    /// Creates a pool of `bytes`.
    pub(super) fn new(bytes: usize, session_limit: usize, own_share: usize) -> MemoryPool {
        MemoryPool { free: Arc::new(Semaphore::new(bytes)), session_limit, own_share }
    }

    /// Returns the access of a new session.
    pub(super) fn share(&self) -> MemoryShare {
        MemoryShare {
            pool: self.free.clone(),
            session: Arc::new(Semaphore::new(self.session_limit)),
            own: Arc::new(Semaphore::new(self.own_share)),
            own_share: self.own_share,
        }
    }
}

impl MemoryShare {
    /// Reserves `bytes`, at most the session's limit. Waits until there is room.
    pub(super) async fn reserve(&self, bytes: usize) -> MemoryPermit {
        let session = acquire(&self.session, bytes).await;
        let (room, is_pooled) = if bytes <= self.own_share {
            tokio::select! {
                biased;
                room = acquire(&self.own, bytes) => (room, false),
                room = acquire(&self.pool, bytes) => (room, true),
            }
        } else {
            (acquire(&self.pool, bytes).await, true)
        };
        MemoryPermit { session, room, is_pooled }
    }

    /// Returns the bytes that the session may still reserve.
    #[cfg(test)]
    pub(super) fn available(&self) -> usize {
        self.session.available_permits()
    }
}

impl MemoryPermit {
    /// Returns true if the memory is part of the pool, which other sessions share.
    pub(super) fn is_pooled(&self) -> bool {
        self.is_pooled
    }

    /// Frees `bytes` of the reservation.
    pub(super) fn free(&mut self, bytes: usize) {
        drop(self.session.split(bytes));
        drop(self.room.split(bytes));
    }
}

async fn acquire(semaphore: &Arc<Semaphore>, bytes: usize) -> OwnedSemaphorePermit {
    let permits = u32::try_from(bytes).expect("no session's limit exceeds 4 GiB");
    semaphore.clone().acquire_many_owned(permits).await.expect("the memory semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn sessions_share_one_pool_and_keep_their_own_shares() {
        let pool = MemoryPool::new(100, 60, 10);
        let (first, second, third) = (pool.share(), pool.share(), pool.share());
        let _large = first.reserve(60).await;
        assert!(first.reserve(1).now_or_never().is_none(), "a session has a limit of its own");
        let _rest = second.reserve(40).await;
        assert!(third.reserve(11).now_or_never().is_none(), "the pool is taken");
        let own = third.reserve(10).now_or_never().expect("the own share is beside the pool");
        assert!(third.reserve(1).now_or_never().is_none(), "the own share is taken");
        drop(own);
        third.reserve(10).now_or_never().expect("the own share is free again");
    }

    #[tokio::test]
    async fn small_reservation_does_not_overtake_a_waiting_large_one() {
        let pool = MemoryPool::new(100, 60, 0);
        let (first, second, third) = (pool.share(), pool.share(), pool.share());
        let taken = first.reserve(50).await;
        let mut large = Box::pin(second.reserve(60));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = Box::pin(third.reserve(45));
        assert!(small.as_mut().now_or_never().is_none());
        drop(taken);
        let _large = large.now_or_never().expect("the first in the queue comes first");
        assert!(small.now_or_never().is_none());
    }

    #[tokio::test]
    async fn surplus_is_freed() {
        let pool = MemoryPool::new(100, 100, 0);
        let share = pool.share();
        let mut permit = share.reserve(100).await;
        permit.free(70);
        assert_eq!(share.available(), 70);
        share.reserve(70).now_or_never().expect("the surplus is free");
    }
}
