//! What every socket does, whatever is spoken over it: it asks whether its client is there, and goes when the client, the
//! server or the token does.

use std::time::Duration;

use actix::prelude::*;
use actix_web_actors::ws::{CloseCode, CloseReason, WebsocketContext};
use tokio::sync::watch;

use super::credit::Credit;
use crate::data::Pass;

/// How often a client that is not otherwise asked is asked whether it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(super) trait Connection: Actor<Context = WebsocketContext<Self>> {
    fn credit(&mut self) -> &mut Credit;

    /// The last words before the server goes away.
    fn goodbye(&mut self, _: &mut WebsocketContext<Self>) {}

    /// To be called once, when it starts.
    fn keep(&self, mut closing: watch::Receiver<bool>, pass: Option<Pass>, ctx: &mut WebsocketContext<Self>) {
        ctx.run_later(HEARTBEAT, beat);
        // Only an error if the server is gone, and then it has closed as well.
        let closed = async move { drop(closing.wait_for(|closing| *closing).await) }.into_actor(self);
        ctx.spawn(closed.map(|(), socket, ctx| {
            socket.goodbye(ctx);
            close(1001, "the server is going away", ctx);
        }));
        if let Some(pass) = pass {
            ctx.spawn(pass.revoked().into_actor(self).map(|(), _, ctx| {
                close(4401, "the token was replaced; sign in with the new one", ctx);
            }));
        }
    }
}

/// Each beat is timed from the one before: an interval would make up for those that were missed while the machine slept, and
/// give up a client that had no chance to answer.
fn beat<C: Connection>(socket: &mut C, ctx: &mut WebsocketContext<C>) {
    match socket.credit().beat() {
        Some(ping) => {
            ctx.ping(&ping);
            ctx.run_later(HEARTBEAT, beat);
        }
        None => close(4408, "no answer to pings", ctx),
    }
}

/// The last that a client hears. Whoever went on to listen would answer the client's own close with a second one, and
/// Chromium takes that for a broken connection, whose code no script gets to see.
pub(super) fn close<A: Actor<Context = WebsocketContext<A>>>(code: u16, why: &str, ctx: &mut WebsocketContext<A>) {
    // A close frame's text is at most 123 bytes.
    let description = why[..why.floor_char_boundary(120)].to_owned();
    ctx.close(Some(CloseReason { code: CloseCode::Other(code), description: Some(description) }));
    ctx.stop();
}
