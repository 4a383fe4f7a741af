//! A connection that leaves HTTP for a WebSocket.
//!
//! The application answers such a request like any other: its gate, its routes, its refusals. Where the answer is "101", the
//! connection is taken out of HTTP's machinery, which would keep two buffers of 8 KiB for it as long as it lives and copy
//! every frame through one of them; and there are ten thousand of it, nearly all of which wait. What the socket's actor says
//! goes out from where it was made; what the client says is read into a buffer that the whole thread shares.

mod oversize_frames;

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    mem,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use actix_codec::Framed;
use actix_http::{
    BoxedPayloadStream, ConnectionType, Payload, Request, Response,
    error::PayloadError,
    h1::{Codec, Message},
};
use actix_web::{
    Error,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Service, ServiceFactory, ServiceResponse, fn_factory, fn_service},
    http::{Method, StatusCode},
};
use bytes::{Buf, Bytes};
use futures::{SinkExt, Stream, future::OptionFuture, stream};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    time::{Instant, Sleep, sleep, timeout},
};

use self::oversize_frames::OversizeSplitter;
use super::connection_migration::{ConnectionMigrator, can_migrate};
use crate::wake_batch::WakeFlag;

/// How much may wait for a client that does not take it, in bytes, before its actor has to wait.
const SEND_BUFFER_LIMIT: usize = 16 << 10;
/// How much may wait for one that does not take it and goes on speaking: more than the largest event, so that it is heard.
const SLOW_CLIENT_SEND_BUFFER_LIMIT: usize = 4 << 20;
/// How much is read at once, in bytes.
const READ_SIZE: usize = 16 << 10;
/// How many pieces go out with one call.
const MAX_WRITE_SLICES: usize = 16;
/// So many of these in a row in which a client takes nothing of what waits for it, and it is gone. They are counted because
/// a server that slept itself wakes up to one that is over, and has not given its client a chance.
const STALL_INTERVAL: Duration = Duration::from_secs(15);
const MAX_STALL_INTERVALS: u8 = 3;
/// How long a client may take to go when it has been told the last word. What it says meanwhile is thrown away: left unread,
/// it would make the kernel take that word back.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    static READING: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_SIZE]);
}

/// A request for another protocol, with the connection that it came over.
pub(super) type UpgradeRequest = (Request, Framed<TcpStream, Codec>);

/// Answers requests for another protocol as `app` says: on their own threads where that can be, which is for
/// [`counted`](super::handover::counted) to wait for, and else here to the connection's end.
pub(super) fn upgrade_service<A, B>(
    app: A,
    handover: ConnectionMigrator,
) -> impl ServiceFactory<UpgradeRequest, Config = (), Response = (), Error = Error, InitError = ()>
where
    A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    A::Service: 'static,
    B: MessageBody + 'static,
{
    fn_factory(move || {
        let (app, handover) = (app.new_service(()), handover.clone());
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |(request, framed): UpgradeRequest| {
                // What is asked is not kept for the connection's life.
                let here = match can_migrate(&request) {
                    true => {
                        handover.migrate(&request, framed);
                        None
                    }
                    false => Some(Box::pin(serve(app.clone(), (request, framed)))),
                };
                async {
                    OptionFuture::from(here).await;
                    Ok(())
                }
            }))
        }
    })
}

/// Answers a request, and stays with its connection to its end.
pub(super) fn serve<S, B>(app: Rc<S>, asked: UpgradeRequest) -> impl Future<Output = ()>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    // Boxed: what only the answer needs is not kept for the connection's life. So is what it takes to hang up.
    let answered = Box::pin(async move { answer_handshake(&*app, asked).await });
    async move {
        // A connection that breaks concerns its client alone, which sees it.
        if let Ok(Some(mut upgraded)) = answered.await
            && poll_fn(|cx| upgraded.poll(cx)).await.is_ok()
        {
            Box::pin(hang_up(upgraded.stream)).await;
        }
    }
}

