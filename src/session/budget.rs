//! Permission of a session to call its model. The gateway reads it before each call.

use std::sync::{Mutex, PoisonError};

use greenroom_protocol::observation::AgentState;

use crate::{gateway::ModelCallDenied, store::UsageTotals};

/// Permission shared by a session, which updates it, and its gateway endpoint, which reads it.
pub struct SessionBudget {
    budget_usd: Option<f64>,
    rejection: Mutex<Option<ModelCallDenied>>,
}

impl SessionBudget {
    pub(super) fn new(budget_usd: Option<f64>) -> SessionBudget {
        SessionBudget { budget_usd, rejection: Mutex::new(None) }
    }

    /// Returns true if the session's cost is limited.
    pub fn has_budget(&self) -> bool {
        self.budget_usd.is_some()
    }
    /// Checks that the session may call its model now.
    ///
    /// # Errors
    /// Returns the reason if the session's state or its budget forbids model calls.
    pub fn may_call(&self) -> Result<(), ModelCallDenied> {
        match &*self.rejection.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(denied) => Err(denied.clone()),
        }
    }

    pub(super) fn update(&self, state: AgentState, usage: &UsageTotals) {
        *self.rejection.lock().unwrap_or_else(PoisonError::into_inner) = self.rejection_for(state, usage);
    }

    fn rejection_for(&self, state: AgentState, usage: &UsageTotals) -> Option<ModelCallDenied> {
        match state {
            AgentState::Interrupting => return Some(ModelCallDenied::Interrupted),
            // An agent that may call the model has sent its hello, which ends `Starting`. This
            // agent's turn is over.
            AgentState::Stopped | AgentState::Failed | AgentState::Ended | AgentState::Starting => {
                return Some(ModelCallDenied::Reason(format!("the session is {}", state.name())));
            }
            AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Paused => {}
        }
        // A model without a known price may be called. The known part of the cost counts.
        let spent = self.budget_usd.filter(|budget| usage.known_cost() >= *budget)?;
        let reason =
            format!("the session's budget of {spent} USD is spent; continue in a new session with a new budget");
        Some(ModelCallDenied::Reason(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: AgentState, budget: Option<f64>, cost: Option<f64>, allowed: bool) {
        check_totals(state, budget, UsageTotals { cost_usd: cost, ..UsageTotals::default() }, allowed);
    }

    fn check_totals(state: AgentState, budget: Option<f64>, usage: UsageTotals, allowed: bool) {
        let session_budget = SessionBudget::new(budget);
        session_budget.update(state, &usage);
        assert_eq!(session_budget.may_call().is_ok(), allowed, "{state:?} {budget:?} {usage:?}");
    }

    #[test]
    fn model_calls_follow_state_and_budget() {
        check(AgentState::Running, None, None, true);
        check(AgentState::Paused, Some(1.0), Some(0.5), true);
        check(AgentState::Running, Some(1.0), Some(1.0), false);
        check(AgentState::Running, Some(1.0), None, true);
        check(AgentState::Starting, None, None, false);
        check(AgentState::Interrupting, None, None, false);
        check(AgentState::Stopped, None, None, false);
    }

    #[test]
    fn known_cost_counts_when_some_prices_are_unknown() {
        let known = |usd| UsageTotals { known_cost_usd: Some(usd), ..UsageTotals::default() };
        check_totals(AgentState::Running, Some(1.0), known(0.5), true);
        check_totals(AgentState::Running, Some(1.0), known(1.0), false);
        check_totals(AgentState::Running, None, known(9.0), true);
    }
}
