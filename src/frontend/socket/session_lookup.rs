//! A session whose actor cannot be had: its journal is shown, it is looked for again, and what the client asks for has it looked
//! for at once.

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

/// How much of one client waits for its session, in bytes of frames. More is refused.
const MAX_WAITING_BYTES: usize = 2 * CLIENT_FRAME_LIMIT;

/// The looking for a session.
#[derive(Default)]
pub(super) struct SessionLookup {
    /// The next look; `None` while it is under way.
    next: Option<SpawnHandle>,
    /// What the client asked for meanwhile, in its order.
    pub(super) waiting: Vec<(Option<String>, ClientRequest)>,
    bytes: usize,
}

impl SessionLookup {
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= MAX_WAITING_BYTES
    }

    pub(super) fn queue_request(&mut self, id: Option<String>, wish: ClientRequest, bytes: usize) {
        self.bytes += bytes;
        self.waiting.push((id, wish));
    }

    fn take_waiting(&mut self) -> Vec<(Option<String>, ClientRequest)> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

impl FrontendSocket {
    /// Without the session's actor, which cannot be had because of `refusal`: its journal is shown until it can.
    fn serve_from_journal(&mut self, id: SessionId, refusal: RequestError, ctx: &mut SocketContext) {
        let store = self.parts.store.clone();
        let snapshot = async move { store.get(id).await }.into_actor(self);
        ctx.wait(snapshot.map(move |snapshot, socket, ctx| {
            if let Ok(Some(snapshot)) = snapshot {
                let source = SessionSource::Journal { tail: snapshot.tail, lookup: Box::default() };
                // With this one.
                let attached = attached_clients(&socket.parts.actor_registry, id) + 1;
                socket.begin_replay(id, source, &SessionView::new(&snapshot, attached), ctx);
            }
            socket.report_once(refusal, ctx);
            socket.schedule_lookup(ctx);
        }));
    }

    /// Why the session is not to be had, unless the client was told that last; the looking goes on.
    fn report_once(&mut self, refusal: RequestError, ctx: &mut SocketContext) {
        if self.reported_error.as_ref().is_none_or(|told| told.code() != refusal.code()) {
            self.send_request_error(&refusal, None, ctx);
            self.reported_error = Some(Box::new(refusal));
        }
    }

    /// The session's actor is gone; its journal is not.
    pub(super) fn schedule_lookup(&mut self, ctx: &mut SocketContext) {
        let wanted = self.attach_request.as_ref().and_then(|arrival| arrival.session_id);
        let Some(id) = self.attached.as_ref().map(|attached| attached.id).or(wanted) else { return };
        let somebody_waits = self.lookup_state().is_some_and(|search| !search.waiting.is_empty());
        let looks = if somebody_waits { 0 } else { self.lookup_attempts };
        let is_unreadable = matches!(self.reported_error.as_deref(), Some(RequestError::Unreadable(_)));
        let longest = if is_unreadable { LOOKUP_RETRY_UNREADABLE } else { LOOKUP_RETRY_MAX };
        let wait = LOOKUP_RETRY_MIN.saturating_mul(1 << looks.min(16)).min(longest);
        self.lookup_attempts = self.lookup_attempts.saturating_add(1);
        let next = ctx.run_later(wait, move |socket, ctx| socket.look_up(id, ctx));
        if let Some(search) = self.lookup_state() {
            search.next = Some(next);
        }
    }

    /// Somebody waits for it.
    pub(super) fn lookup_now(&mut self, id: SessionId, ctx: &mut SocketContext) {
        if let Some(next) = self.lookup_state().and_then(|search| search.next.take()) {
            ctx.cancel_future(next);
            self.lookup_attempts = self.lookup_attempts.saturating_sub(1);
            self.look_up(id, ctx);
        }
    }

    fn lookup_state(&mut self) -> Option<&mut SessionLookup> {
        match &mut self.attached.as_mut()?.source {
            SessionSource::Journal { lookup: search, .. } => Some(search),
            SessionSource::Session { .. } => None,
        }
    }

    pub(super) fn look_up(&mut self, id: SessionId, ctx: &mut SocketContext) {
        if let Some(search) = self.lookup_state() {
            search.next = None;
        }
        let (sessions, store) = (self.parts.sessions.clone(), self.parts.store.clone());
        let found = async move {
            let found = sessions.open(id).await;
            // What it wrote down and did not live to tell can be read meanwhile.
            let written = if found.is_err() { store.get(id).await.ok().flatten() } else { None };
            (found, written.map_or(0, |snapshot| snapshot.tail))
        };
        let found = found.into_actor(self).map(move |(found, written), socket, ctx| match found {
            Ok(session) => socket.attach(id, session, ctx),
            Err(refusal @ RequestError::NoSession(_)) => socket.session_gone(&refusal, ctx),
            Err(refusal) => socket.session_unavailable(id, refusal, written, ctx),
        });
        if self.attached.is_none() {
            // What the client says meanwhile is for that session.
            ctx.wait(found);
        } else {
            ctx.spawn(found);
        }
    }

    /// What is `written` by now is shown meanwhile.
    pub(super) fn session_unavailable(
        &mut self,
        id: SessionId,
        refusal: RequestError,
        written: Seq,
        ctx: &mut SocketContext,
    ) {
        let Some(at) = &mut self.attached else { return self.serve_from_journal(id, refusal, ctx) };
        if let SessionSource::Journal { tail, lookup: search } = &mut at.source {
            *tail = (*tail).max(written);
            for (id, _) in search.take_waiting() {
                self.send_request_error(&refusal, id, ctx);
            }
        }
        self.report_once(refusal, ctx);
        self.pull(ctx);
        self.schedule_lookup(ctx);
    }

    /// It is to be had again. The client goes on where it was, and what it asked for meanwhile is asked.
    pub(super) fn reattach(
        &mut self,
        session: Addr<Session>,
        listening: Subscription,
        view: &SessionView,
        ctx: &mut SocketContext,
    ) {
        let Some(at) = &mut self.attached else { return };
        // Its items are others, whatever they are called.
        at.seen = DeltaPositions::default();
        let before = std::mem::replace(&mut at.source, SessionSource::Session { session: session.clone(), listening });
        if self.reported_error.take().is_some() {
            at.replay_to = Some(view.last_seq);
            self.send_hello(Some(view), view.last_seq, ctx);
        }
        self.pull(ctx);
        if let SessionSource::Journal { lookup: search, .. } = before {
            for (id, wish) in search.waiting {
                self.relay(&session, id, wish, ctx);
            }
        }
    }
}
