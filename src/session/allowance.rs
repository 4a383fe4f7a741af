//! Whether a session may call its model: what the gateway asks before each call.

use std::sync::{Mutex, PoisonError};

use greenroom_protocol::observation::State;

use crate::store::Totals;

/// Shared by a session, which sets it, and its gateway endpoint, which asks it.
pub struct Allowance {
    budget_usd: Option<f64>,
    refused: Mutex<Option<String>>,
}

impl Allowance {
    pub(super) fn new(budget_usd: Option<f64>) -> Allowance {
        Allowance { budget_usd, refused: Mutex::new(None) }
    }

    /// `Err` says why not, for the agent and the person.
    pub fn may_call(&self) -> Result<(), String> {
        match &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some(why) => Err(why.clone()),
        }
    }

    pub(super) fn follow(&self, state: State, usage: &Totals) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = self.refusal(state, usage);
    }

    fn refusal(&self, state: State, usage: &Totals) -> Option<String> {
        match state {
            State::Interrupting => return Some("the turn is being interrupted".to_owned()),
            State::Stopped | State::Failed | State::Ended => return Some(format!("the session is {}", state.name())),
            // An agent that is to work has greeted, and then it is past that: this is one whose turn is over.
            State::Starting => return Some("the session is starting".to_owned()),
            State::Idle | State::Running | State::AwaitingConfirmation | State::Paused => {}
        }
        match (self.budget_usd, usage.cost_usd) {
            (Some(budget), Some(cost)) if cost >= budget => {
                Some(format!("the session's budget of {budget} USD is spent; a new session can go on with another one"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: State, budget: Option<f64>, cost: Option<f64>, allowed: bool) {
        let allowance = Allowance::new(budget);
        allowance.follow(state, &Totals { cost_usd: cost, ..Totals::default() });
        assert_eq!(allowance.may_call().is_ok(), allowed, "{state:?} {budget:?} {cost:?}");
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
}
