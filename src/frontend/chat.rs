//! The ChatSocket actor: a client that speaks the few words of [`super::dialect`].

use std::sync::Arc;

use actix::{WeakAddr, prelude::*};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use greenroom_protocol::{
    CLIENT_FRAME_LIMIT, Event, EventBody, Observation, ObservationKind, action::MessageMode, client::ClientRequest,
    observation::TruncationMark,
};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{
    EventPull, FrontendServices, PulledItem,
    chat_protocol::{ChatFrame, ChatFrameBody, ChatRequest, ChatTranslator, TurnName},
    connection::{ClientConnection, close},
    credit::Credit,
    frames::{FrameAssembler, ReceivedFrame},
};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    data::AccessGrant,
    session::{
        RequestError,
        messages::{Interrupt, Relay, RequestAccepted},
        request_with_retry, turn_start_seq,
    },
    store::{ReadLimit, SessionId, SessionSnapshot, Store, damage::read_past_damage},
};

type ChatContext = WebsocketContext<ChatSocket>;

/// How much of what one client says may be unanswered. More is refused; for interrupts there is as much room again.
const MAX_UNANSWERED: usize = 64;
/// The same in bytes: a session that waits for the disk takes seconds for each.
const MAX_UNANSWERED_BYTES: usize = 2 * CLIENT_FRAME_LIMIT;

pub(super) struct ChatSocket {
    parts: Arc<FrontendServices>,
    id: SessionId,
    entry: Option<ActorEntry>,
    translator: ChatTranslator,
    /// Away while it waits for the next thing.
    pull: Option<EventPull>,
    credit: Credit,
    assembler: FrameAssembler,
    /// Takes what is said to the session, once something was.
    request_sender: Option<UnboundedSender<ChatRequest>>,
    unanswered: usize,
    unanswered_bytes: usize,
    pass: Option<AccessGrant>,
}

