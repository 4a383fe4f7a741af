//! Connection with an agent, from its `hello` to its end. The protocol is in
//! `greenroom_protocol::link`; docs/internals/link.md explains the design.
//!
//! - [`InFlightBatches`] is the window of reports in flight to disk. When full: the link stops
//!   reading the agent's socket.
//! - After a report that is not [batchable](is_batchable), the next frame is read only when the
//!   session has processed the report.
//! - While the disk has space for small events only, the link reads nothing. Interrupts and stops
//!   work meanwhile.
//! - [`InFlightReviews`] wait for the session's verdicts. Reports and deltas pass them.
//! - A delta causes no transition and is not stored. It bypasses the session and goes straight into
//!   [`SessionBroadcast`], which subscribers poll.
//! - A batch of events wakes the connection once, on arrival. The session's answer is awaited only
//!   before a delta. The results of the disk are read only if an acknowledgement is due or the
//!   window is full. With a thousand agents, each further wake-up would find cold caches.

mod history;
mod in_flight;
mod liveness;
mod names;
mod reviews;

use std::{
    cell::Cell,
    future::{poll_fn, ready},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use actix::{WeakAddr, prelude::SendError};
use futures::{FutureExt, SinkExt, StreamExt, TryFutureExt, future::LocalBoxFuture, stream};
use greenroom_protocol::{
    LINK_FRAME_LIMIT,
    link::{AgentHello, AgentReport, FromAgent, ToAgent},
};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Bytes, Error, Message, Utf8Bytes, protocol::WebSocketConfig},
};

pub(super) use self::liveness::LivenessMonitor;
use self::{
    in_flight::{InFlightBatch, InFlightBatches, InFlightProgress},
    liveness::LivenessAction,
    names::{NAME_LIMIT, longest_name},
    reviews::InFlightReviews,
};
use super::{
    frames::{encode_frame, into_fragments},
    handshake::client_handshake,
};
use crate::{
    net::wake_batch::PollWhenWoken,
    session::{
        Session, SessionBroadcast,
        effect::AgentDelivery,
        is_batchable,
        messages::{AwaitReports, CommandAccepted, HelloReceived, HelloRejected, Reported, ReportsWaitForDisk},
    },
    store::{SessionId, Store},
    telemetry::metrics::METRICS,
};

/// Limit of one batch: 64 reports or 64 KiB, whichever is reached first.
const BATCH_REPORTS: usize = 64;
const BATCH_BYTES: usize = 64 << 10;
/// Read buffer for an agent's socket, in bytes. Holds a dozen small events of a flood. Each live
/// session has one such buffer.
const READ_BUFFER: usize = 3 << 10;
/// Interval of the checks for disk space while no report is read for lack of it.
const SPACE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Longest boot id, in bytes. Each report stores the boot id in the session record.
const BOOT_LIMIT: usize = 64;
/// Reason for the end of a connection.
pub(super) enum DisconnectReason {
    /// The connection is closed. The next connection continues where this one stopped.
    Disconnected(String),
    /// The agent broke the protocol, so another connection would not help.
    ProtocolViolation(String),
    /// The agent sent nothing for 60 s although it owed a report, a reply, its `hello`, or a read.
    Unresponsive,
    /// The session's actor is gone. The sandbox keeps running.
    SessionGone,
}

