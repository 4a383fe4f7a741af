//! Credit: the bytes that may be sent to a client before it confirms some. Pure.
//!
//! After each [`PING_INTERVAL_BYTES`] the socket sends a Ping with the number of all bytes so far.
//! Every WebSocket client, browsers included, answers with a Pong of the same payload, and that
//! Pong opens the window. No client code is involved.
//!
//! A client may answer only the newest Ping (RFC 6455, section 5.5.3), so the counts are
//! cumulative.

/// Bytes between two Pings.
const PING_INTERVAL_BYTES: u64 = 64 * 1024;
/// Unconfirmed bytes above which nothing new is sent.
const WINDOW: u64 = 256 * 1024;
/// Pings without a Pong after which the client counts as gone. One is sent at each
/// [`super::connection`] heartbeat.
const MAX_MISSED_PONGS: u32 = 2;

/// Credit account of one connection.
#[derive(Debug, Default)]
pub(super) struct Credit {
    sent: u64,
    pinged: u64,
    confirmed: u64,
    unanswered: u32,
}

impl Credit {
    /// Returns the bytes that may be sent now. The last frame may exceed them.
    pub(super) fn room(&self) -> u64 {
        WINDOW.saturating_sub(self.unconfirmed())
    }

    /// Returns the bytes that the client has not confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.sent - self.confirmed
    }

    /// Books sent bytes. Returns the payload of a Ping if one is due.
    pub(super) fn sent(&mut self, bytes: usize) -> Option<[u8; 8]> {
        self.sent += bytes as u64;
        (self.sent - self.pinged >= PING_INTERVAL_BYTES).then(|| self.ping())
    }

    /// Books a heartbeat. Returns the Ping to send, or `None` if the client has not answered for
    /// too long.
    ///
    /// Heartbeats are counted, not time. So a suspended server does not close clients for its own
    /// pause.
    pub(super) fn heartbeat(&mut self) -> Option<[u8; 8]> {
        self.unanswered += 1;
        (self.unanswered <= MAX_MISSED_PONGS).then(|| self.ping())
    }

    /// Books a Pong, or other input of the client (`None`). A count that was never sent confirms
    /// nothing.
    pub(super) fn received(&mut self, pong: Option<&[u8]>) {
        self.unanswered = 0;
        if let Some(count) = pong.and_then(|payload| payload.try_into().ok()).map(u64::from_be_bytes)
            && count <= self.pinged
        {
            self.confirmed = self.confirmed.max(count);
        }
    }

    fn ping(&mut self) -> [u8; 8] {
        self.pinged = self.sent;
        self.sent.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum CreditStep {
        /// The socket sends a frame of that size if it has room.
        Send(usize),
        Beat,
        /// The client answers a Ping: the one that many before the newest.
        Pong(usize),
        /// The client sends other input.
        Speak,
        /// The client forges a Pong.
        Forge(u64),
    }

    fn step() -> impl Strategy<Value = CreditStep> {
        prop_oneof![
            4 => (1..3 * WINDOW as usize).prop_map(CreditStep::Send),
            4 => (1..2000usize).prop_map(CreditStep::Send),
            1 => Just(CreditStep::Beat),
            3 => (0..6usize).prop_map(CreditStep::Pong),
            1 => Just(CreditStep::Speak),
            1 => any::<u64>().prop_map(CreditStep::Forge),
        ]
    }

    proptest! {
        /// For any answers of a client, three statements hold. At most a window and a frame are
        /// unconfirmed. The confirmed bytes were sent. An answer to the newest Ping alone lets the
        /// client continue.
        #[test]
        fn credit_stays_within_window_and_never_stalls(steps in prop::collection::vec(step(), 1..300)) {
            let mut credit = Credit::default();
            let (mut pings, mut sent, mut confirmed) = (Vec::new(), 0, 0);
            for step in steps {
                match step {
                    CreditStep::Send(size) if credit.room() > 0 => {
                        sent += size as u64;
                        pings.extend(credit.sent(size));
                        prop_assert!(credit.unconfirmed() < WINDOW + size as u64);
                    }
                    CreditStep::Send(_) => {}
                    CreditStep::Beat => match credit.heartbeat() {
                        Some(ping) => pings.push(ping),
                        None => return Ok(()),
                    },
                    CreditStep::Pong(before) => if let Some(ping) = pings.iter().rev().nth(before) {
                        credit.received(Some(ping));
                        confirmed = confirmed.max(u64::from_be_bytes(*ping));
                    },
                    CreditStep::Speak => credit.received(None),
                    CreditStep::Forge(count) => {
                        credit.received(Some(&count.to_be_bytes()));
                        if pings.last().is_some_and(|ping| count <= u64::from_be_bytes(*ping)) {
                            confirmed = confirmed.max(count);
                        }
                    }
                }
                prop_assert_eq!(credit.unconfirmed(), sent - confirmed);
                if credit.room() == 0 {
                    let mut answered = Credit { ..credit };
                    answered.received(pings.last().map(|ping| &ping[..]));
                    prop_assert!(answered.room() > WINDOW - PING_INTERVAL_BYTES);
                }
            }
        }
    }

    #[test]
    fn unread_client_gets_one_window() {
        let mut credit = Credit::default();
        let mut pings = Vec::new();
        while credit.room() > 0 {
            pings.extend(credit.sent(10_000));
        }
        assert!(credit.unconfirmed() < WINDOW + 10_000);
        credit.received(Some(&pings[1]));
        assert!(credit.room() >= 2 * PING_INTERVAL_BYTES - 10_000);
        credit.received(Some(&pings[0]));
        assert!(credit.room() >= 2 * PING_INTERVAL_BYTES - 10_000, "an old answer does not reduce the credit");
    }

    #[test]
    fn forged_count_confirms_nothing() {
        let mut credit = Credit::default();
        while credit.room() > 0 {
            credit.sent(PING_INTERVAL_BYTES as usize);
        }
        credit.received(Some(&u64::MAX.to_be_bytes()));
        credit.received(Some(b"hello"));
        assert_eq!(credit.room(), 0);
    }

    #[test]
    fn silent_client_is_closed_and_active_client_is_not() {
        let mut credit = Credit::default();
        for _ in 0..10 {
            assert!(credit.heartbeat().is_some());
            credit.received(None);
        }
        for _ in 0..MAX_MISSED_PONGS {
            assert!(credit.heartbeat().is_some());
        }
        assert!(credit.heartbeat().is_none());
    }
}
