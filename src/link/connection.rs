//! One connection with an agent, from its `hello` to its end. The rules of it are in `greenroom_protocol::link`.
//!
//! The agent is held back through its socket: so many of its reports may be [on their way to disk](OnTheirWay), and one that is
//! more than an event is answered before the next is read. What still grows decides nothing and is kept nowhere, so it goes past
//! the session, straight to where its listeners look.
//!
//! An event wakes this conversation once, when it comes. That the session has taken it, and that it is on disk, is asked when
//! somebody has to know: before something grows, when an acknowledgement is due, and when there is no more room. With a thousand
//! agents each of these wakings is for something that is in no processor's cache any more.

mod in_flight;
mod liveness;

use std::{
    cell::Cell,
    future::{poll_fn, ready},
    mem::take,
    sync::Arc,
    task::{Context, Poll, ready},
};

use actix::{WeakAddr, prelude::SendError};
use futures::{FutureExt, SinkExt, StreamExt, TryFutureExt, future::LocalBoxFuture, stream};
use greenroom_protocol::{
    CONTENT_LIMIT, Event, EventBody, LINK_FRAME_LIMIT, Observation, ObservationKind,
    link::{AgentHello, AgentReport, FromAgent, ToAgent},
    observation::TruncationMark,
};
use serde::Deserialize;
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Bytes, Error, Message, Utf8Bytes, protocol::WebSocketConfig},
};

use self::{
    in_flight::{InFlightProgress, InFlightReport, InFlightReports},
    liveness::{LivenessAction, LivenessMonitor, with_liveness_timeout},
};
use super::{
    PauseFlag,
    frames::{encode_frame, into_fragments},
    handshake::client_handshake,
};
use crate::{
    session::{
        Session, SessionBroadcast, is_batchable,
        messages::{AwaitReports, CommandAccepted, HelloReceived, HelloRejected, Reported, effects::DeliverToAgent},
    },
    store::{JournalEvent, ReadLimit, Seq, SessionId, Store, damage::read_past_damage},
    wake_batch::PollWhenWoken,
};

/// How much may go with one report: so many frames, or so many bytes.
const BATCH_REPORTS: usize = 64;
const BATCH_BYTES: usize = 64 << 10;
/// How much is read from an agent at once, bytes: a dozen small events of a flood. There is one for each session that lives.
const READ_BUFFER: usize = 3 << 10;
/// The longest name of an item, or of a request, bytes. The agent's own have some forty.
const NAME_LIMIT: usize = 256;
/// The longest name of a start of the agent, bytes. It goes into the record with every report.
const BOOT_LIMIT: usize = 64;
/// How much of the journal goes into one `history` frame, bytes.
const HISTORY_FRAME_BYTES: usize = 256 << 10;
/// The longest message of the agent that it is given back whole, bytes: half of what it tells a model.
const MESSAGE_LIMIT: usize = 256 << 10;

/// Why a connection ended.
pub(super) enum DisconnectReason {
    /// It is gone; the next one goes on where it stopped.
    Disconnected(String),
    /// What came is not of the protocol, so no other connection would be better.
    ProtocolViolation(String),
    /// It stands still: it owes a word, was asked for one, and said none for a minute.
    Unresponsive,
    SessionGone,
}

/// How far an agent has come.
#[derive(Default)]
pub(super) struct ConnectionProgress {
    /// It has introduced itself, be it over an earlier connection.
    pub(super) answered: Cell<bool>,
    /// Something that it has said over this one is on disk.
    pub(super) made_progress: Cell<bool>,
}

type LinkSocket = WebSocketStream<UnixStream>;

impl From<Error> for DisconnectReason {
    fn from(error: Error) -> DisconnectReason {
        match error {
            Error::Capacity(e) => DisconnectReason::ProtocolViolation(e.to_string()),
            Error::Utf8(_) => DisconnectReason::ProtocolViolation("a text frame is not UTF-8".to_owned()),
            other => DisconnectReason::Disconnected(other.to_string()),
        }
    }
}

