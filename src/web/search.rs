//! Search through the events of all sessions, newest activity first. Reads the journal beside the
//! sessions' actors.
//!
//! An answer ends at a limit of hits, bytes or time, and its cursor continues there. Memory holds
//! one window of events and the hits of one answer.

mod passage;
mod text_match;

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
    time::Instant,
};

use self::passage::matching_events;
pub(super) use self::{
    passage::{MatchingEvent, PassageKind},
    text_match::{InvalidSearchText, MAX_SEARCH_CHARS, SearchText},
};
use super::error::ApiError;
use crate::store::{
    ArchiveFilter, ReadLimit, Seq, SessionId, SessionQuery, SessionRecord, SessionSnapshot, Store, StoreError,
    StoredEvent, damage::read_past_damage,
};

/// Searches that run at a time. Each takes a core for a part of its time.
const MAX_SEARCHES: usize = 2;

/// Limit for the searches that run at a time.
///
/// Bound: 2 searches. When full: a further one is rejected, and the client tries again.
#[derive(Debug, Clone)]
pub struct SearchLimiter(Arc<Semaphore>);

impl Default for SearchLimiter {
    fn default() -> SearchLimiter {
        SearchLimiter(Arc::new(Semaphore::new(MAX_SEARCHES)))
    }
}

impl SearchLimiter {
    /// Admits a search until the permit is dropped. Returns `None` if the limit is reached.
    pub(super) fn admit(&self) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().ok()
    }
}

/// Limits of one answer. A search reads at least one window of events, so each answer makes
/// progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchBounds {
    pub hits: usize,
    /// Bytes of events that are read.
    pub bytes: usize,
    pub time: Duration,
}

/// Bytes of one window of events. A longer event is a window of its own.
const WINDOW_BYTES: usize = 1 << 20;
/// Bytes that a window should have. Smaller windows cost more reads, larger ones more memory.
const WINDOW_TARGET_BYTES: usize = 256 << 10;
/// Events of the first window of a session, and of the largest.
const FIRST_WINDOW_EVENTS: u64 = 64;
const MAX_WINDOW_EVENTS: u64 = 2048;
/// Sessions that are listed at a time.
const LISTED_SESSIONS: usize = 250;

/// Place where a search continues: events of `session` before `before`, then the sessions behind
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchCursor {
    /// Last activity of the session, as it was listed.
    updated_at: String,
    session: SessionId,
    before: Seq,
}

/// Error for a text that is no cursor of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`cursor` is no cursor of a search; begin without it")]
pub(super) struct InvalidSearchCursor;

/// Digits of the largest number in a cursor. Every such number fits into 64 bits.
const CURSOR_DIGITS: usize = 18;

/// Pattern of the texts that are cursors.
pub(super) const SEARCH_CURSOR: &str = "_[0-7][0-9A-HJKMNP-TV-Z]{25}_[0-9]{1,18}$";

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{}", self.updated_at, self.session, self.before)
    }
}

impl FromStr for SearchCursor {
    type Err = InvalidSearchCursor;

    fn from_str(text: &str) -> Result<SearchCursor, InvalidSearchCursor> {
        let mut parts = text.rsplitn(3, '_');
        let (before, session, updated_at) = (parts.next(), parts.next(), parts.next());
        let is_number = |text: &&str| text.len() <= CURSOR_DIGITS && text.bytes().all(|digit| digit.is_ascii_digit());
        Ok(SearchCursor {
            before: before.filter(is_number).and_then(|text| text.parse().ok()).ok_or(InvalidSearchCursor)?,
            session: session.and_then(|text| text.parse().ok()).ok_or(InvalidSearchCursor)?,
            updated_at: updated_at.ok_or(InvalidSearchCursor)?.to_owned(),
        })
    }
}

/// Event that contains the text, with its session.
#[derive(Debug)]
pub(super) struct FoundEvent {
    pub session: SessionId,
    pub title: Arc<str>,
    pub archived: bool,
    pub event: MatchingEvent,
}

/// Result of a search up to one of its bounds.
#[derive(Debug, Default)]
pub(super) struct FoundEvents {
    /// Newest activity first, and newest event first in a session.
    pub items: Vec<FoundEvent>,
    /// Absent if all events were searched.
    pub next_cursor: Option<SearchCursor>,
    /// Sessions whose journal could not be read.
    pub unreadable: usize,
}

