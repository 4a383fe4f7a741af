//! What stands in the place of an event that cannot be read any more.

use bytes::Bytes;
use serde_json::json;

use super::{Limit, NewEvent, Seq, SessionId, Store, StoreError, StoredEvent};
use crate::clock;

/// The kind of what [`read_on`] puts in the place of an event: nobody knows of which kind that was.
const KIND: &str = "damaged";

/// Whether an event that was read on to is to be given to whoever asked for this kind.
pub fn is_of_kind(event: &NewEvent, kind: &str) -> bool {
    event.kind == kind || event.kind == KIND
}

/// [`Store::read`] for whoever reads on over what is damaged: an event that says so takes its place.
pub async fn read_on(
    store: &dyn Store,
    session: SessionId,
    after: Seq,
    limit: Limit,
) -> Result<Vec<StoredEvent>, StoreError> {
    match store.read(session, after, limit).await {
        Err(StoreError::Damaged { seq, detail, .. }) => {
            Ok(vec![(seq, NewEvent { kind: KIND.into(), ..in_place_of(session, seq, &detail) })])
        }
        other => other,
    }
}

/// An event that says that event `seq` is damaged and in what way: so there is no gap for whoever reads on. It is the same however
/// often it is read; its time is that of the session, as its own is lost.
pub fn in_place_of(session: SessionId, seq: Seq, detail: &str) -> NewEvent {
    let detail = format!("this event is damaged on disk and cannot be read: {detail}");
    let event = json!({
        "seq": seq, "at": clock::rfc3339(session.made_ms()), "source": "server", "observation": "error",
        "extras": {"code": "damaged", "detail": detail}, "content": "", "message": detail,
    });
    NewEvent { kind: "error".into(), json: Bytes::from(event.to_string()) }
}
