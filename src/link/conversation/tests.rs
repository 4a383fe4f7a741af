//! What is acknowledged, and when.

use super::*;

fn poll(on_their_way: &mut OnTheirWay) -> Poll<Result<u64, Unwritten>> {
    on_their_way.poll_durable(&mut Context::from_waker(futures::task::noop_waker_ref()))
}

#[test]
fn what_is_on_disk_is_acknowledged_together_and_in_order() {
    let mut on_their_way = OnTheirWay::default();
    assert_eq!(poll(&mut on_their_way), Poll::Pending);
    let mut tickets: Vec<_> = [3, 4, 9, 10]
        .map(|last| {
            let (durable, on_disk) = oneshot::channel();
            on_their_way.push(OnItsWay { last, read: 0, on_disk });
            Some(durable)
        })
        .into();
    let mut settle = |n: usize| tickets[n].take().map(|durable| durable.send(Ok(())));

    settle(1);
    assert_eq!(poll(&mut on_their_way), Poll::Pending, "the one before it is not on disk");
    settle(0);
    assert_eq!(poll(&mut on_their_way), Poll::Ready(Ok(4)));
    settle(3);
    assert_eq!(poll(&mut on_their_way), Poll::Pending);
    tickets[2] = None;
    assert_eq!(
        poll(&mut on_their_way),
        Poll::Ready(Err(Unwritten::SessionStops)),
        "nothing behind a refused one is acknowledged"
    );
}

#[test]
fn no_more_is_heard_than_may_be_on_its_way_to_disk() {
    let live = Shared::default();
    let mut on_their_way = OnTheirWay::default();
    let push = |on_their_way: &mut OnTheirWay, last, read| {
        let (durable, on_disk) = oneshot::channel();
        on_their_way.push(OnItsWay { last, read, on_disk });
        durable
    };
    let first = push(&mut on_their_way, 1, 5 * WINDOW_BYTES);
    assert!(on_their_way.has_room(5 * WINDOW_BYTES, &live), "what had been read before does not count");
    let _second = push(&mut on_their_way, 2, 6 * WINDOW_BYTES);
    assert!(!on_their_way.has_room(6 * WINDOW_BYTES, &live));
    first.send(Ok(())).expect("it is waited for");
    assert_eq!(poll(&mut on_their_way), Poll::Ready(Ok(1)));
    assert!(!on_their_way.has_room(6 * WINDOW_BYTES, &live), "the second is as much");
    let mut on_their_way = OnTheirWay::default();
    live.waits_for_the_disk(true);
    assert!(on_their_way.has_room(0, &live), "what has nothing on the way would never be told of room");
    let _one = push(&mut on_their_way, 1, 0);
    assert!(!on_their_way.has_room(0, &live), "there is much of the session on the way");
    live.waits_for_the_disk(false);
    assert!(on_their_way.has_room(0, &live));
    let mut on_their_way = OnTheirWay::default();
    let _kept: Vec<_> = (0..WINDOW as u64).map(|n| push(&mut on_their_way, n, 0)).collect();
    assert!(!on_their_way.has_room(0, &live));
}

#[tokio::test(start_paused = true)]
async fn what_follows_within_a_moment_is_acknowledged_with_it_and_much_at_once() {
    let acks = |step| match step {
        Step::Send(text) => Some(text.to_string()),
        Step::Done | Step::Tell(_) => None,
    };
    let mut owed = Owed::default();
    assert_eq!(acks(owed.settle(1, 100)), None);
    tokio::time::advance(ACK_AFTER / 2).await;
    assert_eq!(acks(owed.settle(7, 200)), None);
    let began = tokio::time::Instant::now();
    let n = poll_fn(|cx| owed.poll_due(cx)).await;
    assert_eq!((n, began.elapsed()), (7, ACK_AFTER / 2), "the first of them does not wait longer for the others");
    assert_eq!(acks(owed.pay(n, 200)).as_deref(), Some(r#"{"frame":"ack","n":7}"#));
    assert_eq!(futures::poll!(poll_fn(|cx| owed.poll_due(cx))), Poll::Pending, "once is enough");

    assert_eq!(acks(owed.settle(8, 300)), None);
    assert!(acks(owed.settle(9, 200 + ACK_BYTES)).is_some(), "so much is not kept for long");
    assert_eq!(futures::poll!(poll_fn(|cx| owed.poll_due(cx))), Poll::Pending, "and the one that waited went with it");
}
