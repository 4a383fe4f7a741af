//! One session's door to the models: a Unix socket that speaks HTTP/1.1.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use super::{Account, Gateway, call, relay};

/// The most connections that one session holds. Further ones wait in the kernel's backlog.
const CONNECTIONS: usize = 64;

/// The most calls that one session has running. Further ones wait for one to end.
const CALLS: usize = 16;

/// The largest request body, bytes, and the most of request bodies that one session keeps at a time. What does not fit
/// waits until the provider has begun to answer others.
pub(super) const LARGEST_BODY: usize = 64 * 1024 * 1024;

/// How long a connection may be without a whole request head: idle, or dawdling.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of what a client has not taken yet hyper itself holds, bytes.
const WRITE_BUFFER: usize = 64 * 1024;

/// An open endpoint. Dropping it closes the socket and every connection to it.
pub struct Endpoint {
    door: Arc<Door>,
}

/// What the tasks of one endpoint share.
pub(super) struct Door {
    pub(super) gateway: Gateway,
    pub(super) account: Arc<dyn Account>,
    /// Room for what clients have not read yet, in bytes.
    pub(super) buffer: Arc<Semaphore>,
    /// Room for request bodies, in bytes.
    pub(super) bodies: Arc<Semaphore>,
    pub(super) calls: Arc<Semaphore>,
    closed: CancellationToken,
    /// Cancelled by the next interrupt, and replaced by it. A child of `closed`.
    cut: Mutex<CancellationToken>,
}

impl Endpoint {
    pub(super) fn open(gateway: Gateway, listener: UnixListener, account: Arc<dyn Account>) -> Endpoint {
        let closed = CancellationToken::new();
        let door = Arc::new(Door {
            gateway,
            account,
            buffer: Arc::new(Semaphore::new(relay::BUFFER)),
            bodies: Arc::new(Semaphore::new(LARGEST_BODY)),
            calls: Arc::new(Semaphore::new(CALLS)),
            cut: Mutex::new(closed.child_token()),
            closed,
        });
        tokio::spawn(serve(listener, door.clone()));
        Endpoint { door }
    }

    /// Ends every call of this session at once: those that stream, those that wait for a provider, and those that wait for
    /// their next attempt. Calls that come later are not touched.
    pub fn cut(&self) {
        let next = self.door.closed.child_token();
        let running = std::mem::replace(&mut *self.door.cut.lock().unwrap_or_else(PoisonError::into_inner), next);
        running.cancel();
    }
}

#[cfg(test)]
impl Endpoint {
    pub(super) fn door(&self) -> Arc<Door> {
        self.door.clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.door.closed.cancel();
    }
}

impl Door {
    /// What the interrupt of a call that begins now will cancel.
    pub(super) fn cut_token(&self) -> CancellationToken {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: UnixListener, door: Arc<Door>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let (closed, mut closing) = (door.closed.clone(), door.gateway.closing());
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = ordered(&mut closing) => {
                // From the thread of the connections, so that they go before a call on them answers that it was interrupted: the
                // agent is to ask the next server again.
                closed.cancel();
                drop(listener);
                // A call has its place until its session was told what it took.
                let _all = door.calls.acquire_many(CALLS as u32).await;
                return;
            }
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => drop(tokio::spawn(connection(stream, place, door.clone()))),
            Err(e) => {
                // Out of descriptors, most likely: the connection stays in the backlog until there is one.
                tracing::warn!(error = %e, "cannot accept a connection to the model gateway");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Ends when the gateway closes, or has gone.
async fn ordered(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn accept(listener: &UnixListener, places: &Arc<Semaphore>) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.expect("the semaphore of places is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn connection(stream: UnixStream, _place: OwnedSemaphorePermit, door: Arc<Door>) {
    let closed = door.closed.clone();
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(WRITE_BUFFER)
        .serve_connection(TokioIo::new(stream), service_fn(|request| call::answer(&door, request)));
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        // A connection that breaks concerns its client alone, which sees it.
        _ = serving => {}
    }
}
