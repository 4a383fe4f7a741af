use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn delta(offset: u64, content: &str) -> Delta {
    Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: content.into() }
}

fn subscribed() -> (Arc<SessionBroadcast>, Subscription) {
    let shared = Arc::new(SessionBroadcast::default());
    let listening = Subscription { shared: shared.clone(), id: 0 };
    (shared, listening)
}

fn chunks(look: DeliveryPoll) -> Vec<(u64, String)> {
    match look {
        DeliveryPoll::Deltas(deltas) => {
            deltas.into_iter().map(|DeltaChunk { delta, .. }| (delta.offset, delta.content)).collect()
        }
        DeliveryPoll::Behind { tail } => panic!("behind {tail}"),
        DeliveryPoll::Closed => panic!("closed"),
    }
}

#[test]
fn a_late_listener_gets_the_item_so_far_and_then_only_what_is_new() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "Hel"));
    shared.append_delta(delta(3, "lo"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "Hello".into())]);
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), []);
    shared.append_delta(delta(0, "Hello there"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(5, " there".into())]);
}

/// As where a provider's answer was cut, and the next one gives its call the same id.
#[test]
fn an_item_that_begins_again_is_read_from_its_new_beginning() {
    for longer in ["", " and then much more than there was before"] {
        let (shared, listening) = subscribed();
        let mut seen = DeltaPositions::default();
        shared.append_delta(delta(0, "what was said at first"));
        assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "what was said at first".into())]);
        shared.append_delta(delta(0, "äöü"));
        shared.append_delta(delta(6, "äöüäöüäöüäöü"));
        shared.append_delta(delta(30, longer));
        let all = format!("äöüäöüäöüäöüäöü{longer}");
        assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, all)]);
        assert_eq!(chunks(listening.poll(0, &mut seen, 99)), []);
    }
}

#[test]
fn an_item_that_begins_again_with_a_longer_piece_is_not_taken_for_the_same() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "abc"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "abc".into())]);
    shared.append_delta(delta(0, "something else"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "something else".into())]);
}

#[test]
fn an_item_with_a_gap_is_read_from_behind_it() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "one"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "one".into())]);
    shared.append_delta(delta(9, "ten"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "ten".into())]);
    shared.append_delta(delta(12, " more"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(12, " more".into())]);
}

#[test]
fn no_delta_before_the_journal_and_none_after_the_end() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "x"));
    shared.publish(1, &[]);
    assert!(matches!(listening.poll(0, &mut seen, 99), DeliveryPoll::Behind { tail: 1 }));
    assert_eq!(chunks(listening.poll(1, &mut seen, 99)), [(0, "x".into())]);
    shared.publish(2, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(listening.poll(2, &mut seen, 99)), []);
    assert!(seen.0.is_empty());
}

#[test]
fn what_is_decided_to_end_grows_no_more() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "said"));
    shared.mark_decided(1, &[ItemEnd::Item("i".into())]);
    shared.append_delta(delta(4, " and more"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "said".into())]);
    assert!(shared.open_items().is_empty(), "it is not ended twice");
    shared.publish(1, &[ItemEnd::Item("i".into())]);
    shared.append_delta(delta(4, " and more"));
    assert_eq!(chunks(listening.poll(1, &mut seen, 99)), []);
    for n in 0..2 * MAX_SEALED {
        shared.mark_decided(1, &[ItemEnd::Item(n.to_string())]);
    }
    assert_eq!(shared.live().sealed.len(), MAX_SEALED);
}

/// As while the disk hangs, and people go on writing.
#[test]
fn what_is_decided_to_end_is_not_forgotten_before_that_is_on_disk() {
    let (shared, listening) = subscribed();
    shared.append_delta(delta(0, "said"));
    shared.mark_decided(1, &[ItemEnd::Item("i".into())]);
    for n in 0..2 * MAX_SEALED {
        shared.mark_decided(2 + n as Seq, &[ItemEnd::ToolInput(format!("message-{n}"))]);
    }
    assert!(shared.open_items().is_empty(), "it is not ended twice");
    shared.append_delta(delta(4, " and more"));
    assert_eq!(chunks(listening.poll(0, &mut DeltaPositions::default(), 99)), [(0, "said".into())]);
}

