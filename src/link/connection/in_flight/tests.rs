//! What is acknowledged, and when.

use std::future::poll_fn;

use futures::poll;

use super::*;

type CommitTicket = oneshot::Sender<Result<(), OutOfOrder>>;

fn push(on_their_way: &mut InFlightReports, last: u64, read: usize) -> CommitTicket {
    let (durable, on_disk) = oneshot::channel();
    on_their_way.push(InFlightReport { last, bytes_read: read, persisted: on_disk });
    durable
}

fn on_disk(ticket: CommitTicket) {
    ticket.send(Ok(())).expect("it is waited for");
}

/// What it wakes its conversation for.
async fn next(on_their_way: &mut InFlightReports, read: usize, has_room: bool) -> InFlightProgress {
    match poll_fn(|cx| on_their_way.poll(cx, read, has_room)).await {
        Ok(settled) => settled,
        Err(_) => panic!("all of it is taken"),
    }
}

async fn is_quiet(on_their_way: &mut InFlightReports, read: usize, has_room: bool) -> bool {
    poll!(poll_fn(|cx| on_their_way.poll(cx, read, has_room))).is_pending()
}

#[tokio::test(start_paused = true)]
async fn what_is_on_disk_is_acknowledged_together_and_in_order() {
    let mut on_their_way = InFlightReports::default();
    assert!(is_quiet(&mut on_their_way, 0, true).await);
    let [first, second, _third, fourth] = [3, 4, 9, 10].map(|last| push(&mut on_their_way, last, 0));
    tokio::time::advance(ACK_AFTER).await;
    on_disk(second);
    assert!(is_quiet(&mut on_their_way, 0, true).await, "the one before it is not on disk");
    on_disk(first);
    assert_eq!(next(&mut on_their_way, 0, true).await, InFlightProgress::Acknowledge(4));
    on_disk(fourth);
    tokio::time::advance(ACK_AFTER).await;
    assert!(is_quiet(&mut on_their_way, 0, true).await);
}

#[tokio::test(start_paused = true)]
async fn nothing_behind_a_refused_one_is_acknowledged() {
    let out_of_order =
        |ticket: CommitTicket| ticket.send(Err(OutOfOrder { n: 9, newest: 4 })).expect("it is waited for");
    for refuse in [drop as fn(CommitTicket), out_of_order] {
        let mut on_their_way = InFlightReports::default();
        let (refused, behind) = (push(&mut on_their_way, 9, 0), push(&mut on_their_way, 10, 0));
        refuse(refused);
        on_disk(behind);
        assert!(is_quiet(&mut on_their_way, 0, true).await);
        tokio::time::advance(ACK_AFTER).await;
        assert!(poll_fn(|cx| on_their_way.poll(cx, 0, true)).await.is_err());
        assert!(on_their_way.collect_persisted().is_ok(), "it is said once");
        assert!(!on_their_way.made_progress());
    }
}

#[tokio::test]
async fn no_more_is_heard_than_may_be_on_its_way_to_disk() {
    let live = SessionBroadcast::default();
    let mut on_their_way = InFlightReports::default();
    let first = push(&mut on_their_way, 1, 5 * MAX_IN_FLIGHT_BYTES);
    assert!(on_their_way.has_room(5 * MAX_IN_FLIGHT_BYTES, &live), "what had been read before does not count");
    let _second = push(&mut on_their_way, 2, 6 * MAX_IN_FLIGHT_BYTES);
    assert!(!on_their_way.has_room(6 * MAX_IN_FLIGHT_BYTES, &live));
    on_disk(first);
    assert_eq!(next(&mut on_their_way, 0, false).await, InFlightProgress::RoomFreed);
    assert!(!on_their_way.has_room(6 * MAX_IN_FLIGHT_BYTES, &live), "the second is as much");
    assert!(is_quiet(&mut on_their_way, 0, false).await);
    let mut on_their_way = InFlightReports::default();
    live.set_disk_backlogged(true);
    assert!(on_their_way.has_room(0, &live), "what has nothing on the way would never be told of room");
    let _one = push(&mut on_their_way, 1, 0);
    assert!(!on_their_way.has_room(0, &live), "there is much of the session on the way");
    live.set_disk_backlogged(false);
    assert!(on_their_way.has_room(0, &live));
    let mut on_their_way = InFlightReports::default();
    let _kept: Vec<_> = (0..MAX_IN_FLIGHT_REPORTS as u64).map(|n| push(&mut on_their_way, n, 0)).collect();
    assert!(!on_their_way.has_room(0, &live));
}

#[tokio::test(start_paused = true)]
async fn what_follows_within_a_moment_is_acknowledged_with_it_and_much_at_once() {
    let mut on_their_way = InFlightReports::default();
    let began = tokio::time::Instant::now();
    on_disk(push(&mut on_their_way, 1, 100));
    assert!(is_quiet(&mut on_their_way, 100, true).await, "it is not yet due");
    tokio::time::advance(ACK_AFTER / 2).await;
    on_disk(push(&mut on_their_way, 7, 200));
    assert_eq!(next(&mut on_their_way, 200, true).await, InFlightProgress::Acknowledge(7));
    assert_eq!(began.elapsed(), ACK_AFTER, "the first of them does not wait longer for the others");
    assert!(is_quiet(&mut on_their_way, 200, true).await, "once is enough");

    on_disk(push(&mut on_their_way, 8, 300));
    assert!(is_quiet(&mut on_their_way, 300, true).await);
    on_disk(push(&mut on_their_way, 9, 200 + ACK_BYTES));
    let much = next(&mut on_their_way, 200 + ACK_BYTES, true).await;
    assert_eq!(much, InFlightProgress::Acknowledge(9), "so much is not kept for long");
    tokio::time::advance(ACK_AFTER).await;
    assert!(is_quiet(&mut on_their_way, 200 + ACK_BYTES, true).await, "and the one that waited went with it");
}

#[tokio::test(start_paused = true)]
async fn what_waited_for_room_is_acknowledged_when_that_is_due() {
    let mut on_their_way = InFlightReports::default();
    on_disk(push(&mut on_their_way, 1, 0));
    assert_eq!(next(&mut on_their_way, 0, false).await, InFlightProgress::RoomFreed);
    assert!(is_quiet(&mut on_their_way, 0, true).await);
    assert_eq!(next(&mut on_their_way, 0, true).await, InFlightProgress::Acknowledge(1));
}

#[tokio::test(start_paused = true)]
async fn an_event_wakes_nobody_when_it_is_on_disk() {
    let woken = std::sync::Arc::new(crate::wake_batch::WakeFlag::default());
    let waker = woken.clone().into();
    let mut on_their_way = InFlightReports::default();
    let ticket = push(&mut on_their_way, 1, 0);
    assert!(on_their_way.poll(&mut Context::from_waker(&waker), 0, true).is_pending());
    on_disk(ticket);
    assert!(!woken.is_set());
    assert!(on_their_way.collect_persisted().is_ok());
    assert!(on_their_way.made_progress(), "it is seen when it is asked for");
}
