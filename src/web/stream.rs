//! A session's events as server-sent events: what `GET …/events` answers where a client accepts such a stream.

use std::{convert::Infallible, time::Duration};

use actix_web::{
    HttpMessage, HttpRequest, HttpResponse,
    http::header::{self, HeaderName, HeaderValue},
};
use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::json;

use super::{
    Parts,
    error::{Answer, Failure},
};
use crate::{
    data::Pass,
    frontend::{Pull, Pulled, over},
    store::{Seq, SessionId, damage::is_of_kind},
};

/// How often a client that has nothing to hear hears that.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Whether the client prefers a stream to a page.
pub(super) fn is_wanted(req: &HttpRequest) -> bool {
    let accept = req.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream"))
}

/// `after` as the client's browser remembers it, else as the address says.
pub(super) fn after(req: &HttpRequest, asked: Seq) -> Result<Seq, Failure> {
    let Some(last) = req.headers().get("last-event-id") else { return Ok(asked) };
    let last = last.to_str().ok().and_then(|text| text.parse().ok());
    last.ok_or_else(|| Failure::invalid("`Last-Event-ID` is the number of an event"))
}

/// Everything after `after`, and then what comes, until the client goes. With a `kind`, events of that name alone.
pub(super) async fn answer(
    req: &HttpRequest,
    parts: &Parts,
    id: SessionId,
    after: Seq,
    kind: Option<String>,
) -> Answer {
    let pull = Pull::open(parts.sockets.clone(), id, after).await?;
    let pass = req.extensions_mut().remove::<Pass>();
    let over = over(parts.sockets.closing.clone(), pass);
    let frames = futures::StreamExt::take_until(frames(pull, kind), Box::pin(over));
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        .insert_header((HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")))
        .streaming(frames))
}

/// Asked for the next frame only when the connection has room for it: that holds a session back from nobody but its reader.
fn frames(pull: Pull, kind: Option<String>) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some(pull), move |pull| {
        let kind = kind.clone();
        async move {
            let mut pull = pull?;
            loop {
                let frame = match tokio::time::timeout(HEARTBEAT, pull.next()).await {
                    Err(_) => ":\n\n".to_owned(),
                    Ok(Pulled::Event((_, event))) if kind.as_ref().is_some_and(|kind| !is_of_kind(&event, kind)) => {
                        continue;
                    }
                    Ok(Pulled::Event((seq, event))) => {
                        format!("id: {seq}\ndata: {}\n\n", String::from_utf8_lossy(&event.json))
                    }
                    Ok(Pulled::Delta(_)) if kind.is_some() => continue,
                    Ok(Pulled::Delta(delta)) => named("delta", &json!(delta)),
                    Ok(Pulled::Gone(why)) => {
                        let error = json!({ "error": { "code": why.code(), "message": why.to_string() } });
                        return Some((Ok(Bytes::from(named("error", &error))), None));
                    }
                };
                return Some((Ok(Bytes::from(frame)), Some(pull)));
            }
        }
    })
}

fn named(name: &str, data: &serde_json::Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}
