//! Limit for the sandboxes that start at a time, over all sessions. Further starts wait in the
//! order of their arrival. A session has at most one start at a time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep_until},
};

use crate::{sandbox::KeyedMutex, session::RequestError, store::SessionId};

/// Gap after which a burst of rejections is over. The clients of a burst may be held up themselves:
/// kernel housekeeping can keep a core for some tens of milliseconds.
const BURST_GAP: Duration = Duration::from_millis(50);
/// Longest time that a start waits for the end of a burst of rejections. A burst may never end.
const BURST_WAIT_MAX: Duration = Duration::from_millis(200);

/// Limit for concurrent rechecks of sandboxes that may still run. Prevents a restarted server from
/// querying an engine for all sandboxes at once.
const MAX_RECHECKS: usize = 64;

/// Start queue of the sandboxes. Bound: `max_waiting` sandboxes for new sessions. When full:
/// [`StartLimiter::admit`] rejects a new session. Existing sessions are always queued.
#[derive(Debug)]
pub struct StartLimiter {
    start_permits: Arc<Semaphore>,
    recheck_permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    max_waiting: usize,
    session_locks: KeyedMutex,
    image_locks: KeyedMutex<String>,
    created_at: Instant,
    /// Times of the first and last rejection of the current burst, in microseconds since
    /// `created_at`. 0 means no rejection.
    rejected_at: [AtomicU64; 2],
}

impl StartLimiter {
    pub fn new(max_concurrent: usize, max_waiting: usize) -> StartLimiter {
        let (start_permits, recheck_permits) =
            (Arc::new(Semaphore::new(max_concurrent)), Arc::new(Semaphore::new(MAX_RECHECKS)));
        let (waiting, rejected_at) = (AtomicUsize::new(0), Default::default());
        let (session_locks, image_locks) = Default::default();
        StartLimiter {
            start_permits,
            recheck_permits,
            waiting,
            max_waiting,
            session_locks,
            image_locks,
            created_at: Instant::now(),
            rejected_at,
        }
    }

    /// Admits `more` new sessions if the queue has room for all of them.
    ///
    /// # Errors
    /// [`RequestError::Overloaded`] if the queue is full. None of the `more` sessions is admitted
    /// then.
    pub fn admit(&self, more: usize) -> Result<(), RequestError> {
        if self.waiting.load(Relaxed) + more <= self.max_waiting {
            return Ok(());
        }
        let (now, [first, last]) = ((self.created_at.elapsed().as_micros() as u64).max(1), &self.rejected_at);
        if now > last.swap(now, Relaxed) + BURST_GAP.as_micros() as u64 {
            first.store(now, Relaxed);
        }
        Err(RequestError::Overloaded(self.max_waiting))
    }

    /// Returns the lock that is held while this session's sandbox is started or stopped.
    pub fn session_lock(&self, session: SessionId) -> Arc<Mutex<()>> {
        self.session_locks.of(session)
    }

    /// Waits for a start permit, in order of arrival. Returns `None` if the limiter is closed.
    pub(super) async fn start_permit(&self) -> Option<OwnedSemaphorePermit> {
        let _counted = WaitingGuard::of(&self.waiting);
        self.start_permits.clone().acquire_owned().await.ok()
    }

    /// Runs `fetch` without a start permit, and counts it as waiting.
    pub(super) async fn count_waiting<T>(&self, fetch: impl Future<Output = T>) -> T {
        let _counted = WaitingGuard::of(&self.waiting);
        fetch.await
    }

    /// Returns the lock that is held while this image is fetched.
    pub(super) fn image_lock(&self, image: &str) -> Arc<Mutex<()>> {
        self.image_locks.of(image.to_owned())
    }

    /// Waits for a permit to recheck a sandbox that may still run. Rechecks take no start permits,
    /// so running sandboxes are taken over even while many others start. Returns `None` if the
    /// limiter is closed.
    pub(super) async fn recheck_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.recheck_permits.clone().acquire_owned().await.ok()
    }

    /// Waits until a burst of rejections is over, or until 200 ms after its first rejection. A
    /// rejection takes a core for some microseconds, a start for tens of milliseconds. So
    /// rejections go first.
    pub(super) async fn until_burst_over(&self) {
        loop {
            let [first, last] = self.rejected_at.each_ref().map(|at| Duration::from_micros(at.load(Relaxed)));
            let until = self.created_at + (first + BURST_WAIT_MAX).min(last + BURST_GAP);
            if last.is_zero() || Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
    }
}

/// Counts a waiter until dropped, also if the waiter gives up.
struct WaitingGuard<'a>(&'a AtomicUsize);

impl WaitingGuard<'_> {
    fn of(waiting: &AtomicUsize) -> WaitingGuard<'_> {
        waiting.fetch_add(1, Relaxed);
        WaitingGuard(waiting)
    }
}

impl Drop for WaitingGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn starts_are_limited_and_run_in_order_of_arrival() {
        const MAX_CONCURRENT: usize = 3;
        let limiter = StartLimiter::new(MAX_CONCURRENT, 20);
        let (running, most, order) = (AtomicUsize::new(0), AtomicUsize::new(0), RefCell::new(Vec::new()));
        let (limiter, running, most, order) = (&limiter, &running, &most, &order);
        let all = (0..20).map(|n| async move {
            let permit = limiter.start_permit().await.expect("the limiter is never closed");
            order.borrow_mut().push(n);
            most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
            // Some starts take longer than others.
            for _ in 0..=n % 4 {
                tokio::task::yield_now().await;
            }
            running.fetch_sub(1, Relaxed);
            drop(permit);
        });
        let waiting = async {
            limiter.admit(3).expect("17 are waiting, so three more fit");
            limiter.admit(4).expect_err("four more do not fit");
        };
        futures::join!(join_all(all), waiting);
        assert_eq!(most.load(Relaxed), MAX_CONCURRENT);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
        limiter.admit(20).expect("no start is waiting");
    }

    #[tokio::test(start_paused = true)]
    async fn starts_wait_briefly_for_a_burst_of_rejections() {
        let limiter = StartLimiter::new(1, 0);
        let waited = async || {
            let start = Instant::now();
            limiter.until_burst_over().await;
            start.elapsed()
        };
        assert_eq!(waited().await, Duration::ZERO, "nothing was rejected");
        let burst = |len: Duration| {
            let (limiter, ends) = (&limiter, Instant::now() + len);
            async move {
                while Instant::now() < ends {
                    limiter.admit(1).expect_err("the queue has no room");
                    sleep_until(Instant::now() + BURST_GAP / 4).await;
                }
            }
        };
        let is_about = |actual: Duration, expected: Duration| expected <= actual && actual <= expected + BURST_GAP;
        let ((), short) = tokio::join!(burst(BURST_WAIT_MAX / 2), waited());
        assert!(is_about(short, BURST_WAIT_MAX / 2), "{short:?}");
        sleep(BURST_GAP * 2).await;
        let twice = async || (waited().await, waited().await);
        let ((), (long, next)) = tokio::join!(burst(BURST_WAIT_MAX * 4), twice());
        assert!(is_about(long, BURST_WAIT_MAX) && next.is_zero(), "a burst is waited for once: {long:?}, {next:?}");
        sleep(BURST_GAP).await;
        assert_eq!(waited().await, Duration::ZERO, "the burst is over");
    }
}
