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

use crate::{sandbox::Turns, session::Refusal, store::SessionId};

/// Nobody is turned away any more when nobody was for so long. A crowd may be held up itself: a kernel that looks after something
/// of its own keeps a core for some tens of milliseconds.
const QUIET: Duration = Duration::from_millis(50);
/// How long those are waited for who are turned away one behind the other. There may be no end of them.
const PATIENCE: Duration = Duration::from_millis(200);

/// How many sandboxes that may be up are looked at at a time, so that an engine is not asked about all at once.
const LOOKS: usize = 64;

/// The queue of sandboxes on their way up. Those of sessions that are there already always get in; new sessions ask first
/// whether it is too long.
#[derive(Debug)]
pub struct Starts {
    places: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
    turns: Turns,
    images: Turns<String>,
    began: Instant,
    /// When the first and the last were turned away of those who came one behind the other, in microseconds since it began; 0:
    /// nobody was.
    turned_away: [AtomicU64; 2],
}

impl Starts {
    pub fn new(at_a_time: usize, most_waiting: usize) -> Starts {
        let (places, looks) = (Arc::new(Semaphore::new(at_a_time)), Arc::new(Semaphore::new(LOOKS)));
        let (waiting, turned_away) = (AtomicUsize::new(0), Default::default());
        let (turns, images) = Default::default();
        Starts { places, looks, waiting, most_waiting, turns, images, began: Instant::now(), turned_away }
    }

    /// Lets so many more in who are new, where the queue has room for them; all are turned away where not.
    pub fn let_in(&self, more: usize) -> Result<(), Refusal> {
        if self.waiting.load(Relaxed) + more <= self.most_waiting {
            return Ok(());
        }
        let (now, [first, last]) = ((self.began.elapsed().as_micros() as u64).max(1), &self.turned_away);
        if now > last.swap(now, Relaxed) + QUIET.as_micros() as u64 {
            first.store(now, Relaxed);
        }
        Err(Refusal::Overloaded(self.most_waiting))
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

    /// What `fetch` comes to. It takes no place, and whoever waits for it counts as one who waits.
    pub(super) async fn beside<T>(&self, fetch: impl Future<Output = T>) -> T {
        let _counted = Waiting::of(&self.waiting);
        fetch.await
    }

    /// Held by whoever fetches this image.
    pub(super) fn turn_of_image(&self, image: &str) -> Arc<Mutex<()>> {
        self.images.of(image.to_owned())
    }

    /// A place among those who look after one that may be up: it takes none of those who start, so what is up is taken back whoever
    /// is on the way up. `None` where the server is going.
    pub(super) async fn look(&self) -> Option<OwnedSemaphorePermit> {
        self.looks.clone().acquire_owned().await.ok()
    }

    /// A refusal takes a core for some microseconds, a start for tens of milliseconds: a crowd is answered first.
    pub(super) async fn until_quiet(&self) {
        loop {
            let [first, last] = self.turned_away.each_ref().map(|at| Duration::from_micros(at.load(Relaxed)));
            let until = self.began + (first + PATIENCE).min(last + QUIET);
            if last.is_zero() || Instant::now() >= until {
                return;
            }
            sleep_until(until).await;
        }
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
    use tokio::time::sleep;

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
            starts.let_in(3).expect("17 wait behind the first three");
            starts.let_in(4).expect_err("and one more is too many");
        };
        futures::join!(join_all(all), waiting);
        assert_eq!(most.load(Relaxed), AT_A_TIME);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
        starts.let_in(20).expect("nobody waits any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_turned_away_first_and_nobody_waits_for_its_end_for_long() {
        let starts = Starts::new(1, 0);
        let waited = async || {
            let asked = Instant::now();
            starts.until_quiet().await;
            asked.elapsed()
        };
        assert_eq!(waited().await, Duration::ZERO, "nobody was turned away");
        let crowd = |len: Duration| {
            let (starts, ends) = (&starts, Instant::now() + len);
            async move {
                while Instant::now() < ends {
                    starts.let_in(1).expect_err("nobody may wait");
                    sleep_until(Instant::now() + QUIET / 4).await;
                }
            }
        };
        let is_about = |it: Duration, what: Duration| what <= it && it <= what + QUIET;
        let ((), short) = tokio::join!(crowd(PATIENCE / 2), waited());
        assert!(is_about(short, PATIENCE / 2), "{short:?}");
        sleep(QUIET * 2).await;
        let twice = async || (waited().await, waited().await);
        let ((), (long, next)) = tokio::join!(crowd(PATIENCE * 4), twice());
        assert!(is_about(long, PATIENCE) && next.is_zero(), "they are waited for once: {long:?}, {next:?}");
        sleep(QUIET).await;
        assert_eq!(waited().await, Duration::ZERO, "it is quiet");
    }
}
