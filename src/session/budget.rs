//! Whether a session may call its model: what the gateway asks before each call.

use std::sync::{Mutex, PoisonError};

use greenroom_protocol::observation::AgentState;

use crate::{gateway::ModelCallDenied, store::UsageTotals};

/// Shared by a session, which sets it, and its gateway endpoint, which asks it.
pub struct SessionBudget {
    budget_usd: Option<f64>,
    rejection: Mutex<Option<ModelCallDenied>>,
}

impl SessionBudget {
    pub(super) fn new(budget_usd: Option<f64>) -> SessionBudget {
        SessionBudget { budget_usd, rejection: Mutex::new(None) }
    }

    /// Whether there is an end to what may be spent.
    pub fn has_budget(&self) -> bool {
        self.budget_usd.is_some()
    }

    pub fn may_call(&self) -> Result<(), ModelCallDenied> {
        match &*self.rejection.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        }
    }

    pub(super) fn update(&self, state: AgentState, usage: &UsageTotals) {
        *self.rejection.lock().unwrap_or_else(PoisonError::into_inner) = self.rejection_for(state, usage);
    }

    fn rejection_for(&self, state: AgentState, usage: &UsageTotals) -> Option<ModelCallDenied> {
        match state {
            AgentState::Interrupting => return Some(ModelCallDenied::Interrupted),
            // An agent that is to work while its session starts has greeted, and then it is past that: this is one whose turn is
            // over.
            AgentState::Stopped | AgentState::Failed | AgentState::Ended | AgentState::Starting => {
                return Some(ModelCallDenied::Reason(format!("the session is {}", state.name())));
            }
            AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Paused => {}
        }
        // A model whose price nobody knows may be called; what is known to be spent counts nevertheless.
        let spent = self.budget_usd.filter(|budget| usage.known_cost() >= *budget)?;
        let why = format!("the session's budget of {spent} USD is spent; a new session can go on with another one");
        Some(ModelCallDenied::Reason(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: AgentState, budget: Option<f64>, cost: Option<f64>, allowed: bool) {
        check_totals(state, budget, UsageTotals { cost_usd: cost, ..UsageTotals::default() }, allowed);
    }

    fn check_totals(state: AgentState, budget: Option<f64>, usage: UsageTotals, allowed: bool) {
        let allowance = SessionBudget::new(budget);
        allowance.update(state, &usage);
        assert_eq!(allowance.may_call().is_ok(), allowed, "{state:?} {budget:?} {usage:?}");
    }

    #[test]
    fn who_may_call() {
        check(AgentState::Running, None, None, true);
        check(AgentState::Paused, Some(1.0), Some(0.5), true);
        check(AgentState::Running, Some(1.0), Some(1.0), false);
        check(AgentState::Running, Some(1.0), None, true);
        check(AgentState::Starting, None, None, false);
        check(AgentState::Interrupting, None, None, false);
        check(AgentState::Stopped, None, None, false);
    }

    #[test]
    fn what_is_known_counts_beside_what_is_not() {
        let known = |usd| UsageTotals { known_cost_usd: Some(usd), ..UsageTotals::default() };
        check_totals(AgentState::Running, Some(1.0), known(0.5), true);
        check_totals(AgentState::Running, Some(1.0), known(1.0), false);
        check_totals(AgentState::Running, None, known(9.0), true);
    }
}
