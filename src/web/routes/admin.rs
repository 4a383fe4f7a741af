//! Routes for operators: live actors, sandboxes, a sandbox's output, sweeps.

use std::time::Duration;

use actix_web::{HttpResponse, web::Data};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    actor_registry::ActorStatus,
    sandbox::{FoundSandbox, SandboxDriver, SandboxPresence},
    sweeper::{Sweep, Swept},
    web::{
        error::{ApiResult, ErrorAnswer},
        request::{QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![actors, sandboxes, sweep, logs];

/// Limit for reading one sandbox's resource use. Sandboxes are measured in parallel, so the limit
/// holds for the whole answer.
const STATS_TIMEOUT: Duration = Duration::from_secs(2);

/// Live actor of this server.
#[derive(Serialize, utoipa::ToSchema)]
struct ActorRow {
    #[serde(flatten)]
    row: ActorStatus,
    node: String,
}

/// Sandbox of this node.
#[derive(Serialize, utoipa::ToSchema)]
struct SandboxRow {
    session: String,
    driver: &'static str,
    /// `running`, `frozen` or `exited`.
    state: &'static str,
    /// Memory in use, bytes. `null` if the sandbox does not run or did not report within 2 s.
    memory_bytes: Option<u64>,
    /// CPU time so far, microseconds.
    cpu_us: Option<u64>,
    processes: Option<u64>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogsQuery {
    /// Number of bytes to return, from the end of the output. At most 1 MiB; 64 KiB by default.
    bytes: Option<usize>,
}

/// Lists the live actors of this server, oldest first.
#[utoipa::path(get, path = "/api/admin/actors", tag = "admin", responses((status = 200, body = [ActorRow])))]
async fn actors(services: Data<WebServices>) -> ApiResult {
    let rows = services.actor_registry.rows().into_iter();
    let items: Vec<_> = rows.map(|row| ActorRow { row, node: services.node.clone() }).collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items })))
}

/// Lists the sandboxes of this node, with their resource use.
#[utoipa::path(get, path = "/api/admin/sandboxes", tag = "admin",
    responses((status = 200, body = [SandboxRow]), (status = 503, body = ErrorAnswer)))]
async fn sandboxes(services: Data<WebServices>) -> ApiResult {
    let found = services.sandbox.list().await?;
    let items = join_all(found.into_iter().map(|found| measure(services.sandbox.as_ref(), found))).await;
    Ok(HttpResponse::Ok().json(json!({ "items": items })))
}

async fn measure(sandbox: &dyn SandboxDriver, found: FoundSandbox) -> SandboxRow {
    let stats = match found.presence {
        SandboxPresence::Running | SandboxPresence::Paused => {
            tokio::time::timeout(STATS_TIMEOUT, sandbox.stats(found.session)).await.ok().and_then(Result::ok)
        }
        SandboxPresence::Exited => None,
    };
    SandboxRow {
        session: found.session.to_string(),
        driver: found.driver,
        state: found.presence.name(),
        memory_bytes: stats.map(|stats| stats.memory_bytes),
        cpu_us: stats.map(|stats| stats.cpu_us),
        processes: stats.map(|stats| stats.processes),
    }
}

/// Runs the sweeper now and returns a report of the sweep.
#[utoipa::path(post, path = "/api/admin/sweep", tag = "admin", responses((status = 200, body = Swept)))]
async fn sweep(services: Data<WebServices>) -> ApiResult {
    Ok(HttpResponse::Ok().json(services.sweeper.send(Sweep).await?))
}

/// Returns the stdout and stderr of a session's sandbox: `{"content"}`.
#[utoipa::path(get, path = "/api/sessions/{id}/logs", tag = "admin", params(("id" = String, Path), LogsQuery),
    responses((status = 200, body = Object), (status = 404, body = ErrorAnswer)))]
async fn logs(services: Data<WebServices>, id: SessionPath, QueryParams(query): QueryParams<LogsQuery>) -> ApiResult {
    services.snapshot(id.0).await?;
    let bytes = query.bytes.unwrap_or(64 * 1024).min(1024 * 1024);
    let content = services.sandbox.logs(id.0, bytes).await?;
    Ok(HttpResponse::Ok().json(json!({ "content": content })))
}
