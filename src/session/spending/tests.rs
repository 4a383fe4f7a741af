use super::*;
use crate::{
    config::{Config, UsdLimit},
    store::{UsageTotals, contract::record, in_memory::MemoryStore},
};

/// Returns the spending of a server with a total limit of 1 USD, after a start.
async fn started(dir: &Path, store: &MemoryStore) -> ServerSpending {
    let limits = BudgetConfig { total: UsdLimit(Some(1.0)), ..BudgetConfig::default() };
    let spending = ServerSpending::new(limits, Config::with_data_dir(dir).gateway, dir);
    spending.restore(store).await.expect("the records are readable");
    spending
}

fn spent(usd: f64, day: &str, title: &str) -> SessionRecord {
    let usage = UsageTotals { known_cost_usd: Some(usd), ..UsageTotals::default() };
    let spent_on = Some(DaySpending { day: day.to_owned(), usd });
    SessionRecord { usage, spent_on, archived: title == "archived", ..record(title) }
}

fn totals(spending: &ServerSpending) -> (f64, f64) {
    let ledgers = spending.ledgers();
    (ledgers.total.spent(), ledgers.today.spent())
}

#[tokio::test]
async fn restart_finds_what_all_sessions_have_spent() {
    let (dir, store) = (tempfile::tempdir().expect("a directory"), MemoryStore::new());
    for session in [spent(0.25, &today(), "a"), spent(0.5, "2020-01-01", "archived")] {
        store.create(session).await.expect("the session is new");
    }
    assert_eq!(totals(&started(dir.path(), &store).await), (0.75, 0.25));
}

#[tokio::test]
async fn purge_gives_nothing_back() {
    let (dir, store) = (tempfile::tempdir().expect("a directory"), MemoryStore::new());
    let session = spent(0.25, &today(), "a");
    store.create(session.clone()).await.expect("the session is new");
    let spending = started(dir.path(), &store).await;
    spending.record_purge(&session).expect("the file is writable");
    // The server may stop between the record and the purge, and purge again.
    assert_eq!(totals(&started(dir.path(), &store).await), (0.25, 0.25), "not purged yet: counts once");
    spending.record_purge(&session).expect("the file is writable");
    let purged = MemoryStore::new();
    assert_eq!(totals(&started(dir.path(), &purged).await), (0.25, 0.25));
    // A line that was cut off does not hide the next one.
    let path = dir.path().join(FILE_NAME);
    let mut text = std::fs::read_to_string(&path).expect("the file exists");
    text.push_str(r#"{"session":"01K"#);
    std::fs::write(&path, text).expect("the file is writable");
    spending.record_purge(&spent(0.5, "2020-01-01", "b")).expect("the file is writable");
    assert_eq!(totals(&started(dir.path(), &purged).await), (0.75, 0.25));
}

#[test]
fn free_session_leaves_no_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let spending = ServerSpending::new(BudgetConfig::default(), Config::with_data_dir(dir.path()).gateway, dir.path());
    spending.record_purge(&record("free")).expect("nothing is written");
    assert!(!dir.path().join(FILE_NAME).exists());
}
