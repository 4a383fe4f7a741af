//! State that all parts of a soak share.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Mutex, MutexGuard},
};

use serde_json::Value;
use tokio::sync::watch;

use super::{BrokenPromise, SoakReport};
use crate::rest::RestClient;

/// Fault that occurs in every soak.
pub const KILL: &str = "the server was killed";

pub(super) struct SoakWorld {
    pub(super) rest: RestClient,
    ledger: Mutex<SoakLedger>,
    over: watch::Sender<bool>,
}

/// Everything that any client received.
#[derive(Default)]
pub(super) struct SoakLedger {
    /// Session and seq → hash of the event as its first client received it.
    pub(super) seen: HashMap<(String, u64), u64>,
    pub(super) requests: Vec<SoakRequest>,
    pub(super) chat_frames: Vec<SoakChatFrame>,
    report: SoakReport,
}

/// Request of a person, sent with an idempotency key.
#[derive(Debug, Clone)]
pub(super) struct SoakRequest {
    pub(super) session: String,
    pub(super) action: &'static str,
    /// Text that occurs in no other request.
    pub(super) text: String,
    pub(super) answer: SoakRequestOutcome,
}

/// Outcome of a request, as its person sees it at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SoakRequestOutcome {
    /// Done; recorded as this event.
    At(u64),
    /// Rejected.
    Rejected,
    /// No answer in time: done or not done.
    Unknown,
}

/// Frame of a chat client for an event.
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
        self.ledger.lock().expect("lock is never poisoned: no holder panics")
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

    /// Counts a kill of the server, and the sessions that were at work then.
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

    /// Records an event that a client received. Every client must receive the same event under its
    /// number.
    pub(super) fn saw(&self, session: &str, seq: u64, event: &Value) {
        let hash = hash(event);
        let mut ledger = self.ledger();
        ledger.report.checked += 1;
        let first = *ledger.seen.entry((session.to_owned(), seq)).or_insert(hash);
        drop(ledger);
        if first != hash {
            self.broken(BrokenPromise::Changed, format!("{session}: event {seq} has changed: {event}"));
        }
    }

    /// Records a frame of a chat client. The journal is compared with it at the end.
    pub(super) fn record_chat_frame(&self, frame: SoakChatFrame) {
        let mut ledger = self.ledger();
        ledger.report.checked += 1;
        ledger.chat_frames.push(frame);
    }

    pub(super) fn record_request(&self, request: SoakRequest) {
        self.ledger().requests.push(request);
    }

    pub(super) fn found(&self, events: u64, turns: u64, requests: u64) {
        let report = &mut self.ledger().report;
        report.events += events;
        report.turns += turns;
        report.requests += requests;
    }

    pub(super) fn report(&self) -> SoakReport {
        std::mem::take(&mut self.ledger().report)
    }

    /// Returns the events of a session that any client received, with their hashes.
    pub(super) fn seen_of(&self, session: &str) -> BTreeMap<u64, u64> {
        let ledger = self.ledger();
        let of_it = ledger.seen.iter().filter(|((id, _), _)| id == session);
        of_it.map(|((_, seq), hash)| (*seq, *hash)).collect()
    }
}

/// Hashes JSON. Equal values give equal hashes, in any formatting.
pub(super) fn hash(event: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    event.to_string().hash(&mut hasher);
    hasher.finish()
}
