//! Rules of the configuration and of projects.

use actix_web::{
    HttpResponse,
    web::{Data, Path},
};
use serde::Serialize;

use super::{RuleRow, removable, rule_of};
use crate::{
    approvals::ProjectRulesError,
    web::{
        error::{ApiError, ApiResult},
        route_table::documented_routes,
        state::WebServices,
    },
};

documented_routes![approval_rules, remove_project_rule];

/// Rules of all sessions.
#[derive(Serialize, utoipa::ToSchema)]
struct ApprovalRuleList {
    /// Rules of the configuration. Only its file can change them.
    config: Vec<RuleRow>,
    projects: Vec<ProjectRuleList>,
}

/// Rules of a project, which people added with "always".
#[derive(Serialize, utoipa::ToSchema)]
struct ProjectRuleList {
    /// Source of the workspace: a directory of the host.
    source: String,
    /// Oldest first.
    rules: Vec<RuleRow>,
}

/// Lists the rules of the configuration and of the projects.
#[utoipa::path(get, path = "/api/approvals/rules", tag = "approvals",
    responses((status = 200, body = ApprovalRuleList, description = "The rules.")))]
async fn approval_rules(services: Data<WebServices>) -> ApiResult {
    let config = services.config.approvals.rules.iter().map(|rule| RuleRow::new(rule, None)).collect();
    let projects = services.project_rules.all().into_iter().filter(|(_, rules)| !rules.is_empty());
    let projects = projects.map(|(source, rules)| ProjectRuleList { rules: removable(&source, &rules), source });
    Ok(HttpResponse::Ok().json(ApprovalRuleList { config, projects: projects.collect() }))
}

/// Removes a rule of a project.
#[utoipa::path(delete, path = "/api/approvals/rules/{id}", tag = "approvals",
    params(("id" = String, Path, description = "Rule, by its id in the list.")),
    responses((status = 204, description = "The rule is removed.")))]
async fn remove_project_rule(services: Data<WebServices>, id: Path<String>) -> ApiResult {
    let no_rule =
        || ApiError::not_found(format!("no project has a rule `{id}`; `GET /api/approvals/rules` lists them"));
    let projects = services.project_rules.all();
    let found = projects.iter().find_map(|(source, rules)| Some((source, rule_of(&id, source, rules)?)));
    let (source, rule) = found.ok_or_else(no_rule)?;
    match services.project_rules.remove(source, rule).await {
        Ok(()) => Ok(HttpResponse::NoContent().finish()),
        Err(ProjectRulesError::NoRule(_)) => Err(no_rule()),
        Err(error) => Err(ApiError::unavailable(error.to_string())),
    }
}
