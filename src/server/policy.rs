//! Policy for the agents' tool calls, from the configuration.

use crate::{config::Config, session::SessionPolicy};

/// Returns the policy of all sessions.
pub(super) fn session_policy(config: &Config) -> SessionPolicy {
    let approvals = &config.approvals;
    SessionPolicy {
        rules: approvals.rules.clone(),
        timeout: approvals.timeout.0,
        loops: approvals.loops,
        ..SessionPolicy::default()
    }
}
