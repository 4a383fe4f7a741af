//! Common behaviour of all sockets: heartbeats, and the close when the client, the server or the
//! sign-in goes.

use std::time::Duration;

use actix::prelude::*;
use actix_web::{HttpMessage, HttpRequest};
use actix_web_actors::ws::{CloseCode, CloseReason, Message, ProtocolError, WebsocketContext};
use futures::{Stream, StreamExt, stream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::credit::Credit;
use crate::{
    data::{AccessGrant, ClientName},
    net::wake_batch::PollWhenWoken,
};

/// Interval of heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Takes the grant and the name of an admitted client from its request.
pub(super) fn admitted_client(request: &HttpRequest) -> (Option<AccessGrant>, Option<ClientName>) {
    let mut extensions = request.extensions_mut();
    (extensions.remove(), extensions.remove())
}

/// WebSocket actor of one client.
pub(super) trait ClientConnection: Actor<Context = WebsocketContext<Self>> {
    fn credit(&mut self) -> &mut Credit;

    /// Records a received message: a pong confirms what the client has read.
    fn record_received(&mut self, message: &Result<Message, ProtocolError>) {
        self.credit().received(match message {
            Ok(Message::Pong(payload)) => Some(payload),
            Ok(_) | Err(_) => None,
        });
    }

    /// Sends a last frame before the server shuts down.
    fn send_closing(&mut self, _: &mut WebsocketContext<Self>) {}

    /// Starts heartbeats and watches for the end of the connection. Call it once, when the actor
    /// starts.
    fn supervise(&self, closing: CancellationToken, grant: Option<AccessGrant>, ctx: &mut WebsocketContext<Self>) {
        let mut watch = PollWhenWoken::default();
        let mut notices = Box::pin(notices(closing, grant));
        let notices = stream::poll_fn(move |cx| watch.poll(cx, |cx| notices.poll_next_unpin(cx)));
        let handled = notices.into_actor(self).map(|notice, socket, ctx| match notice {
            ConnectionNotice::Heartbeat => match socket.credit().heartbeat() {
                Some(ping) => ctx.ping(&ping),
                None => close(4408, "no answer to pings", ctx),
            },
            ConnectionNotice::End(ConnectionEnd::ServerClosing) => {
                socket.send_closing(ctx);
                close(1001, "the server is going away", ctx);
            }
            ConnectionNotice::End(ConnectionEnd::TokenRevoked) => {
                close(4401, "the token was replaced or the browser signed out; sign in again", ctx)
            }
        });
        ctx.spawn(handled.finish());
    }
}

/// Notice to a socket that its client did not cause.
enum ConnectionNotice {
    Heartbeat,
    End(ConnectionEnd),
}

/// Streams heartbeats, then the end of the connection.
///
/// Each heartbeat is timed from the one before. An interval would make up for heartbeats missed
/// while the machine was suspended. It would close clients that had no chance to answer.
fn notices(closing: CancellationToken, grant: Option<AccessGrant>) -> impl Stream<Item = ConnectionNotice> {
    stream::unfold(Some(Box::pin(connection_end(closing, grant))), |waiting| async {
        let mut waiting = waiting?;
        tokio::select! {
            end = &mut waiting => Some((ConnectionNotice::End(end), None)),
            () = sleep(HEARTBEAT) => Some((ConnectionNotice::Heartbeat, Some(waiting))),
        }
    })
}

/// Reason for the end of a connection that the client did not cause.
pub enum ConnectionEnd {
    /// The server shuts down.
    ServerClosing,
    /// The token that admitted the client was replaced, or its browser was signed out.
    TokenRevoked,
}

/// Waits for the end of a connection.
///
/// `closing` revokes every access grant too, so one future waits for both. A server has up to ten
/// thousand of these futures.
pub async fn connection_end(closing: CancellationToken, grant: Option<AccessGrant>) -> ConnectionEnd {
    match grant {
        Some(grant) => grant.revoked().await,
        None => closing.cancelled().await,
    }
    if closing.is_cancelled() { ConnectionEnd::ServerClosing } else { ConnectionEnd::TokenRevoked }
}

/// Closes the socket and stops its actor.
///
/// A socket that kept reading would answer the client's close with a second one. Chromium then
/// reports a broken connection and hides the close code from scripts.
pub(super) fn close<A: Actor<Context = WebsocketContext<A>>>(code: u16, reason: &str, ctx: &mut WebsocketContext<A>) {
    // A close reason has at most 123 bytes (RFC 6455, section 5.5).
    let description = reason[..reason.floor_char_boundary(120)].to_owned();
    ctx.close(Some(CloseReason { code: CloseCode::Other(code), description: Some(description) }));
    ctx.stop();
}
