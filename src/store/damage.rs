//! What stands in the place of an event that cannot be read any more.

use bytes::Bytes;
use serde_json::json;

use super::{JournalEvent, ReadLimit, Seq, SessionId, Store, StoreError, StoredEvent};
use crate::clock;

/// The kind of what [`read_on`] puts in the place of an event: nobody knows of which kind that was.
const DAMAGED_KIND: &str = "damaged";

/// Whether an event that was read on to is to be given to whoever asked for this kind.
pub fn matches_kind(event: &JournalEvent, kind: &str) -> bool {
    event.kind == kind || event.kind == DAMAGED_KIND
}

/// [`Store::read`] for whoever reads on over what is damaged: an event that says so takes its place.
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

/// An event that says that event `seq` is damaged and in what way: so there is no gap for whoever reads on. It is the same however
/// often it is read; its time is that of the session, as its own is lost.
pub fn damaged_event(session: SessionId, seq: Seq, detail: &str) -> JournalEvent {
    let detail = format!("this event is damaged on disk and cannot be read: {detail}");
    let event = json!({
        "seq": seq, "at": clock::rfc3339(session.created_ms()), "source": "server", "observation": "error",
        "extras": {"code": "damaged", "detail": detail}, "content": "", "message": detail,
    });
    JournalEvent { kind: "error".into(), json: Bytes::from(event.to_string()) }
}
