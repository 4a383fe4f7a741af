//! One connection with an agent, from its `hello` to its end. The rules of it are in `greenroom_protocol::link`.
//!
//! The agent is held back through its socket: so many of its reports may be [on their way to disk](OnTheirWay), and one that is
//! more than an event is answered before the next is read. What still grows decides nothing and is kept nowhere, so it goes past
//! the session, straight to where its listeners look.
//!
//! An event wakes this conversation once, when it comes. That the session has taken it, and that it is on disk, is asked when
//! somebody has to know: before something grows, when an acknowledgement is due, and when there is no more room. With a thousand
//! agents each of these wakings is for something that is in no processor's cache any more.

mod on_their_way;
mod silence;

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
    Body, CONTENT_LIMIT, Event, LINK_FRAME_LIMIT, Observation, Seen,
    link::{FromAgent, Hello, Report, ToAgent},
    observation::Truncated,
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
    on_their_way::{OnItsWay, OnTheirWay, Settled},
    silence::{Lapse, Silence, bear},
};
use super::{
    Frozen,
    frames::{in_fragments, written},
    handshake::shake_hands,
};
use crate::{
    session::{
        Session, Shared, goes_with_others,
        messages::{Greeted, Heard, Reported, Took, Unwelcome, orders::Deliver},
    },
    store::{Limit, NewEvent, Seq, SessionId, Store, damage::read_on},
    wakeups::WhenWoken,
};

/// How much may go with one report: so many frames, or so many bytes.
const TOGETHER: usize = 64;
const TOGETHER_BYTES: usize = 64 << 10;
/// How much is read from an agent at once, bytes: a dozen small events of a flood. There is one for each session that lives.
const READ_BUFFER: usize = 3 << 10;
/// The longest name of an item, or of a request, bytes. The agent's own have some forty.
const NAME_LIMIT: usize = 256;
/// The longest name of a start of the agent, bytes. It goes into the record with every report.
const BOOT_LIMIT: usize = 64;
/// How much of the journal goes into one `history` frame, bytes.
const HISTORY_PART: usize = 256 << 10;
/// The longest message of the agent that it is given back whole, bytes: half of what it tells a model.
const MESSAGE_LIMIT: usize = 256 << 10;

/// Why a connection ended.
pub(super) enum Broken {
    /// It is gone; the next one goes on where it stopped.
    Cut(String),
    /// What came is not of the protocol, so no other connection would be better.
    Nonsense(String),
    /// It stands still: it owes a word, was asked for one, and said none for a minute.
    Silent,
    SessionLeft,
}

/// How far an agent has come.
#[derive(Default)]
pub(super) struct Progress {
    /// It has introduced itself, be it over an earlier connection.
    pub(super) answered: Cell<bool>,
    /// Something that it has said over this one is on disk.
    pub(super) came_to_something: Cell<bool>,
}

type Socket = WebSocketStream<UnixStream>;

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        match error {
            Error::Capacity(e) => Broken::Nonsense(e.to_string()),
            Error::Utf8(_) => Broken::Nonsense("a text frame is not UTF-8".to_owned()),
            other => Broken::Cut(other.to_string()),
        }
    }
}

/// Speaks with the agent until the connection ends.
pub(super) async fn converse(
    id: SessionId,
    stream: UnixStream,
    session: &WeakAddr<Session>,
    store: &Arc<dyn Store>,
    commands: &mut mpsc::UnboundedReceiver<Deliver>,
    progress: &Progress,
    frozen: &Frozen,
) -> Broken {
    progress.came_to_something.set(false);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(4096)
        .max_write_buffer_size(2 * LINK_FRAME_LIMIT)
        .max_message_size(Some(LINK_FRAME_LIMIT))
        .max_frame_size(Some(LINK_FRAME_LIMIT));
    // Boxed, as all is that is over soon: there is one of this future for each session that lives.
    let socket = match Box::pin(bear(frozen, shake_hands(stream, config))).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(e)) => return Broken::Cut(e.to_string()),
        Err(broken) => return broken,
    };
    let (boot, silence) = (String::new(), Silence::default());
    let mut conversation =
        Conversation { id, socket, session, store, boot, is_untaken: false, ahead: None, read: 0, frozen, silence };
    let mut on_their_way = OnTheirWay::default();
    let broken = match conversation.hold(commands, progress, &mut on_their_way).await {
        Ok(never) => never,
        Err(broken) => broken,
    };
    // What became of the last that it said was not asked for yet.
    if matches!(broken, Broken::Cut(_)) && conversation.is_untaken {
        let _heard_or_left = conversation.tell(Heard).await;
    }
    let settled = on_their_way.settle_now();
    progress.came_to_something.set(on_their_way.came_to_something());
    match (broken, settled) {
        (Broken::Cut(_), Err(refused)) => refused,
        (broken, _) => broken,
    }
}