/// Searches from `cursor` on until a bound is reached.
///
/// # Errors
/// The list of sessions cannot be read. A session that cannot be read is counted instead.
pub(super) async fn search(
    store: Arc<dyn Store>,
    text: SearchText,
    cursor: Option<SearchCursor>,
    bounds: SearchBounds,
) -> Result<FoundEvents, ApiError> {
    let started = Instant::now();
    let mut run =
        SearchRun { store, text: Arc::new(text), bounds, started, bytes: 0, windows: 0, found: FoundEvents::default() };
    let mut listed_after = None;
    if let Some(SearchCursor { updated_at, session, before }) = cursor {
        listed_after = Some(format!("{updated_at}_{session}"));
        if let Some(SessionSnapshot { record, tail, .. }) = run.store.get(session).await? {
            let last = tail.min(before.saturating_sub(1));
            if run.search_session(SearchedSession::new(record, updated_at), last).await? == Progress::Stopped {
                return Ok(run.found);
            }
        }
    }
    loop {
        let query = SessionQuery {
            archived: ArchiveFilter::Any,
            limit: LISTED_SESSIONS,
            cursor: listed_after,
            ..SessionQuery::default()
        };
        let listing = run.store.list(query).await?;
        for SessionSnapshot { record, tail, .. } in listing.items {
            let updated_at = record.updated_at.clone();
            if run.search_session(SearchedSession::new(record, updated_at), tail).await? == Progress::Stopped {
                return Ok(run.found);
            }
        }
        listed_after = listing.next_cursor;
        if listed_after.is_none() {
            return Ok(run.found);
        }
    }
}

/// Search that fills one answer.
struct SearchRun {
    store: Arc<dyn Store>,
    text: Arc<SearchText>,
    bounds: SearchBounds,
    started: Instant,
    /// Bytes and windows read so far.
    bytes: usize,
    windows: usize,
    found: FoundEvents,
}

/// Session that is searched.
struct SearchedSession {
    id: SessionId,
    title: Arc<str>,
    archived: bool,
    /// Its place in the list.
    updated_at: String,
}

impl SearchedSession {
    fn new(record: SessionRecord, updated_at: String) -> SearchedSession {
        SearchedSession { id: record.id, title: record.title.into(), archived: record.archived, updated_at }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// The session is searched to its first event.
    Finished,
    /// A bound is reached, and the answer has its cursor.
    Stopped,
}

impl SearchRun {
    /// Searches the events of a session from `last` back to the first, window by window.
    async fn search_session(&mut self, session: SearchedSession, mut last: Seq) -> Result<Progress, ApiError> {
        let mut count = FIRST_WINDOW_EVENTS;
        while last > 0 {
            if self.is_at_bound() {
                return Ok(self.stop_before(session, last + 1));
            }
            count = count.min(last);
            let after = last - count;
            let limit = ReadLimit { events: count as usize, bytes: WINDOW_BYTES };
            let events = match read_past_damage(self.store.as_ref(), session.id, after, limit).await {
                Ok(events) => events,
                // Purged meanwhile.
                Err(StoreError::NoSession(_)) => return Ok(Progress::Finished),
                Err(StoreError::Io(_) | StoreError::Damaged { .. } | StoreError::DamagedContent { .. }) => {
                    self.found.unreadable += 1;
                    return Ok(Progress::Finished);
                }
                Err(error @ (StoreError::Fenced | StoreError::BadCursor(_))) => return Err(error.into()),
            };
            let bytes: usize = events.iter().map(|(_, event)| event.json.len()).sum();
            self.bytes += bytes;
            match events.last() {
                None => return Ok(Progress::Finished),
                // The window is too large for one read, or has a damaged event. A window of one
                // event always arrives.
                Some((newest, _)) if *newest < last && count > 1 => {
                    count /= 2;
                    continue;
                }
                Some(_) => {}
            }
            self.windows += 1;
            let read = events.len() as u64;
            for event in self.matching(events).await?.into_iter().rev() {
                let seq = event.seq;
                let (title, archived) = (session.title.clone(), session.archived);
                self.found.items.push(FoundEvent { session: session.id, title, archived, event });
                if self.found.items.len() >= self.bounds.hits {
                    return Ok(self.stop_before(session, seq));
                }
            }
            last = after;
            let fitting = read * WINDOW_TARGET_BYTES as u64 / (bytes as u64).max(1);
            count = fitting.clamp(1, MAX_WINDOW_EVENTS.min(count * 4));
        }
        Ok(Progress::Finished)
    }

    /// Returns the events of a window that contain the text. Runs beside the thread that serves
    /// other requests.
    async fn matching(&self, events: Vec<StoredEvent>) -> Result<Vec<MatchingEvent>, ApiError> {
        let text = self.text.clone();
        let matching = spawn_blocking(move || matching_events(&events, &text)).await;
        matching.map_err(|error| StoreError::from(std::io::Error::other(error)).into())
    }

    fn is_at_bound(&self) -> bool {
        self.windows > 0 && (self.bytes >= self.bounds.bytes || self.started.elapsed() >= self.bounds.time)
    }

    fn stop_before(&mut self, session: SearchedSession, before: Seq) -> Progress {
        self.found.next_cursor = Some(SearchCursor { updated_at: session.updated_at, session: session.id, before });
        Progress::Stopped
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests;
