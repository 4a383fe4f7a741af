//! Migration of connections: a request that leaves HTTP moves to its key's thread, with its
//! connection, and is answered there.
//!
//! See [`super::keyed_threads`].

use std::{cell::Cell, future::poll_fn, hash::Hash, pin::Pin, rc::Rc, task::Poll, time::Duration};

use actix_codec::{Framed, FramedParts};
use actix_http::{Request, RequestHead, ServiceConfig, Uri, h1::Codec};
use actix_web::{
    Error,
    body::MessageBody,
    dev::{Service, ServiceFactory, ServiceResponse, fn_factory, fn_service},
    http::{Method, Version},
    rt,
};
use bytes::BytesMut;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tracing::error;

use super::{
    client_stream::{ClientStream, DetachedStream},
    idle_timeout::IdleWatch,
    keyed_threads::{KeyedThreads, SocketPlacement},
    tcp_connection::TcpConnection,
    ws_transport::serve,
};

thread_local! {
    /// Completion of the connection that has just moved. Set until its poller on this thread takes
    /// it.
    static MOVED: Cell<Option<oneshot::Receiver<()>>> = const { Cell::new(None) };
}

/// Returns a service that serves connections with `connections` and counts them until they close.
///
/// Connections are counted on this thread, so the service also waits for connections that have
/// moved. Nothing else of a moved connection is kept: HTTP's state for a connection is 1.4 KiB. A
/// connection without a response in progress for `idle_timeout` is closed.
pub(super) fn counted_connections<C>(
    connections: C,
    idle_timeout: Duration,
) -> impl ServiceFactory<TcpStream, Config = (), Response = (), Error = C::Error, InitError = C::InitError>
where
    C: ServiceFactory<TcpStream, Config = (), Response = ()>,
    C::Service: 'static,
{
    fn_factory(move || {
        let connections = connections.new_service(());
        async move {
            let connections = Rc::new(connections.await?);
            Ok(fn_service(move |stream: TcpStream| {
                let watch = IdleWatch::new(idle_timeout, TcpConnection::of(&stream));
                serve_until_closed(Box::pin(connections.call(stream)), watch)
            }))
        }
    })
}

async fn serve_until_closed<E>(
    mut connection: Pin<Box<impl Future<Output = Result<(), E>>>>,
    mut watch: IdleWatch,
) -> Result<(), E> {
    let mut moved = None;
    let result = poll_fn(|cx| {
        let polled = watch.poll(connection.as_mut(), cx);
        moved = MOVED.take().or(moved.take());
        match polled {
            Poll::Pending if moved.is_none() => watch.poll_idle(cx).map(Ok),
            polled => polled,
        }
    })
    .await;
    drop((connection, watch));
    if let Some(closed) = moved {
        // The receive fails if that thread has ended. Then the server shuts down, and the
        // connection with it.
        let _ended = closed.await;
    }
    result
}

/// Moves connections to the keyed threads.
#[derive(Clone)]
pub(super) struct ConnectionMigrator<K> {
    threads: KeyedThreads,
    key_of: fn(&Uri) -> Option<K>,
    /// Inbox of each thread. Bound: the accepted connections (`HttpLimits::max_connections`).
    inboxes: Vec<mpsc::UnboundedSender<MigratingConnection>>,
}

/// Request in transit to another thread, with its connection.
struct MigratingConnection {
    head: RequestHead,
    stream: DetachedStream,
    /// Bytes that the client sent right after its request.
    read_ahead: BytesMut,
    /// Bytes of earlier answers that are not yet sent.
    unsent: BytesMut,
    /// Dropped when the connection closes.
    closed: oneshot::Sender<()>,
    placement: SocketPlacement,
}

impl<K: Hash> ConnectionMigrator<K> {
    /// Starts `app` on each thread. It answers the requests that move there.
    pub(super) fn new<F, A, B>(threads: KeyedThreads, key_of: fn(&Uri) -> Option<K>, app: F) -> Self
    where
        F: Fn() -> A + Clone + Send + 'static,
        A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
        A::Service: 'static,
        B: MessageBody + 'static,
    {
        let open = |index| {
            let (inbox, migrated) = mpsc::unbounded_channel();
            let app = app.clone();
            threads.run(index, move || drop(rt::spawn(receive_migrated(app(), migrated))));
            inbox
        };
        let inboxes = threads.indexes().map(open).collect();
        ConnectionMigrator { threads, key_of, inboxes }
    }

    /// Moves a connection to the thread of its key. Call it only within a connection of
    /// [`counted_connections`].
    pub(super) fn migrate(&self, request: &Request, framed: Framed<ClientStream, Codec>) {
        let head = request.head().clone();
        let placement = self.threads.place_socket((self.key_of)(&head.uri).as_ref());
        let FramedParts { io, read_buf: read_ahead, write_buf: unsent, .. } = framed.into_parts();
        let (closed, is_closed) = oneshot::channel();
        if let Ok(stream) = io.detach() {
            let inbox = &self.inboxes[placement.thread.index()];
            let _ended = inbox.send(MigratingConnection { head, stream, read_ahead, unsent, closed, placement });
        }
        MOVED.set(Some(is_closed));
    }
}

/// Returns true if the other thread can answer the request without further state of the connection.
pub(super) fn can_migrate(request: &Request) -> bool {
    request.method() == Method::GET && request.version() == Version::HTTP_11
}

/// Serves the connections that move to this thread.
async fn receive_migrated<A, B>(app: A, mut migrated: mpsc::UnboundedReceiver<MigratingConnection>)
where
    A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    A::Service: 'static,
    B: MessageBody + 'static,
{
    let Ok(app) = app.new_service(()).await else {
        return error!("cannot start the application on this thread");
    };
    let (app, config) = (Rc::new(app), ServiceConfig::default());
    while let Some(MigratingConnection { head, stream, read_ahead, unsent, closed, placement }) = migrated.recv().await
    {
        let Ok(stream) = stream.attach() else { continue };
        let mut parts = FramedParts::with_read_buf(stream, Codec::new(config.clone()), read_ahead);
        parts.write_buf = unsent;
        let framed = Framed::from_parts(parts);
        let mut request = Request::new();
        *request.head_mut() = head;
        let serving = serve(app.clone(), (request, framed));
        rt::spawn(async move {
            let _dropped_at_the_end = (closed, placement);
            serving.await;
        });
    }
}
