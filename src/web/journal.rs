//! A session's journal over REST: its events, the large contents that they refer to, and all of it as one file.

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

/// One read of the store, and the most that one answer holds in memory.
const CHUNK: ReadLimit = ReadLimit { events: 1_000, bytes: 1024 * 1024 };

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Events after this number; 0, as if left out, is from the start.
    #[serde(default)]
    after: Seq,
    /// The newest so many, in place of `after`.
    last: Option<Seq>,
    /// At most 1000; 100 if not given, of `last` all of them. An answer ends earlier where it would grow beyond 1 MiB, and one
    /// of the newest begins later. A stream ends after so many events, and goes on for ever if not given.
    limit: Option<usize>,
    /// Only actions and observations of this name.
    kind: Option<String>,
}

impl EventsQuery {
    /// Behind which event it begins in a journal that ends with `tail`.
    fn start_after(&self, tail: Seq) -> Result<Seq, ApiError> {
        match self.last {
            None => Ok(self.after),
            Some(_) if self.after > 0 => Err(ApiError::invalid("`after` and `last` exclude each other")),
            Some(last) => Ok(tail.saturating_sub(self.max_events().map_or(last, |most| last.min(most as Seq)))),
        }
    }

    /// How many events at most, where that was asked for.
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

/// Read events, oldest first: `{items, last_seq}`. With `Accept: text/event-stream` all of them and those to come, as
/// server-sent events: `id` is the event's number, growing items come as `event: delta`, `Last-Event-ID` resumes.
#[utoipa::path(get, path = "/api/sessions/{id}/events", tag = "journal", params(("id" = String, Path), EventsQuery),
    responses((status = 200, body = Object), (status = 404, body = ErrorAnswer)))]
