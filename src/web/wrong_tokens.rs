//! Requests with a wrong token: a delay that grows for each address, and one warning a minute.
//!
//! Only the answer to a wrong token is delayed. The answer to the right token never is, not even at
//! an address from which others guess.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use actix_web::rt;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use tracing::warn;

/// Delay of the second wrong token of an address. Doubles up to [`MAX_DELAY`].
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// Longest delay. Shorter than the time that a server waits for its answers when it shuts down.
const MAX_DELAY: Duration = Duration::from_secs(3);
/// Time without a wrong token after which an address begins anew.
const FORGET_AFTER: Duration = Duration::from_mins(10);
/// Interval of warnings.
const REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// Bound: 1,024 addresses. When full: the address that was wrong the longest ago is dropped.
const MAX_ADDRESSES: usize = 1024;
/// Bound: 256 delayed answers. When full: further answers come at once, so that guesses cannot
/// occupy the connections of other clients.
const MAX_DELAYED: usize = 256;

/// Wrong tokens of all addresses.
#[derive(Debug)]
pub(super) struct WrongTokens {
    ledger: Mutex<WrongTokenLedger>,
    delayed: Semaphore,
}

impl Default for WrongTokens {
    fn default() -> WrongTokens {
        WrongTokens { ledger: Mutex::default(), delayed: Semaphore::new(MAX_DELAYED) }
    }
}

impl WrongTokens {
    /// Records a wrong token and returns after the delay of its address.
    pub(super) async fn hold_back(self: &Arc<Self>, address: IpAddr) {
        let (delay, report) = self.ledger().record(address, Instant::now());
        if let Some(report) = report {
            report.warn();
            rt::spawn(report_every_minute(self.clone()));
        }
        if !delay.is_zero()
            && let Ok(_delayed) = self.delayed.try_acquire()
        {
            sleep(delay).await;
        }
    }

    fn ledger(&self) -> MutexGuard<'_, WrongTokenLedger> {
        // No change of the ledger is left half done by a panic.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports until a minute passes without a wrong token.
async fn report_every_minute(wrong_tokens: Arc<WrongTokens>) {
    loop {
        sleep(REPORT_INTERVAL).await;
        let Some(report) = wrong_tokens.ledger().report() else { return };
        report.warn();
    }
}

/// Counts of wrong tokens.
#[derive(Debug, Default)]
struct WrongTokenLedger {
    addresses: HashMap<IpAddr, AddressRecord>,
    /// Wrong tokens since the last warning.
    unreported: u64,
    /// True while a task reports every minute.
    is_reporting: bool,
}

/// Wrong tokens of one address.
#[derive(Debug)]
struct AddressRecord {
    count: u32,
    last: Instant,
    unreported: u64,
}

/// Content of a warning.
#[derive(Debug, PartialEq, Eq)]
struct WrongTokenReport {
    count: u64,
    /// Address with the most wrong tokens.
    address: IpAddr,
    /// Number of addresses.
    addresses: usize,
}

impl WrongTokenReport {
    fn warn(&self) {
        let WrongTokenReport { count, address, addresses } = self;
        warn!(count, %address, addresses, "rejected requests with a wrong token");
    }
}

impl WrongTokenLedger {
    /// Returns the delay of the answer, and a report if none was due within the last minute.
    fn record(&mut self, address: IpAddr, now: Instant) -> (Duration, Option<WrongTokenReport>) {
        let address = network_of(address);
        if !self.addresses.contains_key(&address) && self.addresses.len() >= MAX_ADDRESSES {
            let oldest = self.addresses.iter().min_by_key(|(_, record)| record.last).map(|(address, _)| *address);
            if let Some(oldest) = oldest {
                self.addresses.remove(&oldest);
            }
        }
        let record = self.addresses.entry(address).or_insert(AddressRecord { count: 0, last: now, unreported: 0 });
        if now.duration_since(record.last) >= FORGET_AFTER {
            record.count = 0;
        }
        record.count = record.count.saturating_add(1);
        record.last = now;
        record.unreported += 1;
        self.unreported += 1;
        let delay = delay_of(record.count);
        let report = if std::mem::replace(&mut self.is_reporting, true) { None } else { self.report() };
        (delay, report)
    }

