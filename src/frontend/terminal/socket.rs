//! TerminalSocket actor: waits for the sandbox, attaches, and relays.

mod session_watch;

use std::{io, sync::Arc, time::Duration};

use actix::prelude::*;
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web::Payload};
use actix_web_actors::ws::{self, ProtocolError, WebsocketContext, WsResponseBuilder};
use bytes::Bytes;
use greenroom_protocol::{
    CLIENT_FRAME_LIMIT,
    observation::AgentState,
    terminal::{
        TerminalControl, TerminalErrorCode, TerminalFrame, TerminalReply, TerminalRequest, check_terminal_name,
    },
};
use tokio::{
    net::UnixStream,
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{
    agent_stream::{self, AgentTerminalStream, ReceivedTerminalFrame, TerminalInputQueue},
    frames::{TerminalExitReason, TerminalFrameFromClient, TerminalFrameToClient},
    requests::{harmless, request_terminals},
};
use crate::{
    actor_registry::{ActorEntry, ActorKind},
    data::AccessGrant,
    frontend::{
        FrontendServices, PROTOCOLS,
        connection::{ClientConnection, close},
        credit::Credit,
        frames::{FrameAssembler, ReceivedFrame},
    },
    net::FragmentItem,
    sandbox::RunDir,
    session::{
        RequestError, Session, Subscription, TerminalsListed,
        messages::{GetView, Published},
        request_with_retry,
    },
    store::SessionId,
};

type TerminalContext = WebsocketContext<TerminalSocket>;

/// Unconfirmed bytes above which no more output is read. A key is answered only after them.
const OUTPUT_WINDOW: u64 = 128 * 1024;

/// Bound for input that the agent has not taken, in bytes. When full: the client is not read for
/// [`INPUT_WAIT`], and then its input is dropped with an error.
const MAX_INPUT: usize = 1024 * 1024;
const INPUT_WAIT: Duration = Duration::from_secs(2);

/// Bound for input before the terminal is attached, in bytes. When full: input is dropped.
const MAX_EARLY_INPUT: usize = 64 * 1024;

/// Time in which the agent of a running sandbox must accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
const DIAL_INTERVAL: Duration = Duration::from_millis(50);

/// Time in which the agent must attach the client. A search for a directory may take it 10 s.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(20);

/// Least number of bytes that a frame of output counts for, so tiny frames fill the window too.
const FRAME_COST: usize = 64;

/// Client of one terminal.
pub(super) struct TerminalSocket {
    services: Arc<FrontendServices>,
    id: SessionId,
    /// Request for the terminal, with the newest size of the client's window.
    attach: TerminalRequest,
    grant: Option<AccessGrant>,
    entry: Option<ActorEntry>,
    credit: Credit,
    assembler: FrameAssembler,
    /// True inside of a binary message in fragments.
    in_binary: bool,
    /// Session, and the subscription that keeps it awake and reports its changes.
    session: Option<(Addr<Session>, Subscription)>,
    state: Option<AgentState>,
    stage: AttachStage,
    is_pause_told: bool,
    /// Set while a question for the state is unanswered, or its answer is new.
    is_asking: bool,
    /// Set if the state may have changed since the last question.
    is_state_stale: bool,
    early_input: Vec<u8>,
    /// Set when the agent has attached the client.
    is_ready: bool,
    /// Limits lists for the session: one runs, one sees a later change. The agent is hostile.
    listings: Arc<Semaphore>,
    /// Frames of the agent. `None` while a task waits for the next one.
    output: Option<AgentTerminalStream>,
}

/// Progress towards a terminal.
enum AttachStage {
    /// The sandbox does not run yet.
    WaitingForSandbox(SandboxStart),
    Dialling,
    Attached(TerminalInputQueue),
    /// The last frame is sent.
    Over,
}

/// Start of the sandbox, as far as this socket has a part in it.
#[derive(Default)]
struct SandboxStart {
    /// Set when the client has the frame `starting`.
    is_told: bool,
    /// Set when the socket has requested the start.
    is_requested: bool,
    /// Set when the session has accepted that request.
    is_accepted: bool,
}

impl TerminalSocket {
    pub(super) fn open(
        request: &HttpRequest,
        body: Payload,
        (id, attach): (SessionId, TerminalRequest),
        services: Arc<FrontendServices>,
    ) -> Result<HttpResponse, actix_web::Error> {
        let socket = TerminalSocket {
            services,
            id,
            attach,
            grant: request.extensions_mut().remove(),
            entry: None,
            credit: Credit::default(),
            assembler: FrameAssembler::default(),
            in_binary: false,
            session: None,
            state: None,
            stage: AttachStage::WaitingForSandbox(SandboxStart::default()),
            is_pause_told: false,
            is_asking: false,
            is_state_stale: false,
            early_input: Vec::new(),
            is_ready: false,
            listings: Arc::new(Semaphore::new(2)),
            output: None,
        };
        WsResponseBuilder::new(socket, request, body).protocols(PROTOCOLS).frame_size(CLIENT_FRAME_LIMIT).start()
    }

    fn dial(&mut self, ctx: &mut TerminalContext) {
        self.stage = AttachStage::Dialling;
        let run = RunDir::of(&self.services.runs, self.id);
        ctx.spawn(dial_terminals(run).into_actor(self).map(|dialled, socket, ctx| match dialled {
            // The sandbox has changed meanwhile, and another dial follows or has succeeded.
            _ if !matches!(socket.stage, AttachStage::Dialling) => {}
            Some(stream) => socket.connected(stream, ctx),
            None => socket.fail(
                &RequestError::Unavailable(
                    "the agent accepts no terminals; stop and start the session to get the newest agent".to_owned(),
                ),
                ctx,
            ),
        }));
    }

    fn connected(&mut self, stream: UnixStream, ctx: &mut TerminalContext) {
        let (output, input) = agent_stream::begin(stream, &self.attach);
        let early = std::mem::take(&mut self.early_input);
        if !early.is_empty() {
            input.push(TerminalFrame::bytes(&early));
        }
        self.stage = AttachStage::Attached(input);
        self.output = Some(output);
        ctx.run_later(ATTACH_TIMEOUT, |socket, ctx| {
            let is_silent = matches!(socket.stage, AttachStage::Attached(_)) && !socket.is_ready;
            if is_silent && socket.state != Some(AgentState::Paused) {
                let error = "the agent's terminals do not answer; try again".to_owned();
                socket.fail(&RequestError::Unavailable(error), ctx);
            }
        });
        self.pull(ctx);
    }

    /// Waits for the agent's next frame if the client has room for it.
    fn pull(&mut self, ctx: &mut TerminalContext) {
        let is_over = matches!(self.stage, AttachStage::Over);
        if is_over || self.credit.unconfirmed() >= OUTPUT_WINDOW {
            return;
        }
        let Some(mut output) = self.output.take() else { return };
        let next = async move {
            let next = output.next().await;
            (output, next)
        };
        ctx.spawn(next.into_actor(self).map(|(output, next), socket, ctx| {
            socket.output = Some(output);
            socket.received(next, ctx);
            socket.pull(ctx);
        }));
    }

    fn received(&mut self, frame: io::Result<Option<ReceivedTerminalFrame>>, ctx: &mut TerminalContext) {
        match frame {
            Ok(Some(ReceivedTerminalFrame::Bytes(bytes))) => {
                let count = bytes.len();
                ctx.binary(bytes);
                self.book(count.max(FRAME_COST), ctx);
            }
            Ok(Some(ReceivedTerminalFrame::Reply(reply))) => self.reply_received(reply, ctx),
            Ok(None) | Err(_) => self.connection_lost(ctx),
        }
    }

    fn reply_received(&mut self, reply: TerminalReply, ctx: &mut TerminalContext) {
        match reply {
            TerminalReply::Attached { name, opened } if !self.is_ready && check_terminal_name(&name).is_ok() => {
                self.is_ready = true;
                self.set_state("attached");
                self.send_frame(&TerminalFrameToClient::Ready { name, opened }, ctx);
                self.list_for_session();
            }
            TerminalReply::Size { cols, rows, clients, answers } => {
                self.send_frame(&TerminalFrameToClient::Size { cols, rows, clients, answers }, ctx);
            }
            TerminalReply::Renamed { name } if check_terminal_name(&name).is_ok() => {
                self.send_frame(&TerminalFrameToClient::Renamed { name }, ctx);
                self.list_for_session();
            }
            TerminalReply::Exit { code, signal } => self.shell_ended(code, signal.as_deref().map(harmless), ctx),
            TerminalReply::Error { code, message } => {
                let (name, close_code) = error_codes(code);
                let message = harmless(&message);
                self.send_frame(&TerminalFrameToClient::error(name, message.clone()), ctx);
                self.end(close_code, &message, ctx);
            }
            TerminalReply::Attached { .. }
            | TerminalReply::Renamed { .. }
            | TerminalReply::Terminals { .. }
            | TerminalReply::Done {} => {
                let violation =
                    RequestError::Unavailable("the agent does not speak the protocol of terminals".to_owned());
                self.fail(&violation, ctx);
            }
        }
    }

    /// Reports the end of the shell. A stop of the sandbox ends shells by a signal, so the session
    /// is asked for the reason first.
    fn shell_ended(&mut self, code: i32, signal: Option<String>, ctx: &mut TerminalContext) {
        self.output = None;
        let asked = match (&signal, &self.session) {
            (Some(_), Some((session, _))) => session.send(GetView),
            (None, _) | (_, None) => return self.exited(code, signal, ctx),
        };
        ctx.spawn(asked.into_actor(self).map(move |view, socket, ctx| {
            socket.state = view.ok().map(|view| view.state).or(socket.state);
            match socket.state {
                Some(AgentState::Ended | AgentState::Stopped | AgentState::Failed) => socket.lost(ctx),
                _ => socket.exited(code, signal, ctx),
            }
        }));
    }

    /// Handles the end of the connection to the agent. The session has the reason.
    fn connection_lost(&mut self, ctx: &mut TerminalContext) {
        self.output = None;
        let Some((session, _)) = &self.session else { return self.lost(ctx) };
        let asked = session.send(GetView);
        ctx.spawn(asked.into_actor(self).map(|view, socket, ctx| {
            socket.state = view.ok().map(|view| view.state).or(socket.state);
            socket.lost(ctx);
        }));
    }

    fn exited(&mut self, code: i32, signal: Option<String>, ctx: &mut TerminalContext) {
        if !matches!(self.stage, AttachStage::Over) {
            self.send_frame(&TerminalFrameToClient::Exit { code: Some(code), signal, reason: None }, ctx);
            self.list_for_session();
            self.end(1000, "the shell has ended", ctx);
        }
    }

    /// Reports the open terminals to the session, which names them if it has to end them.
    fn list_for_session(&self) {
        let Ok(permit) = self.listings.clone().try_acquire_owned() else { return };
        let (run, services, id) = (RunDir::of(&self.services.runs, self.id), self.services.clone(), self.id);
        // Outlives the socket: the end of a terminal is reported too.
        actix::spawn(async move {
            let _permit = permit;
            if let Ok(items) = request_terminals(&run, &TerminalRequest::List {}).await {
                let names = items.into_iter().map(|status| status.name).collect();
                // A session that is not available has nothing to name.
                let _ = request_with_retry::<_, RequestError>(
                    async || services.sessions.open(id).await,
                    TerminalsListed { names },
                )
                .await;
            }
        });
    }

    /// Ends the socket for want of a sandbox or a session.
    fn lost(&mut self, ctx: &mut TerminalContext) {
        let (reason, text) = match self.state {
            Some(AgentState::Ended) => (TerminalExitReason::Session, "the session has ended"),
            _ => (TerminalExitReason::Sandbox, "the sandbox has stopped"),
        };
        if !matches!(self.stage, AttachStage::Over) {
            self.send_frame(&TerminalFrameToClient::lost(reason), ctx);
            self.end(1000, text, ctx);
        }
    }

    fn fail(&mut self, error: &RequestError, ctx: &mut TerminalContext) {
        self.send_frame(&TerminalFrameToClient::error(error.code(), error.to_string()), ctx);
        self.end(1013, &error.to_string(), ctx);
    }

    fn end(&mut self, code: u16, reason: &str, ctx: &mut TerminalContext) {
        self.stage = AttachStage::Over;
        close(code, reason, ctx);
    }

    fn input_received(&mut self, input: &[u8], ctx: &mut TerminalContext) {
        match &self.stage {
            AttachStage::WaitingForSandbox(_) | AttachStage::Dialling => {
                if self.early_input.len() + input.len() > MAX_EARLY_INPUT {
                    return self.drop_input(input.len(), ctx);
                }
                self.early_input.extend_from_slice(input);
            }
            AttachStage::Attached(queue) if queue.queued() + input.len() <= MAX_INPUT + CLIENT_FRAME_LIMIT => {
                queue.push(TerminalFrame::bytes(input));
                if queue.queued() > MAX_INPUT {
                    let queue = queue.clone();
                    // Reads nothing more of the client meanwhile, except that a program that never
                    // reads must not keep the socket from its other duties.
                    let drained = async move { timeout(INPUT_WAIT, queue.drained_to(MAX_INPUT / 2)).await };
                    ctx.wait(drained.into_actor(self).map(|_, _, _| ()));
                }
            }
            AttachStage::Attached(_) => self.drop_input(input.len(), ctx),
            AttachStage::Over => {}
        }
    }

    fn drop_input(&mut self, bytes: usize, ctx: &mut TerminalContext) {
        let message = format!("{bytes} bytes of input were dropped: the terminal does not read; send less at a time");
        self.send_frame(&TerminalFrameToClient::error("input_full", message), ctx);
    }

    fn text_received(&mut self, text: &str, ctx: &mut TerminalContext) {
        match TerminalFrameFromClient::parse(text) {
            Ok(TerminalFrameFromClient::Ping {}) => self.send_frame(&TerminalFrameToClient::Pong {}, ctx),
            Ok(TerminalFrameFromClient::Resize { cols, rows }) => {
                if let TerminalRequest::Attach { cols: own_cols, rows: own_rows, .. } = &mut self.attach {
                    (*own_cols, *own_rows) = (cols, rows);
                }
                // Before that, the request for the terminal has the newest size.
                if let AttachStage::Attached(queue) = &self.stage
                    && queue.queued() <= MAX_INPUT
                {
                    queue.push(TerminalFrame::control(&TerminalControl::Resize { cols, rows }));
                }
            }
            Err(message) => self.send_frame(&TerminalFrameToClient::error("invalid_args", message), ctx),
        }
    }

    fn send_frame(&mut self, frame: &TerminalFrameToClient, ctx: &mut TerminalContext) {
        // A frame has string keys and plain values, so serialization cannot fail.
        let text = serde_json::to_string(frame).expect("a frame is JSON");
        let count = text.len();
        ctx.text(text);
        self.book(count, ctx);
    }

    /// Books the bytes of a frame that was just sent.
    fn book(&mut self, bytes: usize, ctx: &mut TerminalContext) {
        if let Some(ping) = self.credit.sent(bytes) {
            ctx.ping(&ping);
        }
        if let Some(entry) = &self.entry {
            entry.set_queued(self.credit.unconfirmed());
        }
    }

    fn set_state(&self, state: &str) {
        if let Some(entry) = &self.entry {
            entry.set_state(state);
        }
    }

    /// Handles a fragment of a binary message at once: the bytes have no borders. Returns `false`
    /// for any other fragment.
    fn fragment_received(&mut self, item: &FragmentItem, ctx: &mut TerminalContext) -> bool {
        let bytes: Bytes = match item {
            FragmentItem::FirstBinary(bytes) => {
                self.in_binary = true;
                bytes.clone()
            }
            FragmentItem::Continue(bytes) if self.in_binary => bytes.clone(),
            FragmentItem::Last(bytes) if std::mem::take(&mut self.in_binary) => bytes.clone(),
            FragmentItem::FirstText(_) | FragmentItem::Continue(_) | FragmentItem::Last(_) => return false,
        };
        self.input_received(&bytes, ctx);
        true
    }
}

/// Returns the code of a rejection in the error frame, and the close code.
fn error_codes(code: TerminalErrorCode) -> (&'static str, u16) {
    match code {
        TerminalErrorCode::InvalidArgs => ("invalid_args", 4400),
        TerminalErrorCode::NoTerminal => ("no_terminal", 4404),
        TerminalErrorCode::NameTaken => ("name_taken", 4409),
        TerminalErrorCode::TooManyTerminals => ("too_many_terminals", 4409),
        TerminalErrorCode::Unavailable => ("unavailable", 1013),
    }
}

/// Dials until the agent accepts, or [`DIAL_TIMEOUT`] has passed.
async fn dial_terminals(run: RunDir) -> Option<UnixStream> {
    let dialled = async {
        loop {
            match run.dial_terminals().await {
                Ok(stream) => return stream,
                Err(_) => sleep(DIAL_INTERVAL).await,
            }
        }
    };
    timeout(DIAL_TIMEOUT, dialled).await.ok()
}

impl Actor for TerminalSocket {
    type Context = TerminalContext;

    fn started(&mut self, ctx: &mut TerminalContext) {
        self.entry = Some(self.services.actor_registry.register(ActorKind::TerminalSocket, Some(self.id.to_string())));
        self.set_state("waiting for the sandbox");
        self.supervise(self.services.closing.clone(), self.grant.clone(), ctx);
        self.look_up(ctx);
    }
}

impl ClientConnection for TerminalSocket {
    fn credit(&mut self) -> &mut Credit {
        &mut self.credit
    }
}

impl Handler<Published> for TerminalSocket {
    type Result = ();

    fn handle(&mut self, _: Published, ctx: &mut TerminalContext) {
        if let Some(entry) = &self.entry {
            entry.record_handled();
        }
        self.ask_for_state(ctx);
    }
}

impl StreamHandler<Result<ws::Message, ProtocolError>> for TerminalSocket {
    fn handle(&mut self, message: Result<ws::Message, ProtocolError>, ctx: &mut TerminalContext) {
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
            Ok(ws::Message::Binary(input)) => self.input_received(&input, ctx),
            Ok(ws::Message::Continuation(item)) if self.fragment_received(&item, ctx) => {}
            Ok(message) => match self.assembler.receive(message) {
                ReceivedFrame::Text(text) => self.text_received(&text, ctx),
                ReceivedFrame::NotText => {
                    let error = TerminalFrameToClient::error("invalid_args", "a text frame must be UTF-8");
                    self.send_frame(&error, ctx);
                }
                ReceivedFrame::TooLarge => {
                    let message = format!("a text frame may have {CLIENT_FRAME_LIMIT} bytes");
                    self.send_frame(&TerminalFrameToClient::error("too_large", message), ctx);
                }
                ReceivedFrame::Nothing => {}
            },
            Err(e) => close(1002, &e.to_string(), ctx),
        }
    }
}
