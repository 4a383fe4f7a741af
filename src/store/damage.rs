//! Replacement events for events that can no longer be read.

use bytes::Bytes;
use serde_json::json;

use super::{JournalEvent, ReadLimit, Seq, SessionId, Store, StoreError, StoredEvent};
use crate::clock;

/// Kind of the events that [`read_past_damage`] puts in place of damaged events.
///
/// The original kind is lost with the event.
const DAMAGED_KIND: &str = "damaged";

/// Reports if an event from [`read_past_damage`] passes a filter for `kind`.
pub fn matches_kind(event: &JournalEvent, kind: &str) -> bool {
    event.kind == kind || event.kind == DAMAGED_KIND
}

/// Reads like [`Store::read`], but puts an event that reports the damage in place of a damaged
/// event.
pub async fn read_past_damage(
    store: &dyn Store,
    session: SessionId,
    after: Seq,
    limit: ReadLimit,
) -> Result<Vec<StoredEvent>, StoreError> {
    match store.read(session, after, limit).await {
        Err(StoreError::Damaged { seq, detail, .. }) => {
            Ok(vec![(seq, JournalEvent { kind: DAMAGED_KIND.into(), ..damaged_event(session, seq, &detail) })])
        }
        other => other,
    }
}

/// Returns an event that reports the damage of event `seq`, so a reader finds no gap.
///
/// Every read returns the same event. Its time is that of the session, because its own time is
/// lost.
pub fn damaged_event(session: SessionId, seq: Seq, detail: &str) -> JournalEvent {
    let detail = format!("this event is damaged on disk and cannot be read: {detail}");
    let event = json!({
        "seq": seq, "at": clock::rfc3339(session.created_ms()), "source": "server", "observation": "error",
        "extras": {"code": "damaged", "detail": detail}, "content": "", "message": detail,
    });
    JournalEvent { kind: "error".into(), json: Bytes::from(event.to_string()) }
}
