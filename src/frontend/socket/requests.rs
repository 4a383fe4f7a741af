//! What a client wants: read from its frames, given to its session, and answered when it is written down.

use actix::prelude::*;
use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    client::{ClientFrame, Status, Wish},
    observation::State,
};

use super::{Attachment, Context, FrontendSocket, Source, being_brought_back};
use crate::session::{
    Refusal, Session, Wanted, ask,
    messages::{Accepted, Answer, End, Interrupt, Pause, Relay, Resume, Stop},
};

/// How many wishes of one client may be under way. One more is refused, unless it is there to stop something: for those there is
/// as much room again.
pub(in crate::frontend) const UNDER_WAY: u8 = 64;
/// A frame of a wish to stop something is not longer, bytes: of those as many as are heard take no room.
const SHORT: usize = 1 << 10;

impl FrontendSocket {
    pub(super) fn hear(&mut self, text: &str, ctx: &mut Context) {
        match ClientFrame::parse(text) {
            Ok(ClientFrame { wish: Wish::Ping {}, .. }) => self.say(&Status::Pong {}, ctx),
            Ok(ClientFrame { id, wish }) => match &mut self.attached {
                Some(Attachment { source: Source::Session { session, .. }, .. }) => {
                    let session = session.clone();
                    self.relay(&session, id, wish, ctx);
                }
                Some(Attachment { id: session, source: Source::Journal { search, .. }, .. }) => {
                    let session = *session;
                    if search.waiting.len() + usize::from(self.under_way) >= usize::from(most(&wish)) {
                        return self.too_many(id, ctx);
                    }
                    let has_room = stops(&wish) && text.len() <= SHORT || search.has_room(text.len());
                    if !has_room {
                        return self.refused(&being_brought_back(), id, ctx);
                    }
                    search.wait(id, wish, text.len());
                    self.find_now(session, ctx);
                }
                // It asked for a session, and must not be given another one while that is looked for.
                None if self.arrival.as_ref().is_some_and(|arrival| arrival.wanted.is_some()) => {
                    self.refused(&being_brought_back(), id, ctx);
                }
                None => self.create(id, wish, ctx),
            },
            Err(bad) => self.error(bad.code, bad.message, bad.id, ctx),
        }
    }

    pub(super) fn relay(&mut self, session: &Addr<Session>, id: Option<String>, wish: Wish, ctx: &mut Context) {
        if self.under_way >= most(&wish) {
            return self.too_many(id, ctx);
        }
        self.under_way += 1;
        let key = id.clone();
        // Sent here and now, so that a client's frames reach its session in their order.
        let answer = match wish {
            Wish::Interrupt {} => given(session, Interrupt { key }),
            Wish::Pause {} => given(session, Pause { key }),
            Wish::Resume {} => given(session, Resume { key }),
            Wish::Stop {} => given(session, Stop { key, reason: None }),
            Wish::End {} => given(session, End { key }),
            wish => given(session, Relay { wish, key }),
        };
        ctx.spawn(answer.into_actor(self).map(move |answer, socket, ctx| {
            socket.under_way -= 1;
            socket.answered(answer, id, ctx);
        }));
    }

    fn too_many(&mut self, id: Option<String>, ctx: &mut Context) {
        let message = format!("{UNDER_WAY} frames are unanswered already; wait for some of the answers");
        self.error("too_many", message, id, ctx);
    }

    fn answered(&mut self, answer: Result<Accepted, Refusal>, id: Option<String>, ctx: &mut Context) {
        match (answer, id) {
            (Ok(accepted), Some(id)) => self.say(&Status::Accepted { id, seq: accepted.seq }, ctx),
            (Ok(_), None) => {}
            (Err(refusal), id) => self.refused(&refusal, id, ctx),
        }
    }

    /// The first wish of a client without a session. What comes after it waits until there is one.
    fn create(&mut self, id: Option<String>, wish: Wish, ctx: &mut Context) {
        if !matches!(wish, Wish::Initialize { .. } | Wish::Start { .. }) {
            let message = "there is no session yet; begin with `initialize` or `start`, or attach with `?session=`";
            return self.error("no_session", message.to_owned(), id, ctx);
        }
        if matches!(&wish, Wish::Start { task } if task.trim().is_empty()) {
            return self.refused(&Refusal::BadArgs("`task` is empty".to_owned()), id, ctx);
        }
        let sessions = self.parts.sessions.clone();
        let key = id.clone();
        let made = async move {
            let made = sessions.create(&wish, key).await;
            (made, wish)
        };
        ctx.wait(made.into_actor(self).map(move |(made, wish), socket, ctx| match made {
            Ok((session_id, session)) => {
                if let Some(arrival) = &mut socket.arrival {
                    arrival.wanted = Some(session_id);
                }
                socket.attach(session_id, session.clone(), ctx);
                // What the session was made from is no wish any more; a task is.
                match wish {
                    Wish::Start { .. } => socket.relay(&session, id, wish, ctx),
                    _ => socket.answered(Ok(Accepted { seq: None, state: State::Starting }), id, ctx),
                }
            }
            Err(refusal) => socket.refused(&refusal, id, ctx),
        }));
    }
}

/// How many may be under way for this one to be heard.
fn most(wish: &Wish) -> u8 {
    if stops(wish) { 2 * UNDER_WAY } else { UNDER_WAY }
}

fn stops(wish: &Wish) -> bool {
    matches!(wish, Wish::Interrupt {} | Wish::Pause {} | Wish::Stop {} | Wish::End {})
}

/// Gives a wish to the session, now; its answer, or why there is none.
fn given(session: &Addr<Session>, wish: impl Wanted<Result = Answer>) -> BoxFuture<'static, Answer> {
    ask(session, wish).map(|answer| answer.unwrap_or_else(|unanswered| Err(unanswered.into()))).boxed()
}
