//! Reserve of the disk: its last space is for small appends of sessions, such as interrupts and
//! stops. A session that fills the disk must not keep others from being stopped.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use tracing::{info, warn};

/// Largest reserve, in bytes. A small disk has a smaller one.
const MAX_RESERVE: u64 = 64 << 20;
/// Share of the disk that the reserve may take: one part of this many.
const DISK_PARTS: u64 = 16;

/// Free space below which only small appends are accepted, as last measured.
#[derive(Debug)]
pub(super) struct DiskReserve {
    dir: PathBuf,
    is_touched: AtomicBool,
}

impl DiskReserve {
    pub(super) fn of(dir: &Path) -> DiskReserve {
        DiskReserve { dir: dir.to_owned(), is_touched: AtomicBool::new(false) }
    }

    /// Measures the free space. Called after each commit.
    pub(super) fn measure(&self) {
        // Without figures, the appends themselves show whether there is space.
        let is_touched = rustix::fs::statvfs(&self.dir).is_ok_and(|disk| {
            let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
            bytes(disk.f_bavail) < reserve_of(bytes(disk.f_blocks))
        });
        let was_touched = self.is_touched.swap(is_touched, Ordering::Relaxed);
        let disk = self.dir.display();
        match (was_touched, is_touched) {
            (false, true) => warn!(
                "the disk of `{disk}` is nearly full: agents' output waits until space is free; interrupts and stops \
                 are still written"
            ),
            (true, false) => info!("the disk of `{disk}` has space again"),
            (true, true) | (false, false) => {}
        }
    }

    /// Returns true if the reserve is whole. Measures again if it was not.
    pub(super) fn is_whole(&self) -> bool {
        if self.is_touched.load(Ordering::Relaxed) {
            self.measure();
        }
        !self.is_touched.load(Ordering::Relaxed)
    }
}

/// Returns the reserve of a disk of `total` bytes.
pub(super) fn reserve_of(total: u64) -> u64 {
    MAX_RESERVE.min(total / DISK_PARTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_is_a_small_part_of_a_small_disk() {
        assert_eq!(reserve_of(1 << 40), 64 << 20);
        assert_eq!(reserve_of(64 << 20), 4 << 20);
        assert_eq!(reserve_of(0), 0);
    }

    #[test]
    fn touched_reserve_is_measured_again() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let reserve = DiskReserve::of(dir.path());
        reserve.is_touched.store(true, Ordering::Relaxed);
        reserve.measure();
        let measured = !reserve.is_touched.load(Ordering::Relaxed);
        reserve.is_touched.store(true, Ordering::Relaxed);
        assert_eq!(reserve.is_whole(), measured);
    }
}
