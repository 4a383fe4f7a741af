//! Reports that are not acknowledged yet, in their order. Pure: no socket, no clock.

use std::collections::VecDeque;

use greenroom_protocol::link::{AgentReport, FromAgent};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// How many bytes of reports wait for their acknowledgement before whoever makes them has to wait too. Nothing is dropped;
/// one report more than fits may be taken.
pub const LIMIT: usize = 8 * 1024 * 1024;

/// Numbers reports 1, 2, 3 … and keeps each until it is acknowledged.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<(u64, Utf8Bytes)>,
    bytes: usize,
    last_n: u64,
    /// The newest that went out over the connection that stands now.
    sent: u64,
}

impl Outbox {
    /// Whether another report may be made now.
    pub fn has_room(&self) -> bool {
        self.bytes < LIMIT
    }

    /// The number of the newest report, 0 before the first.
    pub fn last_n(&self) -> u64 {
        self.last_n
    }

    /// Takes a report and gives it its number. One that no frame could hold is cut, and says so: sent, it would end the link,
    /// and come again over the next.
    pub fn push(&mut self, report: AgentReport) {
        self.last_n += 1;
        let frame = FromAgent::Report { n: self.last_n, report: report.fit() };
        let frame = serde_json::to_string(&frame).expect("a report has string keys and no foreign types");
        self.bytes += frame.len();
        self.waiting.push_back((self.last_n, frame.into()));
    }

    /// Forgets every report up to `n`. A number that was never given forgets what there is.
    pub fn ack(&mut self, n: u64) {
        while self.waiting.front().is_some_and(|(oldest, _)| *oldest <= n) {
            self.bytes -= self.waiting.pop_front().map_or(0, |(_, frame)| frame.len());
        }
        self.sent = self.sent.max(n.min(self.last_n));
    }

    /// A new connection: everything after `acked` goes out again.
    pub fn rewind(&mut self, acked: u64) {
        self.sent = 0;
        self.ack(acked);
    }

    /// The next frame for this connection.
    pub fn next_frame(&mut self) -> Option<Utf8Bytes> {
        let first = self.waiting.front().map(|(n, _)| *n)?;
        let at = (self.sent + 1).saturating_sub(first) as usize;
        let (n, frame) = self.waiting.get(at)?;
        self.sent = *n;
        Some(frame.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use greenroom_protocol::link::WorkOutcome;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum OutboxStep {
        Push,
        Deliver,
        /// The connection dies: what goes out from now on is lost.
        Die,
        Ack,
        Redial,
    }

    fn steps() -> impl Strategy<Value = Vec<OutboxStep>> {
        let one = prop_oneof![
            3 => Just(OutboxStep::Push),
            3 => Just(OutboxStep::Deliver),
            1 => Just(OutboxStep::Die),
            2 => Just(OutboxStep::Ack),
            1 => Just(OutboxStep::Redial),
        ];
        proptest::collection::vec(one, 0..200)
    }

    fn number(frame: &Utf8Bytes) -> u64 {
        serde_json::from_str::<serde_json::Value>(frame.as_str()).expect("it is JSON")["n"].as_u64().expect("a number")
    }

    fn report(n: u64) -> AgentReport {
        AgentReport::TurnEnded { turn: n.to_string(), outcome: WorkOutcome::Done }
    }

    proptest! {
        /// However connections are cut, a server that keeps what follows its newest gets every report once and in order.
        #[test]
        fn exactly_once_in_order(moves in steps()) {
            let (mut outbox, mut made, mut on_disk, mut alive) = (Outbox::default(), 0, 0, true);
            // At last it is dialled once more, and all is delivered.
            let end = [OutboxStep::Redial].into_iter().chain((0..moves.len()).map(|_| OutboxStep::Deliver));
            for step in moves.clone().into_iter().chain(end) {
                match step {
                    OutboxStep::Push => { made += 1; outbox.push(report(made)); }
                    OutboxStep::Die => alive = false,
                    OutboxStep::Redial => { alive = true; outbox.rewind(on_disk); }
                    OutboxStep::Ack => if alive { outbox.ack(on_disk); },
                    OutboxStep::Deliver => if let (Some(frame), true) = (outbox.next_frame(), alive) {
                        prop_assert_eq!(number(&frame), on_disk + 1);
                        on_disk += 1;
                    },
                }
            }
            prop_assert_eq!(on_disk, made);
            prop_assert_eq!(outbox.last_n(), made);
        }

        /// What is acknowledged is forgotten, what is not is kept, and the count of bytes follows.
        #[test]
        fn an_ack_forgets_that_much(made in 0u64..50, acked in 0u64..60, later in 0u64..60) {
            let mut outbox = Outbox::default();
            (1..=made).for_each(|n| outbox.push(report(n)));
            outbox.ack(acked);
            outbox.rewind(later);
            let rest: Vec<u64> = std::iter::from_fn(|| outbox.next_frame()).map(|frame| number(&frame)).collect();
            prop_assert_eq!(rest, (acked.max(later) + 1..=made).collect::<Vec<_>>());
            outbox.ack(made);
            prop_assert_eq!(outbox.bytes, 0);
        }
    }

    #[test]
    fn a_full_outbox_says_so_until_it_is_acknowledged() {
        let mut outbox = Outbox::default();
        outbox.push(AgentReport::Piece { item: "i".into(), offset: 0, text: "x".repeat(LIMIT) });
        assert!(!outbox.has_room());
        outbox.ack(1);
        assert!(outbox.has_room());
    }
}
