//! The FrontendSocket actor: one attached client, and how far it has come in its session.

mod requests;
mod session_lookup;

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use bytestring::ByteString;
use greenroom_protocol::{
    CLIENT_FRAME_LIMIT,
    client::{ErrorBody, ErrorFrame, StatusFrame},
};
use serde::Serialize;

#[cfg(test)]
pub(super) use self::requests::MAX_IN_FLIGHT;
use self::session_lookup::SessionLookup;
use super::{
    FrontendServices, attached_clients,
    connection::{ClientConnection, close},
    credit::Credit,
    frames::{FrameAssembler, ReceivedFrame},
    subscribe,
};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    data::AccessGrant,
    session::{
        DeliveryPoll, DeltaPositions, RequestError, Session, SessionView, Subscription,
        messages::{AttachReply, Published},
    },
    store::{ReadLimit, Seq, SessionId, Store, StoreError, StoredEvent, damage::read_past_damage},
};

/// The most that is read from the journal at once.
const PAGE: ReadLimit = ReadLimit { events: 256, bytes: 64 * 1024 };
/// The first wait before a session is looked for again whose actor is gone; it doubles up to [`LOOK_AGAIN_MAX`].
const LOOKUP_RETRY_MIN: Duration = Duration::from_millis(50);
pub(super) const LOOKUP_RETRY_MAX: Duration = Duration::from_secs(2);
/// The longest wait where it does not help to ask again: what comes back then comes with another server.
const LOOKUP_RETRY_UNREADABLE: Duration = Duration::from_secs(30);

type SocketContext = WebsocketContext<FrontendSocket>;

/// Where the replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayStart {
    Start,
    After(Seq),
    /// Live only.
    Tail,
}

/// One attached client. There may be ten thousand: what is needed for a while only is kept elsewhere for that while.
pub(super) struct FrontendSocket {
    parts: Arc<FrontendServices>,
    pass: Option<AccessGrant>,
    entry: Option<ActorEntry>,
    /// Until it is attached.
    attach_request: Option<Box<AttachRequest>>,
    attached: Option<AttachedSession>,
    credit: Credit,
    assembler: FrameAssembler,
    in_flight: u8,
    /// How many times in a row its session was looked for.
    lookup_attempts: u8,
    /// Why its session is not to be had, as the client knows it.
    reported_error: Option<Box<RequestError>>,
}

/// How a client came.
struct AttachRequest {
    session_id: Option<SessionId>,
    replay_start: ReplayStart,
}

/// A client's place in a session.
struct AttachedSession {
    id: SessionId,
    source: SessionSource,
    /// The newest event that the client was sent.
    cursor: Seq,
    /// How far it has come in the items that still grow.
    seen: DeltaPositions,
    /// The replay ends here; then the client is told that it is in sync.
    replay_to: Option<Seq>,
    /// A page of the journal is being read, whatever becomes of the source meanwhile: a second one that began at the same
    /// cursor would send all of it once more.
    reading: bool,
}

/// Where a client's events come from.
enum SessionSource {
    Session {
        session: Addr<Session>,
        listening: Subscription,
    },
    /// The session's actor cannot be had, as where nothing can be written, and is looked for. What is in the journal, up to
    /// here, can be read.
    Journal {
        tail: Seq,
        lookup: Box<SessionLookup>,
    },
}

impl SessionSource {
    fn tail(&self) -> Seq {
        match self {
            SessionSource::Session { listening, .. } => listening.tail(),
            SessionSource::Journal { tail, .. } => *tail,
        }
    }
}

impl AttachedSession {
    /// Looks for what the client has not been sent, up to about `most` bytes of what still grows.
    fn poll_delivery(&mut self, most: usize) -> DeliveryPoll {
        match &self.source {
            SessionSource::Session { listening, .. } => listening.poll(self.cursor, &mut self.seen, most),
            SessionSource::Journal { tail, .. } if *tail > self.cursor => DeliveryPoll::Behind { tail: *tail },
            SessionSource::Journal { .. } => DeliveryPoll::Deltas(Vec::new()),
        }
    }
}