pub(super) async fn events(
    req: HttpRequest,
    parts: Data<WebServices>,
    id: SessionPath,
    QueryParams(span): QueryParams<EventsQuery>,
) -> ApiResult {
    if stream::is_requested(&req) {
        let after = match span.last {
            Some(_) => span.start_after(parts.snapshot(id.0).await?.tail)?,
            None => span.after,
        };
        let part = stream::EventStreamQuery {
            after: stream::resume_after(&req, after)?,
            max_events: span.max_events(),
            kind: span.kind,
        };
        return stream::respond(&req, &parts, id.0, part).await;
    }
    let last_seq = parts.snapshot(id.0).await?.tail;
    let after = span.start_after(last_seq)?;
    let items = match span.last {
        None => find(parts.store.as_ref(), id.0, (after, last_seq), &span).await?,
        Some(last) => {
            let events = usize::try_from(last).unwrap_or(usize::MAX).min(span.max_events().unwrap_or(CHUNK.events));
            newest(parts, id.0, last_seq, ReadLimit { events, ..CHUNK }, span.kind).await?
        }
    };
    let mut body = BytesMut::from(&br#"{"items":"#[..]);
    body.put(json_array(&items));
    body.put_slice(format!(r#","last_seq":{last_seq}}}"#).as_bytes());
    Ok(HttpResponse::Ok().content_type("application/json").body(body.freeze()))
}

/// As JSON.
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

/// Of the newest events up to `tail`, oldest first, those of `kind`: as many of them as keep to `most`, but at least one.
pub(super) async fn newest(
    parts: Data<WebServices>,
    id: SessionId,
    tail: Seq,
    most: ReadLimit,
    kind: Option<String>,
) -> Result<Vec<JournalEvent>, ApiError> {
    let after = tail.saturating_sub(most.events as Seq);
    let keep = |mut events: Vec<JournalEvent>, chunk: Vec<StoredEvent>| {
        events.extend(chunk.into_iter().filter_map(|(_, event)| filter_kind(event, kind.as_deref())));
        events.drain(..oldest_to_drop(&events, most.bytes));
        std::future::ready(Ok(events))
    };
    chunks(parts, id, after, tail).try_fold(Vec::new(), keep).await
}

fn filter_kind(event: JournalEvent, kind: Option<&str>) -> Option<JournalEvent> {
    match kind {
        None => Some(event),
        // It shares its memory with all that was read with it.
        Some(kind) => {
            matches_kind(&event, kind).then(|| JournalEvent { json: Bytes::copy_from_slice(&event.json), ..event })
        }
    }
}

/// How many of the oldest are to be left out, so that the others are `bytes` together at most, or one is left.
fn oldest_to_drop(events: &[JournalEvent], bytes: usize) -> usize {
    let mut size = 0;
    let fits = |event: &&JournalEvent| {
        size += event.json.len();
        size <= bytes
    };
    let count = events.iter().rev().take_while(fits).count().max(1);
    events.len().saturating_sub(count)
}

/// The events that were asked for, as they stand in the journal behind `after` up to `tail`. What has come since then is not
/// among them: whoever goes on from that tail gets it next, and would have it twice.
///
/// An answer without events says that there are none of that kind up to `tail`: so all of a journal may have to be read for it.
async fn find(
    store: &dyn Store,
    id: SessionId,
    (mut after, tail): (Seq, Seq),
    span: &EventsQuery,
) -> Result<Vec<JournalEvent>, ApiError> {
    let wanted = span.max_events().unwrap_or(100);
    let (mut found, mut size) = (Vec::new(), 0);
    while after < tail {
        // With a kind to look for, most of what is read is left out.
        let events = if span.kind.is_some() { CHUNK.events } else { wanted - found.len() };
        let chunk = read_past_damage(store, id, after, ReadLimit { events, ..CHUNK }).await?;
        let Some((last, _)) = chunk.last() else { break };
        after = *last;
        let chunk = chunk.into_iter().take_while(|(seq, _)| *seq <= tail);
        for event in chunk.filter_map(|(_, event)| filter_kind(event, span.kind.as_deref())) {
            size += event.json.len();
            if !found.is_empty() && size > CHUNK.bytes {
                return Ok(found);
            }
            found.push(event);
            if found.len() == wanted {
                return Ok(found);
            }
        }
        // Others have their turn between two reads, also where a store answers from memory.
        tokio::task::yield_now().await;
    }
    Ok(found)
}

/// The whole session in one file: `jsonl`, a line with the session and one for each event, or `md`, to be read.
#[utoipa::path(get, path = "/api/sessions/{id}/export", tag = "journal", params(("id" = String, Path), ExportQuery),
    responses((status = 200, body = String), (status = 404, body = ErrorAnswer)))]
pub(super) async fn export(
    parts: Data<WebServices>,
    id: SessionPath,
    QueryParams(form): QueryParams<ExportQuery>,
) -> ApiResult {
    let snapshot = parts.snapshot(id.0).await?;
    let (kind, extension, head) = match form.format {
        ExportFormat::Jsonl => ("application/x-ndjson", "jsonl", format!("{}\n", json!({"session": snapshot.record}))),
        ExportFormat::Md => ("text/markdown; charset=utf-8", "md", markdown::head(&snapshot.record)),
    };
    let format = form.format;
    let head = futures::stream::once(std::future::ready(Ok(Bytes::from(head))));
    let events = chunks(parts, id.0, 0, snapshot.tail).map_ok(Some);
    let end = futures::stream::once(std::future::ready(Ok(None)));
    let mut reader = markdown::MarkdownExport::default();
    let events = events.chain(end).map_ok(move |chunk| match (format, chunk) {
        (ExportFormat::Jsonl, chunk) => lines(&chunk.unwrap_or_default()),
        (ExportFormat::Md, Some(chunk)) => {
            chunk.iter().map(|(_, event)| reader.event(&event.json)).collect::<String>().into()
        }
        (ExportFormat::Md, None) => reader.end().into(),
    });
    let name = format!("attachment; filename=\"greenroom-{}.{extension}\"", id.0);
    Ok(HttpResponse::Ok()
        .content_type(kind)
        .insert_header((header::CONTENT_DISPOSITION, name))
        .streaming(futures::StreamExt::chain(head, events)))
}

/// The journal behind `after` up to `tail`, a chunk at a time, as fast as it is taken.
fn chunks(
    parts: Data<WebServices>,
    id: SessionId,
    after: Seq,
    tail: Seq,
) -> impl Stream<Item = Result<Vec<StoredEvent>, ApiError>> {
    futures::stream::try_unfold((parts, after), move |(parts, after)| async move {
        if after >= tail {
            return Ok(None);
        }
        let mut chunk = read_past_damage(parts.store.as_ref(), id, after, CHUNK).await?;
        chunk.retain(|(seq, _)| *seq <= tail);
        Ok(chunk.last().map(|(last, _)| *last).map(|last| (chunk, (parts, last))))
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

/// A content that was too large for its event, as a download.
#[utoipa::path(get, path = "/api/sessions/{id}/contents/{name}", tag = "journal",
    params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Vec<u8>), (status = 404, body = ErrorAnswer)))]
