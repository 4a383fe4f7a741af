//! The ChatSocket actor: a client that speaks the few words of [`super::dialect`].

use std::sync::Arc;

use actix::{WeakAddr, prelude::*};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use greenroom_protocol::{
    Body, CLIENT_FRAME_LIMIT, Event, Observation, Seen, action::Mode, client::Wish, observation::Truncated,
};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{
    Parts, Pull, Pulled,
    connection::{Connection, close},
    credit::Credit,
    dialect::{Dialect, Frame, Said, Told, Turn},
    frames::{Heard, Pieces},
};
use crate::{
    census::{Entry, Kind},
    data::Pass,
    session::{
        Refusal, ask_or_next,
        messages::{Accepted, Interrupt, Relay},
        turn_began,
    },
    store::{Limit, SessionId, Snapshot, Store, damage::read_on},
};

type Context = WebsocketContext<ChatSocket>;

/// How much of what one client says may be unanswered. More is refused; for interrupts there is as much room again.
const UNANSWERED: usize = 64;
/// The same in bytes: a session that waits for the disk takes seconds for each.
const UNANSWERED_BYTES: usize = 2 * CLIENT_FRAME_LIMIT;

pub(super) struct ChatSocket {
    parts: Arc<Parts>,
    id: SessionId,
    entry: Option<Entry>,
    dialect: Dialect,
    /// Away while it waits for the next thing.
    pull: Option<Pull>,
    credit: Credit,
    pieces: Pieces,
    /// Takes what is said to the session, once something was.
    speaker: Option<UnboundedSender<Said>>,
    unanswered: usize,
    unanswered_bytes: usize,
    pass: Option<Pass>,
}

