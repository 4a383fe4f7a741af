use std::collections::BTreeMap;

use greenroom_protocol::RetryFrameKind;
use proptest::prelude::*;

use super::*;

fn delta(offset: u64, content: &str) -> Delta {
    Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: content.into() }
}

fn subscribed() -> (Arc<SessionBroadcast>, Subscription) {
    let broadcast = Arc::new(SessionBroadcast::default());
    let subscription = Subscription { broadcast: broadcast.clone(), id: 0 };
    (broadcast, subscription)
}

fn chunks(poll: DeliveryPoll) -> Vec<(u64, String)> {
    match poll {
        DeliveryPoll::Deltas(deltas) => {
            deltas.into_iter().map(|DeltaChunk { delta, .. }| (delta.offset, delta.content)).collect()
        }
        DeliveryPoll::Retry(frame) => panic!("a wait: {frame:?}"),
        DeliveryPoll::Behind { tail } => panic!("behind {tail}"),
        DeliveryPoll::Closed => panic!("closed"),
    }
}

fn retry(call: u64, attempt: u32) -> RetryFrame {
    let (kind, provider, why) = (RetryFrameKind::Retry, "Anthropic".to_owned(), "overloaded".to_owned());
    RetryFrame { kind, call, provider, attempt, max_attempts: 6, wait_ms: 1, why }
}

#[test]
fn subscriber_gets_newest_wait_once_until_it_ends() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    let attempt = |poll| match poll {
        DeliveryPoll::Retry(frame) => Some(frame.attempt),
        poll => chunks(poll).is_empty().then_some(0),
    };
    broadcast.set_retry(retry(1, 2));
    broadcast.set_retry(retry(1, 3));
    assert_eq!(attempt(subscription.poll(0, &mut positions, 99)), Some(3));
    assert_eq!(attempt(subscription.poll(0, &mut positions, 99)), Some(0));
    broadcast.set_retry(retry(1, 4));
    assert_eq!(attempt(subscription.poll(0, &mut positions, 99)), Some(4));
    assert_eq!(attempt(subscription.poll(0, &mut DeltaPositions::default(), 99)), Some(4), "a late subscriber");
    broadcast.clear_retry(7);
    assert_eq!(attempt(subscription.poll(0, &mut DeltaPositions::default(), 99)), Some(4), "of another call");
    broadcast.clear_retry(1);
    assert_eq!(attempt(subscription.poll(0, &mut DeltaPositions::default(), 99)), Some(0));
}

#[test]
fn wait_never_overtakes_the_event_before_it() {
    let (broadcast, subscription) = subscribed();
    broadcast.mark_decided(1, &[]);
    broadcast.set_retry(retry(1, 2));
    let mut positions = DeltaPositions::default();
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), []);
    broadcast.publish(1, &[]);
    assert!(matches!(subscription.poll(1, &mut positions, 99), DeliveryPoll::Retry(_)));
}

#[test]
fn late_subscriber_gets_item_so_far_then_only_new_text() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "Hel"));
    broadcast.append_delta(delta(3, "lo"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "Hello".into())]);
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), []);
    broadcast.append_delta(delta(0, "Hello there"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(5, " there".into())]);
}

/// Case: a provider's answer was cut off, and the next answer gives its call the same id.
#[test]
fn restarted_item_is_read_from_its_new_beginning() {
    for longer in ["", " and then much more than there was before"] {
        let (broadcast, subscription) = subscribed();
        let mut positions = DeltaPositions::default();
        broadcast.append_delta(delta(0, "text of the first time"));
        assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "text of the first time".into())]);
        broadcast.append_delta(delta(0, "äöü"));
        broadcast.append_delta(delta(6, "äöüäöüäöüäöü"));
        broadcast.append_delta(delta(30, longer));
        let all = format!("äöüäöüäöüäöüäöü{longer}");
        assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, all)]);
        assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), []);
    }
}

#[test]
fn item_restarted_with_longer_text_is_read_whole() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "abc"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "abc".into())]);
    broadcast.append_delta(delta(0, "something else"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "something else".into())]);
}

#[test]
fn item_with_gap_is_read_from_after_the_gap() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "one"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "one".into())]);
    broadcast.append_delta(delta(9, "ten"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "ten".into())]);
    broadcast.append_delta(delta(12, " more"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(12, " more".into())]);
}

#[test]
fn deltas_come_after_journal_and_stop_at_item_end() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "x"));
    broadcast.publish(1, &[]);
    assert!(matches!(subscription.poll(0, &mut positions, 99), DeliveryPoll::Behind { tail: 1 }));
    assert_eq!(chunks(subscription.poll(1, &mut positions, 99)), [(0, "x".into())]);
    broadcast.publish(2, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(subscription.poll(2, &mut positions, 99)), []);
    assert!(positions.items.is_empty());
}

