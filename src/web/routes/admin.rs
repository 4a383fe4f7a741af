//! Routes for operators: live actors, sandboxes, a sandbox's output, sweeps.

use std::time::Duration;

use actix_web::{HttpResponse, web::Data};
use futures::future::join_all;
use serde::{Deserialize, Serialize};

use crate::{
    actor_registry::ActorStatus,
    api_schema::api_schema,
    sandbox::{FoundSandbox, SandboxDriver, SandboxPresence},
    store::SessionId,
    sweeper::{Sweep, Swept},
    web::{
        error::ApiResult,
        request::{QueryNumber, QueryParams, SessionPath},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![actors, sandboxes, sweep, logs];

/// Limit for reading one sandbox's resource use. Sandboxes are measured in parallel, so the limit
/// holds for the whole answer.
const STATS_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a sandbox's output in an answer, unless the client names a number.
const DEFAULT_LOG_BYTES: usize = 64 * 1024;
/// Largest number of bytes of a sandbox's output in an answer.
const MAX_LOG_BYTES: usize = 1024 * 1024;

api_schema! {
    LogBytesSchema as "LogBytes" = QueryNumber::schema()
        .description(Some(format!("More than {MAX_LOG_BYTES} counts as {MAX_LOG_BYTES}.")))
        .default(Some(DEFAULT_LOG_BYTES.into()));
}

/// Live actors of this server, oldest first.
#[derive(Serialize, utoipa::ToSchema)]
struct ActorList {
    items: Vec<ActorRow>,
}

/// Live actor of this server.
#[derive(Serialize, utoipa::ToSchema)]
struct ActorRow {
    #[serde(flatten)]
    row: ActorStatus,
    node: String,
}

/// Sandboxes of this node.
#[derive(Serialize, utoipa::ToSchema)]
struct SandboxList {
    items: Vec<SandboxRow>,
}

/// Sandbox of this node.
#[derive(Serialize, utoipa::ToSchema)]
struct SandboxRow {
    session: SessionId,
    driver: &'static str,
    state: SandboxRowState,
    /// Memory in use, bytes. `null` if the sandbox does not run or did not report within 2 s.
    memory_bytes: Option<u64>,
    /// CPU time so far, microseconds.
    cpu_us: Option<u64>,
    processes: Option<u64>,
}

/// State of a sandbox in the list.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum SandboxRowState {
    Running,
    Frozen,
    Exited,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogsQuery {
    /// Number of bytes to return, from the end of the output.
    #[param(inline, value_type = Option<LogBytesSchema>)]
    bytes: Option<QueryNumber>,
}

/// Output of a sandbox.
#[derive(Serialize, utoipa::ToSchema)]
struct SandboxLogs {
    /// Newest part of stdout and stderr. Bytes that are no UTF-8 are replaced.
    content: String,
}

/// Lists the live actors of this server, oldest first.
#[utoipa::path(get, path = "/api/admin/actors", tag = "admin", 
    responses((status = 200, body = ActorList, description = "Every live actor.")))]
async fn actors(services: Data<WebServices>) -> ApiResult {
    let rows = services.actor_registry.rows().into_iter();
    let items = rows.map(|row| ActorRow { row, node: services.node.clone() }).collect();
    Ok(HttpResponse::Ok().json(ActorList { items }))
}

/// Lists the sandboxes of this node, with their resource use.
#[utoipa::path(get, path = "/api/admin/sandboxes", tag = "admin",
    responses((status = 200, body = SandboxList, description = "Every sandbox of this node.")))]
async fn sandboxes(services: Data<WebServices>) -> ApiResult {
    let found = services.sandbox.list().await?;
    let items = join_all(found.into_iter().map(|found| measure(services.sandbox.as_ref(), found))).await;
    Ok(HttpResponse::Ok().json(SandboxList { items }))
}

async fn measure(sandbox: &dyn SandboxDriver, found: FoundSandbox) -> SandboxRow {
    let state = match found.presence {
        SandboxPresence::Running => SandboxRowState::Running,
        SandboxPresence::Paused => SandboxRowState::Frozen,
        SandboxPresence::Exited => SandboxRowState::Exited,
    };
    let stats = match found.presence {
        SandboxPresence::Running | SandboxPresence::Paused => {
            tokio::time::timeout(STATS_TIMEOUT, sandbox.stats(found.session)).await.ok().and_then(Result::ok)
        }
        SandboxPresence::Exited => None,
    };
    SandboxRow {
        session: found.session,
        driver: found.driver,
        state,
        memory_bytes: stats.map(|stats| stats.memory_bytes),
        cpu_us: stats.map(|stats| stats.cpu_us),
        processes: stats.map(|stats| stats.processes),
    }
}

/// Runs the sweeper now and returns a report of the sweep.
#[utoipa::path(post, path = "/api/admin/sweep", tag = "admin",
    responses((status = 200, body = Swept, description = "Report of the sweep.")))]
async fn sweep(services: Data<WebServices>) -> ApiResult {
    Ok(HttpResponse::Ok().json(services.sweeper.send(Sweep).await?))
}

/// Returns the stdout and stderr of a session's sandbox.
#[utoipa::path(get, path = "/api/sessions/{id}/logs", tag = "admin", params(SessionPath, LogsQuery),
    responses((status = 200, body = SandboxLogs, description = "Newest output of the sandbox.")))]
async fn logs(services: Data<WebServices>, id: SessionPath, QueryParams(query): QueryParams<LogsQuery>) -> ApiResult {
    services.snapshot(id.0).await?;
    let bytes = query.bytes.map_or(DEFAULT_LOG_BYTES, QueryNumber::as_usize).min(MAX_LOG_BYTES);
    let content = services.sandbox.logs(id.0, bytes).await?;
    Ok(HttpResponse::Ok().json(SandboxLogs { content }))
}
