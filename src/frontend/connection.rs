//! What every socket does, whatever is spoken over it: it asks whether its client is there, and goes when the client, the
//! server or the token does.

use std::time::Duration;

use actix::prelude::*;
use actix_web_actors::ws::{CloseCode, CloseReason, WebsocketContext};
use futures::{Stream, StreamExt, stream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::credit::Credit;
use crate::{data::Pass, wakeups::WhenWoken};

/// How often a client that is not otherwise asked is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) trait Connection: Actor<Context = WebsocketContext<Self>> {
    fn credit(&mut self) -> &mut Credit;

    /// The last words before the server goes away.
    fn goodbye(&mut self, _: &mut WebsocketContext<Self>) {}

    /// To be called once, when it starts.
    fn keep(&self, closing: CancellationToken, pass: Option<Pass>, ctx: &mut WebsocketContext<Self>) {
        let mut watch = WhenWoken::default();
        let mut due = Box::pin(due(closing, pass));
        let due = stream::poll_fn(move |cx| watch.poll(cx, |cx| due.poll_next_unpin(cx)));
        let told = due.into_actor(self).map(|due, socket, ctx| match due {
            Due::Beat => match socket.credit().beat() {
                Some(ping) => ctx.ping(&ping),
                None => close(4408, "no answer to pings", ctx),
            },
            Due::Over(Over::Server) => {
                socket.goodbye(ctx);
                close(1001, "the server is going away", ctx);
            }
            Due::Over(Over::Token) => close(4401, "the token was replaced; sign in with the new one", ctx),
        });
        ctx.spawn(told.finish());
    }
}

/// What a client is told without having said anything.
enum Due {
    Beat,
    Over(Over),
}

/// Each beat is timed from the one before: an interval would make up for those that were missed while the machine slept, and
/// give up a client that had no chance to answer.
fn due(closing: CancellationToken, pass: Option<Pass>) -> impl Stream<Item = Due> {
    stream::unfold(Some(Box::pin(over(closing, pass))), |waiting| async {
        let mut waiting = waiting?;
        tokio::select! {
            over = &mut waiting => Some((Due::Over(over), None)),
            () = sleep(HEARTBEAT) => Some((Due::Beat, Some(waiting))),
        }
    })
}

/// What ends a connection from without.
pub enum Over {
    /// The server goes away.
    Server,
    /// The token that let the client in is none any more.
    Token,
}

/// Waits for what ends a connection. `closing` revokes every pass as well, so that one future waits for both: there are ten
/// thousand of it.
pub async fn over(closing: CancellationToken, pass: Option<Pass>) -> Over {
    match pass {
        Some(pass) => pass.revoked().await,
        None => closing.cancelled().await,
    }
    if closing.is_cancelled() { Over::Server } else { Over::Token }
}

/// The last that a client hears. Whoever went on to listen would answer the client's own close with a second one, and
/// Chromium takes that for a broken connection, whose code no script gets to see.
pub(super) fn close<A: Actor<Context = WebsocketContext<A>>>(code: u16, why: &str, ctx: &mut WebsocketContext<A>) {
    // A close frame's text is at most 123 bytes.
    let description = why[..why.floor_char_boundary(120)].to_owned();
    ctx.close(Some(CloseReason { code: CloseCode::Other(code), description: Some(description) }));
    ctx.stop();
}
