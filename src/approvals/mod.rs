//! Policy for tool calls: which run, which a person decides about, and which are denied.
//!
//! - [`policy`]: combines mode, rules and risk into one decision. Pure.
//! - [`rule`]: rules of the configuration, of projects and of sessions.
//! - [`analyzer`]: port to the security analyzers.

pub mod analyzer;
pub mod policy;
pub mod rule;

pub use self::{
    analyzer::Analyzer,
    policy::{PolicyDecision, PolicyInput, decide},
    rule::{ApprovalRule, RuleAction},
};
