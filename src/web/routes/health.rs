//! Endpoints for monitoring: liveness, readiness, metrics.

use std::{fmt::Display, future::Future, time::Duration};

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use greenroom_protocol::observation::AgentState;
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};
use serde_json::{Value, json};

use crate::{
    actor_registry::ActorKind,
    sandbox::{FoundSandbox, SandboxPresence, drivers::DRIVERS},
    telemetry::metrics::METRICS,
    web::{
        error::{ApiError, ApiResult},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![alive, ready, metrics];

/// Limit for a check of the store or the sandbox engine. Monitors probe often, so a slower part
/// counts as not ready.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports that this process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), 
    responses((status = 200, body = Object, description = "The process answers.")))]
async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "ok"}))
}

/// Reports whether the store and the sandbox engine answer, so that sessions can be served.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = Object, description = "Sessions can be served."),
        (status = 503, body = Object, description = "A part does not answer; the body names it, beside the `error`.")))]
async fn ready(services: Data<WebServices>) -> HttpResponse {
    let (store, sandbox) = tokio::join!(with_timeout(services.store.check()), with_timeout(services.sandbox.check()));
    let failures: Vec<_> = [("store", &store), ("sandbox", &sandbox)]
        .iter()
        .filter_map(|(name, state)| state.as_ref().err().map(|reason| format!("{name}: {reason}")))
        .collect();
    let mut body =
        json!({"ready": failures.is_empty(), "store": status_text(&store), "sandbox": status_text(&sandbox)});
    if failures.is_empty() {
        return HttpResponse::Ok().json(body);
    }
    body["error"] = json!({"code": "not_ready", "message": failures.join("; ")});
    HttpResponse::build(StatusCode::SERVICE_UNAVAILABLE).json(body)
}

async fn with_timeout<E: Display>(check: impl Future<Output = Result<(), E>>) -> Result<(), String> {
    match tokio::time::timeout(CHECK_TIMEOUT, check).await {
        Ok(result) => result.map_err(|e| e.to_string()),
        Err(_) => Err(format!("no answer within {} s", CHECK_TIMEOUT.as_secs())),
    }
}

fn status_text(state: &Result<(), String>) -> Value {
    match state {
        Ok(()) => "ok".into(),
        Err(reason) => reason.as_str().into(),
    }
}

/// Returns all metrics in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "health", 
    responses((status = 200, body = String, content_type = "text/plain", description = "Metrics in the text format.")))]
async fn metrics(services: Data<WebServices>) -> ApiResult {
    DRIVERS.iter().for_each(|driver| METRICS.declare_driver(driver.name));
    let gauges = Registry::new();
    count_sessions(&services, &gauges).await?;
    count_actors(&services, &gauges)?;
    count_sandboxes(&services, &gauges).await?;
    let families = [gauges.gather(), METRICS.gather()].concat();
    let text = TextEncoder::new().encode_to_string(&families).map_err(|e| encoding_failed(&e))?;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text))
}

async fn count_sessions(services: &WebServices, gauges: &Registry) -> Result<(), ApiError> {
    let counts = services.store.count_by_state().await?;
    let sessions = gauge(gauges, "greenroom_sessions", "Sessions that have not ended, by state.", &["state"])?;
    for state in AgentState::ALL.iter().filter(|state| **state != AgentState::Ended) {
        let count = counts.get(state).copied().unwrap_or_default();
        sessions.with_label_values(&[state.name()]).set(count as i64);
    }
    Ok(())
}

fn count_actors(services: &WebServices, gauges: &Registry) -> Result<(), ApiError> {
    let actors = gauge(gauges, "greenroom_actors", "Live actors, by kind.", &["kind"])?;
    for kind in ActorKind::ALL {
        let count = services.actor_registry.count(*kind, None);
        actors.with_label_values(&[kind.name()]).set(count as i64);
    }
    Ok(())
}

/// Counts the sandboxes, if the drivers list them within [`CHECK_TIMEOUT`]. Otherwise their number
/// is not known, and the metric is absent.
async fn count_sandboxes(services: &WebServices, gauges: &Registry) -> Result<(), ApiError> {
    let Ok(Ok(found)) = tokio::time::timeout(CHECK_TIMEOUT, services.sandbox.list()).await else { return Ok(()) };
    let help = "Sandboxes of this node, by state and driver.";
    let sandboxes = gauge(gauges, "greenroom_sandboxes", help, &["state", "driver"])?;
    for driver in DRIVERS {
        for presence in SandboxPresence::ALL {
            let is_counted = |found: &&FoundSandbox| found.driver == driver.name && found.presence == *presence;
            let count = found.iter().filter(is_counted).count();
            sandboxes.with_label_values(&[presence.name(), driver.name]).set(count as i64);
        }
    }
    Ok(())
}

/// Returns a gauge whose values are counted at each request and not stored in between.
fn gauge(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, ApiError> {
    let gauge = IntGaugeVec::new(Opts::new(name, help), labels);
    let registered = gauge.and_then(|gauge| registry.register(Box::new(gauge.clone())).map(|()| gauge));
    registered.map_err(|e| encoding_failed(&e))
}

fn encoding_failed(error: &prometheus::Error) -> ApiError {
    ApiError::unavailable(format!("cannot encode the metrics: {error}"))
}