#[test]
fn item_stops_growing_when_its_end_is_decided() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "said"));
    broadcast.mark_decided(1, &[ItemEnd::Item("i".into())]);
    broadcast.append_delta(delta(4, " and more"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "said".into())]);
    assert!(broadcast.open_items().is_empty(), "an item ends once");
    broadcast.publish(1, &[ItemEnd::Item("i".into())]);
    broadcast.append_delta(delta(4, " and more"));
    assert_eq!(chunks(subscription.poll(1, &mut positions, 99)), []);
    for n in 0..2 * MAX_SEALED {
        broadcast.mark_decided(1, &[ItemEnd::Item(n.to_string())]);
    }
    assert_eq!(broadcast.live().sealed.len(), MAX_SEALED);
}

/// Case: the disk hangs while people keep sending messages.
#[test]
fn decided_item_end_is_kept_until_on_disk() {
    let (broadcast, subscription) = subscribed();
    broadcast.append_delta(delta(0, "said"));
    broadcast.mark_decided(1, &[ItemEnd::Item("i".into())]);
    for n in 0..2 * MAX_SEALED {
        broadcast.mark_decided(2 + n as Seq, &[ItemEnd::ToolInput(format!("message-{n}"))]);
    }
    assert!(broadcast.open_items().is_empty(), "an item ends once");
    broadcast.append_delta(delta(4, " and more"));
    assert_eq!(chunks(subscription.poll(0, &mut DeltaPositions::default(), 99)), [(0, "said".into())]);
}

#[test]
fn unbounded_new_items_evict_the_oldest() {
    let (broadcast, subscription) = subscribed();
    let grow = |n: usize, content: &str| {
        broadcast.append_delta(Delta {
            kind: DeltaKind::Text,
            item: n.to_string(),
            offset: 0,
            content: content.into(),
        });
    };
    for n in 0..4 * MAX_ITEMS {
        grow(n, "x");
    }
    assert_eq!(broadcast.open_items().len(), MAX_ITEMS);
    for n in 0..100 {
        grow(n, &"y".repeat(16 * RETAINED_BYTES));
    }
    let open = broadcast.open_items();
    assert!(open.iter().map(|open| open.text.len()).sum::<usize>() <= MAX_BYTES);
    assert!(
        broadcast.live().items.iter().all(|live_item| live_item.text.capacity() <= 2 * RETAINED_BYTES),
        "no excess capacity is kept"
    );
    assert_eq!(open.last().map(|open| &*open.item), Some("99"), "the newest are kept");
    grow(0, "again");
    let again = subscription.poll(0, &mut DeltaPositions::default(), usize::MAX);
    assert!(
        matches!(again, DeliveryPoll::Deltas(deltas) if deltas.last().is_some_and(|chunk| chunk.delta.content == "again"))
    );
}

#[test]
fn long_item_is_polled_in_chunks_and_bounded() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    broadcast.append_delta(delta(0, "äöü"));
    assert_eq!(chunks(subscription.poll(0, &mut positions, 5)), [(0, "äö".into())]);
    assert_eq!(chunks(subscription.poll(0, &mut positions, 5)), [(4, "ü".into())]);
    let mut offset = 6;
    for _ in 0..40 {
        broadcast.append_delta(delta(offset, &"y".repeat(RETAINED_BYTES / 8)));
        offset += (RETAINED_BYTES / 8) as u64;
    }
    assert!(broadcast.open_items()[0].text.len() <= 2 * RETAINED_BYTES);
    let late = chunks(subscription.poll(0, &mut DeltaPositions::default(), usize::MAX));
    assert_eq!(late[0].0, 0);
    assert_eq!(chunks(subscription.poll(0, &mut positions, usize::MAX))[0].0, 0, "evicted text restarts the item");
    assert_eq!(chunks(subscription.poll(0, &mut positions, usize::MAX)), []);
}

#[test]
fn output_is_delivered_after_its_action_is_on_disk() {
    let (broadcast, subscription) = subscribed();
    let mut positions = DeltaPositions::default();
    let input = Delta { kind: DeltaKind::ToolInput, ..delta(0, "{}") };
    let output = Delta { kind: DeltaKind::Output, ..delta(0, "out") };
    broadcast.append_delta(input);
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), [(0, "{}".into())]);
    broadcast.mark_decided(1, &[ItemEnd::ToolInput("i".into())]);
    broadcast.append_delta(output);
    assert_eq!(chunks(subscription.poll(0, &mut positions, 99)), []);
    broadcast.publish(1, &[ItemEnd::ToolInput("i".into())]);
    assert_eq!(chunks(subscription.poll(1, &mut positions, 99)), [(0, "out".into())]);
}