/// Speaks with the agent until the connection ends.
pub(super) async fn serve_connection(
    id: SessionId,
    stream: UnixStream,
    session: &WeakAddr<Session>,
    store: &Arc<dyn Store>,
    commands: &mut mpsc::UnboundedReceiver<DeliverToAgent>,
    progress: &ConnectionProgress,
    frozen: &PauseFlag,
) -> DisconnectReason {
    progress.made_progress.set(false);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(4096)
        .max_write_buffer_size(2 * LINK_FRAME_LIMIT)
        .max_message_size(Some(LINK_FRAME_LIMIT))
        .max_frame_size(Some(LINK_FRAME_LIMIT));
    // Boxed, as all is that is over soon: there is one of this future for each session that lives.
    let socket = match Box::pin(with_liveness_timeout(frozen, client_handshake(stream, config))).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(e)) => return DisconnectReason::Disconnected(e.to_string()),
        Err(broken) => return broken,
    };
    let (boot, silence) = (String::new(), LivenessMonitor::default());
    let mut conversation = AgentConnection {
        id,
        socket,
        session,
        store,
        boot,
        is_report_unconfirmed: false,
        peeked: None,
        bytes_read: 0,
        pause_flag: frozen,
        liveness: silence,
    };
    let mut on_their_way = InFlightReports::default();
    let broken = match conversation.run(commands, progress, &mut on_their_way).await {
        Ok(never) => never,
        Err(broken) => broken,
    };
    // What became of the last that it said was not asked for yet.
    if matches!(broken, DisconnectReason::Disconnected(_)) && conversation.is_report_unconfirmed {
        let _heard_or_left = conversation.send_to_session(AwaitReports).await;
    }
    let settled = on_their_way.collect_persisted();
    progress.made_progress.set(on_their_way.made_progress());
    match (broken, settled) {
        (DisconnectReason::Disconnected(_), Err(refused)) => refused,
        (broken, _) => broken,
    }
}

/// What is heard of an agent.
enum ConnectionInput {
    /// `None` for one that means nothing here.
    Frame(Option<FromAgent>),
    /// It owes a word and has long said none.
    SilenceTimeout,
}

/// What is to be done before the next frame is heard.
enum ConnectionStep {
    Done,
    /// Whether it is there at all.
    Ping,
    Send(Utf8Bytes),
    /// The session takes its time to take what the agent said.
    AwaitSession(LocalBoxFuture<'static, Result<(), DisconnectReason>>),
}

struct AgentConnection<'a> {
    id: SessionId,
    socket: LinkSocket,
    session: &'a WeakAddr<Session>,
    store: &'a Arc<dyn Store>,
    boot: String,
    /// The session was told of something, and it is not known whether it has taken that.
    is_report_unconfirmed: bool,
    /// Read already, and next: a frame, or how it ended behind what has not been told yet.
    peeked: Option<Box<Result<Option<FromAgent>, DisconnectReason>>>,
    /// How much was read, bytes.
    bytes_read: usize,
    pause_flag: &'a PauseFlag,
    liveness: LivenessMonitor,
}

