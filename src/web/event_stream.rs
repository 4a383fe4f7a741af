//! Server-sent events: the answer of `GET …/events` to a client that accepts an event stream.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::header::{HeaderName, HeaderValue},
};
use bytes::Bytes;
use futures::{Stream, stream};
use greenroom_protocol::{client::StatusFrame, observation::AgentState};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::{error::ApiResult, request::accepts, state::WebServices};
use crate::{
    data::AccessGrant,
    frontend::{EventPull, PulledItem, connection_end},
    net::TcpConnection,
    store::{JournalEvent, Seq, SessionSnapshot, damage::matches_kind},
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
    /// Newest event that the client has, if it resumes a stream. Takes precedence over `after`.
    pub resumed_after: Option<Seq>,
    /// Number of events after which the stream ends. `None`: the stream ends with the session.
    pub max_events: Option<usize>,
    /// Name of the events to send. `None`: all events and deltas.
    pub kind: Option<String>,
}

/// Returns true if the client accepts an event stream. A client that also accepts JSON gets JSON:
/// generated clients list all types of the OpenAPI document.
pub(super) fn is_requested(req: &HttpRequest) -> bool {
    accepts(req.headers(), "text/event-stream") && !accepts(req.headers(), "application/json")
}

/// Streams the events of `query`, then new events, until the end of the session, of the stream's
/// limit or of the connection.
pub(super) async fn respond(
    req: &HttpRequest,
    services: &WebServices,
    session: &SessionSnapshot,
    query: EventStreamQuery,
) -> ApiResult {
    let position = StreamPosition {
        cursor: query.resumed_after.unwrap_or(query.after),
        end: (session.record.state == AgentState::Ended).then_some(session.tail),
    };
    if query.resumed_after.is_some() && position.is_at_end() {
        return Ok(HttpResponse::NoContent().finish());
    }
    if let Some(connection) = req.conn_data::<TcpConnection>() {
        connection.set_unread_timeout(STREAM_UNREAD_TIMEOUT);
    }
    let pull = EventPull::open(services.sockets.clone(), session.record.id, position.cursor).await?;
    let grant = req.extensions_mut().remove::<AccessGrant>();
    let end = connection_end(services.sockets.closing.clone(), grant);
    let frames = futures::StreamExt::take_until(frames(pull, position, query), Box::pin(end));
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        // The connection has a send timeout of its own, so it does not serve further requests.
        .force_close()
        .insert_header((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
        .streaming(frames))
}

/// Returns the frames of a stream. The next frame is pulled only when the connection has room, so a
/// slow reader delays only itself.
fn frames(
    pull: EventPull,
    position: StreamPosition,
    query: EventStreamQuery,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    let EventStreamQuery { max_events, kind, .. } = query;
    let start = (pull, position, max_events.unwrap_or(usize::MAX));
    stream::unfold(start, move |(mut pull, mut position, left)| {
        let kind = kind.clone();
        async move {
            if left == 0 {
                return None;
            }
            let (text, left) = match next_frame(async || pull.next().await, &mut position, kind.as_deref()).await {
                SseFrame::Event(text) => (text, left - 1),
                SseFrame::Unnumbered(text) => (text, left),
                SseFrame::Last(text) => (text, 0),
            };
            Some((Ok(Bytes::from(text)), (pull, position, left)))
        }
    })
}

/// Position of a stream in its session's journal.
struct StreamPosition {
    /// Newest event that the stream has passed.
    cursor: Seq,
    /// Last event of an ended session.
    end: Option<Seq>,
}

impl StreamPosition {
    fn is_at_end(&self) -> bool {
        self.end.is_some_and(|end| self.cursor >= end)
    }

    fn pass(&mut self, seq: Seq, event: &JournalEvent) {
        self.cursor = seq;
        if ends_session(event) {
            self.end = Some(seq);
        }
    }
}

/// Returns true for the event with which a session ends.
fn ends_session(event: &JournalEvent) -> bool {
    #[derive(Deserialize)]
    struct StateEvent {
        extras: StateExtras,
    }
    #[derive(Deserialize)]
    struct StateExtras {
        agent_state: AgentState,
    }
    let is_ended = |event: StateEvent| event.extras.agent_state == AgentState::Ended;
    event.kind == "agent_state_changed" && serde_json::from_slice(&event.json).is_ok_and(is_ended)
}

/// Frame of a stream.
#[derive(Debug, PartialEq)]
enum SseFrame {
    Event(String),
    /// Frame without an event number: a delta or a heartbeat.
    Unnumbered(String),
    Last(String),
}

/// Returns the next frame: an event of that kind, or a heartbeat in time, or the end of the
/// session. Skipped events send nothing to the client, so the heartbeat's time continues over them.
async fn next_frame(
    mut next: impl AsyncFnMut() -> PulledItem,
    position: &mut StreamPosition,
    kind: Option<&str>,
) -> SseFrame {
    let due = Instant::now() + HEARTBEAT;
    loop {
        if let Some(end) = position.end.filter(|_| position.is_at_end()) {
            return closing("the session has ended", Some(end));
        }
        let Ok(pulled) = timeout_at(due, next()).await else { break };
        if let PulledItem::Event((seq, event)) = &pulled {
            position.pass(*seq, event);
        }
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
            PulledItem::Gone(error) => return closing(&error.to_string(), None),
        }
    }
    SseFrame::Unnumbered(":\n\n".to_owned())
}