#[test]
fn an_agent_that_begins_ever_new_items_is_kept_bounded() {
    let (shared, listening) = subscribed();
    let grow = |n: usize, content: &str| {
        shared.append_delta(Delta { kind: DeltaKind::Text, item: n.to_string(), offset: 0, content: content.into() });
    };
    for n in 0..4 * MAX_ITEMS {
        grow(n, "x");
    }
    assert_eq!(shared.open_items().len(), MAX_ITEMS);
    for n in 0..100 {
        grow(n, &"y".repeat(16 * RETAINED_BYTES));
    }
    let open = shared.open_items();
    assert!(open.iter().map(|open| open.text.len()).sum::<usize>() <= MAX_BYTES);
    assert!(
        shared.live().items.iter().all(|growing| growing.text.capacity() <= 2 * RETAINED_BYTES),
        "no more than is needed"
    );
    assert_eq!(open.last().map(|open| &*open.item), Some("99"), "the newest are kept");
    grow(0, "again");
    let again = listening.poll(0, &mut DeltaPositions::default(), usize::MAX);
    assert!(
        matches!(again, DeliveryPoll::Deltas(deltas) if deltas.last().is_some_and(|piece| piece.delta.content == "again"))
    );
}

#[test]
fn a_long_item_is_taken_in_pieces_and_kept_bounded() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    shared.append_delta(delta(0, "äöü"));
    assert_eq!(chunks(listening.poll(0, &mut seen, 5)), [(0, "äö".into())]);
    assert_eq!(chunks(listening.poll(0, &mut seen, 5)), [(4, "ü".into())]);
    let mut offset = 6;
    for _ in 0..40 {
        shared.append_delta(delta(offset, &"y".repeat(RETAINED_BYTES / 8)));
        offset += (RETAINED_BYTES / 8) as u64;
    }
    assert!(shared.open_items()[0].text.len() <= 2 * RETAINED_BYTES);
    let late = chunks(listening.poll(0, &mut DeltaPositions::default(), usize::MAX));
    assert_eq!(late[0].0, 0);
    assert_eq!(chunks(listening.poll(0, &mut seen, usize::MAX))[0].0, 0, "what was missed is gone: it begins anew");
    assert_eq!(chunks(listening.poll(0, &mut seen, usize::MAX)), []);
}

#[test]
fn an_output_that_begins_before_its_action_is_on_disk_waits_for_it() {
    let (shared, listening) = subscribed();
    let mut seen = DeltaPositions::default();
    let input = Delta { kind: DeltaKind::ToolInput, ..delta(0, "{}") };
    let output = Delta { kind: DeltaKind::Output, ..delta(0, "out") };
    shared.append_delta(input);
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), [(0, "{}".into())]);
    shared.mark_decided(1, &[ItemEnd::ToolInput("i".into())]);
    shared.append_delta(output);
    assert_eq!(chunks(listening.poll(0, &mut seen, 99)), []);
    shared.publish(1, &[ItemEnd::ToolInput("i".into())]);
    assert_eq!(chunks(listening.poll(1, &mut seen, 99)), [(0, "out".into())]);
}

#[test]
fn inputs_of_calls_that_never_came_end_with_their_turn() {
    let (shared, listening) = subscribed();
    let of = |item: &str, kind| Delta { kind, item: item.into(), offset: 0, content: "{}".into() };
    shared.append_delta(of("never called", DeltaKind::ToolInput));
    shared.append_delta(of("a command of the user", DeltaKind::Output));
    let over = shared.end_of_tool_inputs();
    shared.mark_decided(4, std::slice::from_ref(&over));
    assert_eq!(shared.open_items().len(), 1, "it is over as soon as that is decided");
    shared.append_delta(of("of the next turn", DeltaKind::ToolInput));
    shared.publish(4, &[over]);
    let DeliveryPoll::Deltas(deltas) = listening.poll(4, &mut DeltaPositions::default(), 99) else {
        panic!("it is not behind")
    };
    let items: Vec<_> = deltas.iter().map(|piece| piece.delta.item.as_str()).collect();
    assert_eq!(items, ["a command of the user", "of the next turn"]);
}

