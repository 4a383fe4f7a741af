//! The web: who may enter, the REST API, the way to the sockets, and the embedded UI. It knows no rules of a session.
//!
//! | module | what it answers |
//! |---|---|
//! | [`judge`] | whether a request may pass; pure. [`gate`] asks it for every one, and dresses every answer |
//! | [`patience`] | how long a body may take |
//! | [`sessions`] · [`journal`] · [`admin`] · [`health`] | REST |
//! | [`handover`] [`upgrade`] | to which thread a connection goes that leaves HTTP, and what becomes of it there |
//! | [`openapi`] | what REST there is |
//! | [`page`] | the page of a session, with what it shows first |
//! | [`assets`] | everything else: the UI |
//! | [`error`] | every failure, in one form, and as a page for whoever opened an address |

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

/// The name of the agent that every server has.
const AGENT: &str = "greenroom";

/// What the web needs of the rest.
pub struct WebServices {
    pub directory: Addr<Directory>,
    pub sweeper: Addr<Sweeper>,
    pub start_limiter: Arc<StartLimiter>,
    pub sockets: Arc<frontend::FrontendServices>,
    pub store: Arc<dyn Store>,
    pub actor_registry: ActorRegistry,
    pub sandbox: Arc<dyn SandboxDriver>,
    pub workspaces: WorkspaceDirs,
    /// What clients may choose.
    pub models: Vec<ModelChoice>,
    pub default_model: String,
    pub config: Arc<Config>,
    /// The name of this node.
    pub node: String,
}

/// A clock can count that far.
const MAX_IDLE_TIMEOUT: Duration = Duration::from_hours(24 * 365);

/// Serves until it is stopped; WebSockets on `threads`. Signals are the caller's.
pub fn serve(
    parts: WebServices,
    auth: Auth,
    threads: SessionThreads,
    listener: TcpListener,
) -> std::io::Result<Server> {
    let config = parts.config.clone();
    let (parts, auth) = (Data::new(parts), Data::new(auth));
    let app = move || {
        let (parts, auth) = (parts.clone(), auth.clone());
        // The last one is outermost.
        let app = App::new().wrap(from_fn(middleware::authorize)).wrap(from_fn(middleware::security_headers));
        // Nothing here makes an address from what the application is configured with.
        map_config(app.configure(move |app| routes(app, parts, auth)), |_| AppConfig::default())
    };
    let handover = ConnectionMigrator::new(threads, app.clone());
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let workers = if config.server.workers == 0 { cores } else { config.server.workers };
    let server = Server::build()
        .workers(workers)
        .max_concurrent_connections(connection_limit(config.server.max_connections).div_ceil(workers))
        .shutdown_timeout(5)
        .disable_signals();
    let ending = server.graceful_shutdown_signal();
    // What `actix_web::HttpServer` would do, but for the connections that leave HTTP, about which it cannot be asked.
    let quiet = config.server.keep_alive.0.saturating_add(config.server.header_timeout.0).min(MAX_IDLE_TIMEOUT);
    let connections = move || {
        let ending = ending.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let ending = ending.clone();
                async move { ending.notified().await }
            })
            .client_request_timeout(config.server.header_timeout.0)
            .client_disconnect_timeout(Duration::from_secs(5))
            .keep_alive(config.server.keep_alive.0)
            // Frames are small and come by themselves: none of them may wait for the acknowledgement of the one before.
            .tcp_nodelay(true)
            .on_connect_ext(TcpConnection::register)
            .upgrade(ws_transport::upgrade_service(app(), handover.clone()))
            .finish(app())
            .tcp();
        counted_connections(http, quiet)
    };
    Ok(server.listen("web", listener, connections)?.run())
}

/// How many are taken up. Further ones wait in the kernel, and harm nobody there.
fn connection_limit(configured: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| most as usize);
    let most = max_connections(configured, descriptors);
    if most < configured {
        info!(
            "{most} connections at a time and not {configured}: the system gives {descriptors} descriptors (`ulimit -n`)"
        );
    }
    most
}

/// As many as are configured, if that leaves a quarter of all descriptors to the journal, the sandboxes and the models.
fn max_connections(configured: usize, descriptors: usize) -> usize {
    configured.min(descriptors - descriptors / 4)
}

/// Everything that has an address.
fn routes(app: &mut ServiceConfig, parts: Data<WebServices>, auth: Data<Auth>) {
    let max_body = usize::try_from(parts.config.server.max_body.as_u64()).unwrap_or(usize::MAX);
    app.app_data(parts)
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

/// The session socket. Whoever gets here may, so from here on it is the frontend's.
async fn socket(
    req: HttpRequest,
    body: Payload,
    query: QueryParams<AttachQuery>,
    parts: Data<WebServices>,
) -> ApiResult {
    frontend::open(&req, body, &query.0, parts.sockets.clone()).map_err(|e| bad_handshake(&e))
}

/// `GET /ws/sessions/{id}/chat`
async fn chat(req: HttpRequest, body: Payload, parts: Data<WebServices>) -> ApiResult {
    frontend::open_chat(&req, body, req.match_info().query("id"), parts.sockets.clone()).map_err(|e| bad_handshake(&e))
}