impl FrontendSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        wanted: Option<SessionId>,
        since: ReplayStart,
        parts: Arc<FrontendServices>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let socket = FrontendSocket {
            parts,
            pass: request.extensions_mut().remove(),
            entry: None,
            attach_request: Some(Box::new(AttachRequest { session_id: wanted, replay_start: since })),
            attached: None,
            credit: Credit::default(),
            assembler: FrameAssembler::default(),
            in_flight: 0,
            lookup_attempts: 0,
            reported_error: None,
        };
        WsResponseBuilder::new(socket, request, body).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    fn attach(&mut self, id: SessionId, session: Addr<Session>, ctx: &mut SocketContext) {
        let attached = attach(session.clone(), ctx.address().recipient(), self.parts.store.clone(), id);
        let attached = attached.into_actor(self).map(move |attached, socket, ctx| match attached {
            Ok(Some((view, listening))) => {
                socket.lookup_attempts = 0;
                match socket.attached {
                    Some(_) => socket.reattach(session, listening, &view, ctx),
                    None => socket.begin_replay(id, SessionSource::Session { session, listening }, &view, ctx),
                }
            }
            Ok(None) => socket.schedule_lookup(ctx),
            Err(refusal) => socket.session_unavailable(id, refusal, 0, ctx),
        });
        if self.attached.is_none() {
            // What the client says meanwhile is for that session.
            ctx.wait(attached);
        } else {
            ctx.spawn(attached);
        }
    }

    fn begin_replay(&mut self, id: SessionId, source: SessionSource, view: &SessionView, ctx: &mut SocketContext) {
        let tail = view.last_seq;
        let cursor = match self.attach_request.take().map_or(ReplayStart::Start, |arrival| arrival.replay_start) {
            ReplayStart::Start => 0,
            ReplayStart::After(seq) => seq.min(tail),
            ReplayStart::Tail => tail,
        };
        self.entry = Some(self.parts.actor_registry.register(ActorKind::FrontendSocket, Some(id.to_string())));
        self.reported_error = None;
        self.send_hello(Some(view), tail, ctx);
        let (seen, replay_to) = (DeltaPositions::default(), Some(tail));
        self.attached = Some(AttachedSession { id, source, cursor, seen, replay_to, reading: false });
        self.pull(ctx);
    }

    fn send_hello(&mut self, view: Option<&SessionView>, last_seq: Seq, ctx: &mut SocketContext) {
        let state = view.map(|view| view.state);
        // A view has string keys and plain values, so this cannot fail.
        let session = view.map(|view| serde_json::to_value(view).expect("a view is JSON"));
        self.send_frame(&StatusFrame::Hello { session, last_seq, state }, ctx);
    }

    /// There is no such session, or no more.
    fn session_gone(&mut self, why: &RequestError, ctx: &mut SocketContext) {
        self.send_request_error(why, None, ctx);
        close(4404, &why.to_string(), ctx);
    }

    /// Sends what the client has room for: first the journal up to its end, then what the open items have grown.
    fn pull(&mut self, ctx: &mut SocketContext) {
        loop {
            let room = self.credit.room();
            let Some(at) = &mut self.attached else { return };
            if at.reading || room == 0 {
                return;
            }
            match at.poll_delivery(room as usize) {
                DeliveryPoll::Closed => {
                    // From here on the dead actor is held by nobody here, and its successor is looked for once at a time.
                    at.source = SessionSource::Journal { tail: at.source.tail(), lookup: Box::default() };
                    self.schedule_lookup(ctx);
                }
                DeliveryPoll::Behind { tail } => return self.read_page(tail, ctx),
                DeliveryPoll::Deltas(deltas) => {
                    self.send_synced(ctx);
                    if deltas.is_empty() {
                        return;
                    }
                    for piece in deltas {
                        self.send_frame(&piece.delta, ctx);
                    }
                }
            }
        }
    }

    fn read_page(&mut self, tail: Seq, ctx: &mut SocketContext) {
        let Some(at) = &mut self.attached else { return };
        at.reading = true;
        let (store, id, cursor) = (self.parts.store.clone(), at.id, at.cursor);
        let page = async move { read_past_damage(&*store, id, cursor, PAGE).await }.into_actor(self);
        ctx.spawn(page.map(move |page, socket, ctx| socket.send_page(tail, page, ctx)));
    }

    fn send_page(&mut self, tail: Seq, page: Result<Vec<StoredEvent>, StoreError>, ctx: &mut SocketContext) {
        match page {
            Ok(page) => {
                for (seq, event) in page.into_iter().filter(|(seq, _)| *seq <= tail) {
                    if let Some(at) = &mut self.attached {
                        at.cursor = seq;
                    }
                    // What is in the journal was made from a `String`, and its checksum has just been checked.
                    if let Ok(text) = ByteString::try_from(event.json) {
                        self.send_text(text, ctx);
                    }
                }
                self.read_further(ctx);
            }
            Err(StoreError::NoSession(id)) => self.session_gone(&RequestError::NoSession(id.to_string()), ctx),
            Err(e) => {
                self.send_error("journal_unavailable", e.to_string(), None, ctx);
                // Until then nothing else reads: every answer to a Ping would begin a row of tries of its own.
                ctx.run_later(LOOKUP_RETRY_MAX, FrontendSocket::read_further);
            }
        }
    }

    fn read_further(&mut self, ctx: &mut SocketContext) {
        if let Some(at) = &mut self.attached {
            at.reading = false;
        }
        self.pull(ctx);
    }

    fn send_synced(&mut self, ctx: &mut SocketContext) {
        let Some(at) = &mut self.attached else { return };
        if at.replay_to.is_some_and(|end| at.cursor >= end) {
            at.replay_to = None;
            let seq = at.cursor;
            self.send_frame(&StatusFrame::Synced { seq }, ctx);
        }
    }

    fn send_request_error(&mut self, refusal: &RequestError, id: Option<String>, ctx: &mut SocketContext) {
        self.send_error(refusal.code(), refusal.to_string(), id, ctx);
    }

    fn send_error(&mut self, code: &str, message: String, id: Option<String>, ctx: &mut SocketContext) {
        self.send_frame(&ErrorFrame { error: ErrorBody { code: code.to_owned(), message }, id }, ctx);
    }

    fn send_frame(&mut self, frame: &impl Serialize, ctx: &mut SocketContext) {
        // Every frame has string keys and no fallible `Serialize`, so this cannot fail.
        self.send_text(serde_json::to_string(frame).expect("a frame is JSON").into(), ctx);
    }

    fn send_text(&mut self, text: ByteString, ctx: &mut SocketContext) {
        let bytes = text.len();
        ctx.text(text);
        if let Some(ping) = self.credit.sent(bytes) {
            ctx.ping(&ping);
        }
        if let Some(entry) = &self.entry {
            entry.set_queued(self.credit.unconfirmed());
        }
    }
}

