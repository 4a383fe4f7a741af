//! Reports that are not acknowledged yet, in order. Pure: no socket, no clock.

use std::collections::VecDeque;

use greenroom_protocol::link::{AgentReport, FromAgent};
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// Bound: 8 MiB of unacknowledged reports, plus one report. When full: the sender of a report
/// blocks until an acknowledgement. Reports are never dropped.
pub const LIMIT: usize = 8 * 1024 * 1024;

/// Numbers reports 1, 2, 3 … and keeps each until it is acknowledged.
#[derive(Debug, Default)]
pub struct Outbox {
    waiting: VecDeque<(u64, Utf8Bytes)>,
    bytes: usize,
    last_n: u64,
    /// Number of the newest report sent over the current connection.
    sent: u64,
}

impl Outbox {
    /// Returns an outbox that holds the reports of an earlier start, numbered as they were.
    pub fn of_earlier_start(frames: Vec<(u64, Utf8Bytes)>) -> Outbox {
        let bytes = frames.iter().map(|(_, frame)| frame.len()).sum();
        let last_n = frames.last().map_or(0, |(n, _)| *n);
        Outbox { waiting: frames.into(), bytes, last_n, sent: 0 }
    }

    /// Returns `true` if another report is accepted now.
    pub fn has_room(&self) -> bool {
        self.bytes < LIMIT
    }

    /// Number of the newest report, 0 before the first.
    pub fn last_n(&self) -> u64 {
        self.last_n
    }

    /// Numbers and queues a report. A report too large for a frame is truncated, and marked as
    /// such. Otherwise it would end the link, and come again over the next.
    pub fn push(&mut self, report: AgentReport) {
        self.last_n += 1;
        let frame = FromAgent::Report { n: self.last_n, report: report.fit() };
        let frame = serde_json::to_string(&frame).expect("a report serializes: string keys, no foreign types");
        self.bytes += frame.len();
        self.waiting.push_back((self.last_n, frame.into()));
    }

    /// Returns the unacknowledged reports, oldest first.
    pub fn unacknowledged(&self) -> Vec<(u64, Utf8Bytes)> {
        self.waiting.iter().cloned().collect()
    }

    /// Forgets every report up to `n`. An `n` above the newest number forgets all reports.
    pub fn ack(&mut self, n: u64) {
        while self.waiting.front().is_some_and(|(oldest, _)| *oldest <= n) {
            self.bytes -= self.waiting.pop_front().map_or(0, |(_, frame)| frame.len());
        }
        self.sent = self.sent.max(n.min(self.last_n));
    }

    /// Prepares for a new connection: all reports after `acked` are sent again.
    pub fn rewind(&mut self, acked: u64) {
        self.sent = 0;
        self.ack(acked);
    }

    /// Returns the next frame for the current connection.
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
        /// Cuts the connection: frames sent from now on are lost.
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
        serde_json::from_str::<serde_json::Value>(frame.as_str()).expect("a frame is JSON")["n"]
            .as_u64()
            .expect("a number")
    }

    fn report(n: u64) -> AgentReport {
        AgentReport::TurnEnded { turn: n.to_string(), outcome: WorkOutcome::Done }
    }

    proptest! {
        /// A server that accepts only the next number gets every report once and in order, however
        /// connections are cut.
        #[test]
        fn reports_arrive_exactly_once_in_order(moves in steps()) {
            let (mut outbox, mut made, mut on_disk, mut alive) = (Outbox::default(), 0, 0, true);
            // At the end the server dials once more, and all frames are delivered.
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

        /// Acknowledged reports are forgotten, others are kept, and the byte count follows.
        #[test]
        fn ack_forgets_exactly_the_acknowledged(made in 0u64..50, acked in 0u64..60, later in 0u64..60) {
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
    fn full_outbox_has_room_after_acknowledgement() {
        let mut outbox = Outbox::default();
        outbox.push(AgentReport::Piece { item: "i".into(), offset: 0, text: "x".repeat(LIMIT), base64: false });
        assert!(!outbox.has_room());
        outbox.ack(1);
        assert!(outbox.has_room());
    }
}
