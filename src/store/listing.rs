//! Which sessions a query finds, and in what order. Pure.

use greenroom_protocol::observation::State;

use super::{Listing, Query, Record, SessionId, StoreError, ledger::Entry};

const PAGE: usize = 50;
const LARGEST_PAGE: usize = 500;

/// Newest activity first; ids break ties, so that no session is on two pages and none on neither.
type Rank<'a> = (&'a str, SessionId);

fn rank(record: &Record) -> Rank<'_> {
    (&record.updated_at, record.id)
}

pub(super) fn page<'a>(entries: impl Iterator<Item = &'a Entry>, query: &Query) -> Result<Listing, StoreError> {
    let text = query.text.as_deref().map(str::to_lowercase);
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = if query.limit == 0 { PAGE } else { query.limit.min(LARGEST_PAGE) };

    let mut found: Vec<&Entry> = entries.filter(|entry| matches(&entry.record, query, text.as_deref())).collect();
    let total = found.len();
    if let Some(after) = after {
        found.retain(|entry| rank(&entry.record) < after);
    }
    found.sort_unstable_by(|a, b| rank(&b.record).cmp(&rank(&a.record)));
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|entry| cursor(&entry.record));
    Ok(Listing { items: found.into_iter().map(Entry::snapshot).collect(), next_cursor, total })
}

/// Whether there is something to look after. Being archived says only where a session is listed.
pub(super) fn is_live(record: &Record) -> bool {
    record.state != State::Ended
}

/// Whether there may be an agent that still says something. One whose session is at rest is gone or about to go.
pub(super) fn has_agent(state: State) -> bool {
    match state {
        State::Starting
        | State::Idle
        | State::Running
        | State::AwaitingConfirmation
        | State::Interrupting
        | State::Paused => true,
        State::Stopped | State::Failed | State::Ended => false,
    }
}

fn matches(record: &Record, query: &Query, text: Option<&str>) -> bool {
    record.archived == query.archived.unwrap_or(false)
        && query.state.is_none_or(|state| record.state == state)
        && text.is_none_or(|text| {
            record.title.to_lowercase().contains(text) || record.id.to_string().to_lowercase().contains(text)
        })
}

/// `<updated_at>_<id>`: where the page ended, which holds also when that session has moved on since.
fn cursor(record: &Record) -> String {
    format!("{}_{}", record.updated_at, record.id)
}

fn parse_cursor(text: &str) -> Result<Rank<'_>, StoreError> {
    text.rsplit_once('_')
        .and_then(|(at, id)| Some((at, id.parse().ok()?)))
        .ok_or_else(|| StoreError::BadCursor(text.to_owned()))
}