/// `None` where the connection ended with the answer.
async fn answer_handshake<S, B>(app: &S, (request, mut framed): UpgradeRequest) -> io::Result<Option<WsTransport>>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let arrived = Rc::new(RefCell::new(ClientInput::Ended));
    let payload: BoxedPayloadStream = match request.method() {
        &Method::GET => Box::pin(ClientInputStream(arrived.clone())),
        // Its body cannot be told from what would follow the upgrade. It is not to be carried out as if it had none.
        method => Box::pin(stream::iter([Err(upgrade_error(method))])),
    };
    let (request, _) = request.replace_payload(Payload::Stream { payload });
    let response = match app.call(request).await {
        Ok(response) => response.into_parts().1.map_into_boxed_body(),
        Err(e) => e.error_response(),
    };
    let (head, body) = response.into_parts();
    if head.status() != StatusCode::SWITCHING_PROTOCOLS {
        let mut head = Response::from(head);
        head.head_mut().set_connection_type(ConnectionType::Close);
        send(&mut framed, head, body).await?;
        hang_up(framed.into_parts().io).await;
        return Ok(None);
    }
    framed.send(Message::Item((head.into(), BodySize::None))).await?;
    let parts = framed.into_parts();
    let mut frames = OversizeSplitter::default();
    let at_once = frames.split(&parts.read_buf)?;
    *arrived.borrow_mut() = if at_once.is_empty() { ClientInput::Empty } else { ClientInput::Bytes(at_once) };
    Ok(Some(WsTransport { frames, ..WsTransport::new(parts.io, body, arrived) }))
}

fn upgrade_error(method: &Method) -> PayloadError {
    PayloadError::Io(io::Error::other(format!("a {method} cannot be upgraded; leave `Upgrade` out")))
}

/// An answer that leaves everything as it was.
async fn send(framed: &mut Framed<TcpStream, Codec>, head: Response<()>, mut body: BoxBody) -> io::Result<()> {
    framed.send(Message::Item((head, body.size()))).await?;
    while let Some(chunk) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        framed.send(Message::Chunk(Some(chunk.map_err(|e| io::Error::other(e.to_string()))?))).await?;
    }
    framed.send(Message::Chunk(None)).await
}

/// Says that there is nothing more to come, and waits until the client knows.
async fn hang_up(mut stream: TcpStream) {
    let gone = async {
        stream.shutdown().await?;
        loop {
            poll_fn(|cx| stream.poll_read_ready(cx)).await?;
            match READING.with_borrow_mut(|buffer| stream.try_read(buffer)) {
                Ok(0) => return io::Result::Ok(()),
                Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                Ok(_) | Err(_) => {}
            }
        }
    };
    let _gone_or_given_up = timeout(CLOSE_TIMEOUT, Box::pin(gone)).await;
}

/// What the client said and the actor has not taken yet.
enum ClientInput {
    Empty,
    Bytes(Bytes),
    Failed(io::Error),
    Ended,
}

/// The actor's end of what arrives. It wakes nobody: [`Upgraded::poll`] polls the actor when something has arrived.
struct ClientInputStream(Rc<RefCell<ClientInput>>);

impl Stream for ClientInputStream {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut arrived = self.0.borrow_mut();
        let (taken, left) = match mem::replace(&mut *arrived, ClientInput::Empty) {
            ClientInput::Empty => return Poll::Pending,
            ClientInput::Bytes(bytes) => (Some(Ok(bytes)), ClientInput::Empty),
            ClientInput::Failed(e) => (Some(Err(PayloadError::Io(e))), ClientInput::Ended),
            ClientInput::Ended => (None, ClientInput::Ended),
        };
        *arrived = left;
        Poll::Ready(taken)
    }
}

/// A connection whose ends are a client and an actor.
struct WsTransport {
    stream: TcpStream,
    /// What the actor says; polling it is what makes the actor run.
    actor: BoxBody,
    actor_finished: bool,
    call: Arc<WakeFlag>,
    waker: Waker,
    frames: OversizeSplitter,
    client_input: Rc<RefCell<ClientInput>>,
    unsent: VecDeque<Bytes>,
    write_stall: Option<Box<WriteStall>>,
}

impl WsTransport {
    fn new(stream: TcpStream, actor: BoxBody, client_input: Rc<RefCell<ClientInput>>) -> WsTransport {
        let call = Arc::new(WakeFlag::default());
        let waker = call.clone().into();
        let (frames, unsent) = (OversizeSplitter::default(), VecDeque::new());
        WsTransport {
            stream,
            actor,
            actor_finished: false,
            call,
            waker,
            frames,
            client_input,
            unsent,
            write_stall: None,
        }
    }

