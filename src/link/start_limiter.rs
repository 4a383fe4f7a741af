//! Who may start a sandbox now: so many at a time, the others one after the other as they came, and of one session one only.

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

/// Nobody is turned away any more when nobody was for so long. A crowd may be held up itself: a kernel that looks after something
/// of its own keeps a core for some tens of milliseconds.
const BURST_GAP: Duration = Duration::from_millis(50);
/// How long those are waited for who are turned away one behind the other. There may be no end of them.
const BURST_WAIT_MAX: Duration = Duration::from_millis(200);

/// How many sandboxes that may be up are looked at at a time, so that an engine is not asked about all at once.
const MAX_RECHECKS: usize = 64;

/// The queue of sandboxes on their way up. Those of sessions that are there already always get in; new sessions ask first
/// whether it is too long.
#[derive(Debug)]
pub struct StartLimiter {
    start_permits: Arc<Semaphore>,
    recheck_permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    max_waiting: usize,
    session_locks: KeyedMutex,
    image_locks: KeyedMutex<String>,
    created_at: Instant,
    /// When the first and the last were turned away of those who came one behind the other, in microseconds since it began; 0:
    /// nobody was.
    rejected_at: [AtomicU64; 2],
}

impl StartLimiter {
    pub fn new(at_a_time: usize, max_waiting: usize) -> StartLimiter {
        let (start_permits, recheck_permits) =
            (Arc::new(Semaphore::new(at_a_time)), Arc::new(Semaphore::new(MAX_RECHECKS)));
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

    /// Lets so many more in who are new, where the queue has room for them; all are turned away where not.
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

    /// Held by whoever starts this session's sandbox, or takes it away.
    pub fn session_lock(&self, session: SessionId) -> Arc<Mutex<()>> {
        self.session_locks.of(session)
    }

    /// A place, held until it is dropped; `None` where the server is going.
    pub(super) async fn start_permit(&self) -> Option<OwnedSemaphorePermit> {
        let _counted = WaitingGuard::of(&self.waiting);
        self.start_permits.clone().acquire_owned().await.ok()
    }

    /// What `fetch` comes to. It takes no place, and whoever waits for it counts as one who waits.
    pub(super) async fn count_waiting<T>(&self, fetch: impl Future<Output = T>) -> T {
        let _counted = WaitingGuard::of(&self.waiting);
        fetch.await
    }

    /// Held by whoever fetches this image.
    pub(super) fn image_lock(&self, image: &str) -> Arc<Mutex<()>> {
        self.image_locks.of(image.to_owned())
    }

    /// A place among those who look after one that may be up: it takes none of those who start, so what is up is taken back whoever
    /// is on the way up. `None` where the server is going.
    pub(super) async fn recheck_permit(&self) -> Option<OwnedSemaphorePermit> {
        self.recheck_permits.clone().acquire_owned().await.ok()
    }

    /// A refusal takes a core for some microseconds, a start for tens of milliseconds: a crowd is answered first.
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

/// Counts somebody for as long as they wait, also if they give up.
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
    async fn so_many_start_at_a_time_and_the_others_as_they_came() {
        const AT_A_TIME: usize = 3;
        let starts = StartLimiter::new(AT_A_TIME, 20);
        let (under_way, most, order) = (AtomicUsize::new(0), AtomicUsize::new(0), RefCell::new(Vec::new()));
        let (starts, under_way, most, order) = (&starts, &under_way, &most, &order);
        let all = (0..20).map(|n| async move {
            let place = starts.start_permit().await.expect("the server stays");
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
            starts.admit(3).expect("17 wait behind the first three");
            starts.admit(4).expect_err("and one more is too many");
        };
        futures::join!(join_all(all), waiting);
        assert_eq!(most.load(Relaxed), AT_A_TIME);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
        starts.admit(20).expect("nobody waits any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_turned_away_first_and_nobody_waits_for_its_end_for_long() {
        let starts = StartLimiter::new(1, 0);
        let waited = async || {
            let asked = Instant::now();
            starts.until_burst_over().await;
            asked.elapsed()
        };
        assert_eq!(waited().await, Duration::ZERO, "nobody was turned away");
        let crowd = |len: Duration| {
            let (starts, ends) = (&starts, Instant::now() + len);
            async move {
                while Instant::now() < ends {
                    starts.admit(1).expect_err("nobody may wait");
                    sleep_until(Instant::now() + BURST_GAP / 4).await;
                }
            }
        };
        let is_about = |it: Duration, what: Duration| what <= it && it <= what + BURST_GAP;
        let ((), short) = tokio::join!(crowd(BURST_WAIT_MAX / 2), waited());
        assert!(is_about(short, BURST_WAIT_MAX / 2), "{short:?}");
        sleep(BURST_GAP * 2).await;
        let twice = async || (waited().await, waited().await);
        let ((), (long, next)) = tokio::join!(crowd(BURST_WAIT_MAX * 4), twice());
        assert!(is_about(long, BURST_WAIT_MAX) && next.is_zero(), "they are waited for once: {long:?}, {next:?}");
        sleep(BURST_GAP).await;
        assert_eq!(waited().await, Duration::ZERO, "it is quiet");
    }
}