#[test]
fn who_knows_more_of_the_journal_than_the_session_told_waits_for_it() {
    let (shared, listening) = subscribed();
    shared.append_delta(delta(0, "ends with 1"));
    shared.mark_decided(1, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(listening.poll(1, &mut DeltaPositions::default(), 99)), []);
    shared.publish(1, &[ItemEnd::Item("i".into())]);
    assert_eq!(chunks(listening.poll(1, &mut DeltaPositions::default(), 99)), []);
}

/// What happens around a session, in any order.
#[derive(Debug, Clone)]
enum BroadcastStep {
    /// An item of the agent grows, or begins.
    Grow { item: usize, by: usize },
    /// The session decides that an item ends; the journal does not have it yet.
    Decide { item: usize },
    /// The oldest decision is on disk.
    Publish,
    /// The session decides about something that ends nothing.
    Other,
    /// A listener looks, with so much room.
    Poll { listener: usize, room: usize },
    /// A listener forgets all that it has seen, as one does that comes back.
    Reset { listener: usize },
}

const SUBSCRIBERS: usize = 3;
const ITEMS: usize = 3;

fn step() -> impl Strategy<Value = BroadcastStep> {
    prop_oneof![
        4 => (0..ITEMS, 1..6usize).prop_map(|(item, by)| BroadcastStep::Grow { item, by }),
        1 => (0..ITEMS).prop_map(|item| BroadcastStep::Decide { item }),
        2 => Just(BroadcastStep::Publish),
        1 => Just(BroadcastStep::Other),
        4 => (0..SUBSCRIBERS, 1..9usize).prop_map(|(listener, room)| BroadcastStep::Poll { listener, room }),
        1 => (0..SUBSCRIBERS).prop_map(|listener| BroadcastStep::Reset { listener }),
    ]
}