/// Progress of the agent, read by the supervisor.
#[derive(Default)]
pub(super) struct ConnectionProgress {
    /// The agent has sent `hello`, over this connection or an earlier one.
    pub(super) answered: Cell<bool>,
    /// Driver that is starting the sandbox, and the time of the start. Taken at the first `hello`.
    pub(super) starting: Cell<Option<(&'static str, Instant)>>,
    /// A report of this connection is on disk.
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

/// Serves the agent until the connection ends. Returns the reason.
pub(super) async fn serve_connection(
    id: SessionId,
    stream: UnixStream,
    session: &WeakAddr<Session>,
    store: &Arc<dyn Store>,
    deliveries: &mut mpsc::UnboundedReceiver<AgentDelivery>,
    progress: &ConnectionProgress,
    liveness: &mut LivenessMonitor,
) -> DisconnectReason {
    progress.made_progress.set(false);
    liveness.connected();
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(4096)
        .max_write_buffer_size(2 * LINK_FRAME_LIMIT)
        .max_message_size(Some(LINK_FRAME_LIMIT))
        .max_frame_size(Some(LINK_FRAME_LIMIT));
    // Boxed, as is every short-lived future here. Each live session keeps the outer future in
    // memory, and a boxed part does not enlarge it.
    let socket = match Box::pin(liveness.with_timeout(client_handshake(stream, config))).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(e)) => return DisconnectReason::Disconnected(e.to_string()),
        Err(reason) => return reason,
    };
    let mut connection = AgentConnection {
        id,
        socket,
        session,
        store,
        boot: String::new(),
        reads_cancel_hints: false,
        is_report_unconfirmed: false,
        peeked: None,
        bytes_read: 0,
        liveness,
    };
    let mut in_flight = InFlightBatches::default();
    let reason = match connection.run(deliveries, progress, &mut in_flight).await {
        Ok(never) => never,
        Err(reason) => reason,
    };
    // The session may not have processed the last batch. Its result is collected below.
    if matches!(reason, DisconnectReason::Disconnected(_)) && connection.is_report_unconfirmed {
        let _reply_or_session_gone = connection.send_to_session(AwaitReports).await;
    }
    let persisted = in_flight.collect_persisted();
    progress.made_progress.set(in_flight.made_progress());
    match (reason, persisted) {
        (DisconnectReason::Disconnected(_), Err(rejected)) => rejected,
        (reason, _) => reason,
    }
}

/// Input from an agent.
#[expect(clippy::large_enum_variant, reason = "one at a time, handled where it is made")]
enum ConnectionInput {
    /// `None` for a frame without a meaning here, such as a pong.
    Frame(Option<FromAgent>),
    /// The agent owes a reply and has been silent for 30 s.
    SilenceTimeout,
}

/// Work to finish before the next frame is read.
enum ConnectionStep {
    Done,
    /// Sends a WebSocket ping to check that the agent is alive.
    Ping,
    Send(Utf8Bytes),
    /// Waits until the session has processed what the agent sent.
    AwaitSession(LocalBoxFuture<'static, Result<(), DisconnectReason>>),
}

struct AgentConnection<'a> {
    id: SessionId,
    socket: LinkSocket,
    session: &'a WeakAddr<Session>,
    store: &'a Arc<dyn Store>,
    boot: String,
    /// Set by the agent's hello.
    reads_cancel_hints: bool,
    /// Set if the session may not have processed the last batch yet.
    is_report_unconfirmed: bool,
    /// Next input, already read: a frame, or the end of the connection. Processed after the batch
    /// that was read before it.
    peeked: Option<Box<Result<Option<FromAgent>, DisconnectReason>>>,
    /// Text received so far, in bytes.
    bytes_read: usize,
    liveness: &'a mut LivenessMonitor,
}

