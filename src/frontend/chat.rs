//! ChatSocket actor: a client of the [chat protocol](super::chat_protocol).

mod position;

use std::sync::Arc;

use actix::{WeakAddr, prelude::*};
use actix_web::{HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use greenroom_protocol::{
    CLIENT_FRAME_LIMIT, Event, action::MessageMode, client::ClientRequest, observation::TruncationMark,
};
use tokio::sync::mpsc::{self, UnboundedSender};

use self::position::{chat_after, chat_from_now};
use super::{
    EventPull, FrontendServices, PROTOCOLS, PulledItem,
    chat_protocol::{ChatFrame, ChatFrameBody, ChatRequest, ChatRequestFrame, ChatTranslator, RejectedChatFrame},
    connection::{ClientConnection, admitted_client, close},
    credit::Credit,
    frames::{FrameAssembler, ReceivedFrame},
};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    data::{AccessGrant, ClientName},
    session::{
        RequestError,
        messages::{Interrupt, Relay, RequestAccepted},
        request_with_retry,
    },
    store::{Seq, SessionId},
};

type ChatContext = WebsocketContext<ChatSocket>;

/// Largest number of unanswered frames of one client. Further frames are rejected. Interrupts have
/// twice the limit.
const MAX_UNANSWERED: usize = 64;
/// Largest size of unanswered frames of one client, bytes. A session that waits for the disk takes
/// seconds for each frame.
const MAX_UNANSWERED_BYTES: usize = 2 * CLIENT_FRAME_LIMIT;

/// Client of one session that uses the chat protocol.
pub(super) struct ChatSocket {
    services: Arc<FrontendServices>,
    id: SessionId,
    /// Event after which the chat begins. `None`: the newest.
    after: Option<Seq>,
    entry: Option<ActorEntry>,
    translator: ChatTranslator,
    /// `None` before the attach, and while a task waits for the next item.
    pull: Option<EventPull>,
    credit: Credit,
    assembler: FrameAssembler,
    /// Queue to the relay task, started with the first request. Bound: [`MAX_UNANSWERED`] frames.
    /// When full: the frame is rejected.
    request_sender: Option<UnboundedSender<ChatRequestFrame>>,
    unanswered: usize,
    unanswered_bytes: usize,
    grant: Option<AccessGrant>,
    /// Name of the client in events.
    client_name: Option<ClientName>,
}

