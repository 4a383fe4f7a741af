//! A session's events as server-sent events: what `GET …/events` answers where a client accepts such a stream.

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
    WebServices,
    connection::TcpConnection,
    error::{ApiError, ApiResult},
    request::accepts,
};
use crate::{
    data::AccessGrant,
    frontend::{EventPull, PulledItem, connection_end},
    store::{Seq, SessionId, damage::matches_kind},
};

/// How often a client that has nothing to hear hears that.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long what it was sent may go unheard: with a heartbeat before it, 45 s as on a WebSocket.
const STREAM_UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Which events a stream has.
pub(super) struct EventStreamQuery {
    /// Those after this one.
    pub after: Seq,
    /// It ends with so many; `None`: it does not end.
    pub max_events: Option<usize>,
    /// Those of this name alone.
    pub kind: Option<String>,
}

/// Whether the client prefers a stream to a page.
pub(super) fn is_requested(req: &HttpRequest) -> bool {
    accepts(req.headers(), "text/event-stream")
}

/// `after` as the client's browser remembers it, else as the address says.
pub(super) fn resume_after(req: &HttpRequest, asked: Seq) -> Result<Seq, ApiError> {
    let Some(last) = req.headers().get("last-event-id") else { return Ok(asked) };
    let last = last.to_str().ok().and_then(|text| text.parse().ok());
    last.ok_or_else(|| ApiError::invalid("`Last-Event-ID` is the number of an event"))
}

/// Everything of that part, and then what comes, until there was enough or the client goes.
pub(super) async fn respond(
    req: &HttpRequest,
    parts: &WebServices,
    id: SessionId,
    part: EventStreamQuery,
) -> ApiResult {
    if let Some(connection) = req.conn_data::<TcpConnection>() {
        connection.set_unread_timeout(STREAM_UNREAD_TIMEOUT);
    }
    let pull = EventPull::open(parts.sockets.clone(), id, part.after).await?;
    let pass = req.extensions_mut().remove::<AccessGrant>();
    let over = connection_end(parts.sockets.closing.clone(), pass);
    let frames = futures::StreamExt::take_until(frames(pull, part), Box::pin(over));
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        // With a patience of its own, it is of no use to what would be asked next.
        .force_close()
        .insert_header((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
        .streaming(frames))
}

/// Asked for the next frame only when the connection has room for it: that holds a session back from nobody but its reader.
fn frames(pull: EventPull, part: EventStreamQuery) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let EventStreamQuery { max_events: most, kind, .. } = part;
    stream::unfold((pull, most.unwrap_or(usize::MAX)), move |(mut pull, left)| {
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

/// What a client is sent.
#[derive(Debug, PartialEq)]
enum SseFrame {
    Event(String),
    /// What has no number.
    Unnumbered(String),
    Last(String),
}

/// The next frame: what comes `next` and is of that kind, or in good time that there is nothing. What is left out gives nobody
/// a sign of life, so the time runs on over it.
async fn next_frame(mut next: impl AsyncFnMut() -> PulledItem, kind: Option<&str>) -> SseFrame {
    let due = Instant::now() + HEARTBEAT;
    while let Ok(pulled) = timeout_at(due, next()).await {
        match pulled {
            PulledItem::Event((seq, event)) if kind.is_none_or(|kind| matches_kind(&event, kind)) => {
                return SseFrame::Event(format!("id: {seq}\ndata: {}\n\n", String::from_utf8_lossy(&event.json)));
            }
            PulledItem::Delta(piece) if kind.is_none() => {
                return SseFrame::Unnumbered(named_event("delta", &json!(piece.delta)));
            }
            // What is here already is not waited for, and no time is asked about it.
            PulledItem::Event(_) | PulledItem::Delta(_) if Instant::now() >= due => break,
            PulledItem::Event(_) | PulledItem::Delta(_) => {}
            PulledItem::Gone(why) => {
                let error = json!({ "error": { "code": why.code(), "message": why.to_string() } });
                return SseFrame::Last(named_event("error", &error));
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
    async fn who_waits_for_one_kind_hears_in_a_busy_session_that_it_is_there() {
        let busy = async || {
            sleep(Duration::from_secs(1)).await;
            event("run")
        };
        let (began, heartbeat) = (Instant::now(), || SseFrame::Unnumbered(":\n\n".to_owned()));
        let next = tokio::time::timeout(10 * HEARTBEAT, next_frame(busy, Some("message"))).await;
        assert_eq!((next, began.elapsed()), (Ok(heartbeat()), HEARTBEAT));
        assert_eq!(next_frame(busy, Some("run")).await, SseFrame::Event("id: 7\ndata: {}\n\n".to_owned()));
        // A long past in which nothing fits takes its time, too, and never waits.
        let past = async || {
            tokio::time::advance(Duration::from_secs(1)).await;
            event("run")
        };
        let began = Instant::now();
        assert_eq!(next_frame(past, Some("message")).await, heartbeat());
        assert!(began.elapsed() <= HEARTBEAT + Duration::from_secs(1));
    }
}
