//! Delay between the attempts of a call. Pure. `greenroom_provider` decides which errors are
//! temporary.

use std::time::Duration;

use crate::config::RetryConfig;

/// Returns the delay after attempt `attempt` (counted from 1). `None`: do not retry.
///
/// `requested` is the delay that the provider asks for. `jitter` is between 0 and 1. It keeps
/// sessions that were rejected together from retrying together.
pub(super) fn backoff(
    options: &RetryConfig,
    attempt: u32,
    requested: Option<Duration>,
    jitter: f64,
) -> Option<Duration> {
    if attempt >= options.max_attempts {
        return None;
    }
    let longest = options.max.0;
    match requested {
        Some(requested) if requested > longest => None,
        // Never sooner than requested.
        Some(requested) => Some(requested + jittered_base(options, jitter)),
        None => {
            let doubled = options.base.0.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX));
            Some(doubled.min(longest).mul_f64(0.5 + jitter / 2.0))
        }
    }
}

fn jittered_base(options: &RetryConfig, jitter: f64) -> Duration {
    options.base.0.mul_f64(jitter / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TimeSpan;

    const OPTIONS: RetryConfig = RetryConfig {
        max_attempts: 4,
        base: TimeSpan(Duration::from_millis(100)),
        max: TimeSpan(Duration::from_millis(250)),
    };

    #[test]
    fn backoff_doubles_up_to_the_limit() {
        fn check(attempt: u32, asked_ms: Option<u64>, jitter: f64, expected_ms: Option<u64>) {
            let delay = backoff(&OPTIONS, attempt, asked_ms.map(Duration::from_millis), jitter);
            assert_eq!(delay, expected_ms.map(Duration::from_millis), "attempt {attempt}");
        }
        check(1, None, 1.0, Some(100));
        check(1, None, 0.0, Some(50));
        check(2, None, 1.0, Some(200));
        check(3, None, 1.0, Some(250));
        check(4, None, 1.0, None);
        check(1, Some(240), 0.0, Some(240));
        check(1, Some(0), 1.0, Some(50));
        check(1, Some(251), 0.0, None);
        check(4, Some(1), 0.0, None);
    }
}
