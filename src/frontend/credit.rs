//! How much a client has room for. Pure.
//!
//! After each [`STEP`] of bytes the socket sends a Ping that carries the count of all bytes so far; every WebSocket client,
//! browsers included, answers a Ping with a Pong of the same payload, and that Pong opens the window further. No client has
//! to know. Only the newest Ping need be answered (RFC 6455, section 5.5.3), which is why the counts are cumulative.

/// A Ping after so many bytes.
const PING_INTERVAL_BYTES: u64 = 64 * 1024;
/// Nothing new is sent while more than this is unanswered.
const WINDOW: u64 = 256 * 1024;
/// So many Pings without a Pong, one every [`super::connection`] heartbeat, and the client is gone.
const MAX_MISSED_PONGS: u32 = 2;

/// The account of one connection.
#[derive(Debug, Default)]
pub(super) struct Credit {
    sent: u64,
    pinged: u64,
    confirmed: u64,
    unanswered: u32,
}

impl Credit {
    /// How many bytes may be sent now. What is sent may be larger than that by one frame.
    pub(super) fn room(&self) -> u64 {
        WINDOW.saturating_sub(self.unconfirmed())
    }

    /// Bytes that the client has not confirmed.
    pub(super) fn unconfirmed(&self) -> u64 {
        self.sent - self.confirmed
    }

    /// So many bytes were sent. Returns the payload of a Ping where one is due.
    pub(super) fn sent(&mut self, bytes: usize) -> Option<[u8; 8]> {
        self.sent += bytes as u64;
        (self.sent - self.pinged >= PING_INTERVAL_BYTES).then(|| self.ping())
    }

    /// A heartbeat: the Ping to send, or `None` where the client has not answered for too long.
    ///
    /// It counts heartbeats, not time: a server that slept itself has not heard anybody, and blames nobody.
    pub(super) fn heartbeat(&mut self) -> Option<[u8; 8]> {
        self.unanswered += 1;
        (self.unanswered <= MAX_MISSED_PONGS).then(|| self.ping())
    }

    /// The client answered a Ping, or spoke (`None`). A count that was never sent is no answer.
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
        /// The socket sends what it may, of frames of that size.
        Send(usize),
        Beat,
        /// The client answers a Ping: so many before the newest.
        Pong(usize),
        /// It says something else, or forges an answer.
        Speak,
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
        /// However a client answers: it never has more than a window and a frame unconfirmed, what it confirmed was sent, and the
        /// answer to the newest Ping alone lets it go on.
        #[test]
        fn nobody_gets_more_than_a_window_and_nobody_is_stuck(steps in prop::collection::vec(step(), 1..300)) {
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
    fn a_client_that_does_not_read_gets_one_window_and_no_more() {
        let mut credit = Credit::default();
        let mut pings = Vec::new();
        while credit.room() > 0 {
            pings.extend(credit.sent(10_000));
        }
        assert!(credit.unconfirmed() < WINDOW + 10_000);
        credit.received(Some(&pings[1]));
        assert!(credit.room() >= 2 * PING_INTERVAL_BYTES - 10_000);
        credit.received(Some(&pings[0]));
        assert!(credit.room() >= 2 * PING_INTERVAL_BYTES - 10_000, "an old answer takes nothing back");
    }

    #[test]
    fn a_count_that_was_never_sent_opens_nothing() {
        let mut credit = Credit::default();
        while credit.room() > 0 {
            credit.sent(PING_INTERVAL_BYTES as usize);
        }
        credit.received(Some(&u64::MAX.to_be_bytes()));
        credit.received(Some(b"hello"));
        assert_eq!(credit.room(), 0);
    }

    #[test]
    fn a_deaf_client_is_given_up_and_one_that_speaks_is_not() {
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
