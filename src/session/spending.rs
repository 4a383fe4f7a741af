//! Spending of all sessions of a server, under the limits of `[budget]`, and the rules of
//! `[gateway]` that every session's permission reads.
//!
//! The session records are the durable truth: each holds its own cost, and its cost of one day. A
//! purge appends the purged session's cost to a file first. So a restart finds exactly what the
//! journal has.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    clock,
    config::{BudgetConfig, GatewayConfig},
    gateway::{CallDemand, LedgerAnswer, SpendingLedger},
    store::{ArchiveFilter, DaySpending, SessionId, SessionQuery, SessionRecord, Store, StoreError},
};

/// Name of the file with the spending of purged sessions, in the data directory. One JSON object a
/// line.
const FILE_NAME: &str = "purged_spending.jsonl";

/// Sessions per page when the records are read.
const PAGE: usize = 500;

/// Spending of all sessions, shared by them.
pub struct ServerSpending {
    budget: BudgetConfig,
    gateway: GatewayConfig,
    purged_file: PathBuf,
    ledgers: Mutex<ServerLedgers>,
    /// Counts settlements and raised budgets. Calls that wait for a reservation watch it.
    settlements: watch::Sender<u64>,
}

struct ServerLedgers {
    /// Day of `today`, UTC.
    day: String,
    today: SpendingLedger,
    total: SpendingLedger,
}

/// Reason why a server cannot determine what its sessions have spent.
#[derive(Debug, thiserror::Error)]
pub enum SpendingError {
    #[error("cannot read the sessions' cost: {0}")]
    Store(#[from] StoreError),
    #[error("cannot read `{path}`: {source}")]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Spending of a purged session, as a line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct PurgedSpending {
    session: SessionId,
    usd: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent_on: Option<DaySpending>,
}

impl ServerSpending {
    /// Returns the spending of a server whose sessions have spent nothing yet.
    pub fn new(budget: BudgetConfig, gateway: GatewayConfig, data_dir: &Path) -> ServerSpending {
        let ledgers = ServerLedgers {
            day: today(),
            today: SpendingLedger::new(budget.per_day.0, 0.0),
            total: SpendingLedger::new(budget.total.0, 0.0),
        };
        ServerSpending {
            budget,
            gateway,
            purged_file: data_dir.join(FILE_NAME),
            ledgers: Mutex::new(ledgers),
            settlements: watch::Sender::new(0),
        }
    }

    /// Adds what the sessions in `store`, and purged ones, have spent. Reads nothing without a
    /// limit for all sessions.
    ///
    /// # Errors
    /// Fails if a record or the file of purged sessions cannot be read.
    pub async fn restore(&self, store: &dyn Store) -> Result<(), SpendingError> {
        if self.budget.per_day.0.is_none() && self.budget.total.0.is_none() {
            return Ok(());
        }
        // By session, so a purge that was cut off after its line counts once.
        let mut spent = self.read_purged()?;
        let mut query = SessionQuery { archived: ArchiveFilter::Any, limit: PAGE, ..SessionQuery::default() };
        loop {
            let page = store.list(query.clone()).await?;
            spent.extend(page.items.into_iter().map(|session| (session.record.id, spending_of(&session.record))));
            let Some(cursor) = page.next_cursor else { break };
            query.cursor = Some(cursor);
        }
        let mut ledgers = self.ledgers();
        ledgers.begin_day();
        for PurgedSpending { usd, spent_on, .. } in spent.into_values() {
            ledgers.total.settle(0.0, usd);
            let today = spent_on.filter(|spent| spent.day == ledgers.day).map_or(0.0, |spent| spent.usd);
            ledgers.today.settle(0.0, today);
        }
        Ok(())
    }

    fn read_purged(&self) -> Result<BTreeMap<SessionId, PurgedSpending>, SpendingError> {
        let unreadable = |source| SpendingError::File { path: self.purged_file.clone(), source };
        let file = match File::open(&self.purged_file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            opened => opened.map_err(unreadable)?,
        };
        let mut purged = BTreeMap::new();
        for line in BufReader::new(file).lines() {
            // A line that was cut off belongs to a session that is not purged.
            if let Ok(line) = serde_json::from_str::<PurgedSpending>(&line.map_err(unreadable)?) {
                purged.insert(line.session, line);
            }
        }
        Ok(purged)
    }