impl ChatSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        id: SessionId,
        parts: Arc<FrontendServices>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let socket = ChatSocket {
            parts,
            id,
            entry: None,
            translator: ChatTranslator::default(),
            pull: None,
            credit: Credit::default(),
            assembler: FrameAssembler::default(),
            request_sender: None,
            unanswered: 0,
            unanswered_bytes: 0,
            pass: request.extensions_mut().remove(),
        };
        WsResponseBuilder::new(socket, request, body).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    /// From here on; what was before is for REST to tell.
    fn attach(&self, ctx: &mut ChatContext) {
        let (parts, id) = (self.parts.clone(), self.id);
        let attached = async move {
            let (pull, snapshot) = EventPull::join(parts.clone(), id).await?;
            Ok((pull, current_turn(&*parts.store, &snapshot).await))
        };
        ctx.wait(attached.into_actor(self).map(|attached: Result<_, RequestError>, socket, ctx| match attached {
            Ok((pull, turn)) => {
                socket.translator = ChatTranslator::joining(turn);
                socket.pull = Some(pull);
                socket.pull(ctx);
            }
            Err(refusal) => {
                let code = if matches!(refusal, RequestError::NoSession(_)) { 4404 } else { 1013 };
                socket.send_frame(ChatFrameBody::Error { message: refusal.to_string() }.into(), ctx);
                close(code, &refusal.to_string(), ctx);
            }
        }));
    }

    /// Waits for the next thing, where the client has room for it.
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
            PulledItem::Delta(piece) => {
                if let Some(frame) = self.translator.delta(piece) {
                    self.send_frame(frame, ctx);
                }
            }
            PulledItem::Event((_, event)) => {
                // One that a newer version wrote is none of a chat's words.
                let Ok(parsed) = serde_json::from_slice::<Event>(&event.json) else { return };
                let frames = match TruncationMark::of(&event.json) {
                    Some(whole) => self.translator.truncated_event(parsed, whole.bytes),
                    None => self.translator.event(parsed),
                };
                for frame in frames {
                    self.send_frame(frame, ctx);
                }
            }
            PulledItem::Gone(why) => {
                self.pull = None;
                close(4404, &why.to_string(), ctx);
            }
        }
    }

    fn receive_text(&mut self, text: &str, ctx: &mut ChatContext) {
        match serde_json::from_str(text) {
            Ok(ChatRequest::Ping) => self.send_frame(ChatFrameBody::Pong.into(), ctx),
            Ok(said) => self.relay(said, ctx),
            Err(e) => {
                let known = r#"`{"type": "message", "content": …}`, `{"type": "interrupt"}` or `{"type": "ping"}`"#;
                self.send_error(format!("not a frame of a chat ({e}); send {known}"), ctx);
            }
        }
    }

    fn relay(&mut self, said: ChatRequest, ctx: &mut ChatContext) {
        let most = if said == ChatRequest::Interrupt { 2 * MAX_UNANSWERED } else { MAX_UNANSWERED };
        let bytes = said.bytes();
        if self.unanswered >= most || self.unanswered_bytes + bytes > MAX_UNANSWERED_BYTES {
            let message = format!("{} frames are unanswered already; say it again later", self.unanswered);
            return self.send_error(message, ctx);
        }
        self.unanswered += 1;
        self.unanswered_bytes += bytes;
        let (parts, id) = (&self.parts, self.id);
        let speaker =
            self.request_sender.get_or_insert_with(|| spawn_relay(parts.clone(), id, ctx.address().downgrade()));
        // It listens for as long as there is anybody to speak.
        let _ = speaker.send(said);
    }

    fn send_error(&mut self, message: String, ctx: &mut ChatContext) {
        self.send_frame(ChatFrameBody::Error { message }.into(), ctx);
    }

    fn send_frame(&mut self, frame: ChatFrame, ctx: &mut ChatContext) {
        // A frame has string keys and plain values, so this cannot fail.
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

/// Takes what a client says to its session: one after the other, which keeps it in its order, beside the socket, which hears pings
/// meanwhile, and to the last of it, also where the client has gone.
fn spawn_relay(
    parts: Arc<FrontendServices>,
    id: SessionId,
    socket: WeakAddr<ChatSocket>,
) -> UnboundedSender<ChatRequest> {
    let (speaker, mut said) = mpsc::unbounded_channel::<ChatRequest>();
    actix::spawn(async move {
        while let Some(said) = said.recv().await {
            let bytes = said.bytes();
            let refusal = relay_request(&parts, id, said).await.err();
            if let Some(socket) = socket.upgrade() {
                socket.do_send(ChatRequestAnswered { bytes, error: refusal });
            }
        }
    });
    speaker
}

async fn relay_request(
    parts: &FrontendServices,
    id: SessionId,
    said: ChatRequest,
) -> Result<RequestAccepted, RequestError> {
    let open = async || parts.sessions.open(id).await;
    match said {
        ChatRequest::Message { content } => {
            let wish = ClientRequest::Message { content, mode: MessageMode::Queue, attachments: Vec::new() };
            request_with_retry(open, Relay { request: wish, idempotency_key: None }).await?
        }
        ChatRequest::Interrupt | ChatRequest::Ping => request_with_retry(open, Interrupt::default()).await?,
    }
}

/// Something that the client said is written down, or refused.
#[derive(Message)]
#[rtype(result = "()")]
struct ChatRequestAnswered {
    /// Of what was said.
    bytes: usize,
    error: Option<RequestError>,
}

impl Handler<ChatRequestAnswered> for ChatSocket {
    type Result = ();

    fn handle(&mut self, ChatRequestAnswered { bytes, error: refusal }: ChatRequestAnswered, ctx: &mut ChatContext) {
        self.unanswered -= 1;
        self.unanswered_bytes -= bytes;
        if let Some(refusal) = refusal {
            self.send_error(refusal.to_string(), ctx);
        }
    }
}

/// The turn that the session is in: its name is in the event that began it.
async fn current_turn(store: &dyn Store, snapshot: &SessionSnapshot) -> Option<TurnName> {
    let began = turn_start_seq(&snapshot.record)?;
    let first = read_past_damage(store, snapshot.record.id, began - 1, ReadLimit { events: 1, bytes: 0 })
        .await
        .unwrap_or_default();
    let event = first.first().and_then(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok());
    match event.map(|event| event.body) {
        Some(EventBody::Observation(Observation { kind: ObservationKind::Chat { turn, .. }, .. })) => Some(turn),
        // It is damaged; that there is a turn is known all the same.
        Some(EventBody::Observation(_) | EventBody::Action(_) | EventBody::Opaque(_)) | None => Some(None),
    }
}

impl Actor for ChatSocket {
    type Context = ChatContext;

    fn started(&mut self, ctx: &mut ChatContext) {
        self.entry = Some(self.parts.actor_registry.register(ActorKind::ChatSocket, Some(self.id.to_string())));
        self.supervise(self.parts.closing.clone(), self.pass.clone(), ctx);
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
        if self.pass.as_ref().is_some_and(AccessGrant::is_revoked) {
            // Said before it hears that it has to go.
            return;
        }
        self.credit.received(match &message {
            Ok(ws::Message::Pong(payload)) => Some(payload),
            Ok(_) | Err(_) => None,
        });
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
                    self.send_error("a frame is JSON in a text frame, not binary".to_owned(), ctx)
                }
                ReceivedFrame::TooLarge => {
                    self.send_error(
                        format!("a frame is at most {CLIENT_FRAME_LIMIT} bytes; put what is larger into a file"),
                        ctx,
                    );
                }
                ReceivedFrame::Nothing => {}
            },
            Err(e) => {
                close(1002, &e.to_string(), ctx);
            }
        }
    }
}
