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

use super::{Gateway, SessionAccount, call, relay};

/// The most connections that one session holds. Further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;

/// The most calls that one session has running. Further ones wait for one to end.
const MAX_CALLS: usize = 16;

/// The largest request body, bytes, and the most of request bodies that one session keeps at a time. What does not fit
/// waits until the provider has begun to answer others.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// How long a connection may be without a whole request head: idle, or dawdling.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// How much of what a client has not taken yet hyper itself holds, bytes.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// An open endpoint. Dropping it closes the socket and every connection to it.
pub struct GatewayEndpoint {
    context: Arc<EndpointContext>,
}

/// What the tasks of one endpoint share.
pub(super) struct EndpointContext {
    pub(super) gateway: Gateway,
    pub(super) account: Arc<dyn SessionAccount>,
    /// Room for what clients have not read yet, in bytes.
    pub(super) buffer: Arc<Semaphore>,
    /// Room for request bodies, in bytes.
    pub(super) bodies: Arc<Semaphore>,
    pub(super) calls: Arc<Semaphore>,
    closed: CancellationToken,
    /// Cancelled by the next interrupt, and replaced by it. A child of `closed`.
    abort_token: Mutex<CancellationToken>,
}

impl GatewayEndpoint {
    pub(super) fn open(gateway: Gateway, listener: UnixListener, account: Arc<dyn SessionAccount>) -> GatewayEndpoint {
        let closed = CancellationToken::new();
        let context = Arc::new(EndpointContext {
            gateway,
            account,
            buffer: Arc::new(Semaphore::new(relay::RELAY_BUFFER_BYTES)),
            bodies: Arc::new(Semaphore::new(MAX_BODY_BYTES)),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            abort_token: Mutex::new(closed.child_token()),
            closed,
        });
        tokio::spawn(serve(listener, context.clone()));
        GatewayEndpoint { context }
    }

    /// Ends every call of this session at once: those that stream, those that wait for a provider, and those that wait for
    /// their next attempt. Calls that come later are not touched.
    pub fn abort_calls(&self) {
        let next = self.context.closed.child_token();
        let running =
            std::mem::replace(&mut *self.context.abort_token.lock().unwrap_or_else(PoisonError::into_inner), next);
        running.cancel();
    }
}

#[cfg(test)]
impl GatewayEndpoint {
    pub(super) fn context(&self) -> Arc<EndpointContext> {
        self.context.clone()
    }
}

impl Drop for GatewayEndpoint {
    fn drop(&mut self) {
        self.context.closed.cancel();
    }
}

impl EndpointContext {
    /// What the interrupt of a call that begins now will cancel.
    pub(super) fn current_abort_token(&self) -> CancellationToken {
        self.abort_token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: UnixListener, door: Arc<EndpointContext>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (closed, mut closing) = (door.closed.clone(), door.gateway.closing());
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = until_closing(&mut closing) => {
                // From the thread of the connections, so that they go before a call on them answers that it was interrupted: the
                // agent is to ask the next server again.
                closed.cancel();
                drop(listener);
                // A call has its place until its session was told what it took.
                let _all = door.calls.acquire_many(MAX_CALLS as u32).await;
                return;
            }
            accepted = accept(&listener, &places) => accepted,
        };
        match accepted {
            Ok((stream, place)) => drop(tokio::spawn(serve_connection(stream, place, door.clone()))),
            Err(e) => {
                // Out of descriptors, most likely: the connection stays in the backlog until there is one.
                tracing::warn!(error = %e, "cannot accept a connection to the model gateway");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Ends when the gateway closes, or has gone.
async fn until_closing(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn accept(listener: &UnixListener, places: &Arc<Semaphore>) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.expect("the semaphore of places is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

async fn serve_connection(stream: UnixStream, _place: OwnedSemaphorePermit, door: Arc<EndpointContext>) {
    let closed = door.closed.clone();
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(WRITE_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(|request| call::handle(&door, request)));
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        // A connection that breaks concerns its client alone, which sees it.
        _ = serving => {}
    }
}
