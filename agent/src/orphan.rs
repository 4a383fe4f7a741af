//! End of an agent whose server never returns: its work is stopped, its reports are saved for the
//! next server, and the sandbox ends with it.

use std::time::{Duration, Instant};

use greenroom_protocol::{Observation, ObservationKind};
use tokio::time::{sleep, timeout};

use crate::{dispatcher::Dispatcher, outgoing::OutgoingQueue};

/// Longest and shortest time between two readings of the clock.
const MAX_TICK: Duration = Duration::from_secs(10);
const MIN_TICK: Duration = Duration::from_millis(100);

/// Time limit for stopping the work.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns when the agent has been without a server for the time that its settings say. Time while
/// the sandbox is paused does not count: a server that unpauses the sandbox is about to dial.
pub(crate) async fn until_orphaned(dispatcher: &Dispatcher, outgoing: &OutgoingQueue) {
    loop {
        outgoing.until_connected(false).await;
        tokio::select! {
            biased;
            () = outgoing.until_connected(true) => {}
            () = time_runs_out(dispatcher) => return,
        }
    }
}

async fn time_runs_out(dispatcher: &Dispatcher) {
    let mut counted = Duration::ZERO;
    loop {
        let limit = dispatcher.orphan_after();
        if limit.is_some_and(|limit| counted >= limit) {
            return;
        }
        let tick = limit.map_or(MAX_TICK, |limit| (limit / 4).clamp(MIN_TICK, MAX_TICK));
        let since = Instant::now();
        sleep(tick).await;
        counted += since.elapsed().min(2 * tick);
    }
}

/// Stops all work, as an interrupt would. The reports of its end are queued on return.
pub(crate) async fn stop_work(dispatcher: &Dispatcher, outgoing: &OutgoingQueue) {
    outgoing.lift_limit();
    if dispatcher.is_busy() {
        let seconds = dispatcher.orphan_after().unwrap_or_default().as_secs();
        let detail = format!("no server came for {seconds} s (`sandbox.orphan_after`), so the work was stopped");
        let kind = ObservationKind::Error { code: "orphaned".to_owned(), detail };
        outgoing.event(None, Observation { kind, content: String::new() }).await;
    }
    dispatcher.cancel();
    let idle = async {
        while dispatcher.is_busy() {
            dispatcher.work_finished().await;
        }
    };
    if timeout(STOP_TIMEOUT, idle).await.is_err() {
        tracing::warn!("the work did not stop in time; the next server reports it as cut off");
    }
}
