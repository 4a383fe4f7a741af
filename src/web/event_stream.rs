//! Server-sent events: the answer of `GET …/events` to a client that accepts an event stream.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue},
};
use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{
    error::{ApiError, ApiResult},
    request::accepts,
    state::WebServices,
};
use crate::{
    data::AccessGrant,
    frontend::{EventPull, PulledItem, connection_end},
    net::TcpConnection,
    store::{Seq, SessionId, damage::matches_kind},
};

/// Interval of comments on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Longest time that sent data may stay unread. With one heartbeat before it: 45 s, as on a
/// WebSocket.
const STREAM_UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Range and filter of a stream.
pub(super) struct EventStreamQuery {
    /// Stream the events after this number.
    pub after: Seq,
    /// Number of events after which the stream ends. `None`: the stream does not end.
    pub max_events: Option<usize>,
    /// Name of the events to send. `None`: all events and deltas.
    pub kind: Option<String>,
}

/// Returns true if the client accepts an event stream.
pub(super) fn is_requested(req: &HttpRequest) -> bool {
    accepts(req.headers(), "text/event-stream")
}

/// Returns the event after which to resume: `Last-Event-ID`, or else `after` of the address.
pub(super) fn resume_after(req: &HttpRequest, after: Seq) -> Result<Seq, ApiError> {
    let Some(last) = req.headers().get("last-event-id") else { return Ok(after) };
    let last = last.to_str().ok().and_then(|text| text.parse().ok());
    last.ok_or_else(|| ApiError::invalid("`Last-Event-ID` must be the number of an event"))
}

/// Streams the events of `query`, then new events, until the stream's end or the client's.
pub(super) async fn respond(
    req: &HttpRequest,
    services: &WebServices,
    id: SessionId,
    query: EventStreamQuery,
) -> ApiResult {
    if let Some(connection) = req.conn_data::<TcpConnection>() {
        connection.set_unread_timeout(STREAM_UNREAD_TIMEOUT);
    }
    let pull = EventPull::open(services.sockets.clone(), id, query.after).await?;
    let grant = req.extensions_mut().remove::<AccessGrant>();
    let end = connection_end(services.sockets.closing.clone(), grant);
    let frames = futures::StreamExt::take_until(frames(pull, query), Box::pin(end));
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        // The connection has a send timeout of its own, so it does not serve further requests.
        .force_close()
        .insert_header((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
        .streaming(frames))
}

/// Returns the frames of a stream. The next frame is pulled only when the connection has room, so a
/// slow reader delays only itself.
fn frames(pull: EventPull, query: EventStreamQuery) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let EventStreamQuery { max_events, kind, .. } = query;
    stream::unfold((pull, max_events.unwrap_or(usize::MAX)), move |(mut pull, left)| {
        let kind = kind.clone();
        async move {
            if left == 0 {
                return None;
            }
            let (text, left) = match next_frame(async || pull.next().await, kind.as_deref()).await {
                SseFrame::Event(text) => (text, left - 1),
                SseFrame::Unnumbered(text) => (text, left),
                SseFrame::Last(text) => (text, 0),
            };
            Some((Ok(Bytes::from(text)), (pull, left)))
        }
    })
}

/// Frame of a stream.
#[derive(Debug, PartialEq)]
enum SseFrame {
    Event(String),
    /// Frame without an event number: a delta or a heartbeat.
    Unnumbered(String),
    Last(String),
}

/// Returns the next frame: an event of that kind, or a heartbeat in time. Skipped events send
/// nothing to the client, so the heartbeat's time continues over them.
async fn next_frame(mut next: impl AsyncFnMut() -> PulledItem, kind: Option<&str>) -> SseFrame {
    let due = Instant::now() + HEARTBEAT;
    while let Ok(pulled) = timeout_at(due, next()).await {
        match pulled {
            PulledItem::Event((seq, event)) if kind.is_none_or(|kind| matches_kind(&event, kind)) => {
                return SseFrame::Event(format!("id: {seq}\ndata: {}\n\n", String::from_utf8_lossy(&event.json)));
            }
            PulledItem::Delta(chunk) if kind.is_none() => {
                return SseFrame::Unnumbered(named_event("delta", &json!(chunk.delta)));
            }
            PulledItem::Retry(frame) if kind.is_none() => {
                return SseFrame::Unnumbered(named_event("delta", &json!(frame)));
            }
            // An event that is already available never blocks, so the timeout does not fire. Check
            // the time here.
            PulledItem::Event(_) | PulledItem::Delta(_) | PulledItem::Retry(_) if Instant::now() >= due => break,
            PulledItem::Event(_) | PulledItem::Delta(_) | PulledItem::Retry(_) => {}
            PulledItem::Gone(error) => {
                let body = json!({ "error": { "code": error.code(), "message": error.to_string() } });
                return SseFrame::Last(named_event("error", &body));
            }
        }
    }
    SseFrame::Unnumbered(":\n\n".to_owned())
}

fn named_event(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::store::JournalEvent;

    fn event(kind: &'static str) -> PulledItem {
        PulledItem::Event((7, JournalEvent { kind: kind.into(), json: Bytes::from_static(b"{}") }))
    }

    #[tokio::test(start_paused = true)]
    async fn filtered_stream_of_a_busy_session_gets_heartbeats() {
        let busy = async || {
            sleep(Duration::from_secs(1)).await;
            event("run")
        };
        let (began, heartbeat) = (Instant::now(), || SseFrame::Unnumbered(":\n\n".to_owned()));
        let next = tokio::time::timeout(10 * HEARTBEAT, next_frame(busy, Some("message"))).await;
        assert_eq!((next, began.elapsed()), (Ok(heartbeat()), HEARTBEAT));
        assert_eq!(next_frame(busy, Some("run")).await, SseFrame::Event("id: 7\ndata: {}\n\n".to_owned()));
        // Skipped events of the past take time as well, and never block.
        let past = async || {
            tokio::time::advance(Duration::from_secs(1)).await;
            event("run")
        };
        let began = Instant::now();
        assert_eq!(next_frame(past, Some("message")).await, heartbeat());
        assert!(began.elapsed() <= HEARTBEAT + Duration::from_secs(1));
    }
}
