//! HTTP server over one listener. Does the work of `actix_web::HttpServer`, which has no hook for
//! connections that leave HTTP.

use std::{hash::Hash, io, net::TcpListener, sync::Arc, time::Duration};

use actix_http::{HttpService, Protocol, Request, Uri, error::DispatchError};
use actix_service::{IntoServiceFactory, ServiceFactoryExt, fn_service, map_config};
use actix_web::{
    Error,
    body::MessageBody,
    dev::{AppConfig, Server, ServiceFactory, ServiceResponse},
};
use rustix::process::{Resource, getrlimit};
use rustls::ServerConfig;
use tokio::{net::TcpStream, time::timeout};
use tracing::debug;

use super::{
    client_stream::ClientStream,
    connection_migration::{ConnectionMigrator, counted_connections},
    http_connection::{HttpConnection, UnparsedAnswers},
    keyed_threads::KeyedThreads,
    tcp_connection::TcpConnection,
    ws_transport::upgrade_service,
};

/// Largest idle timeout. A tokio timer can hold this duration.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_hours(24 * 365);
/// Limit for a client's close after the last answer, and for answers in progress at shutdown.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Limits of an HTTP server.
#[derive(Debug, Clone, Copy)]
pub struct HttpLimits {
    /// Number of threads that serve HTTP. 0: one for each core.
    pub workers: usize,
    /// Number of connections to accept, over all threads.
    pub max_connections: usize,
    /// Time for the head of a connection's first request.
    pub header_timeout: Duration,
    /// Time until the first byte of each later request.
    pub keep_alive: Duration,
}

/// HTTP server that moves each WebSocket to the thread of its key.
pub struct HttpServer<K> {
    pub limits: HttpLimits,
    pub threads: KeyedThreads,
    /// Returns the key that an address names, if any.
    pub key_of: fn(&Uri) -> Option<K>,
    /// Answers to requests that cannot be parsed.
    pub unparsed: UnparsedAnswers,
    /// `None`: plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

impl<K: Hash + Clone + Send + 'static> HttpServer<K> {
    /// Serves `app` on `listener`, with WebSockets on the keyed threads. Handles no signals: the
    /// caller does.
    ///
    /// # Errors
    /// The listener cannot be registered with the server.
    pub fn serve<F, I, S, B>(self, listener: TcpListener, app: F) -> io::Result<Server>
    where
        F: Fn() -> I + Clone + Send + 'static,
        I: IntoServiceFactory<S, Request> + 'static,
        S: ServiceFactory<Request, Config = AppConfig, Response = ServiceResponse<B>, Error = Error, InitError = ()>
            + 'static,
        S::Service: 'static,
        B: MessageBody + 'static,
    {
        let HttpServer { limits, threads, key_of, unparsed, tls } = self;
        // `AppConfig` holds the host for generated URLs. No route generates any, so the default
        // suffices.
        let app = move || map_config(app(), |()| AppConfig::default());
        let migrator = ConnectionMigrator::new(threads, key_of, app.clone());
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers = if limits.workers == 0 { cores } else { limits.workers };
        let server = Server::build()
            .workers(workers)
            .max_concurrent_connections(connection_limit(limits.max_connections).div_ceil(workers))
            .shutdown_timeout(DISCONNECT_TIMEOUT.as_secs())
            .disable_signals();
        let shutdown = server.graceful_shutdown_signal();
        let idle_timeout = limits.keep_alive.saturating_add(limits.header_timeout).min(MAX_IDLE_TIMEOUT);
        let connections = move || {
            let shutdown = shutdown.clone();
            let http = HttpService::build()
                .graceful_shutdown_signal(move || {
                    let shutdown = shutdown.clone();
                    async move { shutdown.notified().await }
                })
                .client_request_timeout(limits.header_timeout)
                .client_disconnect_timeout(DISCONNECT_TIMEOUT)
                .keep_alive(limits.keep_alive)
                .on_connect_ext(|connection: &HttpConnection, data| TcpConnection::register(connection.tcp(), data))
                .upgrade(upgrade_service(app(), migrator.clone()))
                .finish(app());
            let tls = tls.clone();
            let connections = fn_service(move |stream: TcpStream| {
                let tls = tls.clone();
                async move {
                    // Frames are small. With Nagle's algorithm a frame waits for the
                    // acknowledgement of the last one.
                    if let Err(e) = stream.set_nodelay(true) {
                        debug!("a connection keeps Nagle's algorithm: {e}");
                    }
                    let peer = stream.peer_addr().ok();
                    let stream = open_stream(stream, tls, limits.header_timeout).await?;
                    Ok::<_, DispatchError>((HttpConnection::new(stream, unparsed), Protocol::Http1, peer))
                }
            });
            counted_connections(connections.and_then(http), idle_timeout)
        };
        Ok(server.listen("web", listener, connections)?.run())
    }
}

/// Performs the TLS handshake within `limit`, if this server has TLS.
async fn open_stream(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    limit: Duration,
) -> Result<ClientStream, DispatchError> {
    let Some(tls) = tls else { return Ok(ClientStream::plain(stream)) };
    match timeout(limit, ClientStream::accept_tls(stream, tls)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(e)) => {
            debug!("a TLS handshake failed: {e}");
            Err(DispatchError::Io(e))
        }
        Err(_) => Err(DispatchError::SlowRequestTimeout),
    }
}

/// Returns the number of connections to accept. Further connections wait in the kernel's backlog.
fn connection_limit(configured: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |soft| soft as usize);
    let limit = max_connections(configured, descriptors);
    if limit < configured {
        debug!(
            "accepting {limit} connections instead of {configured}: the system allows {descriptors} file descriptors; raise `ulimit -n`"
        );
    }
    limit
}

/// Returns `configured`, reduced to three quarters of the file descriptors.
///
/// The journal, the sandboxes and the model connections need the remaining quarter.
fn max_connections(configured: usize, descriptors: usize) -> usize {
    configured.min(descriptors - descriptors / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_the_descriptors_stays_reserved() {
        assert_eq!(max_connections(25_000, 20_000), 15_000);
        assert_eq!(max_connections(25_000, 1_048_576), 25_000);
        assert_eq!(max_connections(8, usize::MAX), 8);
        assert_eq!(max_connections(25_000, 3), 3, "three quarters of three, rounded up");
    }
}
