//! Reads of the journal for an answer: in chunks, the newest events, and as JSON.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, TryStreamExt};

use super::error::ApiError;
use crate::store::{
    JournalEvent, ReadLimit, Seq, SessionId, Store, StoredEvent,
    damage::{matches_kind, read_past_damage},
};

/// Bounds of one read of the store. An answer holds at most this much in memory.
pub(super) const CHUNK: ReadLimit = ReadLimit { events: 1_000, bytes: 1024 * 1024 };

/// Encodes events as a JSON array.
pub(super) fn json_array(events: &[JournalEvent]) -> Bytes {
    let mut array = BytesMut::from(&b"["[..]);
    for (n, event) in events.iter().enumerate() {
        if n > 0 {
            array.put_u8(b',');
        }
        array.put_slice(&event.json);
    }
    array.put_u8(b']');
    array.freeze()
}

/// Returns the newest events up to `tail`, oldest first: those of `kind` that fit into `limit`, but
/// at least one.
pub(super) async fn newest(
    store: Arc<dyn Store>,
    id: SessionId,
    tail: Seq,
    limit: ReadLimit,
    kind: Option<String>,
) -> Result<Vec<JournalEvent>, ApiError> {
    let after = tail.saturating_sub(limit.events as Seq);
    let keep = |mut events: Vec<JournalEvent>, chunk: Vec<StoredEvent>| {
        events.extend(chunk.into_iter().filter_map(|(_, event)| filter_kind(event, kind.as_deref())));
        events.drain(..oldest_to_drop(&events, limit.bytes));
        std::future::ready(Ok(events))
    };
    chunks(store, id, after, tail).try_fold(Vec::new(), keep).await
}

/// Returns the event if it has the kind.
pub(super) fn filter_kind(event: JournalEvent, kind: Option<&str>) -> Option<JournalEvent> {
    match kind {
        None => Some(event),
        // The event shares its buffer with all events of its read. A copy releases the others.
        Some(kind) => {
            matches_kind(&event, kind).then(|| JournalEvent { json: Bytes::copy_from_slice(&event.json), ..event })
        }
    }
}

/// Returns the number of oldest events to drop.
///
/// The rest has at most `bytes` bytes, or is a single event.
fn oldest_to_drop(events: &[JournalEvent], bytes: usize) -> usize {
    let mut size = 0;
    let fits = |event: &&JournalEvent| {
        size += event.json.len();
        size <= bytes
    };
    let count = events.iter().rev().take_while(fits).count().max(1);
    events.len().saturating_sub(count)
}

/// Streams the journal after `after` and up to `tail` in chunks, at the pace of the reader.
pub(super) fn chunks(
    store: Arc<dyn Store>,
    id: SessionId,
    after: Seq,
    tail: Seq,
) -> impl Stream<Item = Result<Vec<StoredEvent>, ApiError>> {
    futures::stream::try_unfold((store, after), move |(store, after)| async move {
        if after >= tail {
            return Ok(None);
        }
        let mut chunk = read_past_damage(store.as_ref(), id, after, CHUNK).await?;
        chunk.retain(|(seq, _)| *seq <= tail);
        Ok(chunk.last().map(|(last, _)| *last).map(|last| (chunk, (store, last))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_events_are_dropped_until_the_rest_fits() {
        let check = |sizes: &[usize], bytes, expected| {
            let event = |size: &usize| JournalEvent { kind: "message".into(), json: Bytes::from(vec![b'x'; *size]) };
            let events: Vec<JournalEvent> = sizes.iter().map(event).collect();
            assert_eq!(oldest_to_drop(&events, bytes), expected, "{sizes:?} in {bytes}");
        };
        check(&[], 5, 0);
        check(&[1, 2, 2], 5, 0);
        check(&[2, 2, 2], 5, 1);
        check(&[1, 9, 2], 5, 2);
        check(&[1, 2, 9], 5, 2);
        check(&[9], 5, 0);
    }
}
