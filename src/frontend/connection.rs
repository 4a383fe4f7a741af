//! What every socket does, whatever is spoken over it: it asks whether its client is there, and goes when the client, the
//! server or the token does.

use std::time::Duration;

use actix::prelude::*;
use actix_web_actors::ws::{CloseCode, CloseReason, WebsocketContext};
use futures::{Stream, StreamExt, stream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::credit::Credit;
use crate::{data::AccessGrant, wake_batch::PollWhenWoken};

/// How often a client that is not otherwise asked is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) trait ClientConnection: Actor<Context = WebsocketContext<Self>> {
    fn credit(&mut self) -> &mut Credit;

    /// The last words before the server goes away.
    fn send_closing(&mut self, _: &mut WebsocketContext<Self>) {}

    /// To be called once, when it starts.
    fn supervise(&self, closing: CancellationToken, pass: Option<AccessGrant>, ctx: &mut WebsocketContext<Self>) {
        let mut watch = PollWhenWoken::default();
        let mut due = Box::pin(notices(closing, pass));
        let due = stream::poll_fn(move |cx| watch.poll(cx, |cx| due.poll_next_unpin(cx)));
        let told = due.into_actor(self).map(|due, socket, ctx| match due {
            ConnectionNotice::Heartbeat => match socket.credit().heartbeat() {
                Some(ping) => ctx.ping(&ping),
                None => close(4408, "no answer to pings", ctx),
            },
            ConnectionNotice::End(ConnectionEnd::ServerClosing) => {
                socket.send_closing(ctx);
                close(1001, "the server is going away", ctx);
            }
            ConnectionNotice::End(ConnectionEnd::TokenRevoked) => {
                close(4401, "the token was replaced; sign in with the new one", ctx)
            }
        });
        ctx.spawn(told.finish());
    }
}

/// What a client is told without having said anything.
enum ConnectionNotice {
    Heartbeat,
    End(ConnectionEnd),
}

/// Each beat is timed from the one before: an interval would make up for those that were missed while the machine slept, and
/// give up a client that had no chance to answer.
fn notices(closing: CancellationToken, pass: Option<AccessGrant>) -> impl Stream<Item = ConnectionNotice> {
    stream::unfold(Some(Box::pin(connection_end(closing, pass))), |waiting| async {
        let mut waiting = waiting?;
        tokio::select! {
            over = &mut waiting => Some((ConnectionNotice::End(over), None)),
            () = sleep(HEARTBEAT) => Some((ConnectionNotice::Heartbeat, Some(waiting))),
        }
    })
}

/// What ends a connection from without.
pub enum ConnectionEnd {
    /// The server goes away.
    ServerClosing,
    /// The token that let the client in is none any more.
    TokenRevoked,
}

/// Waits for what ends a connection. `closing` revokes every pass as well, so that one future waits for both: there are ten
/// thousand of it.
pub async fn connection_end(closing: CancellationToken, pass: Option<AccessGrant>) -> ConnectionEnd {
    match pass {
        Some(pass) => pass.revoked().await,
        None => closing.cancelled().await,
    }
    if closing.is_cancelled() { ConnectionEnd::ServerClosing } else { ConnectionEnd::TokenRevoked }
}

/// The last that a client hears. Whoever went on to listen would answer the client's own close with a second one, and
/// Chromium takes that for a broken connection, whose code no script gets to see.
pub(super) fn close<A: Actor<Context = WebsocketContext<A>>>(code: u16, why: &str, ctx: &mut WebsocketContext<A>) {
    // A close frame's text is at most 123 bytes.
    let description = why[..why.floor_char_boundary(120)].to_owned();
    ctx.close(Some(CloseReason { code: CloseCode::Other(code), description: Some(description) }));
    ctx.stop();
}
