//! Selection and order of listed sessions. Pure.

use std::collections::HashMap;

use greenroom_protocol::observation::AgentState;

use super::{
    ArchiveFilter, SessionId, SessionListing, SessionQuery, SessionRecord, SessionSnapshot, StoreError,
    session_change::SessionEntry,
};

/// Page size of a query that names none.
pub const DEFAULT_PAGE_SIZE: usize = 50;
/// Largest page size. A larger one counts as this.
pub const MAX_PAGE_SIZE: usize = 500;

/// Sort key of a list: newest activity first.
///
/// Ids break ties, so each session is on exactly one page.
type ListingRank<'a> = (&'a str, SessionId);

fn rank(record: &SessionRecord) -> ListingRank<'_> {
    (&record.updated_at, record.id)
}

pub(super) fn page<'a>(
    entries: impl Iterator<Item = &'a SessionEntry>,
    query: &SessionQuery,
) -> Result<SessionListing, StoreError> {
    let text = query.text.as_deref().map(str::to_lowercase);
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let limit = if query.limit == 0 { DEFAULT_PAGE_SIZE } else { query.limit.min(MAX_PAGE_SIZE) };

    let mut found: Vec<&SessionEntry> =
        entries.filter(|entry| matches(&entry.record, query, text.as_deref())).collect();
    let total = found.len();
    if let Some(after) = after {
        found.retain(|entry| rank(&entry.record) < after);
    }
    found.sort_unstable_by(|a, b| rank(&b.record).cmp(&rank(&a.record)));
    let more = found.len() > limit;
    found.truncate(limit);
    let next_cursor = found.last().filter(|_| more).map(|entry| cursor(&entry.record));
    Ok(SessionListing { items: found.into_iter().map(SessionEntry::snapshot).collect(), next_cursor, total })
}

/// Returns the sessions that have not ended. The archived mark only decides where they are listed.
pub(super) fn not_ended<'a>(entries: impl Iterator<Item = &'a SessionEntry>) -> Vec<SessionSnapshot> {
    entries.filter(|entry| entry.record.state != AgentState::Ended).map(SessionEntry::snapshot).collect()
}

/// Returns the number of sessions in each state, except ended ones.
pub(super) fn count_by_state<'a>(entries: impl Iterator<Item = &'a SessionEntry>) -> HashMap<AgentState, u64> {
    let mut counts = HashMap::new();
    let counted = |entry: &&SessionEntry| entry.record.state != AgentState::Ended && !entry.record.is_unfinished_fork();
    for entry in entries.filter(counted) {
        *counts.entry(entry.record.state).or_default() += 1;
    }
    counts
}

/// Reports if an agent may still send something.
///
/// The agent of a stopped, failed or ended session is gone or about to go.
pub(super) fn has_agent(state: AgentState) -> bool {
    match state {
        AgentState::Starting
        | AgentState::Idle
        | AgentState::Running
        | AgentState::AwaitingConfirmation
        | AgentState::Interrupting
        | AgentState::Paused => true,
        AgentState::Stopped | AgentState::Failed | AgentState::Ended => false,
    }
}

fn matches(record: &SessionRecord, query: &SessionQuery, text: Option<&str>) -> bool {
    let is_listed = match query.archived {
        ArchiveFilter::Active => !record.archived,
        ArchiveFilter::Archived => record.archived,
        ArchiveFilter::Any => true,
    };
    is_listed
        && !record.is_unfinished_fork()
        && query.state.is_none_or(|state| record.state == state)
        && text.is_none_or(|text| {
            record.title.to_lowercase().contains(text) || record.id.to_string().to_lowercase().contains(text)
        })
}

/// Returns the cursor `<updated_at>_<id>`, the end of a page.
///
/// The cursor stays valid when the session's activity changes later.
fn cursor(record: &SessionRecord) -> String {
    format!("{}_{}", record.updated_at, record.id)
}

fn parse_cursor(text: &str) -> Result<ListingRank<'_>, StoreError> {
    text.rsplit_once('_')
        .and_then(|(at, id)| Some((at, id.parse().ok()?)))
        .ok_or_else(|| StoreError::BadCursor(text.to_owned()))
}
