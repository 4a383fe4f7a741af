//! Clock that stands still while the sandbox is paused.
//!
//! The kernel's clocks go on while a cgroup is frozen. A plain timeout would therefore fire when
//! the sandbox is unpaused. This clock reads the time every [`TICK`] and counts at most
//! [`MAX_STEP`] per reading. A pause therefore takes at most 200 ms off a timeout.

use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(100);
const MAX_STEP: Duration = Duration::from_millis(200);

/// Measures the time in which the agent could run.
#[derive(Debug)]
pub struct Stopwatch {
    counted: Duration,
    last_read: Instant,
}

impl Stopwatch {
    /// Starts at zero.
    pub fn start() -> Stopwatch {
        Stopwatch { counted: Duration::ZERO, last_read: Instant::now() }
    }

    /// Returns when `limit` has been counted. Cancel-safe: may be dropped and called again. A gap
    /// between two calls counts as at most [`MAX_STEP`].
    pub async fn reaches(&mut self, limit: Duration) {
        loop {
            let left = limit.saturating_sub(self.read());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(TICK)).await;
        }
    }

    /// Returns the time counted so far.
    pub fn read(&mut self) -> Duration {
        let now = Instant::now();
        self.counted += (now - self.last_read).min(MAX_STEP);
        self.last_read = now;
        self.counted
    }
}

/// Sleeps for `duration` of counted time.
pub async fn sleep(duration: Duration) {
    Stopwatch::start().reaches(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_counts_as_one_step_at_most() {
        let mut watch = Stopwatch { counted: Duration::ZERO, last_read: Instant::now() - Duration::from_secs(3600) };
        assert_eq!(watch.read(), MAX_STEP);
    }
}
