//! Events of a session: as a list, and as a stream.

use actix_web::{HttpRequest, HttpResponse, web::Data};
use bytes::{BufMut, BytesMut};
use serde::Deserialize;

use crate::{
    store::{JournalEvent, ReadLimit, Seq, SessionId, Store, damage::read_past_damage},
    web::{
        error::{ApiError, ApiResult, ErrorAnswer},
        event_reads::{CHUNK, filter_kind, json_array, newest},
        event_stream,
        request::{QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![events];

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Return events after this number. Default: 0, from the start.
    #[serde(default)]
    after: Seq,
    /// Return this many of the newest events, instead of those after `after`.
    last: Option<Seq>,
    /// Largest number of events, at most 1000. Default: 100, or `last` if given. An answer ends
    /// earlier when it reaches 1 MiB; with `last`, it begins later. A stream ends after this number
    /// of events; by default it does not end.
    limit: Option<usize>,
    /// Return only actions and observations of this name.
    kind: Option<String>,
}

impl EventsQuery {
    /// Returns the event after which the answer begins, in a journal that ends with `tail`.
    ///
    /// # Errors
    /// `after` and `last` are both given.
    fn start_after(&self, tail: Seq) -> Result<Seq, ApiError> {
        match self.last {
            None => Ok(self.after),
            Some(_) if self.after > 0 => Err(ApiError::invalid("`after` and `last` exclude each other")),
            Some(last) => Ok(tail.saturating_sub(self.max_events().map_or(last, |max| last.min(max as Seq)))),
        }
    }

    /// Returns the limit for the number of events, if the client gave one.
    fn max_events(&self) -> Option<usize> {
        self.limit.map(|limit| limit.clamp(1, CHUNK.events))
    }
}

/// Returns events, oldest first: `{items, last_seq}`; also as a stream.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events that continues
/// with new events. `id` is the event's number, growing items arrive as `event: delta`, and
/// `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/api/sessions/{id}/events", tag = "journal", params(("id" = String, Path), EventsQuery),
    responses((status = 200, body = Object), (status = 404, body = ErrorAnswer)))]
