//! Journal quota of a session: bytes that it may add within an hour, and in total. Pure.
//!
//! An agent reports nothing while neither a turn nor a user action runs, except a few notices.
//! Reports outside such work therefore have a quota of their own, which is much lower.

use bytesize::ByteSize;

use super::turn::QuotaExceeded;
use crate::{config::QuotaConfig, store::JournalUsage};

/// Bytes that a report takes in the journal beside its event.
const REPORT_OVERHEAD: u64 = 128;

/// Bytes beyond a quota until an interrupt has stopped the work. The results of interrupted work
/// fit. When exceeded: the sandbox is stopped at once.
const INTERRUPT_SLACK: u64 = 128 << 20;

const HOUR_MS: i64 = 60 * 60 * 1000;

/// Meter of one session.
#[derive(Debug, Default)]
pub(super) struct JournalMeter {
    pub(super) usage: JournalUsage,
    /// Set if the newest report arrived while neither a turn nor a user action ran.
    is_outside_work: bool,
}

impl JournalMeter {
    pub(super) fn new(usage: JournalUsage) -> JournalMeter {
        JournalMeter { usage, is_outside_work: false }
    }

    /// Records a report of the agent, before the session decides about it.
    pub(super) fn report_received(&mut self, has_work: bool, now_ms: i64) {
        self.is_outside_work = !has_work;
        self.add(REPORT_OVERHEAD, true, now_ms);
    }

    /// Adds `bytes` that go to the journal. `is_report` is true if a report of the agent caused
    /// them.
    pub(super) fn add(&mut self, bytes: u64, is_report: bool, now_ms: i64) {
        let JournalUsage { hour, hour_bytes, idle_hour_bytes, .. } = &mut self.usage;
        let now = now_ms.div_euclid(HOUR_MS);
        if *hour != now {
            (*hour, *hour_bytes, *idle_hour_bytes) = (now, 0, 0);
        }
        let idle_bytes = if is_report && self.is_outside_work { bytes } else { 0 };
        for (counter, bytes) in [
            (&mut self.usage.bytes, bytes),
            (&mut self.usage.hour_bytes, bytes),
            (&mut self.usage.idle_bytes, idle_bytes),
            (&mut self.usage.idle_hour_bytes, idle_bytes),
        ] {
            *counter = counter.saturating_add(bytes);
        }
    }

    /// Returns the quota that the newest report exceeded.
    pub(super) fn exceeded(&self, quota: &QuotaConfig) -> Option<QuotaExceeded> {
        let JournalUsage { bytes, idle_bytes, hour_bytes, idle_hour_bytes, .. } = self.usage;
        let outside = " outside a turn and a user action";
        let [by_hour, total] = match self.is_outside_work {
            false => [
                (hour_bytes, quota.journal_per_hour, "quota.journal_per_hour", ""),
                (bytes, quota.journal_total, "quota.journal_total", ""),
            ],
            true => [
                (idle_hour_bytes, quota.idle_journal_per_hour, "quota.idle_journal_per_hour", outside),
                (idle_bytes, quota.idle_journal_total, "quota.idle_journal_total", outside),
            ],
        };
        let exceeds = |(used, limit, ..): &(u64, ByteSize, _, _)| limit.as_u64() > 0 && *used > limit.as_u64();
        let (quota, way_out) = match (exceeds(&total), exceeds(&by_hour)) {
            (true, _) => (total, "in total; raise the limit or start a new session"),
            (false, true) => (by_hour, "in this hour; wait for the next hour or raise the limit"),
            (false, false) => return None,
        };
        let (_, limit, key, outside) = quota;
        let reason = format!("the agent wrote more than {limit}{outside} to the journal (`{key}`) {way_out}");
        let far_beyond = |(used, limit, ..): &(u64, ByteSize, _, _)| {
            limit.as_u64() > 0 && *used > limit.as_u64().saturating_add(INTERRUPT_SLACK)
        };
        let is_hard = self.is_outside_work || far_beyond(&by_hour) || far_beyond(&total);
        Some(QuotaExceeded { reason, is_hard })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: QuotaConfig = QuotaConfig {
        journal_per_hour: ByteSize::mib(2),
        journal_total: ByteSize::mib(5),
        idle_journal_per_hour: ByteSize::kib(20),
        idle_journal_total: ByteSize::kib(50),
        workspace: ByteSize::b(0),
    };

    /// Adds a report each hour. Returns the hour at which a quota is exceeded, and its key.
    fn first_exceeded(bytes: u64, per_hour: usize, has_work: bool) -> Option<(i64, &'static str)> {
        let mut meter = JournalMeter::default();
        for hour in 0..10 {
            for _ in 0..per_hour {
                meter.report_received(has_work, hour * HOUR_MS);
                meter.add(bytes, true, hour * HOUR_MS);
                if let Some(QuotaExceeded { reason, is_hard }) = meter.exceeded(&QUOTA) {
                    assert_eq!(is_hard, !has_work, "work is interrupted first");
                    let keys = ["quota.journal_", "quota.idle_journal_"].map(|key| [key, "per_hour", "total"]);
                    let [key, ends @ ..] = keys[usize::from(!has_work)];
                    let end = ends.into_iter().find(|end| reason.contains(&format!("`{key}{end}`")));
                    return Some((hour, end.unwrap_or_else(|| panic!("{reason}"))));
                }
            }
        }
        None
    }

    #[test]
    fn quotas_hold_by_hour_and_in_total() {
        assert_eq!(first_exceeded(1 << 20, 1, true), Some((4, "total")));
        assert_eq!(first_exceeded(1 << 20, 2, true), Some((0, "per_hour")));
        assert_eq!(first_exceeded(1000, 1, true), None);
    }

    #[test]
    fn quotas_outside_work_are_lower() {
        assert_eq!(first_exceeded(15 << 10, 1, false), Some((3, "total")));
        assert_eq!(first_exceeded(15 << 10, 2, false), Some((0, "per_hour")));
        assert_eq!(first_exceeded(0, 200, false), Some((0, "per_hour")), "reports without an event count too");
    }

    #[test]
    fn zero_is_no_limit() {
        let mut meter = JournalMeter::default();
        for has_work in [false, true] {
            meter.report_received(has_work, 0);
            meter.add(u64::MAX, true, 0);
            assert_eq!(meter.exceeded(&QuotaConfig::default()), None);
        }
    }

    #[test]
    fn work_far_beyond_its_quota_is_stopped() {
        let mut meter = JournalMeter::default();
        meter.report_received(true, 0);
        meter.add(QUOTA.journal_per_hour.as_u64() + INTERRUPT_SLACK, true, 0);
        assert!(meter.exceeded(&QUOTA).is_some_and(|exceeded| exceeded.is_hard));
    }

    #[test]
    fn requests_count_but_not_as_reports() {
        let mut meter = JournalMeter::default();
        meter.report_received(false, 0);
        meter.add(1 << 20, false, 0);
        assert_eq!(meter.exceeded(&QUOTA), None);
        assert!(meter.usage.bytes > 1 << 20);
    }
}
