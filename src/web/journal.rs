//! Journal of a session over REST: its events, the large contents that events refer to, and
//! exports.

use std::sync::Arc;

use actix_web::{HttpRequest, HttpResponse, body::SizedStream, http::header, web::Data};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt};
use serde::Deserialize;
use serde_json::json;

use super::{
    WebServices,
    error::{ApiError, ApiResult, ErrorAnswer},
    request::{QueryParams, SessionPath},
    stream,
};
use crate::store::{
    JournalEvent, ReadLimit, Seq, SessionId, Store, StoreError, StoredEvent,
    damage::{matches_kind, read_past_damage},
};

mod markdown;

/// Bounds of one read of the store. An answer holds at most this much in memory.
const CHUNK: ReadLimit = ReadLimit { events: 1_000, bytes: 1024 * 1024 };

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
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

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExportQuery {
    #[serde(default)]
    #[param(value_type = Option<String>, example = "jsonl")]
    format: ExportFormat,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExportFormat {
    #[default]
    Jsonl,
    Md,
}

/// Returns events, oldest first: `{items, last_seq}`; also as a stream.
///
/// With `Accept: text/event-stream` the answer is a stream of server-sent events that continues
/// with new events. `id` is the event's number, growing items arrive as `event: delta`, and
/// `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/api/sessions/{id}/events", tag = "journal", params(("id" = String, Path), EventsQuery),
    responses((status = 200, body = Object), (status = 404, body = ErrorAnswer)))]
pub(super) async fn events(
    req: HttpRequest,
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<EventsQuery>,
) -> ApiResult {
    if stream::is_requested(&req) {
        let after = match query.last {
            Some(_) => query.start_after(services.snapshot(id.0).await?.tail)?,
            None => query.after,
        };
        let stream_query = stream::EventStreamQuery {
            after: stream::resume_after(&req, after)?,
            max_events: query.max_events(),
            kind: query.kind,
        };
        return stream::respond(&req, &services, id.0, stream_query).await;
    }
    let last_seq = services.snapshot(id.0).await?.tail;
    let after = query.start_after(last_seq)?;
    let items = match query.last {
        None => find(services.store.as_ref(), id.0, (after, last_seq), &query).await?,
        Some(last) => {
            let events = usize::try_from(last).unwrap_or(usize::MAX).min(query.max_events().unwrap_or(CHUNK.events));
            newest(services, id.0, last_seq, ReadLimit { events, ..CHUNK }, query.kind).await?
        }
    };
    let mut body = BytesMut::from(&br#"{"items":"#[..]);
    body.put(json_array(&items));
    body.put_slice(format!(r#","last_seq":{last_seq}}}"#).as_bytes());
    Ok(HttpResponse::Ok().content_type("application/json").body(body.freeze()))
}

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
    services: Data<WebServices>,
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
    chunks(services, id, after, tail).try_fold(Vec::new(), keep).await
}

fn filter_kind(event: JournalEvent, kind: Option<&str>) -> Option<JournalEvent> {
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

/// Exports a session as one file: `jsonl` or `md`.
///
/// `jsonl` has one line with the session and one line for each event. `md` is for reading.
#[utoipa::path(get, path = "/api/sessions/{id}/export", tag = "journal", params(("id" = String, Path), ExportQuery),
    responses((status = 200, body = String), (status = 404, body = ErrorAnswer)))]
pub(super) async fn export(
    services: Data<WebServices>,
    id: SessionPath,
    QueryParams(query): QueryParams<ExportQuery>,
) -> ApiResult {
    let snapshot = services.snapshot(id.0).await?;
    let (kind, extension, head) = match query.format {
        ExportFormat::Jsonl => ("application/x-ndjson", "jsonl", format!("{}\n", json!({"session": snapshot.record}))),
        ExportFormat::Md => ("text/markdown; charset=utf-8", "md", markdown::head(&snapshot.record)),
    };
    let format = query.format;
    let head = futures::stream::once(std::future::ready(Ok(Bytes::from(head))));
    let events = chunks(services, id.0, 0, snapshot.tail).map_ok(Some);
    let end = futures::stream::once(std::future::ready(Ok(None)));
    let mut markdown_export = markdown::MarkdownExport::default();
    let events = events.chain(end).map_ok(move |chunk| match (format, chunk) {
        (ExportFormat::Jsonl, chunk) => lines(&chunk.unwrap_or_default()),
        (ExportFormat::Md, Some(chunk)) => {
            chunk.iter().map(|(_, event)| markdown_export.event(&event.json)).collect::<String>().into()
        }
        (ExportFormat::Md, None) => markdown_export.end().into(),
    });
    let name = format!("attachment; filename=\"greenroom-{}.{extension}\"", id.0);
    Ok(HttpResponse::Ok()
        .content_type(kind)
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(futures::StreamExt::chain(head, events)))
}

/// Streams the journal after `after` and up to `tail` in chunks, at the pace of the reader.
fn chunks(
    services: Data<WebServices>,
    id: SessionId,
    after: Seq,
    tail: Seq,
) -> impl Stream<Item = Result<Vec<StoredEvent>, ApiError>> {
    futures::stream::try_unfold((services, after), move |(services, after)| async move {
        if after >= tail {
            return Ok(None);
        }
        let mut chunk = read_past_damage(services.store.as_ref(), id, after, CHUNK).await?;
        chunk.retain(|(seq, _)| *seq <= tail);
        Ok(chunk.last().map(|(last, _)| *last).map(|last| (chunk, (services, last))))
    })
}

fn lines(chunk: &[StoredEvent]) -> Bytes {
    let mut bytes = BytesMut::new();
    for (_, event) in chunk {
        bytes.put_slice(&event.json);
        bytes.put_u8(b'\n');
    }
    bytes.freeze()
}

/// Downloads a content that is too large for its event.
#[utoipa::path(get, path = "/api/sessions/{id}/contents/{name}", tag = "journal",
    params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Vec<u8>), (status = 404, body = ErrorAnswer)))]
pub(super) async fn content(services: Data<WebServices>, id: SessionPath, req: HttpRequest) -> ApiResult {
    let name = req.match_info().query("name");
    let content = services.store.content(id.0, name, 0, CONTENT_PART).await?;
    let first = content.ok_or_else(|| ApiError::not_found(format!("session `{}` has no content `{name}`", id.0)))?;
    let total = first.total;
    let rest = remaining_parts(services.store.clone(), id.0, name.to_owned(), first.bytes.len() as u64);
    let whole = futures::stream::once(async { Ok(first.bytes) }).chain(rest);
    // An agent's output must never run as a page of this origin. The answer has no type that a
    // browser renders.
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"content.txt\""))
        .insert_header((header::CACHE_CONTROL, "private, max-age=31536000, immutable"))
        .body(SizedStream::new(total, whole)))
}

/// Streams the rest of a content, part by part, at the pace of the reader.
fn remaining_parts(
    store: Arc<dyn Store>,
    id: SessionId,
    name: String,
    from: u64,
) -> impl Stream<Item = Result<Bytes, StoreError>> {
    futures::stream::try_unfold((store, from), move |(store, from)| {
        let name = name.clone();
        async move {
            let part = store.content(id, &name, from, CONTENT_PART).await?;
            // A purge of the session during the download ends the answer early.
            let bytes = part.map(|part| part.bytes).filter(|bytes| !bytes.is_empty());
            Ok(bytes.map(|bytes| (bytes.clone(), (store, from + bytes.len() as u64))))
        }
    })
}

/// Part of a large content that each download holds in memory, bytes.
const CONTENT_PART: usize = 256 << 10;

#[cfg(test)]
mod tests {
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
