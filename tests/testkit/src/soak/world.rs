//! What all parts of a soak share.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;
use tokio::sync::watch;

use super::{BrokenPromise, SoakReport};
use crate::harness::rest::RestClient;

/// The fault that no soak goes without.
pub(crate) const KILL: &str = "the server was killed";

pub(super) struct SoakWorld {
    pub(super) rest: RestClient,
    ledger: Mutex<SoakLedger>,
    over: watch::Sender<bool>,
}

/// Everything that anybody was told.
#[derive(Default)]
pub(super) struct SoakLedger {
    /// Session and seq → a hash of the event, as whoever saw it first saw it.
    pub(super) seen: HashMap<(String, u64), u64>,
    pub(super) requests: Vec<SoakRequest>,
    pub(super) chat_frames: Vec<SoakChatFrame>,
    report: SoakReport,
}

/// Something that a person asked for under a name.
#[derive(Debug, Clone)]
pub(super) struct SoakRequest {
    pub(super) session: String,
    pub(super) action: &'static str,
    /// Occurs in no other wish.
    pub(super) text: String,
    pub(super) answer: SoakRequestOutcome,
}

/// What a person knows of a wish in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SoakRequestOutcome {
    /// It is done, and this event says so.
    At(u64),
    /// It is not done.
    FailedServerStart,
    /// No answer came in time, so that it may be done or not.
    Never,
}

/// What a chat was told of an event.
#[derive(Debug, Clone)]
pub(super) struct SoakChatFrame {
    pub(super) session: String,
    pub(super) seq: u64,
    pub(super) frame: Value,
}

impl SoakWorld {
    pub(super) fn new(rest: RestClient) -> SoakWorld {
        SoakWorld { rest, ledger: Mutex::default(), over: watch::Sender::new(false) }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, SoakLedger> {
        self.ledger.lock().expect("no part of the soak panics while it writes")
    }

    pub(super) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(super) fn end(&self) {
        self.over.send_replace(true);
    }

    pub(super) fn fault(&self, what: &'static str) {
        *self.ledger().report.faults.entry(what).or_default() += 1;
    }

    /// The server was killed while so many sessions were at work.
    pub(super) fn killed(&self, at_work: u64) {
        self.fault(KILL);
        self.ledger().report.hit += at_work;
    }

    pub(super) fn connected(&self) {
        self.ledger().report.connections += 1;
    }

    pub(super) fn broken(&self, how: BrokenPromise, what: String) {
        eprintln!("BROKEN ({how:?}): {what}");
        self.ledger().report.broken.push((how, what));
    }

    pub(super) fn is_broken(&self) -> bool {
        !self.ledger().report.broken.is_empty()
    }

    /// Somebody saw this event: it must be the one that others saw under its number.
    pub(super) fn saw(&self, session: &str, seq: u64, event: &Value) {
        let hash = hash(event);
        let mut ledger = self.ledger();
        ledger.report.checked += 1;
        let first = *ledger.seen.entry((session.to_owned(), seq)).or_insert(hash);
        drop(ledger);
        if first != hash {
            self.broken(BrokenPromise::Changed, format!("{session}: event {seq} is another one now: {event}"));
        }
    }

    /// A chat was told this; the journal says in the end whether it is so.
    pub(super) fn record_chat_frame(&self, told: SoakChatFrame) {
        let mut ledger = self.ledger();
        ledger.report.checked += 1;
        ledger.chat_frames.push(told);
    }

    pub(super) fn record_request(&self, wish: SoakRequest) {
        self.ledger().requests.push(wish);
    }

    pub(super) fn found(&self, events: u64, turns: u64, wishes: u64) {
        let report = &mut self.ledger().report;
        report.events += events;
        report.turns += turns;
        report.requests += wishes;
    }

    pub(super) fn report(&self) -> SoakReport {
        std::mem::take(&mut self.ledger().report)
    }

    /// Which events of a session were seen by anybody.
    pub(super) fn seen_of(&self, session: &str) -> BTreeMap<u64, u64> {
        let ledger = self.ledger();
        let of_it = ledger.seen.iter().filter(|((id, _), _)| id == session);
        of_it.map(|((_, seq), hash)| (*seq, *hash)).collect()
    }
}

/// The same for the same JSON, however it is written.
pub(super) fn hash(event: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.to_string().hash(&mut hasher);
    hasher.finish()
}