    /// Records the cost of a session that is about to be purged. Durable on return. Blocks.
    ///
    /// # Errors
    /// Fails if the file cannot be written. The session must then not be purged.
    pub fn record_purge(&self, record: &SessionRecord) -> io::Result<()> {
        let line = spending_of(record);
        if line.usd <= 0.0 {
            return Ok(());
        }
        // Begins with a line break: an earlier line may have been cut off.
        let line = format!("\n{}\n", serde_json::to_string(&line).map_err(io::Error::other)?);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.purged_file)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        self.purged_file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }

    /// Returns the budget of a new session that names none.
    pub fn default_budget(&self) -> Option<f64> {
        self.budget.per_session.0
    }

    pub(super) fn gateway_rules(&self) -> &GatewayConfig {
        &self.gateway
    }

    /// Returns the models that a new session may call beside `own`.
    pub fn further_models(&self, own: &str) -> Vec<String> {
        let small = Some(&self.gateway.small_model).filter(|small| !small.is_empty() && *small != own);
        small.cloned().into_iter().collect()
    }

    pub(super) fn has_limit(&self) -> bool {
        self.budget.per_day.0.is_some() || self.budget.total.0.is_some()
    }

    /// Returns a receiver of settlements. The settlements from now on are unseen.
    pub(super) fn settlements(&self) -> watch::Receiver<u64> {
        self.settlements.subscribe()
    }

    /// Wakes the calls that wait for a reservation.
    pub(super) fn wake_waiting(&self) {
        self.settlements.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Reserves a call under the limits of the server, and under the limit that answered `own`.
    /// Returns the granted tokens.
    ///
    /// # Errors
    /// Returns the reason in words if a limit of the server is spent.
    pub(super) fn reserve(&self, demand: &CallDemand, own: u64) -> Result<Option<u64>, String> {
        let mut ledgers = self.ledgers();
        ledgers.begin_day();
        let demand = &CallDemand { wanted_tokens: own, ..*demand };
        let mut granted = own;
        for (ledger, name, way_out) in [
            (&ledgers.today, "budget.per_day", "it begins anew at 00:00 UTC"),
            (&ledgers.total, "budget.total", "raise it"),
        ] {
            match ledger.answer(demand) {
                LedgerAnswer::Grant(tokens) => granted = granted.min(tokens),
                LedgerAnswer::Wait => return Ok(None),
                LedgerAnswer::Spent => {
                    let limit = ledger.limit().unwrap_or_default();
                    return Err(format!(
                        "the server's `{name}` of {limit} USD is spent; {way_out}, or choose a free model"
                    ));
                }
            }
        }
        let usd = demand.reservation(granted);
        ledgers.today.reserve(usd);
        ledgers.total.reserve(usd);
        Ok(Some(granted))
    }

    /// Replaces a reservation of `usd` by the cost of its call.
    pub(super) fn settle(&self, usd: f64, cost_usd: f64) {
        let mut ledgers = self.ledgers();
        ledgers.begin_day();
        ledgers.today.settle(usd, cost_usd);
        ledgers.total.settle(usd, cost_usd);
    }

    fn ledgers(&self) -> MutexGuard<'_, ServerLedgers> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerLedgers {
    /// Begins the current day, if it is a later one. A clock that is set back begins none.
    fn begin_day(&mut self) {
        let today = today();
        if today > self.day {
            self.day = today;
            self.today.begin_period();
        }
    }
}

/// Returns the current day, UTC, as in `2026-01-31`.
pub(super) fn today() -> String {
    clock::now().chars().take(10).collect()
}

fn spending_of(record: &SessionRecord) -> PurgedSpending {
    PurgedSpending { session: record.id, usd: record.usage.known_cost(), spent_on: record.spent_on.clone() }
}

#[cfg(test)]
mod tests;