    /// Takes the counts since the last report. `None` ends the reports until the next wrong token.
    fn report(&mut self) -> Option<WrongTokenReport> {
        let counts = self.addresses.iter().map(|(address, record)| (record.unreported, *address));
        let (_, address) = counts.filter(|(count, _)| *count > 0).max().or_else(|| {
            self.is_reporting = false;
            None
        })?;
        let addresses = self.addresses.values().filter(|record| record.unreported > 0).count();
        self.addresses.values_mut().for_each(|record| record.unreported = 0);
        Some(WrongTokenReport { count: std::mem::take(&mut self.unreported), address, addresses })
    }
}

/// Returns the delay of an address's wrong token with this number, from 1.
fn delay_of(count: u32) -> Duration {
    match count {
        0 | 1 => Duration::ZERO,
        count => FIRST_DELAY.saturating_mul(2_u32.saturating_pow(count - 2)).min(MAX_DELAY),
    }
}

/// Returns the address that stands for a client. An IPv6 client has a network of 64 bits for
/// itself.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & (u128::MAX << 64)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("the address is valid")
    }

    #[test]
    fn delay_grows_for_each_address_up_to_a_limit_and_is_forgotten() {
        let (mut ledger, now) = (WrongTokenLedger::default(), Instant::now());
        let mut delays = |text, at| ledger.record(address(text), at).0.as_millis();
        let first: Vec<_> = (0..9).map(|_| delays("10.0.0.1", now)).collect();
        assert_eq!(first, [0, 100, 200, 400, 800, 1600, 3000, 3000, 3000]);
        assert_eq!(delays("10.0.0.2", now), 0);
        assert_eq!(delays("::ffff:10.0.0.2", now), 100, "the same address");
        assert_eq!((delays("2001:db8::1", now), delays("2001:db8::ffff:1", now)), (0, 100), "the same network");
        assert_eq!(delays("2001:db8:0:1::1", now), 0);
        assert_eq!(delays("10.0.0.1", now + FORGET_AFTER), 0);
        assert_eq!(delay_of(u32::MAX), MAX_DELAY);
    }

    #[test]
    fn memory_is_bounded_and_the_busiest_address_stays() {
        let (mut ledger, begin) = (WrongTokenLedger::default(), Instant::now());
        for n in 0..5_000_u32 {
            let now = begin + Duration::from_millis(n.into());
            ledger.record(IpAddr::V4((n + 1).into()), now);
            ledger.record(address("255.0.0.1"), now);
            assert!(ledger.addresses.len() <= MAX_ADDRESSES);
        }
        assert_eq!(ledger.addresses[&address("255.0.0.1")].count, 5_000);
    }

    #[test]
    fn one_report_covers_a_minute() {
        let (mut ledger, now) = (WrongTokenLedger::default(), Instant::now());
        let mut record = |text| ledger.record(address(text), now).1;
        let first = record("10.0.0.1");
        assert_eq!(first, Some(WrongTokenReport { count: 1, address: address("10.0.0.1"), addresses: 1 }));
        for text in ["10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"] {
            assert_eq!(record(text), None);
        }
        let expected = WrongTokenReport { count: 4, address: address("10.0.0.2"), addresses: 3 };
        assert_eq!((ledger.report(), ledger.report()), (Some(expected), None));
        assert!(ledger.record(address("10.0.0.1"), now).1.is_some(), "the next wrong token is reported at once");
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_answers_are_bounded() {
        let wrong_tokens = Arc::new(WrongTokens::default());
        // The first wrong token starts a task, for which this test has no place.
        wrong_tokens.ledger().is_reporting = true;
        wrong_tokens.hold_back(address("10.0.0.1")).await;
        let began = Instant::now();
        let guess = || wrong_tokens.hold_back(address("10.0.0.1"));
        let guesses = futures::future::join_all((0..MAX_DELAYED).map(|_| guess()));
        let further = async {
            tokio::task::yield_now().await;
            guess().await;
            began.elapsed()
        };
        let (_, further) = tokio::join!(guesses, further);
        assert_eq!((further, began.elapsed()), (Duration::ZERO, MAX_DELAY));
    }
}
