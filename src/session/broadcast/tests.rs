use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn delta(offset: u64, content: &str) -> Delta {
    Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: content.into() }
}

fn shared() -> (Arc<Shared>, Listening) {
    let shared = Arc::new(Shared::default());
    let listening = Listening { shared: shared.clone(), id: 0 };
    (shared, listening)
}

fn pieces(look: Look) -> Vec<(u64, String)> {
    match look {
        Look::Deltas(deltas) => deltas.into_iter().map(|Piece { delta, .. }| (delta.offset, delta.content)).collect(),
        Look::Behind { tail } => panic!("behind {tail}"),
        Look::Closed => panic!("closed"),
    }
}

#[test]
fn a_late_listener_gets_the_item_so_far_and_then_only_what_is_new() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "Hel"));
    shared.grow(delta(3, "lo"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "Hello".into())]);
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), []);
    shared.grow(delta(0, "Hello there"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(5, " there".into())]);
}

/// As where a provider's answer was cut, and the next one gives its call the same id.
#[test]
fn an_item_that_begins_again_is_read_from_its_new_beginning() {
    for longer in ["", " and then much more than there was before"] {
        let (shared, listening) = shared();
        let mut seen = Seen::default();
        shared.grow(delta(0, "what was said at first"));
        assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "what was said at first".into())]);
        shared.grow(delta(0, "äöü"));
        shared.grow(delta(6, "äöüäöüäöüäöü"));
        shared.grow(delta(30, longer));
        let all = format!("äöüäöüäöüäöüäöü{longer}");
        assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, all)]);
        assert_eq!(pieces(listening.look(0, &mut seen, 99)), []);
    }
}

#[test]
fn an_item_that_begins_again_with_a_longer_piece_is_not_taken_for_the_same() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "abc"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "abc".into())]);
    shared.grow(delta(0, "something else"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "something else".into())]);
}

#[test]
fn an_item_with_a_gap_is_read_from_behind_it() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "one"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "one".into())]);
    shared.grow(delta(9, "ten"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "ten".into())]);
    shared.grow(delta(12, " more"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(12, " more".into())]);
}

#[test]
fn no_delta_before_the_journal_and_none_after_the_end() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "x"));
    shared.publish(1, &[]);
    assert!(matches!(listening.look(0, &mut seen, 99), Look::Behind { tail: 1 }));
    assert_eq!(pieces(listening.look(1, &mut seen, 99)), [(0, "x".into())]);
    shared.publish(2, &[Ended::Whole("i".into())]);
    assert_eq!(pieces(listening.look(2, &mut seen, 99)), []);
    assert!(seen.0.is_empty());
}

#[test]
fn what_is_decided_to_end_grows_no_more() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "said"));
    shared.decide(1, &[Ended::Whole("i".into())]);
    shared.grow(delta(4, " and more"));
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "said".into())]);
    assert!(shared.open().is_empty(), "it is not ended twice");
    shared.publish(1, &[Ended::Whole("i".into())]);
    shared.grow(delta(4, " and more"));
    assert_eq!(pieces(listening.look(1, &mut seen, 99)), []);
    for n in 0..2 * SEALED {
        shared.decide(1, &[Ended::Whole(n.to_string())]);
    }
    assert_eq!(shared.live().sealed.len(), SEALED);
}

/// As while the disk hangs, and people go on writing.
#[test]
fn what_is_decided_to_end_is_not_forgotten_before_that_is_on_disk() {
    let (shared, listening) = shared();
    shared.grow(delta(0, "said"));
    shared.decide(1, &[Ended::Whole("i".into())]);
    for n in 0..2 * SEALED {
        shared.decide(2 + n as Seq, &[Ended::Input(format!("message-{n}"))]);
    }
    assert!(shared.open().is_empty(), "it is not ended twice");
    shared.grow(delta(4, " and more"));
    assert_eq!(pieces(listening.look(0, &mut Seen::default(), 99)), [(0, "said".into())]);
}

#[test]
fn an_agent_that_begins_ever_new_items_is_kept_bounded() {
    let (shared, listening) = shared();
    let grow = |n: usize, content: &str| {
        shared.grow(Delta { kind: DeltaKind::Text, item: n.to_string(), offset: 0, content: content.into() });
    };
    for n in 0..4 * MOST_ITEMS {
        grow(n, "x");
    }
    assert_eq!(shared.open().len(), MOST_ITEMS);
    for n in 0..100 {
        grow(n, &"y".repeat(16 * KEEP));
    }
    let open = shared.open();
    assert!(open.iter().map(|open| open.text.len()).sum::<usize>() <= MOST_BYTES);
    assert!(shared.live().items.iter().all(|growing| growing.text.capacity() <= 2 * KEEP), "no more than is needed");
    assert_eq!(open.last().map(|open| &*open.item), Some("99"), "the newest are kept");
    grow(0, "again");
    let again = listening.look(0, &mut Seen::default(), usize::MAX);
    assert!(matches!(again, Look::Deltas(deltas) if deltas.last().is_some_and(|piece| piece.delta.content == "again")));
}

