//! Policy for tool calls that all sessions share, and its port to the rules of projects.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use greenroom_protocol::{Action, approval::ApprovalMode};

use crate::{
    approvals::{Analyzer, ApprovalRule},
    config::LoopLimits,
    store::SessionRecord,
};

/// Rules of projects. A project is named by the source of its workspace.
pub trait ProjectRuleStore: Send + Sync {
    fn rules(&self, project: &str) -> Arc<[ApprovalRule]>;

    /// Adds a rule, and completes when the rule is on disk. A rule that exists is not added again.
    ///
    /// # Errors
    /// Returns the reason in words.
    fn add(&self, project: &str, rule: ApprovalRule) -> BoxFuture<'static, Result<(), String>>;
}

/// Finds the analyzer of a name. `Ok(None)` for `none`. The error names the analyzers.
pub type AnalyzerLookup = dyn Fn(&str) -> Result<Option<Arc<dyn Analyzer>>, String> + Send + Sync;

/// Returns the project of the session with this record, if its workspace has a source.
pub type ProjectLookup = dyn Fn(&SessionRecord) -> Option<String> + Send + Sync;

/// Policy for tool calls that all sessions of this process share.
pub struct SessionPolicy {
    /// Mode of sessions whose record names none: those of earlier versions.
    pub default_mode: ApprovalMode,
    /// Analyzer of sessions whose record names none.
    pub default_analyzer: String,
    pub analyzer: Box<AnalyzerLookup>,
    /// Rules of the configuration.
    pub rules: Vec<ApprovalRule>,
    pub project_of: Box<ProjectLookup>,
    pub project_rules: Arc<dyn ProjectRuleStore>,
    /// Proposes the rule of the choice "always" for a call in a workspace.
    pub propose_rule: fn(&Action, &str) -> Option<ApprovalRule>,
    /// Time after which an open request is denied. Zero: never.
    pub timeout: Duration,
    pub loops: LoopLimits,
}

impl Default for SessionPolicy {
    /// Returns the policy without analyzers, rules and projects. Every call is allowed.
    fn default() -> SessionPolicy {
        SessionPolicy {
            default_mode: ApprovalMode::Auto,
            default_analyzer: "none".to_owned(),
            analyzer: Box::new(|_| Ok(None)),
            rules: Vec::new(),
            project_of: Box::new(|_| None),
            project_rules: Arc::new(NoProjectRules),
            propose_rule: |_, _| None,
            timeout: Duration::ZERO,
            loops: LoopLimits { same_call: 0, alternations: 0, same_error: 0, steps_without_change: 0 },
        }
    }
}

/// Store of a server without projects.
struct NoProjectRules;

impl ProjectRuleStore for NoProjectRules {
    fn rules(&self, _: &str) -> Arc<[ApprovalRule]> {
        Arc::default()
    }

    fn add(&self, project: &str, _: ApprovalRule) -> BoxFuture<'static, Result<(), String>> {
        let error = format!("this server keeps no rules of `{project}`");
        async { Err(error) }.boxed()
    }
}
