//! FrontendSocket actor: one attached client and its cursor over the session.

mod requests;
mod session_lookup;
mod view;

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use bytestring::ByteString;
use greenroom_protocol::{CLIENT_FRAME_LIMIT, client::StatusFrame};
use serde::Serialize;

#[cfg(test)]
pub(super) use self::requests::MAX_IN_FLIGHT;
use self::session_lookup::SessionLookup;
pub(super) use self::view::SocketView;
use super::{
    FrontendServices, PROTOCOLS, attached_clients,
    connection::{ClientConnection, admitted_client, close},
    credit::Credit,
    frames::{FrameAssembler, ReceivedFrame},
    subscribe,
};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    clock,
    data::{AccessGrant, ClientName},
    session::{
        DeliveryPoll, DeltaPositions, RequestError, Session, SessionView, Subscription,
        messages::{AttachReply, Published},
    },
    store::{ReadLimit, Seq, SessionId, Store, StoreError, StoredEvent, damage::read_past_damage},
};

/// Bounds of one read of the journal.
const PAGE: ReadLimit = ReadLimit { events: 256, bytes: 64 * 1024 };
/// First wait before a lookup is repeated. Doubles up to [`LOOKUP_RETRY_MAX`].
const LOOKUP_RETRY_MIN: Duration = Duration::from_millis(50);
pub(super) const LOOKUP_RETRY_MAX: Duration = Duration::from_secs(2);
/// Longest wait if this server cannot read the session. Only another server version can make it
/// available.
const LOOKUP_RETRY_UNREADABLE: Duration = Duration::from_secs(30);

type SocketContext = WebsocketContext<FrontendSocket>;

/// Start of the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayStart {
    /// After the event of this number; 0 is the start.
    After(Seq),
    /// New events only.
    Tail,
}

impl ReplayStart {
    /// Reads the parameter `after` of an address.
    ///
    /// # Errors
    /// Returns the rule for the parameter.
    pub(super) fn parse(after: &str) -> Result<ReplayStart, String> {
        match after {
            "tail" => Ok(ReplayStart::Tail),
            number => number
                .parse()
                .map(ReplayStart::After)
                .map_err(|_| format!("`after` must be a number or `tail`, not `{number}`")),
        }
    }
}

/// Attached client. A server has up to ten thousand, so state that is needed for a while is boxed
/// for that while.
pub(super) struct FrontendSocket {
    services: Arc<FrontendServices>,
    grant: Option<AccessGrant>,
    /// Name of the client in events.
    client_name: Option<ClientName>,
    entry: Option<ActorEntry>,
    view: SocketView,
    /// Request to attach, until the client is attached.
    attach_request: Option<Box<AttachRequest>>,
    attached: Option<AttachedSession>,
    credit: Credit,
    assembler: FrameAssembler,
    in_flight: u8,
    /// Number of lookups in a row without success.
    lookup_attempts: u8,
    /// Reason why the session is unavailable, as last reported to the client.
    reported_error: Option<Box<RequestError>>,
}

/// Request of a client to attach.
pub(super) struct AttachRequest {
    pub(super) session_id: Option<SessionId>,
    pub(super) replay_start: ReplayStart,
}

/// Position of a client in a session.
struct AttachedSession {
    id: SessionId,
    source: SessionSource,
    /// Newest event that the client was sent.
    cursor: Seq,
    /// Offsets sent of the items that still grow.
    seen: DeltaPositions,
    /// End of the replay. At the end the client gets `synced`.
    replay_to: Option<Seq>,
    /// True while a page of the journal is being read, even if the source changes meanwhile. A
    /// second read from the same cursor would send the page twice.
    reading: bool,
}

/// Source of a client's events.
enum SessionSource {
    Session {
        session: Addr<Session>,
        subscription: Subscription,
    },
    /// Journal up to `tail`, while the session's actor is not available, for example because the
    /// store rejects writes. The lookup goes on.
    Journal {
        tail: Seq,
        lookup: Box<SessionLookup>,
    },
}

impl SessionSource {
    fn tail(&self) -> Seq {
        match self {
            SessionSource::Session { subscription, .. } => subscription.tail(),
            SessionSource::Journal { tail, .. } => *tail,
        }
    }
}

