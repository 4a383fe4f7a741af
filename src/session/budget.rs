//! Whether a session may call its model: what the gateway asks before each call.

use std::sync::{Mutex, PoisonError};

use greenroom_protocol::observation::State;

use crate::{gateway::Forbidden, store::Totals};

/// Shared by a session, which sets it, and its gateway endpoint, which asks it.
pub struct Allowance {
    budget_usd: Option<f64>,
    refused: Mutex<Option<Forbidden>>,
}

impl Allowance {
    pub(super) fn new(budget_usd: Option<f64>) -> Allowance {
        Allowance { budget_usd, refused: Mutex::new(None) }
    }

    /// Whether there is an end to what may be spent.
    pub fn has_budget(&self) -> bool {
        self.budget_usd.is_some()
    }

    pub fn may_call(&self) -> Result<(), Forbidden> {
        match &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        }
    }

    pub(super) fn follow(&self, state: State, usage: &Totals) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = self.refusal(state, usage);
    }

    fn refusal(&self, state: State, usage: &Totals) -> Option<Forbidden> {
        match state {
            State::Interrupting => return Some(Forbidden::Interrupted),
            // An agent that is to work while its session starts has greeted, and then it is past that: this is one whose turn is
            // over.
            State::Stopped | State::Failed | State::Ended | State::Starting => {
                return Some(Forbidden::Because(format!("the session is {}", state.name())));
            }
            State::Idle | State::Running | State::AwaitingConfirmation | State::Paused => {}
        }
        // A model whose price nobody knows may be called; what is known to be spent counts nevertheless.
        let spent = self.budget_usd.filter(|budget| usage.known_cost() >= *budget)?;
        let why = format!("the session's budget of {spent} USD is spent; a new session can go on with another one");
        Some(Forbidden::Because(why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: State, budget: Option<f64>, cost: Option<f64>, allowed: bool) {
        judge(state, budget, Totals { cost_usd: cost, ..Totals::default() }, allowed);
    }

    fn judge(state: State, budget: Option<f64>, usage: Totals, allowed: bool) {
        let allowance = Allowance::new(budget);
        allowance.follow(state, &usage);
        assert_eq!(allowance.may_call().is_ok(), allowed, "{state:?} {budget:?} {usage:?}");
    }

    #[test]
    fn who_may_call() {
        check(State::Running, None, None, true);
        check(State::Paused, Some(1.0), Some(0.5), true);
        check(State::Running, Some(1.0), Some(1.0), false);
        check(State::Running, Some(1.0), None, true);
        check(State::Starting, None, None, false);
        check(State::Interrupting, None, None, false);
        check(State::Stopped, None, None, false);
    }

    #[test]
    fn what_is_known_counts_beside_what_is_not() {
        let known = |usd| Totals { known_cost_usd: Some(usd), ..Totals::default() };
        judge(State::Running, Some(1.0), known(0.5), true);
        judge(State::Running, Some(1.0), known(1.0), false);
        judge(State::Running, None, known(9.0), true);
    }
}
