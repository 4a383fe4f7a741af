//! Web layer: authorization, REST API, the way to the sockets, and the embedded UI. Holds no
//! session rules.
//!
//! The table is in reading order, base modules first. A module imports only from rows above its
//! own; `tests/layers.rs` checks this.
//!
//! | module | content |
//! |---|---|
//! | [`wrong_tokens`] | delays and reports requests with a wrong token |
//! | [`tickets`] | admissions of one address, for links that a browser follows itself |
//! | [`auth`] | decides whether a request passes; pure |
//! | [`assets`] · [`shell`] | files of the UI; markup around the application and around errors |
//! | [`error`] | failures, as one JSON form and as a page for a browser |
//! | [`search`] | search through the events of all sessions |
//! | [`request`] · [`state`] | parts of a request; parts of the server that the routes use |
//! | [`client_facts`] | address, scheme and host of the client behind proxies; the base path |
//! | [`sign_in`] | cookie and name of a browser that signs in |
//! | [`event_reads`] · [`event_stream`] | reads of the journal; server-sent events |
//! | [`middleware`] | authorizes each request; sets security headers and the form of errors |
//! | [`route_table`] | registers routes, and keeps router and OpenAPI document equal |
//! | [`routes`] | REST API, sockets and page: one module for each kind of thing |
//! | [`openapi`] | OpenAPI document of all documented routes |
//!
//! See docs/internals/sockets.md for the sockets.

use std::{net::TcpListener, sync::Arc};

use actix_web::{
    App, Error,
    body::BoxBody,
    dev::{Server, ServiceFactory, ServiceRequest, ServiceResponse},
    middleware::from_fn,
    web::{self, Data, JsonConfig, ServiceConfig},
};

use crate::net::{HttpLimits, HttpServer, KeyedThreads};

mod assets;
mod auth;
mod client_facts;
mod error;
mod event_reads;
mod event_stream;
mod middleware;
mod openapi;
mod request;
mod route_table;
mod routes;
mod search;
mod shell;
mod sign_in;
mod state;
#[cfg(test)]
mod tests;
mod tickets;
mod wrong_tokens;

pub use auth::Auth;
use route_table::{RouteTable, readable};
use routes::{page, sockets};
pub use search::SearchLimiter;
pub use state::WebServices;

/// Starts the HTTP server on `listener`, with WebSockets on `threads`, and with TLS if `tls` is
/// given. Handles no signals: the caller does.
///
/// # Errors
/// The listener cannot be registered with the server.
pub fn serve(
    services: WebServices,
    auth: Auth,
    threads: KeyedThreads,
    listener: TcpListener,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> std::io::Result<Server> {
    let config = &services.config.server;
    let limits = HttpLimits {
        workers: config.workers,
        max_connections: config.max_connections,
        header_timeout: config.header_timeout.0,
        keep_alive: config.keep_alive.0,
    };
    let (services, auth) = (Data::new(services), Data::new(auth));
    HttpServer { limits, threads, key_of: sockets::session_in_address, unparsed: middleware::unparsed_answers(), tls }
        .serve(listener, move || application(services.clone(), auth.clone()))
}

/// Returns the application: middleware and routes.
fn application(
    services: Data<WebServices>,
    auth: Data<Auth>,
) -> App<
    impl ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>,
> {
    // The last wrapper is the outermost.
    let app = App::new()
        .wrap(from_fn(middleware::require_utf8))
        .wrap(from_fn(middleware::authorize))
        .wrap(from_fn(middleware::security_headers))
        .wrap(from_fn(client_facts::strip_base_path));
    app.configure(move |app| register(app, services, auth))
}

/// Registers all routes.
fn register(app: &mut ServiceConfig, services: Data<WebServices>, auth: Data<Auth>) {
    let max_body = usize::try_from(services.config.server.max_body.as_u64()).unwrap_or(usize::MAX);
    app.app_data(services)
        .app_data(auth)
        .app_data(JsonConfig::default().limit(max_body).error_handler(error::bad_json))
        .default_service(web::to(page::serve));
    let mut table = RouteTable::new(app);
    for routes in routes::documented() {
        table.documented(routes);
    }
    table
        .undocumented(readable("/ws", sockets::session))
        .undocumented(readable("/ws/sessions/{id}/chat", sockets::chat))
        .undocumented(readable("/ws/sessions/{id}/terminal", sockets::terminal))
        .undocumented(readable("/api/openapi.json", openapi::document))
        .undocumented(web::resource("/api/docs").to(page::serve))
        // Last: takes each address below `/api` that has no route.
        .undocumented(web::scope("/api").default_service(web::to(routes::not_found)));
}
