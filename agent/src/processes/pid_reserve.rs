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

impl HeldPid {
    /// Returns `None` if no id is free.
    fn take() -> Option<HeldPid> {
        let (release, released) = mpsc::channel::<()>();
        let waiting = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            let _the_sender_is_dropped = released.recv();
        });
        Some(HeldPid { release, thread: waiting.ok()? })
    }

    fn free(self) {
        drop(self.release);
        // The thread cannot panic.
        let _ = self.thread.join();
    }
}

impl PidReserve {
    /// Takes ids until the reserve is full, or none is free. Returns true if as many ids as it has
    /// are free beside it, so that a command has room.
    pub(super) fn fill(&self) -> bool {
        let mut held = self.held();
        while held.len() < 2 * RESERVED {
            let Some(pid) = HeldPid::take() else { break };
            held.push(pid);
        }
        let has_room = held.len() == 2 * RESERVED;
        // These threads end by themselves, soon.
        held.truncate(RESERVED);
        has_room
    }

    /// Frees all reserved ids.
    pub(super) fn release(&self) {
        self.held().drain(..).for_each(HeldPid::free);
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
        assert!(reserve.fill(), "the machine has free ids");
        let first = ids();
        assert_eq!(first.len(), RESERVED);
        reserve.fill();
        assert_eq!(ids(), first);
        reserve.release();
        assert!(ids().is_empty());
    }
}
