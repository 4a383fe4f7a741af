//! A request that leaves HTTP goes to the thread where its session lives, with its connection, and is answered there: see
//! [`crate::threads`].

use std::{cell::Cell, future::poll_fn, net, pin::Pin, rc::Rc, task::Poll, time::Duration};

use actix_codec::{Framed, FramedParts};
use actix_http::{Request, RequestHead, ServiceConfig, h1::Codec};
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

use super::{connection::TcpConnection, idle_timeout::IdleWatch, ws_transport::serve};
use crate::{
    session_threads::{SessionThreads, SocketPlacement},
    store::SessionId,
};

thread_local! {
    /// The end of a connection that has moved just now, until whoever polls it here has seen that.
    static MOVED: Cell<Option<oneshot::Receiver<()>>> = const { Cell::new(None) };
}

/// Serves connections as `connections` does, and waits for the end of those that have moved as well, because it is here that
/// connections are counted. Of them it keeps nothing else: what HTTP has for a connection is 1.4 KiB. One that has had nothing to
/// answer for as long as `quiet` is closed.
pub(super) fn counted_connections<C>(
    connections: C,
    quiet: Duration,
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
                let watch = IdleWatch::new(quiet, TcpConnection::of(&stream));
                serve_until_closed(Box::pin(connections.call(stream)), watch)
            }))
        }
    })
}

async fn serve_until_closed<E>(
    mut connection: Pin<Box<impl Future<Output = Result<(), E>>>>,
    mut watch: IdleWatch,
) -> Result<(), E> {
    let mut elsewhere = None;
    let result = poll_fn(|cx| {
        let polled = watch.poll(connection.as_mut(), cx);
        elsewhere = MOVED.take().or(elsewhere.take());
        match polled {
            Poll::Pending if elsewhere.is_none() => watch.poll_idle(cx).map(Ok),
            polled => polled,
        }
    })
    .await;
    drop((connection, watch));
    if let Some(over) = elsewhere {
        // Where that thread has ended the server is ending too, and the connection with it.
        let _ended = over.await;
    }
    result
}

/// The way to those threads.
#[derive(Clone)]
pub(super) struct ConnectionMigrator {
    threads: SessionThreads,
    /// One for each thread.
    inboxes: Vec<mpsc::UnboundedSender<MigratingConnection>>,
}

/// A request on its way, with its connection.
struct MigratingConnection {
    head: RequestHead,
    stream: net::TcpStream,
    /// What the client said right behind its request.
    read_ahead: BytesMut,
    /// What it was not sent yet of the answers before.
    unsent: BytesMut,
    /// Dropped when it is over.
    closed: oneshot::Sender<()>,
    seat: SocketPlacement,
}

impl ConnectionMigrator {
    /// Has requests answered by `app` on each thread.
    pub(super) fn new<F, A, B>(threads: SessionThreads, app: F) -> ConnectionMigrator
    where
        F: Fn() -> A + Clone + Send + 'static,
        A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
        A::Service: 'static,
        B: MessageBody + 'static,
    {
        let open = |place| {
            let (door, arriving) = mpsc::unbounded_channel();
            let app = app.clone();
            threads.run(place, move || drop(rt::spawn(receive_migrated(app(), arriving))));
            door
        };
        let inboxes = threads.indexes().map(open).collect();
        ConnectionMigrator { threads, inboxes }
    }

    /// To be called from within a connection that is [`counted`].
    pub(super) fn migrate(&self, request: &Request, framed: Framed<TcpStream, Codec>) {
        let head = request.head().clone();
        let seat = self.threads.place_socket(session_id(&head));
        let FramedParts { io, read_buf: read, write_buf: unsent, .. } = framed.into_parts();
        let (over, is_over) = oneshot::channel();
        if let Ok(stream) = io.into_std() {
            let door = &self.inboxes[seat.thread.index()];
            let _ended = door.send(MigratingConnection { head, stream, read_ahead: read, unsent, closed: over, seat });
        }
        MOVED.set(Some(is_over));
    }
}

/// Whether the other thread can answer it without knowing more of the connection than the request.
pub(super) fn can_migrate(request: &Request) -> bool {
    request.method() == Method::GET && request.version() == Version::HTTP_11
}

/// The session that the address names.
fn session_id(head: &RequestHead) -> Option<SessionId> {
    let of_chat = head.uri.path().strip_prefix("/ws/sessions/").and_then(|rest| rest.split('/').next());
    let of_query = || head.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("session="));
    of_chat.or_else(of_query)?.parse().ok()
}

/// Takes in what arrives on this thread.
async fn receive_migrated<A, B>(app: A, mut arriving: mpsc::UnboundedReceiver<MigratingConnection>)
where
    A: ServiceFactory<Request, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()>,
    A::Service: 'static,
    B: MessageBody + 'static,
{
    let Ok(app) = app.new_service(()).await else { return error!("the application does not start on this thread") };
    let (app, config) = (Rc::new(app), ServiceConfig::default());
    while let Some(MigratingConnection { head, stream, read_ahead: read, unsent, closed: over, seat }) =
        arriving.recv().await
    {
        let Ok(stream) = TcpStream::from_std(stream) else { continue };
        let mut parts = FramedParts::with_read_buf(stream, Codec::new(config.clone()), read);
        parts.write_buf = unsent;
        let framed = Framed::from_parts(parts);
        let mut request = Request::new();
        *request.head_mut() = head;
        let serving = serve(app.clone(), (request, framed));
        rt::spawn(async move {
            let _until_then = (over, seat);
            serving.await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_says_whose_thread_it_is() {
        let id = SessionId::generate();
        let named = |uri: &str| {
            let mut head = RequestHead::default();
            head.uri = uri.parse().expect("an address");
            session_id(&head)
        };
        assert_eq!(named(&format!("/ws?after=3&session={id}")), Some(id));
        assert_eq!(named(&format!("/ws/sessions/{id}/chat?token=x")), Some(id));
        assert_eq!(named("/ws"), None);
        assert_eq!(named("/ws?session="), None);
        assert_eq!(named("/ws?session=nonsense"), None, "it is answered as such, on any thread");
    }
}