#[test]
fn a_long_item_is_taken_in_pieces_and_kept_bounded() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    shared.grow(delta(0, "äöü"));
    assert_eq!(pieces(listening.look(0, &mut seen, 5)), [(0, "äö".into())]);
    assert_eq!(pieces(listening.look(0, &mut seen, 5)), [(4, "ü".into())]);
    let mut offset = 6;
    for _ in 0..40 {
        shared.grow(delta(offset, &"y".repeat(KEEP / 8)));
        offset += (KEEP / 8) as u64;
    }
    assert!(shared.open()[0].text.len() <= 2 * KEEP);
    let late = pieces(listening.look(0, &mut Seen::default(), usize::MAX));
    assert_eq!(late[0].0, 0);
    assert_eq!(pieces(listening.look(0, &mut seen, usize::MAX))[0].0, 0, "what was missed is gone: it begins anew");
    assert_eq!(pieces(listening.look(0, &mut seen, usize::MAX)), []);
}

#[test]
fn an_output_that_begins_before_its_action_is_on_disk_waits_for_it() {
    let (shared, listening) = shared();
    let mut seen = Seen::default();
    let input = Delta { kind: DeltaKind::ToolInput, ..delta(0, "{}") };
    let output = Delta { kind: DeltaKind::Output, ..delta(0, "out") };
    shared.grow(input);
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), [(0, "{}".into())]);
    shared.decide(1, &[Ended::Input("i".into())]);
    shared.grow(output);
    assert_eq!(pieces(listening.look(0, &mut seen, 99)), []);
    shared.publish(1, &[Ended::Input("i".into())]);
    assert_eq!(pieces(listening.look(1, &mut seen, 99)), [(0, "out".into())]);
}

#[test]
fn inputs_of_calls_that_never_came_end_with_their_turn() {
    let (shared, listening) = shared();
    let of = |item: &str, kind| Delta { kind, item: item.into(), offset: 0, content: "{}".into() };
    shared.grow(of("never called", DeltaKind::ToolInput));
    shared.grow(of("a command of the user", DeltaKind::Output));
    let over = shared.end_of_inputs();
    shared.decide(4, std::slice::from_ref(&over));
    assert_eq!(shared.open().len(), 1, "it is over as soon as that is decided");
    shared.grow(of("of the next turn", DeltaKind::ToolInput));
    shared.publish(4, &[over]);
    let Look::Deltas(deltas) = listening.look(4, &mut Seen::default(), 99) else { panic!("it is not behind") };
    let items: Vec<_> = deltas.iter().map(|piece| piece.delta.item.as_str()).collect();
    assert_eq!(items, ["a command of the user", "of the next turn"]);
}

#[test]
fn who_knows_more_of_the_journal_than_the_session_told_waits_for_it() {
    let (shared, listening) = shared();
    shared.grow(delta(0, "ends with 1"));
    shared.decide(1, &[Ended::Whole("i".into())]);
    assert_eq!(pieces(listening.look(1, &mut Seen::default(), 99)), []);
    shared.publish(1, &[Ended::Whole("i".into())]);
    assert_eq!(pieces(listening.look(1, &mut Seen::default(), 99)), []);
}

/// What happens around a session, in any order.
#[derive(Debug, Clone)]
enum Step {
    /// An item of the agent grows, or begins.
    Grow { item: usize, by: usize },
    /// The session decides that an item ends; the journal does not have it yet.
    Decide { item: usize },
    /// The oldest decision is on disk.
    Publish,
    /// The session decides about something that ends nothing.
    Other,
    /// A listener looks, with so much room.
    Look { listener: usize, room: usize },
    /// A listener forgets all that it has seen, as one does that comes back.
    Anew { listener: usize },
}

const LISTENERS: usize = 3;
const ITEMS: usize = 3;

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..ITEMS, 1..6usize).prop_map(|(item, by)| Step::Grow { item, by }),
        1 => (0..ITEMS).prop_map(|item| Step::Decide { item }),
        2 => Just(Step::Publish),
        1 => Just(Step::Other),
        4 => (0..LISTENERS, 1..9usize).prop_map(|(listener, room)| Step::Look { listener, room }),
        1 => (0..LISTENERS).prop_map(|listener| Step::Anew { listener }),
    ]
}