/// Returns the last frame of a session that has ended or was removed. A browser that resumes at
/// `id` gets no further answer; a filtered stream may have sent no event with that number. The name
/// `error` is the browser's own, for its connection.
fn closing(reason: &str, id: Option<Seq>) -> SseFrame {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    SseFrame::Last(id + &named_event("closing", &json!(StatusFrame::Closing { reason: reason.to_owned() })))
}

fn named_event(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;
    use crate::session::RequestError;

    fn event(seq: Seq, kind: &'static str, json: &'static str) -> PulledItem {
        PulledItem::Event((seq, JournalEvent { kind: kind.into(), json: Bytes::from_static(json.as_bytes()) }))
    }

    fn start() -> StreamPosition {
        StreamPosition { cursor: 0, end: None }
    }

    #[tokio::test(start_paused = true)]
    async fn filtered_stream_of_a_busy_session_gets_heartbeats() {
        let busy = async || {
            sleep(Duration::from_secs(1)).await;
            event(7, "run", "{}")
        };
        let (began, heartbeat) = (Instant::now(), || SseFrame::Unnumbered(":\n\n".to_owned()));
        let position = &mut start();
        let next = tokio::time::timeout(10 * HEARTBEAT, next_frame(busy, position, Some("message"))).await;
        assert_eq!((next, began.elapsed()), (Ok(heartbeat()), HEARTBEAT));
        assert_eq!(next_frame(busy, position, Some("run")).await, SseFrame::Event("id: 7\ndata: {}\n\n".to_owned()));
        // Skipped events of the past take time as well, and never block.
        let past = async || {
            tokio::time::advance(Duration::from_secs(1)).await;
            event(7, "run", "{}")
        };
        let began = Instant::now();
        assert_eq!(next_frame(past, position, Some("message")).await, heartbeat());
        assert!(began.elapsed() <= HEARTBEAT + Duration::from_secs(1));
    }

    /// Reads a stream to its end. Panics if the stream would wait for an event after the last one.
    async fn read(position: StreamPosition, kind: Option<&str>, events: Vec<PulledItem>) -> Vec<SseFrame> {
        let (mut position, mut events, mut frames) = (position, events.into_iter(), Vec::new());
        loop {
            let next = async || events.next().expect("the stream ends before it waits");
            frames.push(next_frame(next, &mut position, kind).await);
            if matches!(frames.last(), Some(SseFrame::Last(_))) {
                return frames;
            }
        }
    }

    #[tokio::test]
    async fn stream_ends_with_its_session_and_names_no_event_error() {
        const STATE: &str = "agent_state_changed";
        const IDLE: &str = r#"{"seq":1,"extras":{"agent_state":"idle"}}"#;
        const ENDED: &str = r#"{"seq":2,"extras":{"agent_state":"ended"}}"#;
        let numbered = |seq: Seq, json: &str| SseFrame::Event(format!("id: {seq}\ndata: {json}\n\n"));
        let closed = |id: &str, reason: &str| {
            let data = json!({ "status": "closing", "reason": reason });
            SseFrame::Last(format!("{id}event: closing\ndata: {data}\n\n"))
        };
        let ended = || closed("id: 2\n", "the session has ended");
        let live = || vec![event(1, STATE, IDLE), event(2, STATE, ENDED)];
        assert_eq!(read(start(), None, live()).await, [numbered(1, IDLE), numbered(2, ENDED), ended()]);
        assert_eq!(read(start(), Some("run"), live()).await, [ended()], "also if the filter skips the last event");
        let past = |cursor| StreamPosition { cursor, end: Some(2) };
        let late = vec![event(2, "usage", "{}")];
        assert_eq!(read(past(1), None, late).await, [numbered(2, "{}"), ended()]);
        assert_eq!(read(past(2), None, Vec::new()).await, [ended()]);
        assert_eq!(read(past(9), None, Vec::new()).await, [ended()]);
        let gone = PulledItem::Gone(RequestError::NoSession("01".to_owned()));
        assert_eq!(read(start(), None, vec![gone]).await, [closed("", "no session `01`")]);
    }
}
