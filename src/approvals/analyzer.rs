//! Port to the security analyzers.

use std::fmt::Debug;

use futures::future::BoxFuture;
use greenroom_protocol::{Action, approval::RiskAssessment};

/// Judges the possible harm of tool calls.
pub trait Analyzer: Debug + Send + Sync {
    /// Name in the configuration and on the wire.
    fn name(&self) -> &'static str;

    /// Returns the risk of `call`. Never fails: an analyzer that cannot judge returns a high risk
    /// with the reason. `workspace` is the working directory inside the sandbox.
    fn assess(&self, call: &Action, workspace: &str) -> BoxFuture<'static, RiskAssessment>;
}