impl ChatSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        id: SessionId,
        after: Option<Seq>,
        services: Arc<FrontendServices>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let (grant, client_name) = admitted_client(request);
        let socket = ChatSocket {
            services,
            id,
            after,
            entry: None,
            translator: ChatTranslator::default(),
            pull: None,
            credit: Credit::default(),
            assembler: FrameAssembler::default(),
            request_sender: None,
            unanswered: 0,
            unanswered_bytes: 0,
            grant,
            client_name,
        };
        WsResponseBuilder::new(socket, request, body).protocols(PROTOCOLS).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    /// Attaches to the session. Earlier events are available over REST.
    fn attach(&self, ctx: &mut ChatContext) {
        let (services, id, after) = (self.services.clone(), self.id, self.after);
        let attached = async move {
            match after {
                Some(after) => chat_after(services, id, after).await,
                None => chat_from_now(services, id).await,
            }
        };
        ctx.wait(attached.into_actor(self).map(|attached, socket, ctx| match attached {
            Ok((pull, translator)) => {
                (socket.translator, socket.pull) = (translator, Some(pull));
                socket.pull(ctx);
            }
            Err(error) => {
                let code = if matches!(error, RequestError::NoSession(_)) { 4404 } else { 1013 };
                socket.send_frame(ChatFrame::rejection(error.to_string(), None), ctx);
                close(code, &error.to_string(), ctx);
            }
        }));
    }

    /// Waits for the next item if the client has room for it.
    fn pull(&mut self, ctx: &mut ChatContext) {
        if self.credit.room() == 0 {
            return;
        }
        let Some(mut pull) = self.pull.take() else { return };
        let next = async move {
            let next = pull.next().await;
            (pull, next)
        };
        ctx.spawn(next.into_actor(self).map(|(pull, next), socket, ctx| {
            socket.pull = Some(pull);
            socket.pulled(next, ctx);
            socket.pull(ctx);
        }));
    }

    fn pulled(&mut self, next: PulledItem, ctx: &mut ChatContext) {
        match next {
            PulledItem::Delta(chunk) => {
                for frame in self.translator.delta(chunk) {
                    self.send_frame(frame, ctx);
                }
            }
            // The chat protocol has no frame for a wait, and the chat continues after it.
            PulledItem::Retry(_) => {}
            PulledItem::Event((_, event)) => {
                // Events of a newer version that do not parse have no form in the chat protocol.
                let Ok(parsed) = serde_json::from_slice::<Event>(&event.json) else { return };
                let frames = match TruncationMark::of(&event.json) {
                    Some(whole) => self.translator.truncated_event(parsed, whole.bytes),
                    None => self.translator.event(parsed),
                };
                for frame in frames {
                    self.send_frame(frame, ctx);
                }
            }
            PulledItem::Gone(error) => {
                self.pull = None;
                close(4404, &error.to_string(), ctx);
            }
        }
    }

    fn receive_text(&mut self, text: &str, ctx: &mut ChatContext) {
        match ChatRequestFrame::parse(text) {
            Ok(ChatRequestFrame { request: ChatRequest::Ping, .. }) => self.send_frame(ChatFrameBody::Pong.into(), ctx),
            Ok(frame) => self.relay(frame, ctx),
            Err(RejectedChatFrame { message, id }) => self.send_frame(ChatFrame::rejection(message, id), ctx),
        }
    }

    fn relay(&mut self, frame: ChatRequestFrame, ctx: &mut ChatContext) {
        let limit = if frame.request == ChatRequest::Interrupt { 2 * MAX_UNANSWERED } else { MAX_UNANSWERED };
        let bytes = frame.bytes();
        if self.unanswered >= limit || self.unanswered_bytes + bytes > MAX_UNANSWERED_BYTES {
            let message = format!("{} frames are unanswered; retry when some are answered", self.unanswered);
            return self.send_frame(ChatFrame::rejection(message, frame.id), ctx);
        }
        self.unanswered += 1;
        self.unanswered_bytes += bytes;
        let (services, id, name) = (&self.services, self.id, &self.client_name);
        let request_sender = self
            .request_sender
            .get_or_insert_with(|| spawn_relay(services.clone(), id, name.clone(), ctx.address().downgrade()));
        // The relay task receives as long as a sender exists, so the send succeeds.
        let _ = request_sender.send(frame);
    }

    fn send_frame(&mut self, frame: ChatFrame, ctx: &mut ChatContext) {
        // A frame has string keys and plain values, so serialization cannot fail.
        let text = serde_json::to_string(&frame).expect("a frame is JSON");
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

/// Starts the task that relays a client's requests to its session, one after the other.
///
/// The order of requests stays, and the socket answers pings meanwhile. Pending requests are
/// relayed even if the client disconnects.
fn spawn_relay(
    services: Arc<FrontendServices>,
    id: SessionId,
    client_name: Option<ClientName>,
    socket: WeakAddr<ChatSocket>,
) -> UnboundedSender<ChatRequestFrame> {
    let (request_sender, mut requests) = mpsc::unbounded_channel::<ChatRequestFrame>();
    actix::spawn(async move {
        while let Some(frame) = requests.recv().await {
            let (bytes, request_id) = (frame.bytes(), frame.id.clone());
            let error = relay_request(&services, id, client_name.as_ref(), frame).await.err();
            if let Some(socket) = socket.upgrade() {
                socket.do_send(ChatRequestAnswered { bytes, request_id, error });
            }
        }
    });
    request_sender
}

async fn relay_request(
    services: &FrontendServices,
    id: SessionId,
    client_name: Option<&ClientName>,
    frame: ChatRequestFrame,
) -> Result<RequestAccepted, RequestError> {
    let open = async || services.sessions.open(id).await;
    let idempotency_key = frame.id;
    match frame.request {
        ChatRequest::Message { content } => {
            let request = ClientRequest::Message { content, mode: MessageMode::Queue, attachments: Vec::new() };
            let requested_by = client_name.map(ClientName::to_string);
            request_with_retry(open, Relay { request, idempotency_key, requested_by }).await?
        }
        ChatRequest::Interrupt | ChatRequest::Ping => request_with_retry(open, Interrupt { idempotency_key }).await?,
    }
}

/// Result of a client's request: persisted or rejected.
#[derive(Message)]
#[rtype(result = "()")]
struct ChatRequestAnswered {
    /// Size of the request, bytes.
    bytes: usize,
    /// Client's name for the request.
    request_id: Option<String>,
    error: Option<RequestError>,
}

impl Handler<ChatRequestAnswered> for ChatSocket {
    type Result = ();

    fn handle(&mut self, answered: ChatRequestAnswered, ctx: &mut ChatContext) {
        let ChatRequestAnswered { bytes, request_id, error } = answered;
        self.unanswered -= 1;
        self.unanswered_bytes -= bytes;
        if let Some(error) = error {
            self.send_frame(ChatFrame::rejection(error.to_string(), request_id), ctx);
        }
    }
}

impl Actor for ChatSocket {
    type Context = ChatContext;

    fn started(&mut self, ctx: &mut ChatContext) {
        self.entry = Some(self.services.actor_registry.register(ActorKind::ChatSocket, Some(self.id.to_string())));
        self.supervise(self.services.closing.clone(), self.grant.clone(), ctx);
        self.attach(ctx);
    }
}

impl ClientConnection for ChatSocket {
    fn credit(&mut self) -> &mut Credit {
        &mut self.credit
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for ChatSocket {
    fn handle(&mut self, message: Result<ws::Message, ProtocolError>, ctx: &mut ChatContext) {
        if self.grant.as_ref().is_some_and(AccessGrant::is_revoked) {
            // The frame arrived before the socket closes for the revoked grant.
            return;
        }
        self.record_received(&message);
        if let Some(entry) = &self.entry {
            entry.record_handled();
        }
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
                    let message = "a frame must be JSON in a text frame, not binary".to_owned();
                    self.send_frame(ChatFrame::rejection(message, None), ctx);
                }
                ReceivedFrame::TooLarge => {
                    let message =
                        format!("a frame may have {CLIENT_FRAME_LIMIT} bytes; upload larger content as a file");
                    self.send_frame(ChatFrame::rejection(message, None), ctx);
                }
                ReceivedFrame::Nothing => {}
            },
            Err(e) => {
                close(1002, &e.to_string(), ctx);
            }
        }
    }
}
