//! What an operator looks at: live actors, sandboxes, a sandbox's output; and what a client may offer.

use std::time::Duration;

use actix_web::{HttpResponse, web::Data};
use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    WebServices,
    error::{ApiError, ApiResult, ErrorAnswer},
    request::{QueryParams, SessionPath},
};
use crate::{
    actor_registry::ActorStatus,
    sandbox::{FoundSandbox, SandboxDriver, SandboxPresence},
    sweeper::{Sweep, Swept},
};

/// How long one sandbox may take to say what it takes. Sandboxes are asked at the same time, so this bounds the answer.
const STATS_TIMEOUT: Duration = Duration::from_secs(2);

/// A live actor.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct ActorRow {
    #[serde(flatten)]
    row: ActorStatus,
    node: String,
}

/// A sandbox of this node.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct SandboxRow {
    session: String,
    driver: &'static str,
    /// `running`, `frozen` or `exited`.
    state: &'static str,
    /// `null` where it does not run, or did not answer in time.
    memory_bytes: Option<u64>,
    /// CPU time so far, microseconds.
    cpu_us: Option<u64>,
    processes: Option<u64>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// The newest bytes; at most 1 MiB, 64 KiB if not given.
    bytes: Option<usize>,
}

/// Every live actor of this server, oldest first.
#[utoipa::path(get, path = "/api/admin/actors", tag = "admin", responses((status = 200, body = [ActorRow])))]
pub(super) async fn actors(parts: Data<WebServices>) -> ApiResult {
    let rows = parts.actor_registry.rows().into_iter();
    let items: Vec<_> = rows.map(|row| ActorRow { row, node: parts.node.clone() }).collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items })))
}

/// Every sandbox of this node, with what it takes.
#[utoipa::path(get, path = "/api/admin/sandboxes", tag = "admin",
    responses((status = 200, body = [SandboxRow]), (status = 503, body = ErrorAnswer)))]
pub(super) async fn sandboxes(parts: Data<WebServices>) -> ApiResult {
    let found = parts.sandbox.list().await?;
    let items = join_all(found.into_iter().map(|found| measure(parts.sandbox.as_ref(), found))).await;
    Ok(HttpResponse::Ok().json(json!({ "items": items })))
}

async fn measure(sandbox: &dyn SandboxDriver, found: FoundSandbox) -> SandboxRow {
    let state = match found.presence {
        SandboxPresence::Running => "running",
        SandboxPresence::Paused => "frozen",
        SandboxPresence::Exited => "exited",
    };
    let stats = match found.presence {
        SandboxPresence::Running | SandboxPresence::Paused => {
            tokio::time::timeout(STATS_TIMEOUT, sandbox.stats(found.session)).await.ok().and_then(Result::ok)
        }
        SandboxPresence::Exited => None,
    };
    SandboxRow {
        session: found.session.to_string(),
        driver: found.driver,
        state,
        memory_bytes: stats.map(|stats| stats.memory_bytes),
        cpu_us: stats.map(|stats| stats.cpu_us),
        processes: stats.map(|stats| stats.processes),
    }
}

/// Sweep now, and say what was done.
#[utoipa::path(post, path = "/api/admin/sweep", tag = "admin", responses((status = 200, body = Swept)))]
pub(super) async fn sweep(parts: Data<WebServices>) -> ApiResult {
    Ok(HttpResponse::Ok().json(parts.sweeper.send(Sweep).await?))
}

/// What a session's sandbox wrote to stdout and stderr: `{"content"}`.
#[utoipa::path(get, path = "/api/sessions/{id}/logs", tag = "admin", params(("id" = String, Path), LogsQuery),
    responses((status = 200, body = Object), (status = 404, body = ErrorAnswer)))]
pub(super) async fn logs(
    parts: Data<WebServices>,
    id: SessionPath,
    QueryParams(how_much): QueryParams<LogsQuery>,
) -> ApiResult {
    parts.snapshot(id.0).await?;
    let bytes = how_much.bytes.unwrap_or(64 * 1024).min(1024 * 1024);
    let content = parts.sandbox.logs(id.0, bytes).await?;
    Ok(HttpResponse::Ok().json(json!({ "content": content })))
}

/// What a client may offer: agents, models, limits, defaults.
#[utoipa::path(get, path = "/api/options", tag = "options", responses((status = 200, body = Object)))]
pub(super) async fn options(parts: Data<WebServices>) -> ApiResult {
    let config = &parts.config;
    Ok(HttpResponse::Ok().json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": [{"name": super::AGENT}],
        "models": parts.models,
        "analyzers": [],
        "limits": {
            "frame_bytes": greenroom_protocol::CLIENT_FRAME_LIMIT,
            "body_bytes": config.server.max_body.as_u64(),
            "upload_bytes": config.server.max_upload.as_u64(),
            "memory_bytes": config.sandbox.memory.as_u64(),
            "cpus": config.sandbox.cpus,
        },
        "defaults": {"agent": super::AGENT, "model": parts.default_model, "image": config.sandbox.image},
        "sandbox": {
            "driver": parts.sandbox.name(),
            "isolation": parts.sandbox.isolation(),
            "network": config.sandbox.network,
        },
    })))
}

/// Any address below `/api` that there is not.
pub(super) async fn not_found(req: actix_web::HttpRequest) -> ApiResult {
    Err(ApiError::not_found(format!("there is nothing at `{}`; `/api/openapi.json` lists what there is", req.path())))
}
