//! Web layer: authorization, REST API, the way to the sockets, and the embedded UI. Holds no
//! session rules.
//!
//! | module | content |
//! |---|---|
//! | [`auth`] | decides whether a request passes; pure. [`middleware`] calls it for each request |
//! | [`middleware`] | also sets the security headers and the form of each error |
//! | [`sessions`] · [`journal`] · [`files`] · [`admin`] · [`health`] | REST |
//! | [`openapi`] | OpenAPI document of the REST API |
//! | [`page`] | page of a session, with its first screen as data |
//! | [`assets`] | files of the UI, at all other addresses |
//! | [`error`] | failures, as one JSON form and as a page for a browser |
//!
//! See docs/internals/sockets.md for the sockets.

use std::{net::TcpListener, sync::Arc};

use actix::Addr;
use actix_web::{
    App, Error, HttpRequest,
    body::BoxBody,
    dev::{Server, ServiceFactory, ServiceRequest, ServiceResponse},
    http::Uri,
    middleware::from_fn,
    web::{self, Data, JsonConfig, Payload, ServiceConfig},
};

use crate::{
    actor_registry::ActorRegistry,
    config::Config,
    directory::Directory,
    frontend::{self, AttachQuery},
    gateway::ModelChoice,
    link::StartLimiter,
    net::{HttpLimits, HttpServer, KeyedThreads},
    sandbox::{SandboxDriver, WorkspaceDirs},
    store::{SessionId, Store},
    sweeper::Sweeper,
};

mod admin;
mod assets;
mod auth;
mod error;
mod files;
mod health;
mod journal;
mod middleware;
mod openapi;
mod page;
mod request;
mod sessions;
mod stream;
#[cfg(test)]
mod tests;

pub use auth::Auth;
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

/// Starts the HTTP server on `listener`, with WebSockets on `threads`. Handles no signals: the
/// caller does.
///
/// # Errors
/// The listener cannot be registered with the server.
pub fn serve(
    services: WebServices,
    auth: Auth,
    threads: KeyedThreads,
    listener: TcpListener,
) -> std::io::Result<Server> {
    let config = &services.config.server;
    let limits = HttpLimits {
        workers: config.workers,
        max_connections: config.max_connections,
        header_timeout: config.header_timeout.0,
        keep_alive: config.keep_alive.0,
    };
    let (services, auth) = (Data::new(services), Data::new(auth));
    HttpServer { limits, threads, key_of: session_in_address }
        .serve(listener, move || application(services.clone(), auth.clone()))
}

/// Returns the session that the address of a socket names, if any.
fn session_in_address(uri: &Uri) -> Option<SessionId> {
    let chat_session = uri.path().strip_prefix("/ws/sessions/").and_then(|rest| rest.split('/').next());
    let query_session = || uri.query()?.split('&').find_map(|pair| pair.strip_prefix("session="));
    chat_session.or_else(query_session)?.parse().ok()
}

/// Returns the application: middleware and routes.
fn application(
    services: Data<WebServices>,
    auth: Data<Auth>,
) -> App<
    impl ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<BoxBody>, Error = Error, InitError = ()>,
> {
    // The last wrapper is the outermost.
    let app = App::new().wrap(from_fn(middleware::authorize)).wrap(from_fn(middleware::security_headers));
    app.configure(move |app| routes(app, services, auth))
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
