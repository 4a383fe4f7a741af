//! Security of a session: mode, analyzer, rules, findings, open requests.

use actix_web::{
    HttpRequest, HttpResponse,
    web::{Data, Json},
};
use greenroom_protocol::{
    Action,
    approval::{ApprovalMode, RiskAssessment},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    RuleRow,
    findings::{SecurityFinding, newest_findings},
    removable, rule_of,
};
use crate::{
    api_schema::{ApprovalModeSchema, RiskAssessmentSchema},
    approvals::PolicyDecision,
    clock,
    session::{
        NameSchema, OpenApproval,
        messages::UpdateMetadata,
        security::{AnalyzeCall, CallAnalysis, GetSecurity, RemoveSessionRule, SessionSecurity},
    },
    store::SessionId,
    web::{
        error::{ApiError, ApiResult},
        request::SessionPath,
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![security, change_security, analyze_call, remove_session_rule];

/// Security of a session.
#[derive(Serialize, utoipa::ToSchema)]
struct SecurityView {
    #[schema(value_type = ApprovalModeSchema)]
    mode: ApprovalMode,
    /// Name of the analyzer.
    analyzer: String,
    settings: SecuritySettings,
    /// Rules that people added to the session, oldest first.
    rules: Vec<RuleRow>,
    /// Newest tool calls with a risk above `low`, newest first: at most 100, among the newest
    /// 10,000 events.
    #[schema(max_items = 100)]
    findings: Vec<SecurityFinding>,
    /// Approval requests that wait for a person, oldest first.
    requests: Vec<RequestRow>,
}

/// Settings of the configuration that concern a session's approvals.
#[derive(Serialize, utoipa::ToSchema)]
struct SecuritySettings {
    /// Time after which an open request is denied, seconds. `null`: requests wait for a person.
    timeout_s: Option<u64>,
    /// Time limit of the analyzer, seconds. `null` if the analyzer has no service.
    analyzer_timeout_s: Option<u64>,
    /// Source of the workspace, by which rules of projects are kept.
    project: Option<String>,
}

/// Approval request that waits for a person.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ApprovalRequest)]
struct RequestRow {
    /// Id of the request.
    id: String,
    /// Item of the tool call.
    item: Option<String>,
    /// Tool call, without the contents of files. `null` if it is too long, or if a repetition
    /// asked; the event `confirm` has it.
    #[schema(value_type = Option<Object>)]
    call: Option<Box<Action>>,
    /// Risk without its reasons, which the event `confirm` has.
    #[schema(value_type = Option<RiskAssessmentSchema>)]
    risk: Option<RiskAssessment>,
    /// Ids of the choices, for `choice` of an answer.
    choices: Vec<String>,
    /// True if an answer may have `input`.
    editable: bool,
    /// Time of the request, RFC 3339, UTC.
    since: String,
}

/// Changes of a session's security. Absent fields stay unchanged.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct SecurityUpdate {
    #[schema(value_type = Option<ApprovalModeSchema>)]
    mode: Option<ApprovalMode>,
    /// Analyzer, from `GET /api/options`: `analyzers`.
    #[schema(value_type = Option<NameSchema>)]
    analyzer: Option<String>,
}

/// Tool call to judge, in the form of an event.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
struct CallToAnalyze {
    /// Name of the action, such as `run`.
    action: String,
    #[serde(default)]
    args: Map<String, Value>,
}

/// Judgement of a tool call. Nothing has run.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = CallAnalysis)]
struct AnalysisView {
    /// `null` without an analyzer.
    #[schema(value_type = Option<RiskAssessmentSchema>)]
    risk: Option<RiskAssessment>,
    /// Decision of the policy: `allow`, `ask` or `deny`.
    decision: &'static str,
    /// Rule, mode or analyzer that asks or denies. `null` for `allow`.
    decided_by: Option<String>,
    /// Reason of a denial.
    reason: Option<String>,
}

/// Returns mode, analyzer, rules, findings and open requests of a session.
#[utoipa::path(get, path = "/api/sessions/{id}/security", tag = "approvals", params(SessionPath),
    responses((status = 200, body = SecurityView, description = "The security of the session.")))]
