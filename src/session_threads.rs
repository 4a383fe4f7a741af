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

use crate::{store::SessionId, wakeups::gather_here};

/// So many more sockets than on the thread that has fewest, and a session's next listener goes there: an audience of hundreds
/// is served by all threads.
const UNEVEN: usize = 64;

thread_local! {
    static HERE: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Which thread, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

/// All of them.
#[derive(Clone)]
pub struct Threads(Arc<[Thread]>);

struct Thread {
    arbiter: ArbiterHandle,
    /// How many sockets live on it.
    sockets: AtomicUsize,
}

impl Threads {
    /// Starts one for each core. Must be called inside an actix system.
    pub fn start() -> Threads {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let start = |place| {
            let arbiter = Arbiter::new().handle();
            arbiter.spawn_fn(move || {
                HERE.set(Some(Place(place)));
                gather_here();
            });
            Thread { arbiter, sockets: AtomicUsize::new(0) }
        };
        Threads((0..cores).map(start).collect())
    }

    /// Where a session lives.
    pub fn home(&self, session: SessionId) -> Place {
        let [.., high, low] = session.to_bytes();
        Place(usize::from(u16::from_be_bytes([high, low])) % self.0.len())
    }

    /// An id for a session that is to live at `near`.
    pub fn new_session(&self, near: Option<Place>) -> SessionId {
        loop {
            let id = SessionId::generate();
            if near.is_none_or(|near| self.home(id) == near) {
                return id;
            }
        }
    }

    /// Which of them runs this.
    pub fn here() -> Option<Place> {
        HERE.get()
    }

    /// All places, in the order of their numbers.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.0.len()).map(Place)
    }

    /// Runs `work` there. False: that thread has ended.
    pub fn run(&self, place: Place, work: impl FnOnce() + Send + 'static) -> bool {
        self.0[place.0].arbiter.spawn_fn(work)
    }

    /// A place for a socket: where its session lives, unless that is crowded.
    pub fn seat(&self, session: Option<SessionId>) -> Seat {
        let sockets = |place: &Place| self.0[place.0].sockets.load(Ordering::Relaxed);
        let emptiest = self.places().min_by_key(sockets).unwrap_or(Place(0));
        let home = session.map(|id| self.home(id)).filter(|home| sockets(home) <= sockets(&emptiest) + UNEVEN);
        let place = home.unwrap_or(emptiest);
        self.0[place.0].sockets.fetch_add(1, Ordering::Relaxed);
        Seat { threads: self.clone(), place }
    }
}

/// A socket's place, until it is dropped.
pub struct Seat {
    threads: Threads,
    pub place: Place,
}

impl Place {
    pub fn index(self) -> usize {
        self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.threads.0[self.place.0].sockets.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix::test]
    async fn an_audience_is_at_home_until_it_is_a_crowd() {
        let threads = Threads::start();
        for near in threads.places() {
            let session = threads.new_session(Some(near));
            let seats: Vec<_> = (0..UNEVEN + 1).map(|_| threads.seat(Some(session))).collect();
            assert!(seats.iter().all(|seat| seat.place == near), "they listen where it lives");
            let count = threads.places().count();
            let more: Vec<_> = (0..10 * count).map(|_| threads.seat(Some(session))).collect();
            let elsewhere = more.iter().filter(|seat| seat.place != near).count();
            assert!(elsewhere >= 9 * (count - 1), "{elsewhere} of {} on {count} threads", more.len());
        }
        let left: usize = threads.0.iter().map(|thread| thread.sockets.load(Ordering::Relaxed)).sum();
        assert_eq!(left, 0, "whoever leaves is counted no more");
    }
}
