//! Lookup of a session whose actor is not available.
//!
//! The client gets the journal meanwhile, and the lookup is repeated. A client request triggers the
//! next lookup at once.

use actix::prelude::*;
use greenroom_protocol::{CLIENT_FRAME_LIMIT, client::ClientRequest};

use super::{
    FrontendSocket, LOOKUP_RETRY_MAX, LOOKUP_RETRY_MIN, LOOKUP_RETRY_UNREADABLE, SessionSource, SocketContext,
    attached_clients,
};
use crate::{
    session::{DeltaPositions, RequestError, Session, SessionView, Subscription},
    store::{Seq, SessionId},
};

/// Bound for requests that wait for the session, in bytes of their frames. When full: further
/// requests are rejected.
const MAX_WAITING_BYTES: usize = 2 * CLIENT_FRAME_LIMIT;

/// Lookup of a session.
#[derive(Default)]
pub(super) struct SessionLookup {
    /// Timer of the next attempt; `None` while an attempt is running.
    next: Option<SpawnHandle>,
    /// Requests that the client sent meanwhile, in their order.
    pub(super) waiting: Vec<(Option<String>, ClientRequest)>,
    bytes: usize,
}

impl SessionLookup {
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= MAX_WAITING_BYTES
    }

    pub(super) fn queue_request(&mut self, id: Option<String>, request: ClientRequest, bytes: usize) {
        self.bytes += bytes;
        self.waiting.push((id, request));
    }

    fn take_waiting(&mut self) -> Vec<(Option<String>, ClientRequest)> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

impl FrontendSocket {
    /// Serves the client from the journal. The session's actor is not available because of `error`.
    fn serve_from_journal(&mut self, id: SessionId, error: RequestError, ctx: &mut SocketContext) {
        let (store, prepared) = (self.services.store.clone(), self.prepare_view(id));
        let snapshot = async move { (store.get(id).await, prepared.await) }.into_actor(self);
        ctx.wait(snapshot.map(move |(snapshot, prepared), socket, ctx| {
            if let Ok(Some(snapshot)) = snapshot {
                socket.view.begin(prepared);
                let source = SessionSource::Journal { tail: snapshot.tail, lookup: Box::default() };
                // Counts this client too: it registers afterwards.
                let attached = attached_clients(&socket.services.actor_registry, id) + 1;
                socket.begin_replay(id, source, &SessionView::new(&snapshot, attached), ctx);
            }
            socket.report_once(error, ctx);
            socket.schedule_lookup(ctx);
        }));
    }

    /// Reports the reason why the session is unavailable, unless the client has it already. The
    /// lookup goes on.
    fn report_once(&mut self, error: RequestError, ctx: &mut SocketContext) {
        if self.reported_error.as_ref().is_none_or(|reported| reported.code() != error.code()) {
            self.send_request_error(&error, None, ctx);
            self.reported_error = Some(Box::new(error));
        }
    }

    /// Schedules the next lookup. The session's actor is gone; its journal is not.
    pub(super) fn schedule_lookup(&mut self, ctx: &mut SocketContext) {
        let requested = self.attach_request.as_ref().and_then(|attach| attach.session_id);
        let Some(id) = self.attached.as_ref().map(|attached| attached.id).or(requested) else { return };
        let has_waiting = self.lookup_state().is_some_and(|lookup| !lookup.waiting.is_empty());
        let attempts = if has_waiting { 0 } else { self.lookup_attempts };
        let is_unreadable = matches!(self.reported_error.as_deref(), Some(RequestError::Unreadable(_)));
        let longest = if is_unreadable { LOOKUP_RETRY_UNREADABLE } else { LOOKUP_RETRY_MAX };
        let wait = LOOKUP_RETRY_MIN.saturating_mul(1 << attempts.min(16)).min(longest);
        self.lookup_attempts = self.lookup_attempts.saturating_add(1);
        let next = ctx.run_later(wait, move |socket, ctx| socket.look_up(id, ctx));
        if let Some(lookup) = self.lookup_state() {
            lookup.next = Some(next);
        }
    }

    /// Looks the session up at once, because a request waits for it.
    pub(super) fn lookup_now(&mut self, id: SessionId, ctx: &mut SocketContext) {
        if let Some(next) = self.lookup_state().and_then(|lookup| lookup.next.take()) {
            ctx.cancel_future(next);
            self.lookup_attempts = self.lookup_attempts.saturating_sub(1);
            self.look_up(id, ctx);
        }
    }

    fn lookup_state(&mut self) -> Option<&mut SessionLookup> {
        match &mut self.attached.as_mut()?.source {
            SessionSource::Journal { lookup, .. } => Some(lookup),
            SessionSource::Session { .. } => None,
        }
    }

    pub(super) fn look_up(&mut self, id: SessionId, ctx: &mut SocketContext) {
        if let Some(lookup) = self.lookup_state() {
            lookup.next = None;
        }
        let (sessions, store) = (self.services.sessions.clone(), self.services.store.clone());
        let found = async move {
            let found = sessions.open(id).await;
            // Events that the stopped actor persisted and did not publish are readable meanwhile.
            let persisted = if found.is_err() { store.get(id).await.ok().flatten() } else { None };
            (found, persisted.map_or(0, |snapshot| snapshot.tail))
        };
        let found = found.into_actor(self).map(move |(found, persisted), socket, ctx| match found {
            Ok(session) => socket.attach(id, session, ctx),
            Err(error @ RequestError::NoSession(_)) => socket.session_gone(&error, ctx),
            Err(error) => socket.session_unavailable(id, error, persisted, ctx),
        });
        if self.attached.is_none() {
            // Input that arrives meanwhile is for that session, so it stays unread.
            ctx.wait(found);
        } else {
            ctx.spawn(found);
        }
    }

    /// Handles a failed lookup. The client gets the journal up to `tail_on_disk` meanwhile.
    pub(super) fn session_unavailable(
        &mut self,
        id: SessionId,
        error: RequestError,
        tail_on_disk: Seq,
        ctx: &mut SocketContext,
    ) {
        let Some(attached) = &mut self.attached else { return self.serve_from_journal(id, error, ctx) };
        if let SessionSource::Journal { tail, lookup } = &mut attached.source {
            *tail = (*tail).max(tail_on_disk);
            for (id, _) in lookup.take_waiting() {
                self.send_request_error(&error, id, ctx);
            }
        }
        self.report_once(error, ctx);
        self.pull(ctx);
        self.schedule_lookup(ctx);
    }

    /// Continues with a session that is available again. The client keeps its position, and its
    /// waiting requests are sent.
    pub(super) fn reattach(
        &mut self,
        session: Addr<Session>,
        subscription: Subscription,
        view: &SessionView,
        ctx: &mut SocketContext,
    ) {
        let Some(attached) = &mut self.attached else { return };
        // The new actor's items are different ones, even with the same names.
        attached.seen = DeltaPositions::default();
        let before =
            std::mem::replace(&mut attached.source, SessionSource::Session { session: session.clone(), subscription });
        if self.reported_error.take().is_some() {
            attached.replay_to = Some(view.last_seq);
            self.send_hello(Some(view), view.last_seq, ctx);
        }
        self.pull(ctx);
        if let SessionSource::Journal { lookup, .. } = before {
            for (id, request) in lookup.waiting {
                self.relay(&session, id, request, ctx);
            }
        }
    }
}