/// What is heard of an agent.
enum Ear {
    /// `None` for one that means nothing here.
    Frame(Option<FromAgent>),
    /// It owes a word and has long said none.
    Silence,
}

/// What is to be done before the next frame is heard.
enum Step {
    Done,
    /// Whether it is there at all.
    Ask,
    Send(Utf8Bytes),
    /// The session takes its time to take what the agent said.
    Tell(LocalBoxFuture<'static, Result<(), Broken>>),
}

struct Conversation<'a> {
    id: SessionId,
    socket: Socket,
    session: &'a WeakAddr<Session>,
    store: &'a Arc<dyn Store>,
    boot: String,
    /// The session was told of something, and it is not known whether it has taken that.
    is_untaken: bool,
    /// Read already, and next: a frame, or how it ended behind what has not been told yet.
    ahead: Option<Box<Result<Option<FromAgent>, Broken>>>,
    /// How much was read, bytes.
    read: usize,
    frozen: &'a Frozen,
    silence: Silence,
}

impl Conversation<'_> {
    async fn hold(
        &mut self,
        commands: &mut mpsc::UnboundedReceiver<Deliver>,
        progress: &Progress,
        on_their_way: &mut OnTheirWay,
    ) -> Result<Broken, Broken> {
        let live = Box::pin(self.greet(progress)).await?;
        // What waits here was ordered for an earlier connection.
        let mut is_anew = false;
        let mut ear = WhenWoken::default();
        loop {
            let read = self.read;
            let has_room = on_their_way.has_room(read, &live);
            // Nothing of a frame is kept while what it leads to is done: there is one of this future for each session that lives.
            let step = tokio::select! {
                biased;
                command = poll_fn(|cx| ear.poll(cx, |cx| commands.poll_recv(cx))) => match command {
                    Some(Deliver::Anew { boot }) => {
                        is_anew = boot == self.boot;
                        Step::Done
                    }
                    Some(Deliver::Command(command)) if is_anew => {
                        self.silence.ordered(&command.command);
                        Step::Send(written(&ToAgent::Command(*command)))
                    }
                    Some(Deliver::Command(_)) => Step::Done,
                    None => return Ok(Broken::SessionLeft),
                },
                settled = poll_fn(|cx| on_their_way.poll(cx, read, has_room)) => match settled? {
                    Settled::ToBeTold(n) => Step::Send(written(&ToAgent::Ack { n })),
                    Settled::Room => Step::Done,
                },
                // Nobody is blamed for a silence while nobody listens.
                heard = poll_fn(|cx| self.poll_heard(cx)), if has_room => match heard? {
                    Ear::Frame(frame) => self.pass_on(frame, &live, on_their_way)?,
                    Ear::Silence => Step::Ask,
                },
            };
            match step {
                Step::Done => {}
                Step::Send(frame) => Box::pin(self.send(frame)).await?,
                Step::Ask => Box::pin(self.ask()).await?,
                Step::Tell(told) => told.await?,
            }
        }
    }

    fn pass_on(
        &mut self,
        frame: Option<FromAgent>,
        live: &Shared,
        on_their_way: &mut OnTheirWay,
    ) -> Result<Step, Broken> {
        match frame {
            None => Ok(Step::Done),
            // It may not overtake the event before it.
            Some(FromAgent::Delta(delta)) if self.is_untaken => {
                self.ahead = Some(Box::new(Ok(Some(FromAgent::Delta(delta)))));
                Ok(Step::Tell(self.tell(Heard)))
            }
            Some(FromAgent::Delta(delta)) => {
                live.grow(delta);
                Ok(Step::Done)
            }
            Some(FromAgent::Taken { command }) => Ok(Step::Tell(self.tell(Took { command }))),
            Some(FromAgent::Report { n, report }) => {
                let is_taken_at_once = goes_with_others(&report);
                let reports = self.gather(n, report);
                let last = n.saturating_add(reports.len() as u64 - 1);
                let (durable, on_disk) = oneshot::channel();
                on_their_way.push(OnItsWay { last, read: self.read, on_disk });
                let reported = Reported { boot: self.boot.clone(), n, reports, durable };
                match is_taken_at_once {
                    true => self.mention(reported),
                    false => Ok(Step::Tell(self.tell(reported))),
                }
            }
            Some(FromAgent::Hello(_)) => Err(Broken::Nonsense("a second `hello`".to_owned())),
        }
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ear, Broken>> {
        if let Some(frame) = self.ahead.take() {
            return Poll::Ready(frame.map(Ear::Frame));
        }
        // First: what it has said already is no silence.
        if let Poll::Ready(frame) = self.socket.poll_next_unpin(cx) {
            return Poll::Ready(self.read(frame).map(Ear::Frame));
        }
        Poll::Ready(match ready!(self.silence.poll(cx, self.frozen)) {
            Lapse::Ask => Ok(Ear::Silence),
            Lapse::GiveUp => Err(Broken::Silent),
        })
    }

    /// A report, and those right behind it that can go into the journal with it, as far as they are here: an agent that says
    /// much at once is taken down in fewer and larger steps.
    fn gather(&mut self, n: u64, report: Report) -> Vec<Report> {
        let mut reports = vec![report];
        let enough = self.read + TOGETHER_BYTES;
        while goes_with_others(&reports[reports.len() - 1]) && reports.len() < TOGETHER && self.read < enough {
            let Some(frame) = self.socket.next().now_or_never() else { break };
            match self.read(frame) {
                Ok(Some(FromAgent::Report { n: next, report }))
                    if next == n.saturating_add(reports.len() as u64) && goes_with_others(&report) =>
                {
                    reports.push(report);
                }
                Ok(None) => {}
                other => {
                    self.ahead = Some(Box::new(other));
                    break;
                }
            }
        }
        reports
    }

    async fn greet(&mut self, progress: &Progress) -> Result<Arc<Shared>, Broken> {
        let hello = bear(self.frozen, self.hear_hello()).await??;
        if hello.boot.len() > BOOT_LIMIT {
            let why = format!("a start's name of {} bytes (at most {BOOT_LIMIT})", hello.boot.len());
            return Err(Broken::Nonsense(why));
        }
        // It stands in the log as it is, where control characters have a meaning.
        if hello.boot.contains(char::is_control) {
            return Err(Broken::Nonsense("a start's name with control characters".to_owned()));
        }
        progress.answered.set(true);
        self.boot.clone_from(&hello.boot);
        let greeting = self.tell(Greeted { hello }).await?.map_err(|why| match why {
            Unwelcome::Version { .. } => Broken::Nonsense(why.to_string()),
            Unwelcome::Leaving => Broken::Cut(why.to_string()),
        })?;
        self.silence.greeted(greeting.has_an_act);
        let restore = greeting.welcome.restore;
        self.send(written(&ToAgent::Welcome(greeting.welcome))).await?;
        if restore {
            self.send_history(greeting.history_to).await?;
        }
        Ok(greeting.live)
    }

    async fn hear_hello(&mut self) -> Result<Hello, Broken> {
        loop {
            let frame = self.socket.next().await;
            match self.read(frame)? {
                Some(FromAgent::Hello(hello)) => return Ok(hello),
                Some(_) => return Err(Broken::Nonsense("the first frame is not `hello`".to_owned())),
                None => {}
            }
        }
    }

    async fn send_history(&mut self, to: Seq) -> Result<(), Broken> {
        let mut after = 0;
        loop {
            let limit = Limit { events: 256, bytes: HISTORY_PART };
            let page = read_on(&**self.store, self.id, after, limit).await;
            let page = page.map_err(|e| Broken::Cut(format!("the journal cannot be read: {e}")))?;
            let last = page.last().map_or(to, |(seq, _)| *seq);
            let complete = last >= to || page.is_empty();
            let (mut events, mut added) = (Vec::new(), 0);
            for (_, event) in page.iter().filter(|(seq, _)| *seq <= to) {
                let Ok(mut read) = serde_json::from_slice::<Event>(&event.json) else { continue };
                if let Some(whole) = self.whole_message(event).await
                    && let Body::Observation(Observation { content, .. }) = &mut read.body
                {
                    added += whole.len();
                    *content = whole;
                }
                events.push(read);
                if added > HISTORY_PART {
                    let part = ToAgent::History { events: take(&mut events), complete: false };
                    self.send(written(&part)).await?;
                    added = 0;
                }
            }
            self.send(written(&ToAgent::History { events, complete })).await?;
            if complete {
                return Ok(());
            }
            after = last;
        }
    }

    async fn send(&mut self, text: Utf8Bytes) -> Result<(), Broken> {
        let mut frames = stream::iter(in_fragments(text).map(Ok));
        Ok(bear(self.frozen, self.socket.send_all(&mut frames)).await??)
    }

    /// Its WebSocket answers that by itself, whatever it is at.
    async fn ask(&mut self) -> Result<(), Broken> {
        Ok(bear(self.frozen, self.socket.send(Message::Ping(Bytes::new()))).await??)
    }

    /// What the agent once said, where the event has only a part of it. A result it is told in part anyway, and where a message
    /// cannot be had, the part says how much is missing.
    async fn whole_message(&self, event: &NewEvent) -> Option<String> {
        #[derive(Deserialize)]
        struct Part {
            extras: Extras,
        }
        #[derive(Deserialize)]
        struct Extras {
            truncated: Option<Truncated>,
        }
        if event.kind != "message" || event.json.len() < CONTENT_LIMIT {
            return None;
        }
        let part: Part = serde_json::from_slice(&event.json).ok()?;
        let href = part.extras.truncated?.href?;
        let name = href.rsplit('/').next()?;
        let whole = self.store.content(self.id, name, 0, MESSAGE_LIMIT).await.ok()??;
        let is_whole = whole.bytes.len() as u64 == whole.total;
        is_whole.then(|| String::from_utf8(whole.bytes.into()).ok())?
    }

    /// `None` for frames that mean nothing here.
    fn read(&mut self, frame: Option<Result<Message, Error>>) -> Result<Option<FromAgent>, Broken> {
        match frame {
            None => Err(Broken::Cut("the agent closed it".to_owned())),
            Some(Ok(Message::Text(text))) => {
                self.read += text.len();
                let frame = FromAgent::read(&text)
                    .map_err(|e| Broken::Nonsense(format!("a frame that is none of the protocol: {e}")))?;
                self.silence.heard(Some(&frame));
                match longest_name(&frame) {
                    // Names are kept while what bears them is open.
                    bytes if bytes > NAME_LIMIT => {
                        Err(Broken::Nonsense(format!("a name of {bytes} bytes (at most {NAME_LIMIT})")))
                    }
                    _ => Ok(Some(frame)),
                }
            }
            Some(Ok(Message::Binary(_))) => Err(Broken::Nonsense("a binary frame".to_owned())),
            Some(Ok(Message::Close(_))) => Err(Broken::Cut("the agent closed it".to_owned())),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {
                self.silence.heard(None);
                Ok(None)
            }
            Some(Err(e)) => Err(e.into()),
        }
    }

    /// Tells the session, and waits for no answer: how much it may be told is for what is on its way to disk to say.
    fn mention(&mut self, reported: Reported) -> Result<Step, Broken> {
        let session = self.session.upgrade().ok_or(Broken::SessionLeft)?;
        match session.try_send(reported) {
            Ok(()) => {
                self.is_untaken = true;
                Ok(Step::Done)
            }
            Err(SendError::Full(reported)) => Ok(Step::Tell(self.tell(reported))),
            Err(SendError::Closed(_)) => Err(Broken::SessionLeft),
        }
    }

    /// Tells the session, which has taken all before it when it answers. Boxed, as it is over soon.
    fn tell<M>(&mut self, message: M) -> LocalBoxFuture<'static, Result<M::Result, Broken>>
    where
        M: actix::Message + Send + 'static,
        M::Result: Send,
        Session: actix::Handler<M>,
    {
        self.is_untaken = false;
        match self.session.upgrade() {
            Some(session) => session.send(message).map_err(|_| Broken::SessionLeft).boxed_local(),
            None => ready(Err(Broken::SessionLeft)).boxed_local(),
        }
    }
}

/// How long the longest name of an item or of a request is, in bytes.
fn longest_name(frame: &FromAgent) -> usize {
    match frame {
        FromAgent::Delta(delta) => delta.item.len(),
        FromAgent::Report { report: Report::Event { item, body }, .. } => {
            let request = match body {
                Body::Observation(Observation { seen: Seen::Confirm { request, .. }, .. }) => request.len(),
                Body::Observation(_) | Body::Action(_) | Body::Opaque(_) => 0,
            };
            item.as_ref().map_or(0, String::len).max(request)
        }
        FromAgent::Report { report: Report::Piece { item, .. }, .. } => item.len(),
        FromAgent::Report { .. } | FromAgent::Hello(_) | FromAgent::Taken { .. } => 0,
    }
}
