//! What a client wants: read from its frames, given to its session, and answered when it is written down.

use actix::prelude::*;
use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    client::{ClientFrame, ClientRequest, StatusFrame},
    observation::AgentState,
};

use super::{AttachedSession, FrontendSocket, SessionSource, SocketContext, session_restarting};
use crate::session::{
    RequestError, Session, SessionRequest,
    messages::{End, Interrupt, Pause, Relay, RequestAccepted, RequestResult, Resume, Stop},
    send_request,
};

/// How many wishes of one client may be under way. One more is refused, unless it is there to stop something: for those there is
/// as much room again.
pub(in crate::frontend) const MAX_IN_FLIGHT: u8 = 64;
/// A frame of a wish to stop something is not longer, bytes: of those as many as are heard take no room.
const STOP_FRAME_LIMIT: usize = 1 << 10;

impl FrontendSocket {
    pub(super) fn receive_text(&mut self, text: &str, ctx: &mut SocketContext) {
        match ClientFrame::parse(text) {
            Ok(ClientFrame { request: ClientRequest::Ping {}, .. }) => self.send_frame(&StatusFrame::Pong {}, ctx),
            Ok(ClientFrame { id, request: wish }) => match &mut self.attached {
                Some(AttachedSession { source: SessionSource::Session { session, .. }, .. }) => {
                    let session = session.clone();
                    self.relay(&session, id, wish, ctx);
                }
                Some(AttachedSession {
                    id: session, source: SessionSource::Journal { lookup: search, .. }, ..
                }) => {
                    let session = *session;
                    if search.waiting.len() + usize::from(self.in_flight) >= usize::from(in_flight_limit(&wish)) {
                        return self.too_many(id, ctx);
                    }
                    let has_room =
                        is_stop_request(&wish) && text.len() <= STOP_FRAME_LIMIT || search.has_room(text.len());
                    if !has_room {
                        return self.send_request_error(&session_restarting(), id, ctx);
                    }
                    search.queue_request(id, wish, text.len());
                    self.lookup_now(session, ctx);
                }
                // It asked for a session, and must not be given another one while that is looked for.
                None if self.attach_request.as_ref().is_some_and(|arrival| arrival.session_id.is_some()) => {
                    self.send_request_error(&session_restarting(), id, ctx);
                }
                None => self.create(id, wish, ctx),
            },
            Err(bad) => self.send_error(bad.code, bad.message, bad.id, ctx),
        }
    }

    pub(super) fn relay(
        &mut self,
        session: &Addr<Session>,
        id: Option<String>,
        wish: ClientRequest,
        ctx: &mut SocketContext,
    ) {
        if self.in_flight >= in_flight_limit(&wish) {
            return self.too_many(id, ctx);
        }
        self.in_flight += 1;
        let key = id.clone();
        // Sent here and now, so that a client's frames reach its session in their order.
        let answer = match wish {
            ClientRequest::Interrupt {} => send_to_session(session, Interrupt { idempotency_key: key }),
            ClientRequest::Pause {} => send_to_session(session, Pause { idempotency_key: key }),
            ClientRequest::Resume {} => send_to_session(session, Resume { idempotency_key: key }),
            ClientRequest::Stop {} => send_to_session(session, Stop { idempotency_key: key, reason: None }),
            ClientRequest::End {} => send_to_session(session, End { idempotency_key: key }),
            wish => send_to_session(session, Relay { request: wish, idempotency_key: key }),
        };
        ctx.spawn(answer.into_actor(self).map(move |answer, socket, ctx| {
            socket.in_flight -= 1;
            socket.send_answer(answer, id, ctx);
        }));
    }

    fn too_many(&mut self, id: Option<String>, ctx: &mut SocketContext) {
        let message = format!("{MAX_IN_FLIGHT} frames are unanswered already; wait for some of the answers");
        self.send_error("too_many", message, id, ctx);
    }

    fn send_answer(
        &mut self,
        answer: Result<RequestAccepted, RequestError>,
        id: Option<String>,
        ctx: &mut SocketContext,
    ) {
        match (answer, id) {
            (Ok(accepted), Some(id)) => self.send_frame(&StatusFrame::Accepted { id, seq: accepted.seq }, ctx),
            (Ok(_), None) => {}
            (Err(refusal), id) => self.send_request_error(&refusal, id, ctx),
        }
    }

    /// The first wish of a client without a session. What comes after it waits until there is one.
    fn create(&mut self, id: Option<String>, wish: ClientRequest, ctx: &mut SocketContext) {
        if !matches!(wish, ClientRequest::Initialize { .. } | ClientRequest::Start { .. }) {
            let message = "there is no session yet; begin with `initialize` or `start`, or attach with `?session=`";
            return self.send_error("no_session", message.to_owned(), id, ctx);
        }
        if matches!(&wish, ClientRequest::Start { task } if task.trim().is_empty()) {
            return self.send_request_error(&RequestError::BadArgs("`task` is empty".to_owned()), id, ctx);
        }
        let sessions = self.parts.sessions.clone();
        let key = id.clone();
        let made = async move {
            let made = sessions.create(&wish, key).await;
            (made, wish)
        };
        ctx.wait(made.into_actor(self).map(move |(made, wish), socket, ctx| match made {
            Ok((session_id, session)) => {
                if let Some(arrival) = &mut socket.attach_request {
                    arrival.session_id = Some(session_id);
                }
                socket.attach(session_id, session.clone(), ctx);
                // What the session was made from is no wish any more; a task is.
                match wish {
                    ClientRequest::Start { .. } => socket.relay(&session, id, wish, ctx),
                    _ => socket.send_answer(Ok(RequestAccepted { seq: None, state: AgentState::Starting }), id, ctx),
                }
            }
            Err(refusal) => socket.send_request_error(&refusal, id, ctx),
        }));
    }
}

/// How many may be under way for this one to be heard.
fn in_flight_limit(wish: &ClientRequest) -> u8 {
    if is_stop_request(wish) { 2 * MAX_IN_FLIGHT } else { MAX_IN_FLIGHT }
}

fn is_stop_request(wish: &ClientRequest) -> bool {
    matches!(
        wish,
        ClientRequest::Interrupt {} | ClientRequest::Pause {} | ClientRequest::Stop {} | ClientRequest::End {}
    )
}

/// Gives a wish to the session, now; its answer, or why there is none.
fn send_to_session(
    session: &Addr<Session>,
    wish: impl SessionRequest<Result = RequestResult>,
) -> BoxFuture<'static, RequestResult> {
    send_request(session, wish).map(|answer| answer.unwrap_or_else(|unanswered| Err(unanswered.into()))).boxed()
}
