//! The FrontendSocket actor: one attached client, and how far it has come in its session.

mod search;
mod wishes;

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use bytestring::ByteString;
use greenroom_protocol::{
    CLIENT_FRAME_LIMIT,
    client::{ErrorBody, ErrorFrame, Status},
};
use serde::Serialize;

use self::search::Search;
#[cfg(test)]
pub(super) use self::wishes::UNDER_WAY;
use super::{
    Parts, attached,
    connection::{Connection, close},
    credit::Credit,
    frames::{Heard, Pieces},
    listen,
};
use crate::{
    census::{Entry, Kind},
    data::Pass,
    session::{
        Listening, Look, Refusal, Seen, Session, View,
        messages::{Attached, Published},
    },
    store::{Limit, Seq, SessionId, Store, StoreError, StoredEvent, damage::read_on},
};

/// The most that is read from the journal at once.
const PAGE: Limit = Limit { events: 256, bytes: 64 * 1024 };
/// The first wait before a session is looked for again whose actor is gone; it doubles up to [`LOOK_AGAIN_MAX`].
const LOOK_AGAIN: Duration = Duration::from_millis(50);
pub(super) const LOOK_AGAIN_MAX: Duration = Duration::from_secs(2);
/// The longest wait where it does not help to ask again: what comes back then comes with another server.
const LOOK_RARELY: Duration = Duration::from_secs(30);

type Context = WebsocketContext<FrontendSocket>;

/// Where the replay begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Since {
    Start,
    After(Seq),
    /// Live only.
    Tail,
}

/// One attached client. There may be ten thousand: what is needed for a while only is kept elsewhere for that while.
pub(super) struct FrontendSocket {
    parts: Arc<Parts>,
    pass: Option<Pass>,
    entry: Option<Entry>,
    /// Until it is attached.
    arrival: Option<Box<Arrival>>,
    attached: Option<Attachment>,
    credit: Credit,
    pieces: Pieces,
    under_way: u8,
    /// How many times in a row its session was looked for.
    looks: u8,
    /// Why its session is not to be had, as the client knows it.
    told: Option<Box<Refusal>>,
}

/// How a client came.
struct Arrival {
    wanted: Option<SessionId>,
    since: Since,
}

/// A client's place in a session.
struct Attachment {
    id: SessionId,
    source: Source,
    /// The newest event that the client was sent.
    cursor: Seq,
    /// How far it has come in the items that still grow.
    seen: Seen,
    /// The replay ends here; then the client is told that it is in sync.
    replay_to: Option<Seq>,
    /// A page of the journal is being read, whatever becomes of the source meanwhile: a second one that began at the same
    /// cursor would send all of it once more.
    reading: bool,
}

/// Where a client's events come from.
enum Source {
    Session {
        session: Addr<Session>,
        listening: Listening,
    },
    /// The session's actor cannot be had, as where nothing can be written, and is looked for. What is in the journal, up to
    /// here, can be read.
    Journal {
        tail: Seq,
        search: Box<Search>,
    },
}

impl Source {
    fn tail(&self) -> Seq {
        match self {
            Source::Session { listening, .. } => listening.tail(),
            Source::Journal { tail, .. } => *tail,
        }
    }
}

impl Attachment {
    /// Looks for what the client has not been sent, up to about `most` bytes of what still grows.
    fn look(&mut self, most: usize) -> Look {
        match &self.source {
            Source::Session { listening, .. } => listening.look(self.cursor, &mut self.seen, most),
            Source::Journal { tail, .. } if *tail > self.cursor => Look::Behind { tail: *tail },
            Source::Journal { .. } => Look::Deltas(Vec::new()),
        }
    }
}

