//! Web layer: authorization, REST API, the way to the sockets, and the embedded UI. Holds no
//! session rules.
//!
//! | module | content |
//! |---|---|
//! | [`auth`] | decides whether a request passes; pure. [`middleware`] calls it for each request |
//! | [`middleware`] | also sets the security headers and the form of each error |
//! | [`body_timeout`] · [`idle_timeout`] | limits for a request's body; for a silent connection |
//! | [`sessions`] · [`journal`] · [`files`] · [`admin`] · [`health`] | REST |
//! | [`connection_migration`] · [`ws_transport`] | connections that leave HTTP |
//! | [`openapi`] | OpenAPI document of the REST API |
//! | [`page`] | page of a session, with its first screen as data |
//! | [`assets`] | files of the UI, at all other addresses |
//! | [`error`] | failures, as one JSON form and as a page for a browser |
//!
//! See docs/internals/sockets.md for the sockets.

use std::{net::TcpListener, sync::Arc, time::Duration};

use actix::Addr;
use actix_http::HttpService;
use actix_service::map_config;
use actix_web::{
    App, HttpRequest,
    dev::{AppConfig, Server},
    middleware::from_fn,
    web::{self, Data, JsonConfig, Payload, ServiceConfig},
};
use rustix::process::{Resource, getrlimit};
use tracing::info;

use crate::{
    actor_registry::ActorRegistry,
    config::Config,
    directory::Directory,
    frontend::{self, AttachQuery},
    gateway::ModelChoice,
    link::StartLimiter,
    sandbox::{SandboxDriver, WorkspaceDirs},
    session_threads::SessionThreads,
    store::Store,
    sweeper::Sweeper,
};

mod admin;
mod assets;
mod auth;
mod body_timeout;
mod connection;
mod connection_migration;
mod error;
mod files;
mod health;
mod idle_timeout;
mod journal;
mod middleware;
mod openapi;
mod page;
mod request;
mod sessions;
mod stream;
#[cfg(test)]
mod tests;
mod ws_transport;

pub use auth::Auth;
use connection::TcpConnection;
use connection_migration::{ConnectionMigrator, counted_connections};
use error::{ApiResult, bad_handshake};
use request::QueryParams;

/// Name of the agent that every server offers.
const AGENT: &str = "greenroom";

/// Parts of the server that the web layer uses.
pub struct WebServices {
    pub directory: Addr<Directory>,
    pub sweeper: Addr<Sweeper>,
    pub start_limiter: Arc<StartLimiter>,
    pub sockets: Arc<frontend::FrontendServices>,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub workspaces: WorkspaceDirs,
    /// Models that clients may choose.
    pub models: Vec<ModelChoice>,
    pub default_model: String,
    pub config: Arc<Config>,
    /// Name of this node.
    pub node: String,
}

/// Largest idle timeout. A tokio timer can hold this duration.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Starts the HTTP server on `listener`, with WebSockets on `threads`. Handles no signals: the
/// caller does.
///
/// # Errors
/// The listener cannot be registered with the server.
pub fn serve(
    services: WebServices,
    auth: Auth,
    threads: SessionThreads,
    listener: TcpListener,
) -> std::io::Result<Server> {
    let config = services.config.clone();
    let (services, auth) = (Data::new(services), Data::new(auth));
    let app = move || {
        let (services, auth) = (services.clone(), auth.clone());
        // The last wrapper is the outermost.
        let app = App::new().wrap(from_fn(middleware::authorize)).wrap(from_fn(middleware::security_headers));
        // `AppConfig` holds the host for generated URLs. No route generates any, so the default
        // suffices.
        map_config(app.configure(move |app| routes(app, services, auth)), |_| AppConfig::default())
    };
    let migrator = ConnectionMigrator::new(threads, app.clone());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let workers = if config.server.workers == 0 { cores } else { config.server.workers };
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections(connection_limit(config.server.max_connections).div_ceil(workers))
        .shutdown_timeout(5)
        .disable_signals();
    let shutdown = server.graceful_shutdown_signal();
    // Does the work of `actix_web::HttpServer`, which has no hook for connections that leave HTTP.
    let idle_timeout = config.server.keep_alive.0.saturating_add(config.server.header_timeout.0).min(MAX_IDLE_TIMEOUT);
    let connections = move || {
        let shutdown = shutdown.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let shutdown = shutdown.clone();
                async move { shutdown.notified().await }
            })
            .client_request_timeout(config.server.header_timeout.0)
            .client_disconnect_timeout(Duration::from_secs(5))
            .keep_alive(config.server.keep_alive.0)
            // Frames are small. With Nagle's algorithm a frame waits for the acknowledgement of the
            // last one.
            .tcp_nodelay(true)
            .on_connect_ext(TcpConnection::register)
            .upgrade(ws_transport::upgrade_service(app(), migrator.clone()))
            .finish(app())
            .tcp();
        counted_connections(http, idle_timeout)
    };
    Ok(server.listen("web", listener, connections)?.run())
}

