//! Policy for the agents' tool calls, from the configuration and the data directory.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};

use crate::{
    approvals::{Analyzers, ApprovalRule, ProjectRules, propose_rule},
    config::{ANALYZER_NAMES, Config},
    session::{ProjectRuleStore, SessionPolicy},
};

/// Returns the policy of all sessions.
pub(super) fn session_policy(config: &Config, analyzers: Analyzers, project_rules: Arc<ProjectRules>) -> SessionPolicy {
    let approvals = &config.approvals;
    let project = config.sandbox.shared_workspace().map(|dir| dir.display().to_string());
    SessionPolicy {
        default_analyzer: analyzers.default_name().to_owned(),
        analyzer: Box::new(move |name| match name {
            // Without an analyzer, calls have no risk.
            name if name == ANALYZER_NAMES[0] => Ok(None),
            name => analyzers.get(name).map(Some).map_err(|e| e.to_string()),
        }),
        rules: approvals.rules.clone(),
        project_of: Box::new(move |_| project.clone()),
        project_rules: Arc::new(ProjectRuleFile(project_rules)),
        propose_rule,
        timeout: approvals.timeout.0,
        loops: approvals.loops,
        ..SessionPolicy::default()
    }
}

/// Rules of projects, as sessions read and add them.
struct ProjectRuleFile(Arc<ProjectRules>);

impl ProjectRuleStore for ProjectRuleFile {
    fn rules(&self, project: &str) -> Arc<[ApprovalRule]> {
        self.0.list(project)
    }

    fn add(&self, project: &str, rule: ApprovalRule) -> BoxFuture<'static, Result<(), String>> {
        let (file, project) = (self.0.clone(), project.to_owned());
        async move { file.add(&project, rule).await.map(|_| ()).map_err(|e| e.to_string()) }.boxed()
    }
}
