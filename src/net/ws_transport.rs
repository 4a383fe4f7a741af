//! WebSocket transport: drives a connection after it has left HTTP.
//!
//! The application answers the handshake like any other request, with its middleware, routes and
//! errors. If the answer is 101, the connection leaves HTTP's machinery. That machinery keeps two
//! buffers of 8 KiB for each connection and copies each frame through one of them. A server has up
//! to ten thousand such connections, and nearly all are silent.
//!
//! Frames of the socket's actor are sent from the buffers in which they were made. Data of the
//! client is read into one buffer per thread.

mod frame_check;
mod oversize_frames;

use std::{
    cell::RefCell,
    collections::VecDeque,
    future::poll_fn,
    hash::Hash,
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
    ws::{self, CloseCode, CloseReason},
};
use actix_web::{
    Error,
    body::{BodySize, BoxBody, MessageBody},
    dev::{Service, ServiceFactory, ServiceResponse, fn_factory, fn_service},
    http::{Method, StatusCode},
};
use bytes::{Buf, Bytes, BytesMut};
use futures::{SinkExt, Stream, future::OptionFuture, stream};
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, Sleep, sleep, timeout},
};

use self::{frame_check::FrameViolation, oversize_frames::OversizeSplitter};
use super::{
    client_stream::ClientStream,
    connection_migration::{ConnectionMigrator, can_migrate},
    http_connection::HttpConnection,
    wake_batch::WakeFlag,
};

/// Send-buffer limit, bytes. When full: the actor is polled only for wakeups and client input.
const SEND_BUFFER_LIMIT: usize = 16 << 10;
/// Send-buffer limit for a slow client that keeps sending, bytes. Larger than the largest event, so
/// its requests are still processed.
const SLOW_CLIENT_SEND_BUFFER_LIMIT: usize = 4 << 20;
/// Size of one read, bytes.
const READ_SIZE: usize = 16 << 10;
/// Largest number of buffers in one vectored write.
const MAX_WRITE_SLICES: usize = 16;
/// Interval in which a client must take some of the unsent data. After [`MAX_STALL_INTERVALS`]
/// stalled intervals in a row the connection is closed.
///
/// Intervals are counted because a suspended server wakes up after one has passed. Its client had
/// no chance to read in that time.
const STALL_INTERVAL: Duration = Duration::from_secs(15);
const MAX_STALL_INTERVALS: u8 = 3;
/// Limit for the client's close after the last frame.
///
/// Input of the client is read and dropped meanwhile. With unread input the kernel would reset the
/// connection, and the last frame would be lost.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

thread_local! {
    /// Read buffer of this thread.
    static READING: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_SIZE]);
}

/// Request for another protocol, with its connection.
pub(super) type UpgradeRequest = (Request, Framed<HttpConnection, Codec>);

