//! Reports the processes that commands left behind, whenever the list changes.

use std::{convert::Infallible, time::Duration};

use greenroom_protocol::{Observation, ObservationKind, observation::LeftoverProcess};
use tokio::time::sleep;

use crate::{outgoing::OutgoingQueue, processes::ChildProcesses};

/// First interval of the scans while something is left behind. Each reported change doubles the
/// interval: a process that starts others for ever must not fill the journal.
const SCAN_INTERVAL: Duration = Duration::from_secs(5);
/// Longest interval of the scans.
const MAX_SCAN_INTERVAL: Duration = Duration::from_secs(320);

/// Time from the end of a command to the scan. Most of its last processes are gone by then.
const SETTLE_TIME: Duration = Duration::from_millis(200);

/// Growth of a process's memory that is reported: to this many times the reported size.
const MEMORY_FACTOR: u64 = 2;

/// Reports until dropped. Without leftovers, scans only when a command has ended.
pub(crate) async fn report_leftovers(processes: &ChildProcesses, outgoing: &OutgoingQueue) -> Infallible {
    let mut reported: Vec<LeftoverProcess> = Vec::new();
    let mut interval = SCAN_INTERVAL;
    loop {
        let is_scan = tokio::select! {
            biased;
            () = processes.leftovers_changed() => false,
            () = sleep(interval), if !reported.is_empty() => true,
        };
        // A request to kill leftovers is answered by a list, even if they had just ended.
        let is_answer = processes.take_kill_request();
        if !is_answer {
            sleep(SETTLE_TIME).await;
        }
        let (items, more) = processes.leftovers().await;
        if !is_scan {
            interval = SCAN_INTERVAL;
        }
        if is_answer || has_changed(&reported, &items) {
            if is_scan {
                interval = MAX_SCAN_INTERVAL.min(interval * 2);
            }
            reported.clone_from(&items);
            let kind = ObservationKind::Commands { items, more: more as u32 };
            outgoing.event(None, Observation { kind, content: String::new() }).await;
        }
    }
}

fn has_changed(before: &[LeftoverProcess], now: &[LeftoverProcess]) -> bool {
    before.len() != now.len()
        || before.iter().zip(now).any(|(before, now)| {
            (before.pid, &before.name) != (now.pid, &now.name)
                || now.memory_bytes > before.memory_bytes.max(1 << 20) * MEMORY_FACTOR
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_alone_is_no_change() {
        let list = |pid, age_s, memory_bytes| [LeftoverProcess { pid, name: "sleep".into(), age_s, memory_bytes }];
        let before = list(7, 1, 4 << 20);
        for (now, changed) in [(list(7, 90, 5 << 20), false), (list(7, 90, 9 << 20), true), (list(8, 1, 4 << 20), true)]
        {
            assert_eq!(has_changed(&before, &now), changed, "{now:?}");
        }
        assert!(has_changed(&before, &[]) && has_changed(&[], &before) && !has_changed(&[], &[]));
    }
}