async fn events(
    req: HttpRequest,
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult {
    if event_stream::is_requested(&req) {
        let after = match query.last {
            Some(_) => query.start_after(services.snapshot(id.0).await?.tail)?,
            None => query.after,
        };
        let stream_query = event_stream::EventStreamQuery {
            after: event_stream::resume_after(&req, after)?,
            max_events: query.max_events(),
            kind: query.kind,
        };
        return event_stream::respond(&req, &services, id.0, stream_query).await;
    }
    let last_seq = services.snapshot(id.0).await?.tail;
    let after = query.start_after(last_seq)?;
    let items = match query.last {
        None => find(services.store.as_ref(), id.0, (after, last_seq), &query).await?,
        Some(last) => {
            let events = usize::try_from(last).unwrap_or(usize::MAX).min(query.max_events().unwrap_or(CHUNK.events));
            newest(services.store.clone(), id.0, last_seq, ReadLimit { events, ..CHUNK }, query.kind).await?
        }
    };
    let mut body = BytesMut::from(&br#"{"items":"#[..]);
    body.put(json_array(&items));
    body.put_slice(format!(r#","last_seq":{last_seq}}}"#).as_bytes());
    Ok(HttpResponse::Ok().content_type("application/json").body(body.freeze()))
}

/// Returns the requested events after `after` and up to `tail`.
///
/// Events after `tail` are left out. A client that continues from `tail` would receive them twice.
/// An empty answer means that no event up to `tail` has the kind. So a request may read the whole
/// journal.
async fn find(
    store: &dyn Store,
    id: SessionId,
    (mut after, tail): (Seq, Seq),
    query: &EventsQuery,
) -> Result<Vec<JournalEvent>, ApiError> {
    let max_events = query.max_events().unwrap_or(100);
    let (mut found, mut size) = (Vec::new(), 0);
    while after < tail {
        // With a kind filter, most events of a read are dropped.
        let events = if query.kind.is_some() { CHUNK.events } else { max_events - found.len() };
        let chunk = read_past_damage(store, id, after, ReadLimit { events, ..CHUNK }).await?;
        let Some((last, _)) = chunk.last() else { break };
        after = *last;
        let chunk = chunk.into_iter().take_while(|(seq, _)| *seq <= tail);
        for event in chunk.filter_map(|(_, event)| filter_kind(event, query.kind.as_deref())) {
            size += event.json.len();
            if !found.is_empty() && size > CHUNK.bytes {
                return Ok(found);
            }
            found.push(event);
            if found.len() == max_events {
                return Ok(found);
            }
        }
        // Yields between two reads, also with a store that answers from memory.
        tokio::task::yield_now().await;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::store::{AppendBatch, contract::record, in_memory::MemoryStore};

    /// Simulates appends between the read of the tail and the read of the events.
    #[tokio::test]
    async fn find_returns_no_event_after_the_reported_tail() {
        let store = MemoryStore::new();
        let created = store.create(record("")).await.expect("the store creates the session").into_snapshot();
        let id = created.record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("the store claims the session");
        let event = |seq: Seq| JournalEvent {
            kind: ["run", "message"][seq as usize % 2].into(),
            json: Bytes::from(seq.to_string()),
        };
        let batch = AppendBatch { events: (1..=8).map(event).collect(), ..AppendBatch::default() };
        store.append(id, epoch, snapshot.tail, batch).await.expect("the store appends");

        let check = async |after: Seq, tail: Seq, limit: Option<usize>, kind: Option<&str>, expected: &[&str]| {
            let query = EventsQuery { after, last: None, limit, kind: kind.map(str::to_owned) };
            let found = find(&store, id, (after, tail), &query).await.expect("the events are readable");
            let found: Vec<&[u8]> = found.iter().map(|event| &event.json[..]).collect();
            let expected: Vec<&[u8]> = expected.iter().map(|seq| seq.as_bytes()).collect();
            assert_eq!(found, expected, "{after}..={tail}, at most {limit:?}, {kind:?}");
        };
        check(0, 3, None, None, &["1", "2", "3"]).await;
        check(3, 5, None, None, &["4", "5"]).await;
        check(0, 5, Some(2), None, &["1", "2"]).await;
        check(2, 5, Some(9), None, &["3", "4", "5"]).await;
        check(0, 5, None, Some("run"), &["2", "4"]).await;
        check(0, 5, Some(1), Some("run"), &["2"]).await;
        check(5, 5, None, None, &[]).await;
        check(7, 5, None, None, &[]).await;
        check(5, 8, None, None, &["6", "7", "8"]).await;
    }

    #[tokio::test]
    async fn find_yields_while_no_event_of_the_kind_is_found() {
        let store = MemoryStore::new();
        let id = store.create(record("")).await.expect("the store creates the session").into_snapshot().record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("the store claims the session");
        let event = |_| JournalEvent { kind: "run".into(), json: Bytes::from_static(b"{}") };
        let events: Vec<JournalEvent> = (0..3 * CHUNK.events).map(event).collect();
        let tail = events.len() as Seq;
        store
            .append(id, epoch, snapshot.tail, AppendBatch { events, ..AppendBatch::default() })
            .await
            .expect("the store appends");
        let query = EventsQuery { after: 0, last: None, limit: None, kind: Some("plan".to_owned()) };
        let mut search = std::pin::pin!(find(&store, id, (0, tail), &query));
        let mut yields = 0;
        let found = loop {
            match futures::poll!(search.as_mut()) {
                std::task::Poll::Ready(found) => break found.expect("the events are readable"),
                std::task::Poll::Pending => yields += 1,
            }
        };
        assert!(found.is_empty() && yields >= 2, "{yields} yields between three reads, {} events", found.len());
    }
}
