//! Policy for tool calls: which run, which a person decides about, and which are denied.
//!
//! - [`policy`]: combines mode, rules and risk into one decision. Pure.
//! - [`analyzer`]: port to the security analyzers.

pub mod analyzer;
pub mod policy;

pub use self::{
    analyzer::Analyzer,
    policy::{PolicyDecision, PolicyInput, decide},
};
pub use crate::config::{ApprovalRule, RuleAction};
