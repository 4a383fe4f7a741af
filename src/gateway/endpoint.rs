//! Endpoint of one session: a Unix socket that serves HTTP/1.1.

use std::{
    collections::BTreeSet,
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

use super::{
    Gateway, SessionAccount, call,
    memory::{MemoryPool, MemoryShare},
    relay::RELAY_BUFFER_BYTES,
    route::GatewayRoute,
};

/// Connections that one session may hold. Further ones wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 64;

/// Calls that one session may have running. Further ones wait until a call ends.
const MAX_CALLS: usize = 16;

/// Largest request body, bytes. Also the limit of all request bodies that one session holds at a
/// time. A body that does not fit waits until the provider answers earlier calls.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Request bodies of all sessions, bytes.
const BODY_POOL_BYTES: usize = 128 * 1024 * 1024;

/// Request bodies that each session may hold beside the pool, bytes. Above the usual size.
pub(super) const BODY_SHARE: usize = 2 * 1024 * 1024;

/// Buffered response data of all sessions, bytes.
const ANSWER_POOL_BYTES: usize = 64 * 1024 * 1024;

/// Response data that each session may buffer beside the pool, bytes. Keeps streams going if the
/// buffers of paused sandboxes fill the pool.
const ANSWER_SHARE: usize = 256 * 1024;

/// Largest number of removed names that one session's log receives. A client may invent names.
const MAX_REMOVED_NAMES: usize = 64;

/// Time limit for a complete request head, on an idle or a slow connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit of hyper's own buffer per connection, bytes. The buffer holds data that the client has not
/// taken yet.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

/// Open endpoint. Dropping it closes the socket and all its connections.
pub struct GatewayEndpoint {
    context: Arc<EndpointContext>,
}

/// State shared by the tasks of one endpoint.
pub(super) struct EndpointContext {
    pub(super) gateway: Gateway,
    pub(super) account: Arc<dyn SessionAccount>,
    /// Memory for response data that clients have not read yet.
    pub(super) answers: MemoryShare,
    /// Memory for request bodies.
    pub(super) bodies: MemoryShare,
    pub(super) calls: Arc<Semaphore>,
    closed: CancellationToken,
    /// Token of the running calls, a child of `closed`. An interrupt cancels and replaces it.
    abort_token: Mutex<CancellationToken>,
    /// Removed parts of requests that the session's log names already.
    removed_names: Mutex<BTreeSet<String>>,
}

/// Memory of all endpoints of a process.
pub(super) struct GatewayMemory {
    bodies: MemoryPool,
    answers: MemoryPool,
}

impl Default for GatewayMemory {
    fn default() -> GatewayMemory {
        GatewayMemory {
            bodies: MemoryPool::new(BODY_POOL_BYTES, MAX_BODY_BYTES, BODY_SHARE),
            answers: MemoryPool::new(ANSWER_POOL_BYTES, RELAY_BUFFER_BYTES, ANSWER_SHARE),
        }
    }
}

impl GatewayEndpoint {
    pub(super) fn open(gateway: Gateway, listener: UnixListener, account: Arc<dyn SessionAccount>) -> GatewayEndpoint {
        let context = EndpointContext::new(gateway, account);
        tokio::spawn(serve(listener, context.clone()));
        GatewayEndpoint { context }
    }

    /// Aborts all running calls of this session: streaming, waiting for a provider, or waiting for
    /// their next attempt. Later calls are not affected.
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
    pub(super) fn new(gateway: Gateway, account: Arc<dyn SessionAccount>) -> Arc<EndpointContext> {
        let closed = CancellationToken::new();
        Arc::new(EndpointContext {
            answers: gateway.memory().answers.share(),
            bodies: gateway.memory().bodies.share(),
            gateway,
            account,
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            abort_token: Mutex::new(closed.child_token()),
            removed_names: Mutex::default(),
            closed,
        })
    }

    /// Waits for the end of a call without a socket, whose caller cancels `left`. A gateway that
    /// closes ends the call, and waits until the session has its usage.
    pub(super) async fn attend(self: Arc<EndpointContext>, left: CancellationToken) {
        let mut closing = self.gateway.closing();
        tokio::select! {
            () = left.cancelled() => {}
            () = until_closing(&mut closing) => self.closed.cancel(),
        }
        let _all = self.calls.acquire_many(MAX_CALLS as u32).await;
    }

    /// Returns the token that the next interrupt cancels.
    pub(super) fn current_abort_token(&self) -> CancellationToken {
        self.abort_token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Logs the parts of a request that do not pass. Each is named once per session.
    pub(super) fn log_removed(&self, route: GatewayRoute, removed: Vec<String>) {
        let mut named = self.removed_names.lock().unwrap_or_else(PoisonError::into_inner);
        for name in removed {
            if named.len() < MAX_REMOVED_NAMES && named.insert(name.clone()) {
                self.account.log(&format!("the model gateway removed {name} from a request ({route:?})"));
            }
        }
    }
}

async fn serve(listener: UnixListener, context: Arc<EndpointContext>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let (closed, mut closing) = (context.closed.clone(), context.gateway.closing());
    loop {
        let accepted = tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = until_closing(&mut closing) => {
                // Cancelled on the thread of the connections, so they close before a call answers
                // that it was interrupted. The agent repeats the call at the next server.
                closed.cancel();
                drop(listener);
                // A call keeps its permit until its session has received the usage.
                let _all = context.calls.acquire_many(MAX_CALLS as u32).await;
                return;
            }
            accepted = accept(&listener, &permits) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => drop(tokio::spawn(serve_connection(stream, permit, context.clone()))),
            Err(e) => {
                // Most likely out of file descriptors. The connection stays in the backlog until
                // one is free.
                tracing::warn!(error = %e, "cannot accept a connection to the model gateway");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Returns when the gateway closes or is dropped.
async fn until_closing(closing: &mut watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

async fn accept(listener: &UnixListener, permits: &Arc<Semaphore>) -> io::Result<(UnixStream, OwnedSemaphorePermit)> {
    let permit = permits.clone().acquire_owned().await.expect("the connection semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

async fn serve_connection(stream: UnixStream, _place: OwnedSemaphorePermit, context: Arc<EndpointContext>) {
    let closed = context.closed.clone();
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(WRITE_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service_fn(|request| call::handle(&context, request)));
    tokio::select! {
        biased;
        () = closed.cancelled() => {}
        // A broken connection affects only its client, which sees it break.
        _ = serving => {}
    }
}
