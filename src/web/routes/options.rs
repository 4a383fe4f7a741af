//! Options for clients: what a client can offer its user.

use actix_web::{HttpResponse, web::Data};
use greenroom_protocol::{approval::ApprovalMode, link::ReasoningEffort};
use serde::Serialize;
use strum::VariantArray;

use crate::{
    api_schema::{ApprovalModeSchema, ReasoningEffortSchema},
    config::FileTypePattern,
    directory::AGENT,
    gateway::ModelChoice,
    web::{error::ApiResult, route_table::documented_routes, state::WebServices},
};

documented_routes![options];

/// Options that a client can offer.
#[derive(Serialize, utoipa::ToSchema)]
struct ClientOptions<'a> {
    /// Version of the server.
    version: &'static str,
    agents: [AgentOption; 1],
    models: &'a [ModelChoice],
    /// Modes of approvals, from the most careful to the freest.
    #[schema(value_type = Vec<ApprovalModeSchema>)]
    modes: &'static [ApprovalMode],
    /// Security analyzers that a session can have.
    analyzers: &'a [&'static str],
    approvals: ApprovalOptions,
    limits: LimitOptions,
    defaults: DefaultOptions<'a>,
    /// Month of the prices, such as `2026-01`.
    prices_as_of: &'a str,
    sandbox: SandboxOptions,
}

/// Agent that can work in a session.
#[derive(Serialize, utoipa::ToSchema)]
struct AgentOption {
    name: &'static str,
}

/// Limits of approval requests.
#[derive(Serialize, utoipa::ToSchema)]
struct ApprovalOptions {
    /// Time after which an open request is denied, seconds. `null`: requests wait for a person.
    timeout_s: Option<u64>,
    /// Number of rules in the configuration.
    rules: usize,
}

/// Limits of requests and of sandboxes.
#[derive(Serialize, utoipa::ToSchema)]
struct LimitOptions {
    /// Largest frame on a socket, bytes.
    frame_bytes: usize,
    /// Largest JSON body, bytes.
    body_bytes: u64,
    /// Largest uploaded file, bytes.
    upload_bytes: u64,
    /// Files in one upload.
    upload_files: usize,
    /// Types that may be uploaded: extensions, media types, and groups such as `image/*`. Empty:
    /// each type.
    allowed_types: Vec<String>,
    /// Types that may not be uploaded. Wins over `allowed_types`.
    denied_types: Vec<String>,
    /// Memory of a sandbox, bytes.
    memory_bytes: u64,
    /// Processors of a sandbox.
    cpus: f64,
}

/// Values that a new session has unless its client names others.
#[derive(Serialize, utoipa::ToSchema)]
struct DefaultOptions<'a> {
    agent: &'static str,
    model: &'a str,
    /// Reasoning effort. `null`: the model's own default.
    #[schema(value_type = Option<ReasoningEffortSchema>)]
    effort: Option<ReasoningEffort>,
    /// Mode of approvals.
    #[schema(value_type = ApprovalModeSchema)]
    mode: ApprovalMode,
    /// Security analyzer.
    analyzer: &'a str,
    image: &'a str,
    /// Budget in USD. `null`: no limit.
    budget_usd: Option<f64>,
}

/// Sandbox that new sessions get.
#[derive(Serialize, utoipa::ToSchema)]
struct SandboxOptions {
    driver: &'static str,
    /// Isolation, in words for a person.
    isolation: String,
    network: String,
}

/// Returns the options that a client can offer: agents, models, limits, defaults.
#[utoipa::path(get, path = "/api/options", tag = "options",
    responses((status = 200, body = ClientOptions, description = "The options.")))]
async fn options(services: Data<WebServices>) -> ApiResult {
    let config = &services.config;
    Ok(HttpResponse::Ok().json(ClientOptions {
        version: env!("CARGO_PKG_VERSION"),
        agents: [AgentOption { name: AGENT }],
        models: &services.models,
        modes: ApprovalMode::VARIANTS,
        analyzers: &services.approvals.analyzers,
        approvals: ApprovalOptions {
            timeout_s: Some(config.approvals.timeout.whole_seconds()).filter(|seconds| *seconds > 0),
            rules: config.approvals.rules.len(),
        },
        limits: LimitOptions {
            frame_bytes: greenroom_protocol::CLIENT_FRAME_LIMIT,
            body_bytes: config.server.max_body.as_u64(),
            upload_bytes: config.server.max_upload.as_u64(),
            upload_files: config.files.max_files,
            allowed_types: config.files.allowed_types.iter().map(FileTypePattern::to_string).collect(),
            denied_types: config.files.denied_types.iter().map(FileTypePattern::to_string).collect(),
            memory_bytes: config.sandbox.limits.memory.as_u64(),
            cpus: config.sandbox.limits.cpus,
        },
        defaults: DefaultOptions {
            agent: AGENT,
            model: &services.default_model,
            effort: config.model.effort,
            mode: services.approvals.mode,
            analyzer: &services.approvals.analyzer,
            image: &config.sandbox.image,
            budget_usd: config.budget.per_session.0,
        },
        prices_as_of: &config.model.prices_as_of,
        sandbox: SandboxOptions {
            driver: services.sandbox.name(),
            isolation: services.sandbox.isolation(),
            network: config.sandbox.network.to_string(),
        },
    }))
}