/// What the agent, the session and the journal know.
#[derive(Default)]
struct Truth {
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

impl Truth {
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
struct Client {
    cursor: Seq,
    seen: Seen,
    growing: BTreeMap<String, String>,
    /// Items whose end it has read.
    over: Vec<String>,
}

impl Client {
    /// Looks once; true if there was nothing new.
    fn look(&mut self, listening: &Listening, truth: &Truth, room: usize) -> Result<bool, TestCaseError> {
        match listening.look(self.cursor, &mut self.seen, room) {
            Look::Closed => prop_assert!(false, "nobody closed it"),
            Look::Behind { tail } => {
                prop_assert_eq!(tail, truth.on_disk, "it is told of what is on disk and of nothing else");
                for seq in self.cursor + 1..=tail {
                    let Some(item) = truth.ends.get(&seq) else { continue };
                    let read = self.growing.remove(item).unwrap_or_default();
                    prop_assert!(truth.ended[item].starts_with(&read), "{read:?} is not how {item} ended");
                    self.over.push(item.clone());
                }
                self.cursor = tail;
            }
            Look::Deltas(deltas) if deltas.is_empty() => return Ok(true),
            Look::Deltas(deltas) => {
                for Piece { delta: Delta { item, offset, content, .. }, .. } in deltas {
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
        let shared = Arc::new(Shared::default());
        let mut truth = Truth::default();
        let listeners: Vec<Listening> =
            (0..LISTENERS as u64).map(|id| Listening { shared: shared.clone(), id }).collect();
        let mut clients: Vec<Client> = (0..LISTENERS).map(|_| Client::default()).collect();
        for step in steps {
            match step {
                Step::Grow { item, by } => {
                    let name = truth.name(item);
                    let text = truth.text.entry(name.clone()).or_default();
                    let offset = text.len() as u64;
                    let piece: String = "abcdefgh".chars().cycle().skip(text.len() % 8).take(by).collect();
                    text.push_str(&piece);
                    shared.grow(Delta { kind: DeltaKind::Text, item: name, offset, content: piece });
                }
                Step::Decide { item } => {
                    let name = truth.name(item);
                    // The event holds what was said up to here; what comes later under the name came too late.
                    let text = truth.text.get(&name).cloned().unwrap_or_default();
                    truth.ended.insert(name.clone(), text);
                    truth.decide(Some(name.clone()));
                    shared.decide(truth.tail, &[Ended::Whole(name.clone())]);
                    shared.grow(Delta { kind: DeltaKind::Text, item: name, offset: 0, content: "late".into() });
                    truth.generation[item] += 1;
                }
                Step::Other => {
                    truth.decide(None);
                    shared.decide(truth.tail, &[]);
                }
                Step::Publish => {
                    if let Some((seq, ends)) = truth.decided.pop_front() {
                        truth.on_disk = seq;
                        let ended: Vec<Ended> = ends.iter().cloned().map(Ended::Whole).collect();
                        truth.ends.extend(ends.map(|item| (seq, item)));
                        shared.publish(seq, &ended);
                    }
                }
                Step::Look { listener, room } => {
                    clients[listener].look(&listeners[listener], &truth, room)?;
                }
                Step::Anew { listener } => clients[listener] = Client::default(),
            }
        }
        while let Some((seq, ends)) = truth.decided.pop_front() {
            truth.on_disk = seq;
            shared.publish(seq, &ends.iter().cloned().map(Ended::Whole).collect::<Vec<_>>());
            truth.ends.extend(ends.map(|item| (seq, item)));
        }
        for (client, listening) in clients.iter_mut().zip(&listeners) {
            while !client.look(listening, &truth, 7)? {}
            prop_assert_eq!(client.cursor, truth.on_disk);
            let open = truth.text.iter().filter(|(item, _)| !truth.ended.contains_key(*item));
            let open: BTreeMap<String, String> = open.map(|(item, text)| (item.clone(), text.clone())).collect();
            prop_assert_eq!(&client.growing, &open);
        }
    }
}

#[test]
fn a_text_that_ends_nowhere_is_not_kept() {
    let shared = Shared::default();
    for offset in [u64::MAX, u64::MAX - 1, u64::MAX] {
        shared.grow(Delta { kind: DeltaKind::Text, item: "i".into(), offset, content: "ab".into() });
    }
    assert!(shared.open().is_empty());
}
