//! Reserve of process ids. A sandbox has a limited number, and a fork bomb takes all that are free.
//! The agent holds some while commands run or have left something behind.

use std::{
    sync::{Mutex, MutexGuard, mpsc},
    thread::{self, JoinHandle},
};

/// Number of reserved ids: for a shell and the programs of a pipe.
const RESERVED: usize = 8;

/// Stack of a thread that only waits, in bytes.
const STACK_BYTES: usize = 16 << 10;

/// Threads that wait. Each takes one of the sandbox's process ids.
#[derive(Debug, Default)]
pub(super) struct PidReserve(Mutex<Vec<HeldPid>>);

#[derive(Debug)]
struct HeldPid {
    /// The thread ends when this is dropped.
    release: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl PidReserve {
    /// Takes ids until the reserve is full, or none is free.
    pub(super) fn fill(&self) {
        let mut held = self.held();
        while held.len() < RESERVED {
            let (release, released) = mpsc::channel::<()>();
            let waiting = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
                let _the_sender_is_dropped = released.recv();
            });
            let Ok(thread) = waiting else { return };
            held.push(HeldPid { release, thread });
        }
    }

    /// Frees all reserved ids.
    pub(super) fn release(&self) {
        for HeldPid { release, thread } in self.held().drain(..) {
            drop(release);
            // The thread cannot panic.
            let _ = thread.join();
        }
    }

    fn held(&self) -> MutexGuard<'_, Vec<HeldPid>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_filled_once_and_released() {
        let reserve = PidReserve::default();
        let ids = || reserve.held().iter().map(|held| held.thread.thread().id()).collect::<Vec<_>>();
        reserve.fill();
        let first = ids();
        assert_eq!(first.len(), RESERVED);
        reserve.fill();
        assert_eq!(ids(), first);
        reserve.release();
        assert!(ids().is_empty());
    }
}