impl AgentConnection<'_> {
    async fn run(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<DeliverToAgent>,
        progress: &ConnectionProgress,
        on_their_way: &mut InFlightReports,
    ) -> Result<DisconnectReason, DisconnectReason> {
        let live = Box::pin(self.greet(progress)).await?;
        // What waits here was ordered for an earlier connection.
        let mut is_anew = false;
        let mut ear = PollWhenWoken::default();
        loop {
            let read = self.bytes_read;
            let has_room = on_their_way.has_room(read, &live);
            // Nothing of a frame is kept while what it leads to is done: there is one of this future for each session that lives.
            let step = tokio::select! {
                biased;
                command = poll_fn(|cx| ear.poll(cx, |cx| commands.poll_recv(cx))) => match command {
                    Some(DeliverToAgent::AgentConnected { boot }) => {
                        is_anew = boot == self.boot;
                        ConnectionStep::Done
                    }
                    Some(DeliverToAgent::Command(command)) if is_anew => {
                        self.liveness.command_sent(&command.command);
                        ConnectionStep::Send(encode_frame(&ToAgent::Command(*command)))
                    }
                    Some(DeliverToAgent::Command(_)) => ConnectionStep::Done,
                    None => return Ok(DisconnectReason::SessionGone),
                },
                settled = poll_fn(|cx| on_their_way.poll(cx, read, has_room)) => match settled? {
                    InFlightProgress::Acknowledge(n) => ConnectionStep::Send(encode_frame(&ToAgent::Ack { n })),
                    InFlightProgress::RoomFreed => ConnectionStep::Done,
                },
                // Nobody is blamed for a silence while nobody listens.
                heard = poll_fn(|cx| self.poll_input(cx)), if has_room => match heard? {
                    ConnectionInput::Frame(frame) => self.handle_frame(frame, &live, on_their_way)?,
                    ConnectionInput::SilenceTimeout => ConnectionStep::Ping,
                },
            };
            match step {
                ConnectionStep::Done => {}
                ConnectionStep::Send(frame) => Box::pin(self.send(frame)).await?,
                ConnectionStep::Ping => Box::pin(self.ping()).await?,
                ConnectionStep::AwaitSession(told) => told.await?,
            }
        }
    }

    fn handle_frame(
        &mut self,
        frame: Option<FromAgent>,
        live: &SessionBroadcast,
        on_their_way: &mut InFlightReports,
    ) -> Result<ConnectionStep, DisconnectReason> {
        match frame {
            None => Ok(ConnectionStep::Done),
            // It may not overtake the event before it.
            Some(FromAgent::Delta(delta)) if self.is_report_unconfirmed => {
                self.peeked = Some(Box::new(Ok(Some(FromAgent::Delta(delta)))));
                Ok(ConnectionStep::AwaitSession(self.send_to_session(AwaitReports)))
            }
            Some(FromAgent::Delta(delta)) => {
                live.append_delta(delta);
                Ok(ConnectionStep::Done)
            }
            Some(FromAgent::Taken { command }) => {
                Ok(ConnectionStep::AwaitSession(self.send_to_session(CommandAccepted { command })))
            }
            Some(FromAgent::Report { n, report }) => {
                let is_taken_at_once = is_batchable(&report);
                let reports = self.collect_reports(n, report);
                let last = n.saturating_add(reports.len() as u64 - 1);
                let (durable, on_disk) = oneshot::channel();
                on_their_way.push(InFlightReport { last, bytes_read: self.bytes_read, persisted: on_disk });
                let reported = Reported { boot: self.boot.clone(), n, reports, durable };
                match is_taken_at_once {
                    true => self.try_report(reported),
                    false => Ok(ConnectionStep::AwaitSession(self.send_to_session(reported))),
                }
            }
            Some(FromAgent::Hello(_)) => Err(DisconnectReason::ProtocolViolation("a second `hello`".to_owned())),
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<ConnectionInput, DisconnectReason>> {
        if let Some(frame) = self.peeked.take() {
            return Poll::Ready(frame.map(ConnectionInput::Frame));
        }
        // First: what it has said already is no silence.
        if let Poll::Ready(frame) = self.socket.poll_next_unpin(cx) {
            return Poll::Ready(self.read(frame).map(ConnectionInput::Frame));
        }
        Poll::Ready(match ready!(self.liveness.poll(cx, self.pause_flag)) {
            LivenessAction::Ping => Ok(ConnectionInput::SilenceTimeout),
            LivenessAction::GiveUp => Err(DisconnectReason::Unresponsive),
        })
    }

    /// A report, and those right behind it that can go into the journal with it, as far as they are here: an agent that says
    /// much at once is taken down in fewer and larger steps.
    fn collect_reports(&mut self, n: u64, report: AgentReport) -> Vec<AgentReport> {
        let mut reports = vec![report];
        let enough = self.bytes_read + BATCH_BYTES;
        while is_batchable(&reports[reports.len() - 1]) && reports.len() < BATCH_REPORTS && self.bytes_read < enough {
            let Some(frame) = self.socket.next().now_or_never() else { break };
            match self.read(frame) {
                Ok(Some(FromAgent::Report { n: next, report }))
                    if next == n.saturating_add(reports.len() as u64) && is_batchable(&report) =>
                {
                    reports.push(report);
                }
                Ok(None) => {}
                other => {
                    self.peeked = Some(Box::new(other));
                    break;
                }
            }
        }
        reports
    }

    async fn greet(&mut self, progress: &ConnectionProgress) -> Result<Arc<SessionBroadcast>, DisconnectReason> {
        let hello = with_liveness_timeout(self.pause_flag, self.read_hello()).await??;
        if hello.boot.len() > BOOT_LIMIT {
            let why = format!("a start's name of {} bytes (at most {BOOT_LIMIT})", hello.boot.len());
            return Err(DisconnectReason::ProtocolViolation(why));
        }
        // It stands in the log as it is, where control characters have a meaning.
        if hello.boot.contains(char::is_control) {
            return Err(DisconnectReason::ProtocolViolation("a start's name with control characters".to_owned()));
        }
        progress.answered.set(true);
        self.boot.clone_from(&hello.boot);
        let greeting = self.send_to_session(HelloReceived { hello }).await?.map_err(|why| match why {
            HelloRejected::Version { .. } => DisconnectReason::ProtocolViolation(why.to_string()),
            HelloRejected::SandboxStopping => DisconnectReason::Disconnected(why.to_string()),
        })?;
        self.liveness.greeted(greeting.has_user_action);
        let restore = greeting.welcome.restore;
        self.send(encode_frame(&ToAgent::Welcome(greeting.welcome))).await?;
        if restore {
            self.send_history(greeting.history_to).await?;
        }
        Ok(greeting.broadcast)
    }

    async fn read_hello(&mut self) -> Result<AgentHello, DisconnectReason> {
        loop {
            let frame = self.socket.next().await;
            match self.read(frame)? {
                Some(FromAgent::Hello(hello)) => return Ok(hello),
                Some(_) => {
                    return Err(DisconnectReason::ProtocolViolation("the first frame is not `hello`".to_owned()));
                }
                None => {}
            }
        }
    }

    async fn send_history(&mut self, to: Seq) -> Result<(), DisconnectReason> {
        let mut after = 0;
        loop {
            let limit = ReadLimit { events: 256, bytes: HISTORY_FRAME_BYTES };
            let page = read_past_damage(&**self.store, self.id, after, limit).await;
            let page = page.map_err(|e| DisconnectReason::Disconnected(format!("the journal cannot be read: {e}")))?;
            let last = page.last().map_or(to, |(seq, _)| *seq);
            let complete = last >= to || page.is_empty();
            let (mut events, mut added) = (Vec::new(), 0);
            for (_, event) in page.iter().filter(|(seq, _)| *seq <= to) {
                let Ok(mut read) = serde_json::from_slice::<Event>(&event.json) else { continue };
                if let Some(whole) = self.full_message(event).await
                    && let EventBody::Observation(Observation { content, .. }) = &mut read.body
                {
                    added += whole.len();
                    *content = whole;
                }
                events.push(read);
                if added > HISTORY_FRAME_BYTES {
                    let part = ToAgent::History { events: take(&mut events), complete: false };
                    self.send(encode_frame(&part)).await?;
                    added = 0;
                }
            }
            self.send(encode_frame(&ToAgent::History { events, complete })).await?;
            if complete {
                return Ok(());
            }
            after = last;
        }
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), DisconnectReason> {
        let mut frames = stream::iter(into_fragments(text).map(Ok));
        Ok(with_liveness_timeout(self.pause_flag, self.socket.send_all(&mut frames)).await??)
    }

    /// Its WebSocket answers that by itself, whatever it is at.
    async fn ping(&mut self) -> Result<(), DisconnectReason> {
        Ok(with_liveness_timeout(self.pause_flag, self.socket.send(Message::Ping(Bytes::new()))).await??)
    }

    /// What the agent once said, where the event has only a part of it. A result it is told in part anyway, and where a message
    /// cannot be had, the part says how much is missing.
    async fn full_message(&self, event: &JournalEvent) -> Option<String> {
        #[derive(Deserialize)]
        struct TruncatedEvent {
            extras: TruncatedExtras,
        }
        #[derive(Deserialize)]
        struct TruncatedExtras {
            truncated: Option<TruncationMark>,
        }
        if event.kind != "message" || event.json.len() < CONTENT_LIMIT {
            return None;
        }
        let part: TruncatedEvent = serde_json::from_slice(&event.json).ok()?;
        let href = part.extras.truncated?.href?;
        let name = href.rsplit('/').next()?;
        let whole = self.store.content(self.id, name, 0, MESSAGE_LIMIT).await.ok()??;
        let is_whole = whole.bytes.len() as u64 == whole.total;
        is_whole.then(|| String::from_utf8(whole.bytes.into()).ok())?
    }

    /// `None` for frames that mean nothing here.
    fn read(&mut self, frame: Option<Result<Message, Error>>) -> Result<Option<FromAgent>, DisconnectReason> {
        match frame {
            None => Err(DisconnectReason::Disconnected("the agent closed it".to_owned())),
            Some(Ok(Message::Text(text))) => {
                self.bytes_read += text.len();
                let frame = FromAgent::read(&text).map_err(|e| {
                    DisconnectReason::ProtocolViolation(format!("a frame that is none of the protocol: {e}"))
                })?;
                self.liveness.frame_received(Some(&frame));
                match longest_name(&frame) {
                    // Names are kept while what bears them is open.
                    bytes if bytes > NAME_LIMIT => Err(DisconnectReason::ProtocolViolation(format!(
                        "a name of {bytes} bytes (at most {NAME_LIMIT})"
                    ))),
                    _ => Ok(Some(frame)),
                }
            }
            Some(Ok(Message::Binary(_))) => Err(DisconnectReason::ProtocolViolation("a binary frame".to_owned())),
            Some(Ok(Message::Close(_))) => Err(DisconnectReason::Disconnected("the agent closed it".to_owned())),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                self.liveness.frame_received(None);
                Ok(None)
            }
            Some(Err(e)) => Err(e.into()),
        }
    }

    /// Tells the session, and waits for no answer: how much it may be told is for what is on its way to disk to say.
    fn try_report(&mut self, reported: Reported) -> Result<ConnectionStep, DisconnectReason> {
        let session = self.session.upgrade().ok_or(DisconnectReason::SessionGone)?;
        match session.try_send(reported) {
            Ok(()) => {
                self.is_report_unconfirmed = true;
                Ok(ConnectionStep::Done)
            }
            Err(SendError::Full(reported)) => Ok(ConnectionStep::AwaitSession(self.send_to_session(reported))),
            Err(SendError::Closed(_)) => Err(DisconnectReason::SessionGone),
        }
    }

    /// Tells the session, which has taken all before it when it answers. Boxed, as it is over soon.
    fn send_to_session<M>(&mut self, message: M) -> LocalBoxFuture<'static, Result<M::Result, DisconnectReason>>
    where
        M: actix::Message + Send + 'static,
        M::Result: Send,
        Session: actix::Handler<M>,
    {
        self.is_report_unconfirmed = false;
        match self.session.upgrade() {
            Some(session) => session.send(message).map_err(|_| DisconnectReason::SessionGone).boxed_local(),
            None => ready(Err(DisconnectReason::SessionGone)).boxed_local(),
        }
    }
}

/// How long the longest name of an item or of a request is, in bytes.
fn longest_name(frame: &FromAgent) -> usize {
    match frame {
        FromAgent::Delta(delta) => delta.item.len(),
        FromAgent::Report { report: AgentReport::Event { item, body }, .. } => {
            let request = match body {
                EventBody::Observation(Observation { kind: ObservationKind::Confirm { request, .. }, .. }) => {
                    request.len()
                }
                EventBody::Observation(_) | EventBody::Action(_) | EventBody::Opaque(_) => 0,
            };
            item.as_ref().map_or(0, String::len).max(request)
        }
        FromAgent::Report { report: AgentReport::Piece { item, .. }, .. } => item.len(),
        FromAgent::Report { .. } | FromAgent::Hello(_) | FromAgent::Taken { .. } => 0,
    }
}
