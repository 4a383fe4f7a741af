//! Tests for the acknowledgement of reports.

use std::future::poll_fn;

use futures::poll;

use super::*;

type CommitTicket = oneshot::Sender<Result<(), OutOfOrder>>;

fn push(in_flight: &mut InFlightBatches, last: u64, read: usize) -> CommitTicket {
    let (durable, persisted) = oneshot::channel();
    in_flight.push(InFlightBatch { last, bytes_read: read, persisted });
    durable
}

fn mark_persisted(ticket: CommitTicket) {
    ticket.send(Ok(())).expect("the window holds the receiver");
}

/// Waits until the window wakes its connection. Returns the reason.
async fn next(in_flight: &mut InFlightBatches, read: usize, has_room: bool) -> InFlightProgress {
    match poll_fn(|cx| in_flight.poll(cx, read, has_room)).await {
        Ok(progress) => progress,
        Err(_) => panic!("a report was rejected"),
    }
}

async fn is_pending(in_flight: &mut InFlightBatches, read: usize, has_room: bool) -> bool {
    poll!(poll_fn(|cx| in_flight.poll(cx, read, has_room))).is_pending()
}

#[tokio::test(start_paused = true)]
async fn persisted_reports_are_acknowledged_together_in_order() {
    let mut in_flight = InFlightBatches::default();
    assert!(is_pending(&mut in_flight, 0, true).await);
    let [first, second, _third, fourth] = [3, 4, 9, 10].map(|last| push(&mut in_flight, last, 0));
    tokio::time::advance(ACK_AFTER).await;
    mark_persisted(second);
    assert!(is_pending(&mut in_flight, 0, true).await, "the report before it is not on disk");
    mark_persisted(first);
    assert_eq!(next(&mut in_flight, 0, true).await, InFlightProgress::Acknowledge(4));
    mark_persisted(fourth);
    tokio::time::advance(ACK_AFTER).await;
    assert!(is_pending(&mut in_flight, 0, true).await);
}

#[tokio::test(start_paused = true)]
async fn reports_after_a_rejected_one_are_not_acknowledged() {
    let out_of_order =
        |ticket: CommitTicket| ticket.send(Err(OutOfOrder { n: 9, newest: 4 })).expect("the window holds the receiver");
    for reject in [drop as fn(CommitTicket), out_of_order] {
        let mut in_flight = InFlightBatches::default();
        let (rejected, behind) = (push(&mut in_flight, 9, 0), push(&mut in_flight, 10, 0));
        reject(rejected);
        mark_persisted(behind);
        assert!(is_pending(&mut in_flight, 0, true).await);
        tokio::time::advance(ACK_AFTER).await;
        assert!(poll_fn(|cx| in_flight.poll(cx, 0, true)).await.is_err());
        assert!(in_flight.collect_persisted().is_ok(), "the failure is reported once");
        assert!(!in_flight.made_progress());
    }
}

#[tokio::test]
async fn window_bounds_reports_in_flight() {
    let live = SessionBroadcast::default();
    let mut in_flight = InFlightBatches::default();
    let first = push(&mut in_flight, 1, 5 * MAX_IN_FLIGHT_BYTES);
    assert!(in_flight.has_room(5 * MAX_IN_FLIGHT_BYTES, &live), "bytes read before the first report do not count");
    let _second = push(&mut in_flight, 2, 6 * MAX_IN_FLIGHT_BYTES);
    assert!(!in_flight.has_room(6 * MAX_IN_FLIGHT_BYTES, &live));
    mark_persisted(first);
    assert_eq!(next(&mut in_flight, 0, false).await, InFlightProgress::RoomFreed);
    assert!(!in_flight.has_room(6 * MAX_IN_FLIGHT_BYTES, &live), "the second report alone fills the window");
    assert!(is_pending(&mut in_flight, 0, false).await);
    let mut in_flight = InFlightBatches::default();
    live.set_disk_backlogged(true);
    assert!(in_flight.has_room(0, &live), "an empty window would never signal room");
    let _one = push(&mut in_flight, 1, 0);
    assert!(!in_flight.has_room(0, &live), "the session's disk is backlogged");
    live.set_disk_backlogged(false);
    assert!(in_flight.has_room(0, &live));
    let mut in_flight = InFlightBatches::default();
    let _kept: Vec<_> = (0..MAX_IN_FLIGHT_BATCHES as u64).map(|n| push(&mut in_flight, n, 0)).collect();
    assert!(!in_flight.has_room(0, &live));
}

#[tokio::test(start_paused = true)]
async fn acknowledgement_covers_later_reports_and_comes_early_after_one_mebibyte() {
    let mut in_flight = InFlightBatches::default();
    let start = tokio::time::Instant::now();
    mark_persisted(push(&mut in_flight, 1, 100));
    assert!(is_pending(&mut in_flight, 100, true).await, "the acknowledgement is not yet due");
    tokio::time::advance(ACK_AFTER / 2).await;
    mark_persisted(push(&mut in_flight, 7, 200));
    assert_eq!(next(&mut in_flight, 200, true).await, InFlightProgress::Acknowledge(7));
    assert_eq!(start.elapsed(), ACK_AFTER, "later reports do not delay the acknowledgement");
    assert!(is_pending(&mut in_flight, 200, true).await, "each report is acknowledged once");

    mark_persisted(push(&mut in_flight, 8, 300));
    assert!(is_pending(&mut in_flight, 300, true).await);
    mark_persisted(push(&mut in_flight, 9, 200 + ACK_BYTES));
    let early = next(&mut in_flight, 200 + ACK_BYTES, true).await;
    assert_eq!(early, InFlightProgress::Acknowledge(9), "1 MiB is acknowledged before the timer");
    tokio::time::advance(ACK_AFTER).await;
    assert!(is_pending(&mut in_flight, 200 + ACK_BYTES, true).await, "the earlier report was acknowledged with it");
}

#[tokio::test(start_paused = true)]
async fn full_window_frees_room_before_acknowledging() {
    let mut in_flight = InFlightBatches::default();
    mark_persisted(push(&mut in_flight, 1, 0));
    assert_eq!(next(&mut in_flight, 0, false).await, InFlightProgress::RoomFreed);
    assert!(is_pending(&mut in_flight, 0, true).await);
    assert_eq!(next(&mut in_flight, 0, true).await, InFlightProgress::Acknowledge(1));
}

#[tokio::test(start_paused = true)]
async fn persisted_event_does_not_wake_connection() {
    let wake_flag = std::sync::Arc::new(crate::net::wake_batch::WakeFlag::default());
    let waker = wake_flag.clone().into();
    let mut in_flight = InFlightBatches::default();
    let ticket = push(&mut in_flight, 1, 0);
    assert!(in_flight.poll(&mut Context::from_waker(&waker), 0, true).is_pending());
    mark_persisted(ticket);
    assert!(!wake_flag.is_set());
    assert!(in_flight.collect_persisted().is_ok());
    assert!(in_flight.made_progress(), "the result is read on demand");
}
