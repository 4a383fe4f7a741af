//! Endpoints for monitoring: liveness, readiness, metrics.

use std::{collections::HashMap, fmt::Display, future::Future, time::Duration};

use actix_web::{HttpResponse, http::StatusCode, web::Data};
use prometheus::{IntGaugeVec, Opts, Registry, TextEncoder};
use serde_json::{Value, json};

use crate::{
    telemetry,
    web::{
        error::{ApiError, ApiResult},
        route_table::documented_routes,
        state::WebServices,
    },
};

// Monitors send HEAD requests.
documented_routes![alive + HEAD, ready + HEAD, metrics];

/// Limit for a check of the store or the sandbox engine. Monitors probe often, so a slower part
/// counts as not ready.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports that this process answers.
#[utoipa::path(get, path = "/healthz", tag = "health", security(()), responses((status = 200, body = Object)))]
async fn alive() -> HttpResponse {
    HttpResponse::Ok().json(json!({"status": "ok"}))
}

/// Reports whether the store and the sandbox engine answer, so that sessions can be served.
#[utoipa::path(get, path = "/readyz", tag = "health",
    responses((status = 200, body = Object), (status = 503, body = Object)))]
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

/// Returns counters and gauges in the Prometheus text format.
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, body = String)))]
async fn metrics(services: Data<WebServices>) -> ApiResult {
    // Registered here, so that the counter is exported before the first event is appended.
    std::sync::LazyLock::force(&telemetry::EVENTS_APPENDED);
    let counts = services.store.count_by_state().await?;
    let sessions = counts.into_iter().map(|(state, count)| (state.name(), count as i64)).collect();
    let mut actors = HashMap::new();
    for row in services.actor_registry.rows() {
        let kind = serde_json::to_value(row.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned));
        *actors.entry(kind.unwrap_or_default()).or_insert(0) += 1;
    }
    let text = gauges("greenroom_sessions", "Sessions that have not ended, by state.", "state", &sessions)
        .and_then(|first| Ok(first + &gauges("greenroom_actors", "Live actors, by kind.", "kind", &actors)?))
        .and_then(|gauges| Ok(gauges + &TextEncoder::new().encode_to_string(&prometheus::gather())?))
        .map_err(|e| ApiError::unavailable(format!("cannot encode the metrics: {e}")))?;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(text))
}

/// Encodes gauges whose values are counted at each request and not stored in between.
fn gauges<K: AsRef<str>>(name: &str, help: &str, label: &str, values: &HashMap<K, i64>) -> prometheus::Result<String> {
    let registry = Registry::new();
    let gauge = IntGaugeVec::new(Opts::new(name, help), &[label])?;
    registry.register(Box::new(gauge.clone()))?;
    for (key, value) in values {
        gauge.with_label_values(&[key.as_ref()]).set(*value);
    }
    TextEncoder::new().encode_to_string(&registry.gather())
}