impl FrontendSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        wanted: Option<SessionId>,
        since: Since,
        parts: Arc<Parts>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let socket = FrontendSocket {
            parts,
            pass: request.extensions_mut().remove(),
            entry: None,
            arrival: Some(Box::new(Arrival { wanted, since })),
            attached: None,
            credit: Credit::default(),
            pieces: Pieces::default(),
            under_way: 0,
            looks: 0,
            told: None,
        };
        WsResponseBuilder::new(socket, request, body).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    fn attach(&mut self, id: SessionId, session: Addr<Session>, ctx: &mut Context) {
        let attached = attach(session.clone(), ctx.address().recipient(), self.parts.store.clone(), id);
        let attached = attached.into_actor(self).map(move |attached, socket, ctx| match attached {
            Ok(Some((view, listening))) => {
                socket.looks = 0;
                match socket.attached {
                    Some(_) => socket.back(session, listening, &view, ctx),
                    None => socket.arrived(id, Source::Session { session, listening }, &view, ctx),
                }
            }
            Ok(None) => socket.find_again(ctx),
            Err(refusal) => socket.cannot_be_had(id, refusal, 0, ctx),
        });
        if self.attached.is_none() {
            // What the client says meanwhile is for that session.
            ctx.wait(attached);
        } else {
            ctx.spawn(attached);
        }
    }

    fn arrived(&mut self, id: SessionId, source: Source, view: &View, ctx: &mut Context) {
        let tail = view.last_seq;
        let cursor = match self.arrival.take().map_or(Since::Start, |arrival| arrival.since) {
            Since::Start => 0,
            Since::After(seq) => seq.min(tail),
            Since::Tail => tail,
        };
        self.entry = Some(self.parts.census.register(Kind::FrontendSocket, Some(id.to_string())));
        self.told = None;
        self.hello(Some(view), tail, ctx);
        let (seen, replay_to) = (Seen::default(), Some(tail));
        self.attached = Some(Attachment { id, source, cursor, seen, replay_to, reading: false });
        self.pull(ctx);
    }

    fn hello(&mut self, view: Option<&View>, last_seq: Seq, ctx: &mut Context) {
        let state = view.map(|view| view.state);
        // A view has string keys and plain values, so this cannot fail.
        let session = view.map(|view| serde_json::to_value(view).expect("a view is JSON"));
        self.say(&Status::Hello { session, last_seq, state }, ctx);
    }

    /// There is no such session, or no more.
    fn gone(&mut self, why: &Refusal, ctx: &mut Context) {
        self.refused(why, None, ctx);
        close(4404, &why.to_string(), ctx);
    }

    /// Sends what the client has room for: first the journal up to its end, then what the open items have grown.
    fn pull(&mut self, ctx: &mut Context) {
        loop {
            let room = self.credit.room();
            let Some(at) = &mut self.attached else { return };
            if at.reading || room == 0 {
                return;
            }
            match at.look(room as usize) {
                Look::Closed => {
                    // From here on the dead actor is held by nobody here, and its successor is looked for once at a time.
                    at.source = Source::Journal { tail: at.source.tail(), search: Box::default() };
                    self.find_again(ctx);
                }
                Look::Behind { tail } => return self.read(tail, ctx),
                Look::Deltas(deltas) => {
                    self.synced(ctx);
                    if deltas.is_empty() {
                        return;
                    }
                    for piece in deltas {
                        self.say(&piece.delta, ctx);
                    }
                }
            }
        }
    }

    fn read(&mut self, tail: Seq, ctx: &mut Context) {
        let Some(at) = &mut self.attached else { return };
        at.reading = true;
        let (store, id, cursor) = (self.parts.store.clone(), at.id, at.cursor);
        let page = async move { read_on(&*store, id, cursor, PAGE).await }.into_actor(self);
        ctx.spawn(page.map(move |page, socket, ctx| socket.send_page(tail, page, ctx)));
    }

    fn send_page(&mut self, tail: Seq, page: Result<Vec<StoredEvent>, StoreError>, ctx: &mut Context) {
        match page {
            Ok(page) => {
                for (seq, event) in page.into_iter().filter(|(seq, _)| *seq <= tail) {
                    if let Some(at) = &mut self.attached {
                        at.cursor = seq;
                    }
                    // What is in the journal was made from a `String`, and its checksum has just been checked.
                    if let Ok(text) = ByteString::try_from(event.json) {
                        self.send(text, ctx);
                    }
                }
                self.read_further(ctx);
            }
            Err(StoreError::NoSession(id)) => self.gone(&Refusal::NoSession(id.to_string()), ctx),
            Err(e) => {
                self.error("journal_unavailable", e.to_string(), None, ctx);
                // Until then nothing else reads: every answer to a Ping would begin a row of tries of its own.
                ctx.run_later(LOOK_AGAIN_MAX, FrontendSocket::read_further);
            }
        }
    }

    fn read_further(&mut self, ctx: &mut Context) {
        if let Some(at) = &mut self.attached {
            at.reading = false;
        }
        self.pull(ctx);
    }

    fn synced(&mut self, ctx: &mut Context) {
        let Some(at) = &mut self.attached else { return };
        if at.replay_to.is_some_and(|end| at.cursor >= end) {
            at.replay_to = None;
            let seq = at.cursor;
            self.say(&Status::Synced { seq }, ctx);
        }
    }

    fn refused(&mut self, refusal: &Refusal, id: Option<String>, ctx: &mut Context) {
        self.error(refusal.code(), refusal.to_string(), id, ctx);
    }

    fn error(&mut self, code: &str, message: String, id: Option<String>, ctx: &mut Context) {
        self.say(&ErrorFrame { error: ErrorBody { code: code.to_owned(), message }, id }, ctx);
    }

    fn say(&mut self, frame: &impl Serialize, ctx: &mut Context) {
        // Every frame has string keys and no fallible `Serialize`, so this cannot fail.
        self.send(serde_json::to_string(frame).expect("a frame is JSON").into(), ctx);
    }

    fn send(&mut self, text: ByteString, ctx: &mut Context) {
        let bytes = text.len();
        ctx.text(text);
        if let Some(ping) = self.credit.sent(bytes) {
            ctx.ping(&ping);
        }
        if let Some(entry) = &self.entry {
            entry.queued(self.credit.unconfirmed());
        }
    }
}

