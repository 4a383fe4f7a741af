//! A clock that stands still while the sandbox is frozen.
//!
//! The kernel's clocks run on while a cgroup is frozen, so a plain timeout would fire at the thaw. This one looks at the
//! time every [`TICK`] and counts what passed as at most [`MOST`]: a freeze costs a timeout a fifth of a second.

use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
const MAX_STEP: Duration = Duration::from_millis(200);

/// Time that passed while we could run.
#[derive(Debug)]
pub struct Stopwatch {
    counted: Duration,
    last_read: Instant,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { counted: Duration::ZERO, last_read: Instant::now() }
    }

    /// Ends when `limit` has been counted. May be dropped and called again; nothing is counted while nobody waits here but
    /// one tick's worth.
    pub async fn reaches(&mut self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.read());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(TICK)).await;
        }
    }

    /// What has been counted so far.
    pub fn read(&mut self) -> Duration {
        let now = Instant::now();
        self.counted += (now - self.last_read).min(MAX_STEP);
        self.last_read = now;
        self.counted
    }
}

/// Sleeps for `duration` of running time.
pub async fn sleep(duration: Duration) {
    Stopwatch::start().reaches(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_as_one_tick_at_most() {
        let mut watch = Stopwatch { counted: Duration::ZERO, last_read: Instant::now() - Duration::from_secs(3600) };
        assert_eq!(watch.read(), MAX_STEP);
    }
}