#[test]
fn inputs_of_uncalled_tools_end_with_turn() {
    let (broadcast, subscription) = subscribed();
    let delta_of = |item: &str, kind| Delta { kind, item: item.into(), offset: 0, content: "{}".into() };
    broadcast.append_delta(delta_of("never called", DeltaKind::ToolInput));
    broadcast.append_delta(delta_of("a command of the user", DeltaKind::Output));
    let over = broadcast.end_of_tool_inputs();
    broadcast.mark_decided(4, std::slice::from_ref(&over));
    assert_eq!(broadcast.open_items().len(), 1, "the input ends when the end is decided");
    broadcast.append_delta(delta_of("of the next turn", DeltaKind::ToolInput));
    broadcast.publish(4, &[over]);
    let DeliveryPoll::Deltas(deltas) = subscription.poll(4, &mut DeltaPositions::default(), 99) else {
        panic!("the subscriber has the whole journal")
    };
    let items: Vec<_> = deltas.iter().map(|chunk| chunk.delta.item.as_str()).collect();
    assert_eq!(items, ["a command of the user", "of the next turn"]);
}

#[test]
fn poll_ahead_of_published_tail_returns_nothing() {
    let (broadcast, subscription) = subscribed();
    broadcast.append_delta(delta(0, "ends with 1"));
    broadcast.mark_decided(1, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(subscription.poll(1, &mut DeltaPositions::default(), 99)), []);
    broadcast.publish(1, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(subscription.poll(1, &mut DeltaPositions::default(), 99)), []);
}

/// Step of a random history around a session.
#[derive(Debug, Clone)]
enum BroadcastStep {
    /// An item of the agent begins or grows.
    Grow { item: usize, by: usize },
    /// The session decides that an item ends. The event is not on disk yet.
    Decide { item: usize },
    /// The oldest decided event reaches the disk.
    Publish,
    /// The session decides an event that ends nothing.
    Other,
    /// A subscriber polls for at most `room` bytes.
    Poll { subscriber: usize, room: usize },
    /// A subscriber loses its state, as after a reconnect.
    Reset { subscriber: usize },
}

const SUBSCRIBERS: usize = 3;
const ITEMS: usize = 3;

fn step() -> impl Strategy<Value = BroadcastStep> {
    prop_oneof![
        4 => (0..ITEMS, 1..6usize).prop_map(|(item, by)| BroadcastStep::Grow { item, by }),
        1 => (0..ITEMS).prop_map(|item| BroadcastStep::Decide { item }),
        2 => Just(BroadcastStep::Publish),
        1 => Just(BroadcastStep::Other),
        4 => (0..SUBSCRIBERS, 1..9usize).prop_map(|(subscriber, room)| BroadcastStep::Poll { subscriber, room }),
        1 => (0..SUBSCRIBERS).prop_map(|subscriber| BroadcastStep::Reset { subscriber }),
    ]
}

/// Reference model of agent, session and journal.
#[derive(Default)]
struct BroadcastModel {
    /// Uses of each item's name so far. Makes the names unique.
    generation: [usize; ITEMS],
    /// Text of every item so far.
    text: BTreeMap<String, String>,
    /// Final text of every ended item.
    ended: BTreeMap<String, String>,
    /// Decided events: number, and the item that the event ends.
    decided: VecDeque<(Seq, Option<String>)>,
    tail: Seq,
    on_disk: Seq,
    /// Events on disk that ended an item.
    ends: BTreeMap<Seq, String>,
}

impl BroadcastModel {
    fn name(&self, item: usize) -> String {
        format!("{item}.{}", self.generation[item])
    }

    fn decide(&mut self, ends: Option<String>) {
        self.tail += 1;
        self.decided.push_back((self.tail, ends));
    }
}

/// Reference model of a client that reassembles the items.
#[derive(Default)]
struct ModelSubscriber {
    cursor: Seq,
    positions: DeltaPositions,
    partial_texts: BTreeMap<String, String>,
    /// Items whose end the client has read.
    over: Vec<String>,
}

