//! Network machinery beneath HTTP and the sockets: one listener, connections with limits, and the
//! threads that connections run on.
//!
//! Imports no other module. Keys, routes, authorization and error texts come from above.
//!
//! | module | content |
//! |---|---|
//! | [`listener`] | listening socket with its kernel options |
//! | [`http_server`] | HTTP server over the listener, with upgrades and a connection limit |
//! | [`tls`] · [`client_stream`] | certificate and key; stream to a client, plain or TLS |
//! | [`http_connection`] | answers to requests that cannot be parsed |
//! | [`tcp_connection`] | send timeout and free send buffer of a connection |
//! | [`idle_timeout`] · [`body_timeout`] | limits for a silent connection; for a request's body |
//! | [`keyed_threads`] | threads that work with a key runs on, one for each core |
//! | [`connection_migration`] · [`ws_transport`] | connections that leave HTTP |
//! | [`ws_handshake`] | check of a WebSocket handshake |
//! | [`wake_batch`] | batches of wake-ups from other threads |
//!
//! See docs/internals/sockets.md.

mod body_timeout;
mod client_stream;
mod connection_migration;
mod http_connection;
mod http_server;
mod idle_timeout;
mod keyed_threads;
mod listener;
mod tcp_connection;
mod tls;
pub mod wake_batch;
mod ws_handshake;
mod ws_transport;

/// Part of a client's message in several frames.
pub use actix_http::ws::Item as FragmentItem;
pub use body_timeout::apply_body_timeout;
pub use http_connection::{UnparsedAnswer, UnparsedAnswers};
pub use http_server::{HttpLimits, HttpServer};
pub use idle_timeout::ActiveResponse;
pub use keyed_threads::{KeyedThreads, ThreadIndex};
pub use listener::listen;
pub use tcp_connection::TcpConnection;
pub use tls::{TlsFileError, tls_config};
pub use ws_handshake::{WsHandshakeError, check_ws_handshake};

/// Client's end of HTTP and WebSockets, for tests of the layers above.
#[cfg(test)]
pub mod testkit {
    pub use actix_codec::{Decoder, Encoder};
    pub use actix_http::{
        Request,
        ws::{Codec, Frame, Message},
    };
}