/// Returns a service that answers requests for another protocol with `app`.
///
/// A request that can migrate is answered on its key's thread;
/// [`counted_connections`](super::connection_migration::counted_connections) waits for its end.
/// Other requests are served here until their connections close.
pub(super) fn upgrade_service<K, A, B>(
    app: A,
    migrator: ConnectionMigrator<K>,
) -> impl ServiceFactory<UpgradeRequest, Config = (), Response = (), Error = Error, InitError = ()>
where
    K: Hash + Clone + 'static,
    A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    A::Service: 'static,
    B: MessageBody + 'static,
{
    fn_factory(move || {
        let (app, migrator) = (app.new_service(()), migrator.clone());
        async move {
            let app = Rc::new(app.await?);
            Ok(fn_service(move |(request, framed): UpgradeRequest| {
                let framed = framed.into_map_io(HttpConnection::into_stream);
                // The request is dropped here, so it does not stay in memory for the connection's
                // life.
                let here = match can_migrate(&request) {
                    true => {
                        migrator.migrate(&request, framed);
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

/// Answers a request and drives its connection until the connection closes.
pub(super) fn serve<S, B>(app: Rc<S>, request: (Request, Framed<ClientStream, Codec>)) -> impl Future<Output = ()>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    // Boxed, so that the state of the handshake is freed after it. The same holds for the close.
    let answered = Box::pin(async move { answer_handshake(&*app, request).await });
    async move {
        // An I/O error concerns this client alone, and the client sees it.
        if let Ok(Some(mut transport)) = answered.await
            && poll_fn(|cx| transport.poll(cx)).await.is_ok()
        {
            Box::pin(hang_up(transport.stream)).await;
        }
    }
}

/// Answers the handshake. Returns `None` if the connection has ended with the answer.
async fn answer_handshake<S, B>(
    app: &S,
    (request, mut framed): (Request, Framed<ClientStream, Codec>),
) -> io::Result<Option<WsTransport>>
where
    S: Service<Request, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let client_input = Rc::new(RefCell::new(ClientInput::Ended));
    let payload: BoxedPayloadStream = match request.method() {
        &Method::GET => Box::pin(ClientInputStream(client_input.clone())),
        // The body cannot be distinguished from data after the upgrade. The request must not be
        // handled as if it had no body.
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
    *client_input.borrow_mut() = ClientInput::Empty;
    let mut transport = WsTransport::new(parts.io, body, client_input);
    transport.receive(&parts.read_buf);
    Ok(Some(transport))
}

fn upgrade_error(method: &Method) -> PayloadError {
    PayloadError::Io(io::Error::other(format!("a {method} request cannot be upgraded; leave the `Upgrade` header out")))
}

/// Sends an answer that does not switch protocols.
async fn send(framed: &mut Framed<ClientStream, Codec>, head: Response<()>, mut body: BoxBody) -> io::Result<()> {
    framed.send(Message::Item((head, body.size()))).await?;
    while let Some(chunk) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        framed.send(Message::Chunk(Some(chunk.map_err(|e| io::Error::other(e.to_string()))?))).await?;
    }
    framed.send(Message::Chunk(None)).await
}

/// Ends the sending side and waits until the client closes its side, at most [`CLOSE_TIMEOUT`].
async fn hang_up(mut stream: ClientStream) {
    let closed = async {
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
    let _closed_or_timed_out = timeout(CLOSE_TIMEOUT, Box::pin(closed)).await;
}

/// Input of the client that the actor has not taken yet.
enum ClientInput {
    Empty,
    Bytes(Bytes),
    Failed(io::Error),
    Ended,
}

/// Actor's end of the client input. Wakes no task: [`WsTransport::poll`] polls the actor when input
/// has arrived.
struct ClientInputStream(Rc<RefCell<ClientInput>>);

impl Stream for ClientInputStream {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut client_input = self.0.borrow_mut();
        let (taken, left) = match mem::replace(&mut *client_input, ClientInput::Empty) {
            ClientInput::Empty => return Poll::Pending,
            ClientInput::Bytes(bytes) => (Some(Ok(bytes)), ClientInput::Empty),
            ClientInput::Failed(e) => (Some(Err(PayloadError::Io(e))), ClientInput::Ended),
            ClientInput::Ended => (None, ClientInput::Ended),
        };
        *client_input = left;
        Poll::Ready(taken)
    }
}

/// Connection between a client and an actor, without HTTP.
struct WsTransport {
    stream: ClientStream,
    /// Frames of the actor. Polling the body runs the actor.
    actor: BoxBody,
    actor_finished: bool,
    wake_flag: Arc<WakeFlag>,
    waker: Waker,
    frames: OversizeSplitter,
    /// Violation by the client. The actor gets no further input, and the close follows its last
    /// frame.
    violation: Option<FrameViolation>,
    client_input: Rc<RefCell<ClientInput>>,
    unsent: VecDeque<Bytes>,
    write_stall: Option<Box<WriteStall>>,
}

impl WsTransport {
    fn new(stream: ClientStream, actor: BoxBody, client_input: Rc<RefCell<ClientInput>>) -> WsTransport {
        let wake_flag = Arc::new(WakeFlag::default());
        let waker = wake_flag.clone().into();
        let (frames, unsent) = (OversizeSplitter::default(), VecDeque::new());
        WsTransport {
            stream,
            actor,
            actor_finished: false,
            wake_flag,
            waker,
            frames,
            violation: None,
            client_input,
            unsent,
            write_stall: None,
        }
    }

    /// Takes data of the client for the actor, up to a violation. Returns true if the actor has
    /// input. An incomplete frame header is no input.
    fn receive(&mut self, read: &[u8]) -> bool {
        let (bytes, violation) = self.frames.split(read);
        self.violation = self.violation.or(violation);
        let mut client_input = self.client_input.borrow_mut();
        *client_input = match (bytes.is_empty(), self.violation) {
            (false, _) => ClientInput::Bytes(bytes),
            (true, Some(_)) => ClientInput::Ended,
            (true, None) => ClientInput::Empty,
        };
        !matches!(*client_input, ClientInput::Empty)
    }

    /// Drives the connection. Ready when the actor has finished and all its frames are sent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wake_flag.register(cx.waker());
        loop {
            let is_drained = self.run_actor();
            self.send(cx)?;
            if self.actor_finished && self.unsent.is_empty() && !self.stream.has_unsent() {
                return Poll::Ready(Ok(()));
            }
            let can_send_more = !is_drained && self.has_room();
            if !self.read_client(cx) && !can_send_more {
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

    /// Returns true if the actor has wakeups or input to handle.
    ///
    /// The input of a slow reader is handled too: it may be a stop request. A socket with a revoked
    /// token must close in any case. The frames for such a client have a limit of their own.
    fn is_actor_due(&self) -> bool {
        let has_work = self.wake_flag.is_set() || !matches!(*self.client_input.borrow(), ClientInput::Empty);
        has_work && self.unsent() < SLOW_CLIENT_SEND_BUFFER_LIMIT
    }

    /// Polls the actor while the send buffer has room. Returns true if the actor has no more frames
    /// for now.
    fn run_actor(&mut self) -> bool {
        while !self.actor_finished && (self.has_room() || self.is_actor_due()) {
            self.wake_flag.clear();
            match Pin::new(&mut self.actor).poll_next(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Some(Ok(bytes))) => self.unsent.push_back(bytes),
                Poll::Ready(Some(Err(_)) | None) => {
                    self.actor_finished = true;
                    self.unsent.extend(self.violation.take().map(close_frame));
                }
                Poll::Pending => return true,
            }
        }
        self.actor_finished
    }

    /// Writes as much as the kernel accepts.
    fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.unsent.is_empty() || self.stream.has_unsent() {
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

    fn try_send(&mut self) -> io::Result<usize> {
        if self.unsent.is_empty() {
            return self.stream.try_flush().map(|()| 0);
        }
        // A plain write is cheaper for the kernel than a vectored one, and nearly all writes have a
        // single buffer.
        if self.unsent.len() == 1 {
            return self.stream.try_write(&self.unsent[0]);
        }
        let mut slices = [IoSlice::new(&[]); MAX_WRITE_SLICES];
        let filled = slices.iter_mut().zip(&self.unsent).map(|(slice, bytes)| *slice = IoSlice::new(bytes)).count();
        self.stream.try_write_vectored(&slices[..filled])
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

    /// Reads from the client once the actor has handled all earlier input. Returns true if input
    /// arrived.
    ///
    /// An actor that requests another poll may have input left. Reading on would let an endless
    /// client fill the memory.
    fn read_client(&mut self, cx: &mut Context<'_>) -> bool {
        if self.actor_finished || !matches!(*self.client_input.borrow(), ClientInput::Empty) || self.wake_flag.is_set()
        {
            return false;
        }
        if self.violation.is_some() {
            *self.client_input.borrow_mut() = ClientInput::Ended;
            return true;
        }
        loop {
            let failed = match self.stream.poll_read_ready(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(e)) => ClientInput::Failed(e),
                Poll::Ready(Ok(())) => {
                    let read = READING.with_borrow_mut(|buffer| {
                        let count = self.stream.try_read(buffer)?;
                        io::Result::Ok((count, self.receive(&buffer[..count])))
                    });
                    match read {
                        Ok((0, _)) => ClientInput::Ended,
                        Ok((_, true)) => return true,
                        Ok((_, false)) => continue,
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                        Err(e) => ClientInput::Failed(e),
                    }
                }
            };
            *self.client_input.borrow_mut() = failed;
            return true;
        }
    }
}

/// Returns the frame that closes a connection after a violation.
fn close_frame(violation: FrameViolation) -> Bytes {
    let mut frame = BytesMut::new();
    let reason = CloseReason { code: CloseCode::Other(violation.code), description: Some(violation.reason.to_owned()) };
    ws::Parser::write_close(&mut frame, Some(reason), false);
    frame.freeze()
}

/// Stalled writes: the time in which a client has taken no data.
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
#[allow(clippy::unwrap_used, reason = "a test panics on unexpected results")]
mod tests;