async fn security(services: Data<WebServices>, id: SessionPath) -> ApiResult {
    view(&services, id.0).await
}

/// Changes mode or analyzer of a session.
#[utoipa::path(patch, path = "/api/sessions/{id}/security", tag = "approvals", params(SessionPath),
    request_body = SecurityUpdate,
    responses((status = 200, body = SecurityView, description = "The changed security of the session.")))]
async fn change_security(services: Data<WebServices>, id: SessionPath, change: Json<SecurityUpdate>) -> ApiResult {
    let SecurityUpdate { mode, analyzer } = change.into_inner();
    services.send_to_session(id.0, UpdateMetadata { mode, analyzer, ..UpdateMetadata::default() }).await??;
    view(&services, id.0).await
}

/// Judges a tool call as if the agent called it now. Changes nothing.
#[utoipa::path(post, path = "/api/sessions/{id}/security/analyze", tag = "approvals", params(SessionPath),
    request_body = CallToAnalyze,
    responses((status = 200, body = AnalysisView, description = "Risk and decision.")))]
async fn analyze_call(services: Data<WebServices>, id: SessionPath, call: Json<CallToAnalyze>) -> ApiResult {
    let CallToAnalyze { action, args } = call.into_inner();
    let call: Action = serde_json::from_value(json!({ "action": action, "args": args }))
        .map_err(|e| ApiError::invalid(format!("`{action}` is no tool call: {e}")))?;
    let CallAnalysis { risk, decision } = services.ask_session(id.0, AnalyzeCall { call }).await?;
    let (decision, decided_by, reason) = match decision {
        PolicyDecision::Allow => ("allow", None, None),
        PolicyDecision::Ask { asked_by } => ("ask", Some(asked_by), None),
        PolicyDecision::Deny { reason, decided_by } => ("deny", Some(decided_by), Some(reason)),
    };
    Ok(HttpResponse::Ok().json(AnalysisView { risk, decision, decided_by, reason }))
}

/// Removes a rule of a session.
#[utoipa::path(delete, path = "/api/sessions/{id}/security/rules/{rule}", tag = "approvals",
    params(SessionPath, ("rule" = String, Path, description = "Rule, by its id in the list.")),
    responses((status = 204, description = "The rule is removed.")))]
async fn remove_session_rule(services: Data<WebServices>, id: SessionPath, req: HttpRequest) -> ApiResult {
    let rule = req.match_info().query("rule");
    let rules = services.ask_session(id.0, GetSecurity).await?.rules;
    let rule = rule_of(rule, &id.0.to_string(), &rules)
        .ok_or_else(|| ApiError::not_found(format!("session `{}` has no rule `{rule}`", id.0)))?;
    let rule = rule.clone();
    services.send_to_session(id.0, RemoveSessionRule { rule }).await??;
    Ok(HttpResponse::NoContent().finish())
}

async fn view(services: &WebServices, id: SessionId) -> ApiResult {
    let tail = services.snapshot(id).await?.tail;
    let SessionSecurity { mode, analyzer, rules, project, requests } = services.ask_session(id, GetSecurity).await?;
    let settings = &services.config.approvals;
    let whole_seconds = |seconds: u64| Some(seconds).filter(|seconds| *seconds > 0);
    Ok(HttpResponse::Ok().json(SecurityView {
        mode,
        settings: SecuritySettings {
            timeout_s: whole_seconds(settings.timeout.whole_seconds()),
            analyzer_timeout_s: whole_seconds(settings.http.timeout.whole_seconds()).filter(|_| analyzer == "http"),
            project,
        },
        analyzer,
        rules: removable(&id.to_string(), &rules),
        findings: newest_findings(&services.store, id, tail).await?,
        requests: requests.into_iter().map(RequestRow::from).collect(),
    }))
}

impl From<OpenApproval> for RequestRow {
    fn from(approval: OpenApproval) -> RequestRow {
        let choices = approval.choices().into_iter().map(|choice| choice.id).collect();
        let OpenApproval { request, item, since_ms, call, risk, editable, .. } = approval;
        RequestRow { id: request, item, call, risk, choices, editable, since: clock::rfc3339(since_ms) }
    }
}
