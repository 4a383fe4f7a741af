//! Options for clients: what a client can offer its user.

use actix_web::{HttpResponse, web::Data};
use serde_json::json;

use crate::web::{error::ApiResult, route_table::documented_routes, state::WebServices};

documented_routes![options];

/// Name of the agent that every server offers.
const AGENT: &str = "greenroom";

/// Returns the options that a client can offer: agents, models, limits, defaults.
#[utoipa::path(get, path = "/api/options", tag = "options", responses((status = 200, body = Object)))]
async fn options(services: Data<WebServices>) -> ApiResult {
    let config = &services.config;
    Ok(HttpResponse::Ok().json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "agents": [{"name": AGENT}],
        "models": services.models,
        "analyzers": [],
        "limits": {
            "frame_bytes": greenroom_protocol::CLIENT_FRAME_LIMIT,
            "body_bytes": config.server.max_body.as_u64(),
            "upload_bytes": config.server.max_upload.as_u64(),
            "memory_bytes": config.sandbox.limits.memory.as_u64(),
            "cpus": config.sandbox.limits.cpus,
        },
        "defaults": {
            "agent": AGENT,
            "model": services.default_model,
            "effort": config.model.effort,
            "image": config.sandbox.image,
            "budget_usd": config.budget.per_session.0,
        },
        "prices_as_of": config.model.prices_as_of,
        "sandbox": {
            "driver": services.sandbox.name(),
            "isolation": services.sandbox.isolation(),
            "network": config.sandbox.network,
        },
    })))
}