    /// Done when the actor has said its last, and the client has it.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.call.register(cx.waker());
        loop {
            let has_said_all = self.run_actor();
            self.send(cx)?;
            if self.actor_finished && self.unsent.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let may_say_more = !has_said_all && self.has_room();
            if !self.read_client(cx) && !may_say_more {
                return Poll::Pending;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.unsent() < SEND_BUFFER_LIMIT
    }

    fn unsent(&self) -> usize {
        self.unsent.iter().map(Bytes::len).sum()
    }

    /// Whether the actor has something to deal with. Who is slow to read is heard all the same: it may want to stop just that;
    /// and where its token is none any more it has to go, read or not. What is said to such a client has its bound, too.
    fn is_actor_due(&self) -> bool {
        let is_wanted = self.call.is_set() || !matches!(*self.client_input.borrow(), ClientInput::Empty);
        is_wanted && self.unsent() < SLOW_CLIENT_SEND_BUFFER_LIMIT
    }

    /// Lets the actor do what it can, while there is room for what it says. True: it has nothing more to say for now.
    fn run_actor(&mut self) -> bool {
        while !self.actor_finished && (self.has_room() || self.is_actor_due()) {
            self.call.clear();
            match Pin::new(&mut self.actor).poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(Ok(bytes))) => self.unsent.push_back(bytes),
                Poll::Ready(Some(Err(_)) | None) => self.actor_finished = true,
                Poll::Pending => return true,
            }
        }
        self.actor_finished
    }

    /// Sends what the kernel takes.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.unsent.is_empty() {
            if self.stream.poll_write_ready(cx)?.is_pending() {
                self.write_stall.get_or_insert_default().wait(cx)?;
                break;
            }
            match self.try_send() {
                Ok(sent) => {
                    self.remove_sent(sent);
                    self.write_stall = None;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn try_send(&self) -> io::Result<usize> {
        // Of a single piece, as nearly all are, the kernel makes less ado.
        if self.unsent.len() == 1 {
            return self.stream.try_write(&self.unsent[0]);
        }
        let mut pieces = [IoSlice::new(&[]); MAX_WRITE_SLICES];
        let filled = pieces.iter_mut().zip(&self.unsent).map(|(piece, bytes)| *piece = IoSlice::new(bytes)).count();
        self.stream.try_write_vectored(&pieces[..filled])
    }

    fn remove_sent(&mut self, mut sent: usize) {
        while let Some(first) = self.unsent.front_mut() {
            if sent < first.len() {
                first.advance(sent);
                return;
            }
            sent -= first.len();
            self.unsent.pop_front();
        }
    }

    /// Reads what the client says, once the actor has dealt with all that came before: where it calls to be polled again it
    /// may not have, and a client that never stops would fill the memory. True: something arrived.
    fn read_client(&mut self, cx: &mut Context<'_>) -> bool {
        let mut arrived = self.client_input.borrow_mut();
        if self.actor_finished || !matches!(*arrived, ClientInput::Empty) || self.call.is_set() {
            return false;
        }
        loop {
            let read = match self.stream.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(e)) => Err(e),
                Poll::Ready(Ok(())) => READING.with_borrow_mut(|buffer| match self.stream.try_read(buffer)? {
                    0 => Ok(None),
                    count => self.frames.split(&buffer[..count]).map(Some),
                }),
            };
            *arrived = match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) => ClientInput::Failed(e),
                Ok(None) => ClientInput::Ended,
                // The beginning of a header says nothing yet.
                Ok(Some(bytes)) if bytes.is_empty() => continue,
                Ok(Some(bytes)) => ClientInput::Bytes(bytes),
            };
            return true;
        }
    }
}

/// For how long a client has taken nothing.
struct WriteStall {
    timer: Pin<Box<Sleep>>,
    intervals: u8,
}

impl Default for WriteStall {
    fn default() -> WriteStall {
        WriteStall { timer: Box::pin(sleep(STALL_INTERVAL)), intervals: 0 }
    }
}

impl WriteStall {
    fn wait(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.timer.as_mut().poll(cx).is_ready() {
            self.intervals += 1;
            if self.intervals == MAX_STALL_INTERVALS {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.timer.as_mut().reset(Instant::now() + STALL_INTERVAL);
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests;