impl ModelSubscriber {
    /// Polls once. Returns true if nothing was new.
    fn poll(
        &mut self,
        subscription: &Subscription,
        model: &BroadcastModel,
        room: usize,
    ) -> Result<bool, TestCaseError> {
        match subscription.poll(self.cursor, &mut self.positions, room) {
            DeliveryPoll::Closed => prop_assert!(false, "no step closes the broadcast"),
            DeliveryPoll::Retry(_) => prop_assert!(false, "no step waits"),
            DeliveryPoll::Behind { tail } => {
                prop_assert_eq!(tail, model.on_disk, "the reported tail is the newest event on disk");
                for seq in self.cursor + 1..=tail {
                    let Some(item) = model.ends.get(&seq) else { continue };
                    let read = self.partial_texts.remove(item).unwrap_or_default();
                    prop_assert!(model.ended[item].starts_with(&read), "{read:?} is no prefix of the ended {item}");
                    self.over.push(item.clone());
                }
                self.cursor = tail;
            }
            DeliveryPoll::Deltas(deltas) if deltas.is_empty() => return Ok(true),
            DeliveryPoll::Deltas(deltas) => {
                for DeltaChunk { delta: Delta { item, offset, content, .. }, .. } in deltas {
                    prop_assert!(!self.over.contains(&item), "{item} had ended before");
                    let read = self.partial_texts.entry(item.clone()).or_default();
                    if offset == 0 {
                        read.clear();
                    }
                    prop_assert_eq!(offset as usize, read.len());
                    read.push_str(&content);
                    prop_assert!(model.text[&item].starts_with(read.as_str()), "{read:?} was never sent");
                }
            }
        }
        Ok(false)
    }
}

proptest! {
    /// Checks any interleaving of agent, disk and subscribers.
    ///
    /// - No subscriber receives what is not on disk or live.
    /// - Each chunk follows the chunk before.
    /// - The text read of an item is a prefix of the text in its event.
    /// - In the end every subscriber has everything.
    #[test]
    fn subscribers_reassemble_all_items(steps in prop::collection::vec(step(), 1..120)) {
        let broadcast = Arc::new(SessionBroadcast::default());
        let mut model = BroadcastModel::default();
        let subscriptions: Vec<Subscription> =
            (0..SUBSCRIBERS as u64).map(|id| Subscription { broadcast: broadcast.clone(), id }).collect();
        let mut clients: Vec<ModelSubscriber> = (0..SUBSCRIBERS).map(|_| ModelSubscriber::default()).collect();
        for step in steps {
            match step {
                BroadcastStep::Grow { item, by } => {
                    let name = model.name(item);
                    let text = model.text.entry(name.clone()).or_default();
                    let offset = text.len() as u64;
                    let chunk: String = "abcdefgh".chars().cycle().skip(text.len() % 8).take(by).collect();
                    text.push_str(&chunk);
                    broadcast.append_delta(Delta { kind: DeltaKind::Text, item: name, offset, content: chunk });
                }
                BroadcastStep::Decide { item } => {
                    let name = model.name(item);
                    // The event has the text up to here. A later delta of this name is too late.
                    let text = model.text.get(&name).cloned().unwrap_or_default();
                    model.ended.insert(name.clone(), text);
                    model.decide(Some(name.clone()));
                    broadcast.mark_decided(model.tail, &[ItemEnd::Item(name.clone())]);
                    broadcast.append_delta(Delta { kind: DeltaKind::Text, item: name, offset: 0, content: "late".into() });
                    model.generation[item] += 1;
                }
                BroadcastStep::Other => {
                    model.decide(None);
                    broadcast.mark_decided(model.tail, &[]);
                }
                BroadcastStep::Publish => {
                    if let Some((seq, ends)) = model.decided.pop_front() {
                        model.on_disk = seq;
                        let ended: Vec<ItemEnd> = ends.iter().cloned().map(ItemEnd::Item).collect();
                        model.ends.extend(ends.map(|item| (seq, item)));
                        broadcast.publish(seq, &ended);
                    }
                }
                BroadcastStep::Poll { subscriber, room } => {
                    clients[subscriber].poll(&subscriptions[subscriber], &model, room)?;
                }
                BroadcastStep::Reset { subscriber } => clients[subscriber] = ModelSubscriber::default(),
            }
        }
        while let Some((seq, ends)) = model.decided.pop_front() {
            model.on_disk = seq;
            broadcast.publish(seq, &ends.iter().cloned().map(ItemEnd::Item).collect::<Vec<_>>());
            model.ends.extend(ends.map(|item| (seq, item)));
        }
        for (client, subscription) in clients.iter_mut().zip(&subscriptions) {
            while !client.poll(subscription, &model, 7)? {}
            prop_assert_eq!(client.cursor, model.on_disk);
            let open = model.text.iter().filter(|(item, _)| !model.ended.contains_key(*item));
            let open: BTreeMap<String, String> = open.map(|(item, text)| (item.clone(), text.clone())).collect();
            prop_assert_eq!(&client.partial_texts, &open);
        }
    }
}

#[test]
fn delta_with_overflowing_end_is_dropped() {
    let broadcast = SessionBroadcast::default();
    for offset in [u64::MAX, u64::MAX - 1, u64::MAX] {
        broadcast.append_delta(Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: "ab".into() });
    }
    assert!(broadcast.open_items().is_empty());
}
