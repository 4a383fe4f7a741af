//! Permission of a session to call its model. The gateway reads it before each call.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use greenroom_protocol::observation::AgentState;

use crate::{gateway::ModelCallDenied, store::UsageTotals};

/// Permission shared by a session, which updates it, and its gateway endpoint, which reads it.
pub struct SessionBudget {
    has_budget: AtomicBool,
    rejection: Mutex<Option<ModelCallDenied>>,
}

impl SessionBudget {
    pub(super) fn new(budget_usd: Option<f64>) -> SessionBudget {
        SessionBudget { has_budget: AtomicBool::new(budget_usd.is_some()), rejection: Mutex::new(None) }
    }

    /// Returns true if the session's cost is limited.
    pub fn has_budget(&self) -> bool {
        self.has_budget.load(Relaxed)
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

    pub(super) fn update(&self, state: AgentState, budget_usd: Option<f64>, usage: &UsageTotals) {
        self.has_budget.store(budget_usd.is_some(), Relaxed);
        let rejection = rejection_for(state, budget_usd, usage);
        *self.rejection.lock().unwrap_or_else(PoisonError::into_inner) = rejection;
    }
}

fn rejection_for(state: AgentState, budget_usd: Option<f64>, usage: &UsageTotals) -> Option<ModelCallDenied> {
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
    let spent = budget_usd.filter(|budget| usage.known_cost() >= *budget)?;
    let reason = format!("the session's budget of {spent} USD is spent; raise or remove the budget");
    Some(ModelCallDenied::Reason(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: AgentState, budget: Option<f64>, cost: Option<f64>, allowed: bool) {
        check_totals(state, budget, UsageTotals { cost_usd: cost, ..UsageTotals::default() }, allowed);
    }

    fn check_totals(state: AgentState, budget: Option<f64>, usage: UsageTotals, allowed: bool) {
        let session_budget = SessionBudget::new(budget);
        session_budget.update(state, budget, &usage);
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
    fn raised_or_removed_budget_allows_calls_again() {
        let usage = UsageTotals { cost_usd: Some(1.0), ..UsageTotals::default() };
        let budget = SessionBudget::new(Some(1.0));
        for (usd, allowed) in [(Some(1.0), false), (Some(1.5), true), (Some(0.5), false), (None, true)] {
            budget.update(AgentState::Running, usd, &usage);
            assert_eq!((budget.may_call().is_ok(), budget.has_budget()), (allowed, usd.is_some()), "{usd:?}");
        }
    }

    #[test]
    fn known_cost_counts_when_some_prices_are_unknown() {
        let known = |usd| UsageTotals { known_cost_usd: Some(usd), ..UsageTotals::default() };
        check_totals(AgentState::Running, Some(1.0), known(0.5), true);
        check_totals(AgentState::Running, Some(1.0), known(1.0), false);
        check_totals(AgentState::Running, None, known(9.0), true);
    }
}
