//! A session whose actor cannot be had: its journal is shown, it is looked for again, and what the client asks for has it looked
//! for at once.

use actix::prelude::*;
use greenroom_protocol::{CLIENT_FRAME_LIMIT, client::Wish};

use super::{Context, FrontendSocket, LOOK_AGAIN, LOOK_AGAIN_MAX, LOOK_RARELY, Source, attached};
use crate::{
    session::{Listening, Refusal, Seen, Session, View},
    store::{Seq, SessionId},
};

/// How much of one client waits for its session, in bytes of frames. More is refused.
const WAITING: usize = 2 * CLIENT_FRAME_LIMIT;

/// The looking for a session.
#[derive(Default)]
pub(super) struct Search {
    /// The next look; `None` while it is under way.
    next: Option<SpawnHandle>,
    /// What the client asked for meanwhile, in its order.
    pub(super) waiting: Vec<(Option<String>, Wish)>,
    bytes: usize,
}

impl Search {
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.bytes + bytes <= WAITING
    }

    pub(super) fn wait(&mut self, id: Option<String>, wish: Wish, bytes: usize) {
        self.bytes += bytes;
        self.waiting.push((id, wish));
    }

    fn take(&mut self) -> Vec<(Option<String>, Wish)> {
        self.bytes = 0;
        std::mem::take(&mut self.waiting)
    }
}

impl FrontendSocket {
    /// Without the session's actor, which cannot be had because of `refusal`: its journal is shown until it can.
    fn read_alone(&mut self, id: SessionId, refusal: Refusal, ctx: &mut Context) {
        let store = self.parts.store.clone();
        let snapshot = async move { store.get(id).await }.into_actor(self);
        ctx.wait(snapshot.map(move |snapshot, socket, ctx| {
            if let Ok(Some(snapshot)) = snapshot {
                let source = Source::Journal { tail: snapshot.tail, search: Box::default() };
                // With this one.
                let attached = attached(&socket.parts.census, id) + 1;
                socket.arrived(id, source, &View::new(&snapshot, attached), ctx);
            }
            socket.tell_once(refusal, ctx);
            socket.find_again(ctx);
        }));
    }

    /// Why the session is not to be had, unless the client was told that last; the looking goes on.
    fn tell_once(&mut self, refusal: Refusal, ctx: &mut Context) {
        if self.told.as_ref().is_none_or(|told| told.code() != refusal.code()) {
            self.refused(&refusal, None, ctx);
            self.told = Some(Box::new(refusal));
        }
    }

    /// The session's actor is gone; its journal is not.
    pub(super) fn find_again(&mut self, ctx: &mut Context) {
        let wanted = self.arrival.as_ref().and_then(|arrival| arrival.wanted);
        let Some(id) = self.attached.as_ref().map(|attached| attached.id).or(wanted) else { return };
        let somebody_waits = self.search().is_some_and(|search| !search.waiting.is_empty());
        let looks = if somebody_waits { 0 } else { self.looks };
        let is_unreadable = matches!(self.told.as_deref(), Some(Refusal::Unreadable(_)));
        let longest = if is_unreadable { LOOK_RARELY } else { LOOK_AGAIN_MAX };
        let wait = LOOK_AGAIN.saturating_mul(1 << looks.min(16)).min(longest);
        self.looks = self.looks.saturating_add(1);
        let next = ctx.run_later(wait, move |socket, ctx| socket.find(id, ctx));
        if let Some(search) = self.search() {
            search.next = Some(next);
        }
    }

    /// Somebody waits for it.
    pub(super) fn find_now(&mut self, id: SessionId, ctx: &mut Context) {
        if let Some(next) = self.search().and_then(|search| search.next.take()) {
            ctx.cancel_future(next);
            self.looks = self.looks.saturating_sub(1);
            self.find(id, ctx);
        }
    }

    fn search(&mut self) -> Option<&mut Search> {
        match &mut self.attached.as_mut()?.source {
            Source::Journal { search, .. } => Some(search),
            Source::Session { .. } => None,
        }
    }

    pub(super) fn find(&mut self, id: SessionId, ctx: &mut Context) {
        if let Some(search) = self.search() {
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
            Err(refusal @ Refusal::NoSession(_)) => socket.gone(&refusal, ctx),
            Err(refusal) => socket.cannot_be_had(id, refusal, written, ctx),
        });
        if self.attached.is_none() {
            // What the client says meanwhile is for that session.
            ctx.wait(found);
        } else {
            ctx.spawn(found);
        }
    }

    /// What is `written` by now is shown meanwhile.
    pub(super) fn cannot_be_had(&mut self, id: SessionId, refusal: Refusal, written: Seq, ctx: &mut Context) {
        let Some(at) = &mut self.attached else { return self.read_alone(id, refusal, ctx) };
        if let Source::Journal { tail, search } = &mut at.source {
            *tail = (*tail).max(written);
            for (id, _) in search.take() {
                self.refused(&refusal, id, ctx);
            }
        }
        self.tell_once(refusal, ctx);
        self.pull(ctx);
        self.find_again(ctx);
    }

    /// It is to be had again. The client goes on where it was, and what it asked for meanwhile is asked.
    pub(super) fn back(&mut self, session: Addr<Session>, listening: Listening, view: &View, ctx: &mut Context) {
        let Some(at) = &mut self.attached else { return };
        // Its items are others, whatever they are called.
        at.seen = Seen::default();
        let before = std::mem::replace(&mut at.source, Source::Session { session: session.clone(), listening });
        if self.told.take().is_some() {
            at.replay_to = Some(view.last_seq);
            self.hello(Some(view), view.last_seq, ctx);
        }
        self.pull(ctx);
        if let Source::Journal { search, .. } = before {
            for (id, wish) in search.waiting {
                self.relay(&session, id, wish, ctx);
            }
        }
    }
}
