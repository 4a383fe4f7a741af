//! Policy for tool calls: which run, which a person decides about, and which are denied.
//!
//! - [`policy`]: combines mode, rules and risk into one decision. Pure.
//! - [`analyzer`]: port to the security analyzers, and their registry.
//! - [`proposal`]: rules that a person adds with "always", and rules in words.
//! - [`project_rules`]: rules of projects, in a file of the data directory.
//! - `parts`, `shell`, `place`: a call, taken apart into commands, files and hosts.
//! - `pattern`, `rule_match`: matches of rules.
//! - `risk_rules`: the analyzer `rules`. `http`: the analyzer `http`.

pub mod analyzer;
mod http;
mod parts;
mod pattern;
mod place;
pub mod policy;
pub mod project_rules;
pub mod proposal;
mod risk_rules;
mod rule_match;
mod shell;

pub use self::{
    analyzer::{
        Analyzer, Analyzers, AnalyzersError, AssessedCall, PassError, PassedRequest, PassedResponse, UnknownAnalyzer,
    },
    policy::{PolicyDecision, PolicyInput, decide},
    project_rules::{ProjectRules, ProjectRulesError},
    proposal::{describe, propose_rule},
};
pub use crate::config::{ApprovalRule, RuleAction};