impl ChatSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        id: SessionId,
        parts: Arc<Parts>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let socket = ChatSocket {
            parts,
            id,
            entry: None,
            dialect: Dialect::default(),
            pull: None,
            credit: Credit::default(),
            pieces: Pieces::default(),
            speaker: None,
            unanswered: 0,
            unanswered_bytes: 0,
            pass: request.extensions_mut().remove(),
        };
        WsResponseBuilder::new(socket, request, body).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    /// From here on; what was before is for REST to tell.
    fn attach(&self, ctx: &mut Context) {
        let (parts, id) = (self.parts.clone(), self.id);
        let attached = async move {
            let (pull, snapshot) = Pull::join(parts.clone(), id).await?;
            Ok((pull, turn(&*parts.store, &snapshot).await))
        };
        ctx.wait(attached.into_actor(self).map(|attached: Result<_, Refusal>, socket, ctx| match attached {
            Ok((pull, turn)) => {
                socket.dialect = Dialect::joining(turn);
                socket.pull = Some(pull);
                socket.pull(ctx);
            }
            Err(refusal) => {
                let code = if matches!(refusal, Refusal::NoSession(_)) { 4404 } else { 1013 };
                socket.tell(Told::Error { message: refusal.to_string() }.into(), ctx);
                close(code, &refusal.to_string(), ctx);
            }
        }));
    }

    /// Waits for the next thing, where the client has room for it.
    fn pull(&mut self, ctx: &mut Context) {
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

    fn pulled(&mut self, next: Pulled, ctx: &mut Context) {
        match next {
            Pulled::Delta(piece) => {
                if let Some(frame) = self.dialect.delta(piece) {
                    self.tell(frame, ctx);
                }
            }
            Pulled::Event((_, event)) => {
                // One that a newer version wrote is none of a chat's words.
                let Ok(parsed) = serde_json::from_slice::<Event>(&event.json) else { return };
                let frames = match Truncated::of(&event.json) {
                    Some(whole) => self.dialect.part(parsed, whole.bytes),
                    None => self.dialect.event(parsed),
                };
                for frame in frames {
                    self.tell(frame, ctx);
                }
            }
            Pulled::Gone(why) => {
                self.pull = None;
                close(4404, &why.to_string(), ctx);
            }
        }
    }

    fn hear(&mut self, text: &str, ctx: &mut Context) {
        match serde_json::from_str(text) {
            Ok(Said::Ping) => self.tell(Told::Pong.into(), ctx),
            Ok(said) => self.relay(said, ctx),
            Err(e) => {
                let known = r#"`{"type": "message", "content": …}`, `{"type": "interrupt"}` or `{"type": "ping"}`"#;
                self.error(format!("not a frame of a chat ({e}); send {known}"), ctx);
            }
        }
    }

    fn relay(&mut self, said: Said, ctx: &mut Context) {
        let most = if said == Said::Interrupt { 2 * UNANSWERED } else { UNANSWERED };
        let bytes = said.bytes();
        if self.unanswered >= most || self.unanswered_bytes + bytes > UNANSWERED_BYTES {
            let message = format!("{} frames are unanswered already; say it again later", self.unanswered);
            return self.error(message, ctx);
        }
        self.unanswered += 1;
        self.unanswered_bytes += bytes;
        let (parts, id) = (&self.parts, self.id);
        let speaker = self.speaker.get_or_insert_with(|| speak(parts.clone(), id, ctx.address().downgrade()));
        // It listens for as long as there is anybody to speak.
        let _ = speaker.send(said);
    }

    fn error(&mut self, message: String, ctx: &mut Context) {
        self.tell(Told::Error { message }.into(), ctx);
    }

    fn tell(&mut self, frame: Frame, ctx: &mut Context) {
        // A frame has string keys and plain values, so this cannot fail.
        let text = serde_json::to_string(&frame).expect("a frame is JSON");
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

/// Takes what a client says to its session: one after the other, which keeps it in its order, beside the socket, which hears pings
/// meanwhile, and to the last of it, also where the client has gone.
fn speak(parts: Arc<Parts>, id: SessionId, socket: WeakAddr<ChatSocket>) -> UnboundedSender<Said> {
    let (speaker, mut said) = mpsc::unbounded_channel::<Said>();
    actix::spawn(async move {
        while let Some(said) = said.recv().await {
            let bytes = said.bytes();
            let refusal = say(&parts, id, said).await.err();
            if let Some(socket) = socket.upgrade() {
                socket.do_send(Answered { bytes, refusal });
            }
        }
    });
    speaker
}

async fn say(parts: &Parts, id: SessionId, said: Said) -> Result<Accepted, Refusal> {
    let open = async || parts.sessions.open(id).await;
    match said {
        Said::Message { content } => {
            let wish = Wish::Message { content, mode: Mode::Queue, attachments: Vec::new() };
            ask_or_next(open, Relay { wish, key: None }).await?
        }
        Said::Interrupt | Said::Ping => ask_or_next(open, Interrupt::default()).await?,
    }
}

/// Something that the client said is written down, or refused.
#[derive(Message)]
#[rtype(result = "()")]
struct Answered {
    /// Of what was said.
    bytes: usize,
    refusal: Option<Refusal>,
}

impl Handler<Answered> for ChatSocket {
    type Result = ();

    fn handle(&mut self, Answered { bytes, refusal }: Answered, ctx: &mut Context) {
        self.unanswered -= 1;
        self.unanswered_bytes -= bytes;
        if let Some(refusal) = refusal {
            self.error(refusal.to_string(), ctx);
        }
    }
}

/// The turn that the session is in: its name is in the event that began it.
async fn turn(store: &dyn Store, snapshot: &Snapshot) -> Option<Turn> {
    let began = turn_began(&snapshot.record)?;
    let first = read_on(store, snapshot.record.id, began - 1, Limit { events: 1, bytes: 0 }).await.unwrap_or_default();
    let event = first.first().and_then(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok());
    match event.map(|event| event.body) {
        Some(Body::Observation(Observation { seen: Seen::Chat { turn, .. }, .. })) => Some(turn),
        // It is damaged; that there is a turn is known all the same.
        Some(Body::Observation(_) | Body::Action(_) | Body::Opaque(_)) | None => Some(None),
    }
}

impl Actor for ChatSocket {
    type Context = Context;

    fn started(&mut self, ctx: &mut Context) {
        self.entry = Some(self.parts.census.register(Kind::ChatSocket, Some(self.id.to_string())));
        self.keep(self.parts.closing.clone(), self.pass.clone(), ctx);
        self.attach(ctx);
    }
}

impl Connection for ChatSocket {
    fn credit(&mut self) -> &mut Credit {
        &mut self.credit
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for ChatSocket {
    fn handle(&mut self, message: Result<ws::Message, ProtocolError>, ctx: &mut Context) {
        if self.pass.as_ref().is_some_and(Pass::is_revoked) {
            // Said before it hears that it has to go.
            return;
        }
        self.credit.heard(match &message {
            Ok(ws::Message::Pong(payload)) => Some(payload),
            Ok(_) | Err(_) => None,
        });
        if let Some(entry) = &self.entry {
            entry.handled();
        }
        match message {
            Ok(ws::Message::Ping(payload)) => ctx.pong(&payload),
            Ok(ws::Message::Pong(_)) => self.pull(ctx),
            Ok(ws::Message::Close(reason)) => {
                ctx.close(reason);
                ctx.stop();
            }
            Ok(message) => match self.pieces.hear(message) {
                Heard::Text(text) => self.hear(&text, ctx),
                Heard::NotText => self.error("a frame is JSON in a text frame, not binary".to_owned(), ctx),
                Heard::TooLarge => {
                    self.error(
                        format!("a frame is at most {CLIENT_FRAME_LIMIT} bytes; put what is larger into a file"),
                        ctx,
                    );
                }
                Heard::Nothing => {}
            },
            Err(e) => {
                close(1002, &e.to_string(), ctx);
            }
        }
    }
}
