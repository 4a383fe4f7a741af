//! Client requests of a socket: parsed from frames, sent to the session, and answered when
//! persisted.

use actix::prelude::*;
use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{
    client::{ClientFrame, ClientRequest, StatusFrame},
    observation::AgentState,
};

use super::{AttachedSession, FrontendSocket, SessionSource, SocketContext, session_restarting};
use crate::{
    data::ClientName,
    session::{
        RequestError, Session, SessionRequest,
        messages::{End, Interrupt, Pause, Relay, RequestAccepted, RequestResult, Resume, Stop},
        send_request,
    },
};

/// Largest number of requests in flight of one client. Further requests are rejected. Requests that
/// stop something have twice the limit.
pub(in crate::frontend) const MAX_IN_FLIGHT: u8 = 64;
/// Largest frame of a stop request, bytes. Shorter stop requests are queued without a check of the
/// queue's size.
const STOP_FRAME_LIMIT: usize = 1 << 10;

impl FrontendSocket {
    pub(super) fn receive_text(&mut self, text: &str, ctx: &mut SocketContext) {
        match self.view.parse(text) {
            Ok(ClientFrame { request: ClientRequest::Ping {}, .. }) => self.send_status(&StatusFrame::Pong {}, ctx),
            Ok(ClientFrame { id, request }) => match &mut self.attached {
                Some(AttachedSession { source: SessionSource::Session { session, .. }, .. }) => {
                    let session = session.clone();
                    self.relay(&session, id, request, ctx);
                }
                Some(AttachedSession { id: session, source: SessionSource::Journal { lookup, .. }, .. }) => {
                    let session = *session;
                    if lookup.waiting.len() + usize::from(self.in_flight) >= usize::from(in_flight_limit(&request)) {
                        return self.too_many(id, ctx);
                    }
                    let has_room =
                        is_stop_request(&request) && text.len() <= STOP_FRAME_LIMIT || lookup.has_room(text.len());
                    if !has_room {
                        return self.send_request_error(&session_restarting(), id, ctx);
                    }
                    lookup.queue_request(id, request, text.len());
                    self.lookup_now(session, ctx);
                }
                // The client asked for a session. It must not get another one while that session is
                // looked up.
                None if self.attach_request.as_ref().is_some_and(|attach| attach.session_id.is_some()) => {
                    self.send_request_error(&session_restarting(), id, ctx);
                }
                None => self.create(id, request, ctx),
            },
            Err(bad) => self.send_error(bad.code, bad.message, bad.id, ctx),
        }
    }

    pub(super) fn relay(
        &mut self,
        session: &Addr<Session>,
        id: Option<String>,
        request: ClientRequest,
        ctx: &mut SocketContext,
    ) {
        if self.in_flight >= in_flight_limit(&request) {
            return self.too_many(id, ctx);
        }
        self.in_flight += 1;
        let key = id.clone();
        let is_initialize = matches!(request, ClientRequest::Initialize { .. });
        // Sent synchronously, so a client's frames reach its session in their order.
        let answer = match request {
            ClientRequest::Interrupt {} => send_to_session(session, Interrupt { idempotency_key: key }),
            ClientRequest::Pause {} => send_to_session(session, Pause { idempotency_key: key }),
            ClientRequest::Resume {} => send_to_session(session, Resume { idempotency_key: key }),
            ClientRequest::Stop {} => send_to_session(session, Stop { idempotency_key: key, reason: None }),
            ClientRequest::End {} => send_to_session(session, End { idempotency_key: key }),
            request => {
                let requested_by = self.client_name.as_ref().map(ClientName::to_string);
                send_to_session(session, Relay { request, idempotency_key: key, requested_by })
            }
        };
        ctx.spawn(answer.into_actor(self).map(move |answer, socket, ctx| {
            socket.in_flight -= 1;
            match answer {
                Ok(accepted) if is_initialize => socket.send_initialize_accepted(accepted, id, ctx),
                answer => socket.send_answer(answer, id, ctx),
            }
        }));
    }

    fn too_many(&mut self, id: Option<String>, ctx: &mut SocketContext) {
        let message = format!("{MAX_IN_FLIGHT} frames are unanswered; wait for some of the answers");
        self.send_error("too_many", message, id, ctx);
    }

    fn send_answer(
        &mut self,
        answer: Result<RequestAccepted, RequestError>,
        id: Option<String>,
        ctx: &mut SocketContext,
    ) {
        match (answer, id) {
            (Ok(accepted), Some(id)) => self.send_status(&StatusFrame::Accepted { id, seq: accepted.seq }, ctx),
            (Ok(_), None) => {}
            (Err(error), id) => self.send_request_error(&error, id, ctx),
        }
    }

    fn send_initialize_accepted(&mut self, accepted: RequestAccepted, id: Option<String>, ctx: &mut SocketContext) {
        self.send_initialized(accepted.state, ctx);
        self.send_answer(Ok(accepted), id, ctx);
    }

    /// Creates the session from the first request of a client without a session. Further frames
    /// stay unread until it exists.
    fn create(&mut self, id: Option<String>, request: ClientRequest, ctx: &mut SocketContext) {
        if !matches!(request, ClientRequest::Initialize { .. } | ClientRequest::Start { .. }) {
            let message = "there is no session yet; begin with `initialize` or `start`, or attach with `?session=`";
            return self.send_error("no_session", message.to_owned(), id, ctx);
        }
        if matches!(&request, ClientRequest::Start { task } if task.trim().is_empty()) {
            return self.send_request_error(&RequestError::BadArgs("`task` is empty".to_owned()), id, ctx);
        }
        let sessions = self.services.sessions.clone();
        let key = id.clone();
        let created = async move {
            let created = sessions.create(&request, key).await;
            (created, request)
        };
        ctx.wait(created.into_actor(self).map(move |(created, request), socket, ctx| match created {
            Ok((session_id, session)) => {
                if let Some(attach) = &mut socket.attach_request {
                    attach.session_id = Some(session_id);
                }
                socket.attach(session_id, session.clone(), ctx);
                // An `initialize` has created the session and is done. A task is still to be sent.
                match request {
                    ClientRequest::Start { .. } => socket.relay(&session, id, request, ctx),
                    _ => {
                        let accepted = RequestAccepted { seq: None, state: AgentState::Starting };
                        socket.send_initialize_accepted(accepted, id, ctx);
                    }
                }
            }
            Err(error) => socket.send_request_error(&error, id, ctx),
        }));
    }
}

/// Returns the number of requests in flight from which on this request is rejected.
fn in_flight_limit(request: &ClientRequest) -> u8 {
    if is_stop_request(request) { 2 * MAX_IN_FLIGHT } else { MAX_IN_FLIGHT }
}

fn is_stop_request(request: &ClientRequest) -> bool {
    matches!(
        request,
        ClientRequest::Interrupt {} | ClientRequest::Pause {} | ClientRequest::Stop {} | ClientRequest::End {}
    )
}

/// Sends a request to the session now. Returns a future with the answer, or with the reason why
/// none came.
fn send_to_session(
    session: &Addr<Session>,
    request: impl SessionRequest<Result = RequestResult>,
) -> BoxFuture<'static, RequestResult> {
    send_request(session, request).map(|answer| answer.unwrap_or_else(|e| Err(e.into()))).boxed()
}
