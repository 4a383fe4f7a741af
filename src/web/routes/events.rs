//! Events of a session: as a list, and as a stream.

use actix_web::{HttpRequest, HttpResponse, web::Data};
use bytes::{BufMut, BytesMut};
use serde::Deserialize;
use utoipa::openapi::{
    OneOfBuilder, Ref,
    schema::{Array, ObjectBuilder},
};

use crate::{
    api_schema::{api_schema, text},
    store::{JournalEvent, ReadLimit, Seq, SessionId, Store, damage::read_past_damage},
    web::{
        error::{ApiError, ApiResult},
        event_reads::{CHUNK, filter_kind, json_array, newest},
        event_stream,
        request::{AfterParam, LastEventIdHeader, QueryNumber, QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![events];

/// Largest number of events in an answer whose client names none.
const DEFAULT_EVENTS: usize = 100;

api_schema! {
    /// Answer with events, which are copied from the journal and never parsed.
    EventPageSchema as "EventPage" = ObjectBuilder::new()
        .description(Some("Events of a session."))
        .property("items", Array::new(Ref::from_schema_name("Event")))
        .required("items")
        .property(
            "last_seq",
            QueryNumber::schema().description(Some("Number of the session's newest event, in the answer or not.")),
        )
        .required("last_seq");
    AfterSchema as "After" = OneOfBuilder::new()
        .item(QueryNumber::schema())
        .item(text().enum_values(Some(["tail"])));
    NumberSchema as "Number" = QueryNumber::schema();
    EventLimitSchema as "EventLimit" = QueryNumber::schema()
        .description(Some(format!("0 counts as 1, and more than {0} as {0}.", CHUNK.events)));
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Return events after this number, or after the newest event (`tail`). Default: from the
    /// start.
    #[param(inline, value_type = Option<AfterSchema>)]
    after: Option<AfterParam>,
    /// Return this many of the newest events, instead of those after `after`.
    #[param(inline, value_type = Option<NumberSchema>)]
    last: Option<QueryNumber>,
    /// Largest number of events. Default: 100, or `last` if given. An answer ends earlier when it
    /// reaches 1 MiB; with `last`, it begins later. A stream ends after this number of events; by
    /// default it ends with the session.
    #[param(inline, value_type = Option<EventLimitSchema>)]
    limit: Option<QueryNumber>,
    /// Return only actions and observations of this name.
    kind: Option<String>,
}

impl EventsQuery {
    /// Returns the event after which the answer begins, in a journal that ends with `tail`.
    ///
    /// # Errors
    /// `after` and `last` are both given.
    fn start_after(&self, tail: Seq) -> Result<Seq, ApiError> {
        match (self.last, self.after) {
            (None, None) => Ok(0),
            (None, Some(AfterParam::Seq(after))) => Ok(after),
            (None, Some(AfterParam::Tail)) => Ok(tail),
            (Some(QueryNumber(last)), None | Some(AfterParam::Seq(0))) => {
                Ok(tail.saturating_sub(self.max_events().map_or(last, |max| last.min(max as Seq))))
            }
            (Some(_), Some(_)) => Err(ApiError::invalid("`after` and `last` exclude each other")),
        }
    }

    /// Returns the limit for the number of events, if the client gave one.
    fn max_events(&self) -> Option<usize> {
        self.limit.map(|limit| limit.as_usize().clamp(1, CHUNK.events))
    }
}

/// Returns events, oldest first; also as a stream.
///
/// With `Accept: text/event-stream`, and without `application/json`, the answer is a stream of
/// server-sent events that continues with new events. `id` is the event's number and `data` the
/// event. Growing items arrive as `event: delta`. `event: closing` is the last one of a session
/// that has ended or was removed. `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/api/sessions/{id}/events", tag = "journal",
    params(SessionPath, EventsQuery, LastEventIdHeader),
    responses(
        (status = 200, description = "The events, or a stream of them.",
            content((EventPageSchema = "application/json"), (String = "text/event-stream"))),
        (status = 204, description = "A resumed stream of an ended session has no further event. A browser stops \
            reconnecting.")))]
async fn events(
    req: HttpRequest,
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<EventsQuery>,
    last_event_id: LastEventIdHeader,
) -> ApiResult {
    let snapshot = services.snapshot(id.0).await?;
    let last_seq = snapshot.tail;
    let after = query.start_after(last_seq)?;
    if event_stream::is_requested(&req) {
        let stream_query = event_stream::EventStreamQuery {
            after,
            resumed_after: last_event_id.0,
            max_events: query.max_events(),
            kind: query.kind,
        };
        return event_stream::respond(&req, &services, &snapshot, stream_query).await;
    }
    let items = match query.last {
        None => find(services.store.as_ref(), id.0, (after, last_seq), &query).await?,
        Some(last) => {
            let events = last.as_usize().min(query.max_events().unwrap_or(CHUNK.events));
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
    let max_events = query.max_events().unwrap_or(DEFAULT_EVENTS);
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

        let check = async |after: Seq, tail: Seq, limit: Option<u64>, kind: Option<&str>, expected: &[&str]| {
            let query =
                EventsQuery { after: None, last: None, limit: limit.map(QueryNumber), kind: kind.map(str::to_owned) };
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
        let query = EventsQuery { after: None, last: None, limit: None, kind: Some("plan".to_owned()) };
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