impl AttachedSession {
    /// Polls for what the client has not been sent, with about `max_bytes` of growing items.
    fn poll_delivery(&mut self, max_bytes: usize) -> DeliveryPoll {
        match &self.source {
            SessionSource::Session { subscription, .. } => subscription.poll(self.cursor, &mut self.seen, max_bytes),
            SessionSource::Journal { tail, .. } if *tail > self.cursor => DeliveryPoll::Behind { tail: *tail },
            SessionSource::Journal { .. } => DeliveryPoll::Deltas(Vec::new()),
        }
    }
}

impl FrontendSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        (attach_request, view): (AttachRequest, SocketView),
        services: Arc<FrontendServices>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let (grant, client_name) = admitted_client(request);
        let socket = FrontendSocket {
            services,
            grant,
            client_name,
            entry: None,
            view,
            attach_request: Some(Box::new(attach_request)),
            attached: None,
            credit: Credit::default(),
            assembler: FrameAssembler::default(),
            in_flight: 0,
            lookup_attempts: 0,
            reported_error: None,
        };
        WsResponseBuilder::new(socket, request, body).protocols(PROTOCOLS).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    fn attach(&mut self, id: SessionId, session: Addr<Session>, ctx: &mut SocketContext) {
        let attached = attach(session.clone(), ctx.address().recipient(), self.services.store.clone(), id);
        let prepared = self.prepare_view(id);
        let attached = async move { (attached.await, prepared.await) }.into_actor(self);
        let attached = attached.map(move |(attached, prepared), socket, ctx| match attached {
            Ok(Some((view, subscription))) => {
                socket.view.begin(prepared);
                socket.lookup_attempts = 0;
                match socket.attached {
                    Some(_) => socket.reattach(session, subscription, &view, ctx),
                    None => socket.begin_replay(id, SessionSource::Session { session, subscription }, &view, ctx),
                }
            }
            Ok(None) => socket.schedule_lookup(ctx),
            Err(error) => socket.session_unavailable(id, error, 0, ctx),
        });
        if self.attached.is_none() {
            // Input that arrives meanwhile is for that session, so it stays unread.
            ctx.wait(attached);
        } else {
            ctx.spawn(attached);
        }
    }

    fn begin_replay(&mut self, id: SessionId, source: SessionSource, view: &SessionView, ctx: &mut SocketContext) {
        let tail = view.last_seq;
        let cursor = match self.attach_request.take().map_or(ReplayStart::After(0), |request| request.replay_start) {
            ReplayStart::After(seq) => seq.min(tail),
            ReplayStart::Tail => tail,
        };
        self.entry = Some(self.services.actor_registry.register(ActorKind::FrontendSocket, Some(id.to_string())));
        self.reported_error = None;
        self.send_hello(Some(view), tail, ctx);
        let (seen, replay_to) = (DeltaPositions::default(), Some(tail));
        self.attached = Some(AttachedSession { id, source, cursor, seen, replay_to, reading: false });
        self.pull(ctx);
    }

    fn send_hello(&mut self, view: Option<&SessionView>, last_seq: Seq, ctx: &mut SocketContext) {
        let state = view.map(|view| view.state);
        // A view has string keys and plain values, so serialization cannot fail.
        let session = view.map(|view| serde_json::to_value(view).expect("a view is JSON"));
        self.send_status(&StatusFrame::Hello { session, last_seq, state, now: clock::now() }, ctx);
    }

    /// Reports that the session does not exist, and closes the socket.
    fn session_gone(&mut self, error: &RequestError, ctx: &mut SocketContext) {
        self.send_request_error(error, None, ctx);
        close(4404, &error.to_string(), ctx);
    }

    /// Sends what the client has room for: first the journal up to its end, then the growth of open
    /// items.
    fn pull(&mut self, ctx: &mut SocketContext) {
        loop {
            let room = self.credit.room();
            let Some(attached) = &mut self.attached else { return };
            if attached.reading || room == 0 {
                return;
            }
            let delta_room = if self.view.has_deltas() { room as usize } else { 0 };
            match attached.poll_delivery(delta_room) {
                DeliveryPoll::Closed => {
                    // Releases the stopped actor. From here on, one lookup at a time searches for
                    // the next one.
                    attached.source = SessionSource::Journal { tail: attached.source.tail(), lookup: Box::default() };
                    self.schedule_lookup(ctx);
                }
                DeliveryPoll::Behind { tail } => return self.read_page(tail, ctx),
                DeliveryPoll::Retry(frame) => {
                    self.send_synced(ctx);
                    if self.view.has_deltas() {
                        self.send_frame(&frame, ctx);
                    }
                }
                DeliveryPoll::Deltas(deltas) => {
                    self.send_synced(ctx);
                    if deltas.is_empty() {
                        return;
                    }
                    for chunk in deltas {
                        self.send_frame(&chunk.delta, ctx);
                    }
                }
            }
        }
    }

    fn read_page(&mut self, tail: Seq, ctx: &mut SocketContext) {
        let Some(attached) = &mut self.attached else { return };
        attached.reading = true;
        let (store, id, cursor) = (self.services.store.clone(), attached.id, attached.cursor);
        let page = async move { read_past_damage(&*store, id, cursor, PAGE).await }.into_actor(self);
        ctx.spawn(page.map(move |page, socket, ctx| socket.send_page(tail, page, ctx)));
    }

    fn send_page(&mut self, tail: Seq, page: Result<Vec<StoredEvent>, StoreError>, ctx: &mut SocketContext) {
        match page {
            Ok(page) => {
                for (seq, event) in page.into_iter().filter(|(seq, _)| *seq <= tail) {
                    if let Some(attached) = &mut self.attached {
                        attached.cursor = seq;
                    }
                    self.send_event(event.json, ctx);
                }
                self.read_further(ctx);
            }
            Err(StoreError::NoSession(id)) => self.session_gone(&RequestError::NoSession(id.to_string()), ctx),
            Err(e) => {
                self.send_error("journal_unavailable", e.to_string(), None, ctx);
                // `reading` stays true until then. Otherwise each Pong would start retries of its
                // own.
                ctx.run_later(LOOKUP_RETRY_MAX, FrontendSocket::read_further);
            }
        }
    }

    fn read_further(&mut self, ctx: &mut SocketContext) {
        if let Some(attached) = &mut self.attached {
            attached.reading = false;
        }
        self.pull(ctx);
    }

    fn send_synced(&mut self, ctx: &mut SocketContext) {
        let Some(attached) = &mut self.attached else { return };
        if attached.replay_to.is_some_and(|end| attached.cursor >= end) {
            attached.replay_to = None;
            let seq = attached.cursor;
            self.send_status(&StatusFrame::Synced { seq }, ctx);
        }
    }

    fn send_frame(&mut self, frame: &impl Serialize, ctx: &mut SocketContext) {
        // Each frame has string keys and no fallible `Serialize`, so serialization cannot fail.
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

/// Subscribes to a session and reads its view from the store. The actor's own view may contain
/// decisions that are not yet on disk.
async fn attach(
    session: Addr<Session>,
    subscriber: Recipient<Published>,
    store: Arc<dyn Store>,
    id: SessionId,
) -> Result<Option<(SessionView, Subscription)>, RequestError> {
    let Some(AttachReply { view, subscription }) = subscribe(&session, subscriber).await? else {
        return Ok(None);
    };
    let Ok(Some(snapshot)) = store.get(id).await else { return Ok(None) };
    Ok(Some((SessionView::new(&snapshot, view.attached), subscription)))
}

fn session_restarting() -> RequestError {
    RequestError::Unavailable("the session is restarting; try again".to_owned())
}

impl Actor for FrontendSocket {
    type Context = SocketContext;

    fn started(&mut self, ctx: &mut SocketContext) {
        self.entry = Some(self.services.actor_registry.register(ActorKind::FrontendSocket, None));
        self.supervise(self.services.closing.clone(), self.grant.clone(), ctx);
        match self.attach_request.as_ref().and_then(|request| request.session_id) {
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
        self.send_status(&StatusFrame::Closing { reason: "the server is going away".to_owned() }, ctx);
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
        if self.grant.as_ref().is_some_and(AccessGrant::is_revoked) {
            // The frame arrived before the socket closes for the revoked grant.
            return;
        }
        self.record_received(&message);
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
                        "a frame must be JSON in a text frame, not binary".to_owned(),
                        None,
                        ctx,
                    );
                }
                ReceivedFrame::TooLarge => {
                    let message =
                        format!("a frame may have {CLIENT_FRAME_LIMIT} bytes; upload larger content as a file");
                    self.send_error("too_large", message, None, ctx);
                }
                ReceivedFrame::Nothing => {}
            },
            Err(e) => close(1002, &e.to_string(), ctx),
        }
    }
}