impl AgentConnection<'_> {
    async fn run(
        &mut self,
        deliveries: &mut mpsc::UnboundedReceiver<AgentDelivery>,
        progress: &ConnectionProgress,
        in_flight: &mut InFlightBatches,
    ) -> Result<DisconnectReason, DisconnectReason> {
        let live = Box::pin(self.greet(progress)).await?;
        // Commands queued before `AgentConnected` belong to an earlier connection.
        let mut is_current_boot = false;
        let mut delivery_poll = PollWhenWoken::default();
        let mut reviews = InFlightReviews::default();
        let mut space_check = None;
        let mut is_waiting_for_disk = false;
        loop {
            let read = self.bytes_read;
            let has_space = self.store.has_room_for_content();
            if !has_space
                && !is_waiting_for_disk
                && let Some(session) = self.session.upgrade()
            {
                session.do_send(ReportsWaitForDisk);
            }
            is_waiting_for_disk = !has_space;
            let has_room = has_space && in_flight.has_room(read, &live) && reviews.has_room();
            // The frame is dropped before its step runs. Otherwise the frame would enlarge this
            // future, which each live session keeps in memory.
            let step = tokio::select! {
                biased;
                delivery = poll_fn(|cx| delivery_poll.poll(cx, |cx| deliveries.poll_recv(cx))) => match delivery {
                    Some(AgentDelivery::AgentConnected { boot }) => {
                        is_current_boot = boot == self.boot;
                        ConnectionStep::Done
                    }
                    Some(AgentDelivery::Command(command)) if is_current_boot => {
                        self.liveness.command_sent();
                        ConnectionStep::Send(encode_frame(&ToAgent::Command(*command)))
                    }
                    Some(AgentDelivery::CancelHint(hint)) if is_current_boot && self.reads_cancel_hints => {
                        ConnectionStep::Send(encode_frame(&ToAgent::CancelHint(*hint)))
                    }
                    Some(AgentDelivery::Command(_) | AgentDelivery::CancelHint(_)) => ConnectionStep::Done,
                    None => return Ok(DisconnectReason::SessionGone),
                },
                persisted = poll_fn(|cx| in_flight.poll(cx, read, has_room)) => match persisted? {
                    InFlightProgress::Acknowledge(n) => ConnectionStep::Send(encode_frame(&ToAgent::Ack { n })),
                    InFlightProgress::RoomFreed => ConnectionStep::Done,
                },
                verdict = poll_fn(|cx| reviews.poll(cx)) => {
                    ConnectionStep::Send(encode_frame(&ToAgent::Verdict(verdict?)))
                }
                // Silence counts only while the server reads.
                input = poll_fn(|cx| self.poll_input(cx)), if has_room => match input? {
                    ConnectionInput::Frame(frame) => self.handle_frame(frame, &live, in_flight, &mut reviews)?,
                    ConnectionInput::SilenceTimeout => ConnectionStep::Ping,
                },
                () = poll_fn(|cx| poll_space_check(&mut space_check, cx)), if !has_space => ConnectionStep::Done,
            };
            match step {
                ConnectionStep::Done => {}
                ConnectionStep::Send(frame) => Box::pin(self.send(frame)).await?,
                ConnectionStep::Ping => Box::pin(self.ping()).await?,
                ConnectionStep::AwaitSession(processed) => processed.await?,
            }
        }
    }

    fn handle_frame(
        &mut self,
        frame: Option<FromAgent>,
        live: &SessionBroadcast,
        in_flight: &mut InFlightBatches,
        reviews: &mut InFlightReviews,
    ) -> Result<ConnectionStep, DisconnectReason> {
        match frame {
            None => Ok(ConnectionStep::Done),
            // A delta must not overtake the event before it.
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
                let is_batched = is_batchable(&report);
                let reports = self.collect_reports(n, report);
                let last = n.saturating_add(reports.len() as u64 - 1);
                let (durable, persisted) = oneshot::channel();
                in_flight.push(InFlightBatch { last, bytes_read: self.bytes_read, persisted });
                let reported = Reported { boot: self.boot.clone(), n, reports, durable };
                match is_batched {
                    true => self.try_report(reported),
                    false => Ok(ConnectionStep::AwaitSession(self.send_to_session(reported))),
                }
            }
            Some(FromAgent::Review(review)) => reviews.begin(self.session, review).map(|()| ConnectionStep::Done),
            Some(FromAgent::Hello(_)) => Err(DisconnectReason::ProtocolViolation("a second `hello`".to_owned())),
        }
    }

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<ConnectionInput, DisconnectReason>> {
        if let Some(frame) = self.peeked.take() {
            return Poll::Ready(frame.map(ConnectionInput::Frame));
        }
        // The socket is polled first: a frame that has already arrived ends the silence.
        if let Poll::Ready(frame) = self.socket.poll_next_unpin(cx) {
            return Poll::Ready(self.read(frame).map(ConnectionInput::Frame));
        }
        Poll::Ready(match ready!(self.liveness.poll(cx)) {
            LivenessAction::Ping => Ok(ConnectionInput::SilenceTimeout),
            LivenessAction::GiveUp => Err(DisconnectReason::Unresponsive),
        })
    }

    /// Returns the report and the batchable reports right behind it that have already arrived. A
    /// flood then reaches the session and the journal in fewer and larger steps. Limits:
    /// [`BATCH_REPORTS`], [`BATCH_BYTES`].
    fn collect_reports(&mut self, n: u64, report: AgentReport) -> Vec<AgentReport> {
        let mut reports = vec![report];
        let batch_end = self.bytes_read + BATCH_BYTES;
        while is_batchable(&reports[reports.len() - 1]) && reports.len() < BATCH_REPORTS && self.bytes_read < batch_end
        {
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
        let hello = self.read_hello().await?;
        if hello.boot.len() > BOOT_LIMIT {
            let reason = format!("a boot id of {} bytes; at most {BOOT_LIMIT} are allowed", hello.boot.len());
            return Err(DisconnectReason::ProtocolViolation(reason));
        }
        // The log prints the boot id unescaped, and control characters have a meaning there.
        if hello.boot.contains(char::is_control) {
            return Err(DisconnectReason::ProtocolViolation("a boot id with control characters".to_owned()));
        }
        progress.answered.set(true);
        if let Some((driver, began)) = progress.starting.take() {
            METRICS.observe_start(driver, began.elapsed());
        }
        self.boot.clone_from(&hello.boot);
        self.reads_cancel_hints = hello.reads_cancel_hints;
        let accepted = self.send_to_session(HelloReceived { hello }).await?.map_err(|rejected| match rejected {
            HelloRejected::Version { .. } => DisconnectReason::ProtocolViolation(rejected.to_string()),
            HelloRejected::SandboxStopping => DisconnectReason::Disconnected(rejected.to_string()),
        })?;
        let restore = accepted.welcome.restore;
        self.send(encode_frame(&ToAgent::Welcome(accepted.welcome))).await?;
        self.liveness.welcomed();
        if restore {
            self.send_history(accepted.history_to).await?;
        }
        Ok(accepted.broadcast)
    }

    async fn read_hello(&mut self) -> Result<AgentHello, DisconnectReason> {
        loop {
            let frame = self.liveness.with_timeout(self.socket.next()).await?;
            match self.read(frame)? {
                Some(FromAgent::Hello(hello)) => return Ok(hello),
                Some(_) => {
                    return Err(DisconnectReason::ProtocolViolation("the first frame is not `hello`".to_owned()));
                }
                None => {}
            }
        }
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), DisconnectReason> {
        let mut frames = stream::iter(into_fragments(text).map(Ok));
        Ok(self.liveness.with_timeout(self.socket.send_all(&mut frames)).await??)
    }

    /// Sends a WebSocket ping. The agent's WebSocket library answers pings by itself, whatever the
    /// agent is doing.
    async fn ping(&mut self) -> Result<(), DisconnectReason> {
        Ok(self.liveness.with_timeout(self.socket.send(Message::Ping(Bytes::new()))).await??)
    }

    /// Decodes a frame. Returns `None` for a frame without a meaning here.
    fn read(&mut self, frame: Option<Result<Message, Error>>) -> Result<Option<FromAgent>, DisconnectReason> {
        match frame {
            None => Err(DisconnectReason::Disconnected("the agent closed the connection".to_owned())),
            Some(Ok(Message::Text(text))) => {
                self.bytes_read += text.len();
                let frame = FromAgent::read(&text)
                    .map_err(|e| DisconnectReason::ProtocolViolation(format!("a frame outside the protocol: {e}")))?;
                self.liveness.frame_received(Some(&frame));
                match longest_name(&frame) {
                    // The session keeps a name while its item or approval request is open.
                    bytes if bytes > NAME_LIMIT => Err(DisconnectReason::ProtocolViolation(format!(
                        "a name of {bytes} bytes; at most {NAME_LIMIT} are allowed"
                    ))),
                    _ => Ok(Some(frame)),
                }
            }
            Some(Ok(Message::Binary(_))) => Err(DisconnectReason::ProtocolViolation("a binary frame".to_owned())),
            Some(Ok(Message::Close(_))) => {
                Err(DisconnectReason::Disconnected("the agent closed the connection".to_owned()))
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                self.liveness.frame_received(None);
                Ok(None)
            }
            Some(Err(e)) => Err(e.into()),
        }
    }

    /// Sends a batch to the session without waiting for the result. If the session's mailbox is
    /// full, returns a step that waits. [`InFlightBatches`] bounds the number of such batches.
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

    /// Sends a message to the session and returns its reply. When the reply arrives, the session
    /// has processed all earlier messages. Boxed, because the future is short-lived.
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

/// Completes when the disk's space is to be checked again.
fn poll_space_check(check: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    let due = check.get_or_insert_with(|| Box::pin(sleep(SPACE_CHECK_INTERVAL)));
    ready!(due.as_mut().poll(cx));
    *check = None;
    Poll::Ready(())
}