/// [Listens](listen) to a session, and takes it as the journal has it: what its actor has decided may not be on disk yet.
async fn attach(
    session: Addr<Session>,
    listener: Recipient<Published>,
    store: Arc<dyn Store>,
    id: SessionId,
) -> Result<Option<(View, Listening)>, Refusal> {
    let Some(Attached { view, listening }) = listen(&session, listener).await? else { return Ok(None) };
    let Ok(Some(snapshot)) = store.get(id).await else { return Ok(None) };
    Ok(Some((View::new(&snapshot, view.attached), listening)))
}

fn being_brought_back() -> Refusal {
    Refusal::Unavailable("the session is being brought back; try again".to_owned())
}

impl Actor for FrontendSocket {
    type Context = Context;

    fn started(&mut self, ctx: &mut Context) {
        self.entry = Some(self.parts.census.register(Kind::FrontendSocket, None));
        self.keep(self.parts.closing.clone(), self.pass.clone(), ctx);
        match self.arrival.as_ref().and_then(|arrival| arrival.wanted) {
            Some(id) => self.find(id, ctx),
            None => self.hello(None, 0, ctx),
        }
    }
}

impl Connection for FrontendSocket {
    fn credit(&mut self) -> &mut Credit {
        &mut self.credit
    }

    fn goodbye(&mut self, ctx: &mut Context) {
        self.say(&Status::Closing { reason: "the server is going away".to_owned() }, ctx);
    }
}

impl Handler<Published> for FrontendSocket {
    type Result = ();

    fn handle(&mut self, _: Published, ctx: &mut Context) {
        if let Some(entry) = &self.entry {
            entry.handled();
        }
        self.pull(ctx);
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for FrontendSocket {
    fn handle(&mut self, message: Result<ws::Message, ProtocolError>, ctx: &mut Context) {
        if self.pass.as_ref().is_some_and(Pass::is_revoked) {
            // Said before it hears that it has to go.
            return;
        }
        self.credit.heard(match &message {
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
            Ok(message) => match self.pieces.hear(message) {
                Heard::Text(text) => self.hear(&text, ctx),
                Heard::NotText => {
                    self.error("invalid_json", "a frame is JSON in a text frame, not binary".to_owned(), None, ctx);
                }
                Heard::TooLarge => {
                    let message =
                        format!("a frame is at most {CLIENT_FRAME_LIMIT} bytes; put what is larger into a file");
                    self.error("too_large", message, None, ctx);
                }
                Heard::Nothing => {}
            },
            Err(e) => close(1002, &e.to_string(), ctx),
        }
    }
}