/// [Listens](listen) to a session, and takes it as the journal has it: what its actor has decided may not be on disk yet.
async fn attach(
    session: Addr<Session>,
    listener: Recipient<Published>,
    store: Arc<dyn Store>,
    id: SessionId,
) -> Result<Option<(SessionView, Subscription)>, RequestError> {
    let Some(AttachReply { view, subscription: listening }) = subscribe(&session, listener).await? else {
        return Ok(None);
    };
    let Ok(Some(snapshot)) = store.get(id).await else { return Ok(None) };
    Ok(Some((SessionView::new(&snapshot, view.attached), listening)))
}

fn session_restarting() -> RequestError {
    RequestError::Unavailable("the session is being brought back; try again".to_owned())
}

impl Actor for FrontendSocket {
    type Context = SocketContext;

    fn started(&mut self, ctx: &mut SocketContext) {
        self.entry = Some(self.parts.actor_registry.register(ActorKind::FrontendSocket, None));
        self.supervise(self.parts.closing.clone(), self.pass.clone(), ctx);
        match self.attach_request.as_ref().and_then(|arrival| arrival.session_id) {
            Some(id) => self.look_up(id, ctx),
            None => self.send_hello(None, 0, ctx),
        }
    }
}

impl ClientConnection for FrontendSocket {
    fn credit(&mut self) -> &mut Credit {
        &mut self.credit
    }

    fn send_closing(&mut self, ctx: &mut SocketContext) {
        self.send_frame(&StatusFrame::Closing { reason: "the server is going away".to_owned() }, ctx);
    }
}

impl Handler<Published> for FrontendSocket {
    type Result = ();

    fn handle(&mut self, _: Published, ctx: &mut SocketContext) {
        if let Some(entry) = &self.entry {
            entry.record_handled();
        }
        self.pull(ctx);
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for FrontendSocket {
    fn handle(&mut self, message: Result<ws::Message, ProtocolError>, ctx: &mut SocketContext) {
        if self.pass.as_ref().is_some_and(AccessGrant::is_revoked) {
            // Said before it hears that it has to go.
            return;
        }
        self.credit.received(match &message {
            Ok(ws::Message::Pong(payload)) => Some(payload),
            Ok(_) | Err(_) => None,
        });
        match message {
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Pong(_)) => self.pull(ctx),
            Ok(ws::Message::Close(reason)) => {
                ctx.close(reason);
                ctx.stop();
            }
            Ok(message) => match self.assembler.receive(message) {
                ReceivedFrame::Text(text) => self.receive_text(&text, ctx),
                ReceivedFrame::NotText => {
                    self.send_error(
                        "invalid_json",
                        "a frame is JSON in a text frame, not binary".to_owned(),
                        None,
                        ctx,
                    );
                }
                ReceivedFrame::TooLarge => {
                    let message =
                        format!("a frame is at most {CLIENT_FRAME_LIMIT} bytes; put what is larger into a file");
                    self.send_error("too_large", message, None, ctx);
                }
                ReceivedFrame::Nothing => {}
            },
            Err(e) => close(1002, &e.to_string(), ctx),
        }
    }
}