pub(super) async fn content(parts: Data<WebServices>, id: SessionPath, req: HttpRequest) -> ApiResult {
    let name = req.match_info().query("name");
    let content = parts.store.content(id.0, name, 0, CONTENT_PART).await?;
    let first = content.ok_or_else(|| ApiError::not_found(format!("session `{}` keeps no content `{name}`", id.0)))?;
    let total = first.total;
    let rest = remaining_parts(parts.store.clone(), id.0, name.to_owned(), first.bytes.len() as u64);
    let whole = futures::stream::once(async { Ok(first.bytes) }).chain(rest);
    // Whatever an agent wrote must never run as a page of ours: it has no type, and no browser shows it.
    Ok(HttpResponse::Ok()
        .content_type("application/octet-stream")
        .insert_header((header::CONTENT_DISPOSITION, "attachment; filename=\"content.txt\""))
        .insert_header((header::CACHE_CONTROL, "private, max-age=31536000, immutable"))
        .body(SizedStream::new(total, whole)))
}

/// What follows in a content, part by part, as its reader takes it.
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
            // A session that is purged meanwhile ends the download early.
            let bytes = part.map(|part| part.bytes).filter(|bytes| !bytes.is_empty());
            Ok(bytes.map(|bytes| (bytes.clone(), (store, from + bytes.len() as u64))))
        }
    })
}

/// How much of a large content is in memory for each that reads it, bytes.
const CONTENT_PART: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{AppendBatch, contract::record, in_memory::MemoryStore};

    /// More came between the question for the tail and that for the events.
    #[tokio::test]
    async fn no_event_is_newer_than_the_tail_that_is_told_with_it() {
        let store = MemoryStore::new();
        let made = store.create(record("")).await.expect("it is made");
        let id = made.record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("it is claimed");
        let event = |seq: Seq| JournalEvent {
            kind: ["run", "message"][seq as usize % 2].into(),
            json: Bytes::from(seq.to_string()),
        };
        let batch = AppendBatch { events: (1..=8).map(event).collect(), ..AppendBatch::default() };
        store.append(id, epoch, snapshot.tail, batch).await.expect("it is written");

        let check = async |after: Seq, tail: Seq, limit: Option<usize>, kind: Option<&str>, expected: &[&str]| {
            let span = EventsQuery { after, last: None, limit, kind: kind.map(str::to_owned) };
            let found = find(&store, id, (after, tail), &span).await.expect("it is read");
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
    async fn others_have_their_turn_while_a_kind_is_looked_for_that_is_nowhere() {
        let store = MemoryStore::new();
        let id = store.create(record("")).await.expect("it is made").record.id;
        let (epoch, snapshot) = store.claim(id).await.expect("it is claimed");
        let event = |_| JournalEvent { kind: "run".into(), json: Bytes::from_static(b"{}") };
        let events: Vec<JournalEvent> = (0..3 * CHUNK.events).map(event).collect();
        let tail = events.len() as Seq;
        store
            .append(id, epoch, snapshot.tail, AppendBatch { events, ..AppendBatch::default() })
            .await
            .expect("it is written");
        let span = EventsQuery { after: 0, last: None, limit: None, kind: Some("plan".to_owned()) };
        let mut search = std::pin::pin!(find(&store, id, (0, tail), &span));
        let mut turns = 0;
        let found = loop {
            match futures::poll!(search.as_mut()) {
                std::task::Poll::Ready(found) => break found.expect("it is read"),
                std::task::Poll::Pending => turns += 1,
            }
        };
        assert!(found.is_empty() && turns >= 2, "{turns} turns between three reads, {} events", found.len());
    }

    #[test]
    fn the_oldest_are_left_out_until_the_others_fit() {
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