/// Returns the number of connections to accept. Further connections wait in the kernel's backlog.
fn connection_limit(configured: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |soft| soft as usize);
    let limit = max_connections(configured, descriptors);
    if limit < configured {
        info!(
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

/// Registers all routes.
fn routes(app: &mut ServiceConfig, services: Data<WebServices>, auth: Data<Auth>) {
    let max_body = usize::try_from(services.config.server.max_body.as_u64()).unwrap_or(usize::MAX);
    app.app_data(services)
        .app_data(auth)
        .app_data(JsonConfig::default().limit(max_body).error_handler(error::bad_json))
        .service(web::resource("/healthz").get(health::alive).route(web::head().to(health::alive)))
        .service(web::resource("/readyz").get(health::ready).route(web::head().to(health::ready)))
        .service(web::resource("/metrics").get(health::metrics))
        .service(web::resource("/ws").get(socket))
        .service(web::resource("/ws/sessions/{id}/chat").get(chat))
        .service(web::resource("/sessions/{id}").get(page::session).default_service(web::to(assets::serve)))
        .service(web::scope("/api").configure(api).default_service(web::to(admin::not_found)))
        .default_service(web::to(assets::serve));
}

fn api(api: &mut ServiceConfig) {
    api.service(web::resource("/openapi.json").get(openapi::document))
        .service(web::resource("/docs").to(assets::serve))
        .service(web::resource("/options").get(admin::options))
        .service(web::resource("/admin/actors").get(admin::actors))
        .service(web::resource("/admin/sandboxes").get(admin::sandboxes))
        .service(web::resource("/admin/sweep").post(admin::sweep))
        .service(web::resource("/sessions").get(sessions::list).post(sessions::create))
        .service(web::resource("/sessions/{id}").get(sessions::look).patch(sessions::change).delete(sessions::end))
        .service(web::resource("/sessions/{id}/messages").post(sessions::message))
        .service(web::resource("/sessions/{id}/interrupt").post(sessions::interrupt))
        .service(web::resource("/sessions/{id}/pause").post(sessions::pause))
        .service(web::resource("/sessions/{id}/resume").post(sessions::resume))
        .service(web::resource("/sessions/{id}/stop").post(sessions::stop))
        .service(web::resource("/sessions/{id}/events").get(journal::events))
        .service(web::resource("/sessions/{id}/export").get(journal::export))
        .service(web::resource("/sessions/{id}/contents/{name}").get(journal::content))
        .service(web::resource("/sessions/{id}/files/{path:.*}").put(files::put))
        .service(web::resource("/sessions/{id}/logs").get(admin::logs));
}

/// Opens the session socket, `GET /ws`. The middleware has authorized the request before.
async fn socket(
    req: HttpRequest,
    body: Payload,
    query: QueryParams<AttachQuery>,
    services: Data<WebServices>,
) -> ApiResult {
    frontend::open(&req, body, &query.0, services.sockets.clone()).map_err(|e| bad_handshake(&e))
}

/// Opens the chat socket, `GET /ws/sessions/{id}/chat`.
async fn chat(req: HttpRequest, body: Payload, services: Data<WebServices>) -> ApiResult {
    frontend::open_chat(&req, body, req.match_info().query("id"), services.sockets.clone())
        .map_err(|e| bad_handshake(&e))
}