/// What the agent, the session and the journal know.
#[derive(Default)]
struct BroadcastModel {
    /// How often each item's name was used, so that each has a name of its own.
    generation: [usize; ITEMS],
    /// Every item's text so far, and how it ended.
    text: BTreeMap<String, String>,
    ended: BTreeMap<String, String>,
    /// Decided: the number of the event, and what it ends.
    decided: VecDeque<(Seq, Option<String>)>,
    tail: Seq,
    on_disk: Seq,
    /// Which event ended which item, once it is on disk.
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

/// What a client has put together.
#[derive(Default)]
struct ModelSubscriber {
    cursor: Seq,
    seen: DeltaPositions,
    growing: BTreeMap<String, String>,
    /// Items whose end it has read.
    over: Vec<String>,
}

impl ModelSubscriber {
    /// Looks once; true if there was nothing new.
    fn poll(&mut self, listening: &Subscription, truth: &BroadcastModel, room: usize) -> Result<bool, TestCaseError> {
        match listening.poll(self.cursor, &mut self.seen, room) {
            DeliveryPoll::Closed => prop_assert!(false, "nobody closed it"),
            DeliveryPoll::Behind { tail } => {
                prop_assert_eq!(tail, truth.on_disk, "it is told of what is on disk and of nothing else");
                for seq in self.cursor + 1..=tail {
                    let Some(item) = truth.ends.get(&seq) else { continue };
                    let read = self.growing.remove(item).unwrap_or_default();
                    prop_assert!(truth.ended[item].starts_with(&read), "{read:?} is not how {item} ended");
                    self.over.push(item.clone());
                }
                self.cursor = tail;
            }
            DeliveryPoll::Deltas(deltas) if deltas.is_empty() => return Ok(true),
            DeliveryPoll::Deltas(deltas) => {
                for DeltaChunk { delta: Delta { item, offset, content, .. }, .. } in deltas {
                    prop_assert!(!self.over.contains(&item), "{item} had ended");
                    let read = self.growing.entry(item.clone()).or_default();
                    if offset == 0 {
                        read.clear();
                    }
                    prop_assert_eq!(offset as usize, read.len());
                    read.push_str(&content);
                    prop_assert!(truth.text[&item].starts_with(read.as_str()), "{read:?} was never said");
                }
            }
        }
        Ok(false)
    }
}

proptest! {
    /// However the agent, the disk and the listeners interleave: nobody sees what is not on disk, a piece fits to the one
    /// before, what was read of an item is how it begins in its event, and in the end everybody has everything.
    #[test]
    fn listeners_piece_together_what_was_said(steps in prop::collection::vec(step(), 1..120)) {
        let shared = Arc::new(SessionBroadcast::default());
        let mut truth = BroadcastModel::default();
        let listeners: Vec<Subscription> =
            (0..SUBSCRIBERS as u64).map(|id| Subscription { shared: shared.clone(), id }).collect();
        let mut clients: Vec<ModelSubscriber> = (0..SUBSCRIBERS).map(|_| ModelSubscriber::default()).collect();
        for step in steps {
            match step {
                BroadcastStep::Grow { item, by } => {
                    let name = truth.name(item);
                    let text = truth.text.entry(name.clone()).or_default();
                    let offset = text.len() as u64;
                    let piece: String = "abcdefgh".chars().cycle().skip(text.len() % 8).take(by).collect();
                    text.push_str(&piece);
                    shared.append_delta(Delta { kind: DeltaKind::Text, item: name, offset, content: piece });
                }
                BroadcastStep::Decide { item } => {
                    let name = truth.name(item);
                    // The event holds what was said up to here; what comes later under the name came too late.
                    let text = truth.text.get(&name).cloned().unwrap_or_default();
                    truth.ended.insert(name.clone(), text);
                    truth.decide(Some(name.clone()));
                    shared.mark_decided(truth.tail, &[ItemEnd::Item(name.clone())]);
                    shared.append_delta(Delta { kind: DeltaKind::Text, item: name, offset: 0, content: "late".into() });
                    truth.generation[item] += 1;
                }
                BroadcastStep::Other => {
                    truth.decide(None);
                    shared.mark_decided(truth.tail, &[]);
                }
                BroadcastStep::Publish => {
                    if let Some((seq, ends)) = truth.decided.pop_front() {
                        truth.on_disk = seq;
                        let ended: Vec<ItemEnd> = ends.iter().cloned().map(ItemEnd::Item).collect();
                        truth.ends.extend(ends.map(|item| (seq, item)));
                        shared.publish(seq, &ended);
                    }
                }
                BroadcastStep::Poll { listener, room } => {
                    clients[listener].poll(&listeners[listener], &truth, room)?;
                }
                BroadcastStep::Reset { listener } => clients[listener] = ModelSubscriber::default(),
            }
        }
        while let Some((seq, ends)) = truth.decided.pop_front() {
            truth.on_disk = seq;
            shared.publish(seq, &ends.iter().cloned().map(ItemEnd::Item).collect::<Vec<_>>());
            truth.ends.extend(ends.map(|item| (seq, item)));
        }
        for (client, listening) in clients.iter_mut().zip(&listeners) {
            while !client.poll(listening, &truth, 7)? {}
            prop_assert_eq!(client.cursor, truth.on_disk);
            let open = truth.text.iter().filter(|(item, _)| !truth.ended.contains_key(*item));
            let open: BTreeMap<String, String> = open.map(|(item, text)| (item.clone(), text.clone())).collect();
            prop_assert_eq!(&client.growing, &open);
        }
    }
}

#[test]
fn a_text_that_ends_nowhere_is_not_kept() {
    let shared = SessionBroadcast::default();
    for offset in [u64::MAX, u64::MAX - 1, u64::MAX] {
        shared.append_delta(Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: "ab".into() });
    }
    assert!(shared.open_items().is_empty());
}
