//! Permission of a session to call its models, and its budget. The gateway reads both before each
//! call.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use greenroom_protocol::observation::AgentState;
use tokio::time::timeout;

use super::spending::ServerSpending;
use crate::{
    gateway::{
        CallDemand, CallGrant, CallSettlement, InputRatio, LedgerAnswer, ModelCallDenied, SessionModels, SpendingLedger,
    },
    store::SessionRecord,
};

/// Longest time that a call waits for the reservations of other calls.
const RESERVATION_WAIT: Duration = Duration::from_secs(120);

/// Permission shared by a session, which updates it, and its gateway endpoint, which reads it.
pub struct SessionBudget {
    server: Arc<ServerSpending>,
    permission: Mutex<CallPermission>,
}

struct CallPermission {
    state: AgentState,
    /// True while a turn or a user action runs.
    has_work: bool,
    models: Vec<String>,
    /// Settled by the gateway, so ahead of the session's totals while usage is in flight.
    ledger: SpendingLedger,
    input_ratio: InputRatio,
}

impl SessionBudget {
    pub(super) fn new(server: Arc<ServerSpending>, record: &SessionRecord) -> SessionBudget {
        let permission = CallPermission {
            state: record.state,
            has_work: false,
            models: record.models(),
            ledger: SpendingLedger::new(record.budget_usd, record.usage.known_cost()),
            input_ratio: InputRatio::default(),
        };
        SessionBudget { server, permission: Mutex::new(permission) }
    }

    /// Returns true if the cost of the session, or of all sessions, is limited.
    pub fn has_budget(&self) -> bool {
        self.permission().ledger.limit().is_some() || self.server.has_limit()
    }

    /// Checks that the session's state allows model calls.
    ///
    /// # Errors
    /// Returns the reason if it does not.
    pub fn may_call(&self) -> Result<(), ModelCallDenied> {
        rejection_for(self.permission().state)
    }

    /// Checks that a metered call has a cause: a running turn or a user action.
    ///
    /// # Errors
    /// Returns [`ModelCallDenied::NothingRuns`] if it has none and the configuration requires one.
    pub fn has_cause(&self) -> Result<(), ModelCallDenied> {
        let needed = self.server.gateway_rules().only_while_working;
        if needed && !self.has_work() { Err(ModelCallDenied::NothingRuns) } else { Ok(()) }
    }

    /// Returns true while a turn or a user action runs.
    pub fn has_work(&self) -> bool {
        self.permission().has_work
    }

    /// Returns the models that the session may call.
    pub fn models(&self) -> SessionModels {
        let (rules, names) = (self.server.gateway_rules(), self.permission().models.clone());
        let small = names.iter().skip(1).find(|name| **name == rules.small_model).cloned();
        SessionModels { names, small, foreign: rules.foreign_models }
    }

    /// Estimates the input tokens of a body, by the session's earlier calls.
    pub fn estimate_input(&self, body_bytes: u64) -> u64 {
        self.permission().input_ratio.estimate(body_bytes)
    }

    /// Reserves the worst case of a call. Waits while other calls hold the rest of a limit.
    ///
    /// # Errors
    /// Returns the reason if too little is left for a useful answer, or if the session's state
    /// forbids calls meanwhile.
    pub async fn reserve(&self, demand: CallDemand) -> Result<CallGrant, ModelCallDenied> {
        self.reserve_while(demand, rejection_for).await
    }

    /// Reserves the worst case of a call that a user causes, in any state of the session.
    ///
    /// # Errors
    /// Returns the reason if too little is left for a useful answer.
    pub(super) async fn reserve_for_user(&self, demand: CallDemand) -> Result<CallGrant, ModelCallDenied> {
        self.reserve_while(demand, |_| Ok(())).await
    }

    async fn reserve_while(
        &self,
        demand: CallDemand,
        check_state: fn(AgentState) -> Result<(), ModelCallDenied>,
    ) -> Result<CallGrant, ModelCallDenied> {
        let mut settlements = self.server.settlements();
        let granted = async {
            loop {
                settlements.mark_unchanged();
                if let Some(grant) = self.try_reserve(&demand, check_state)? {
                    return Ok(grant);
                }
                // The sender lives as long as `self`.
                let _ = settlements.changed().await;
            }
        };
        timeout(RESERVATION_WAIT, granted).await.unwrap_or_else(|_| {
            let waited = RESERVATION_WAIT.as_secs();
            Err(ModelCallDenied::Reason(format!(
                "other calls have reserved the rest of the budget for {waited} s; wait until they end, or raise the budget"
            )))
        })
    }

    /// Reserves under all limits, or under none. `None`: other calls hold the rest of a limit.
    fn try_reserve(
        &self,
        demand: &CallDemand,
        check_state: fn(AgentState) -> Result<(), ModelCallDenied>,
    ) -> Result<Option<CallGrant>, ModelCallDenied> {
        let mut permission = self.permission();
        check_state(permission.state)?;
        let own = match permission.ledger.answer(demand) {
            LedgerAnswer::Grant(tokens) => tokens,
            LedgerAnswer::Wait => return Ok(None),
            LedgerAnswer::Spent => {
                let limit = permission.ledger.limit().unwrap_or_default();
                let left = (limit - permission.ledger.spent()).max(0.0);
                return Err(ModelCallDenied::BudgetSpent(match left {
                    0.0 => format!("the session's budget of {limit} USD is spent; raise or remove the budget"),
                    left => format!(
                        "the session's budget of {limit} USD has {left:.4} USD left, too little for this call; raise or \
                         remove the budget"
                    ),
                }));
            }
        };
        let Some(output_tokens) = self.server.reserve(demand, own).map_err(ModelCallDenied::BudgetSpent)? else {
            return Ok(None);
        };
        let reserved_usd = demand.reservation(output_tokens);
        permission.ledger.reserve(reserved_usd);
        Ok(Some(CallGrant { output_tokens, reserved_usd }))
    }

    /// Replaces a reservation by the cost of its call.
    pub fn settle(&self, settlement: CallSettlement) {
        let CallSettlement { grant, cost_usd, measured } = settlement;
        {
            let mut permission = self.permission();
            permission.ledger.settle(grant.reserved_usd, cost_usd);
            if let Some((bytes, tokens)) = measured {
                permission.input_ratio.add(bytes, tokens);
            }
            self.server.settle(grant.reserved_usd, cost_usd);
        }
        self.server.wake_waiting();
    }

    pub(super) fn update(&self, state: AgentState, has_work: bool, record: &SessionRecord) {
        let mut permission = self.permission();
        let is_new_limit = permission.ledger.limit() != record.budget_usd;
        let stops = permission.state != state && rejection_for(state).is_err();
        permission.ledger.set_limit(record.budget_usd);
        (permission.state, permission.has_work) = (state, has_work);
        let (own, further) = permission.models.split_at(1);
        if own != [record.model.as_str()] || further != record.further_models {
            permission.models = record.models();
        }
        drop(permission);
        if is_new_limit || stops {
            self.server.wake_waiting();
        }
    }

    fn permission(&self) -> MutexGuard<'_, CallPermission> {
        self.permission.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rejection_for(state: AgentState) -> Result<(), ModelCallDenied> {
    match state {
        AgentState::Interrupting => Err(ModelCallDenied::Interrupted),
        // An agent that may call the model has sent its hello, which ends `Starting`. This
        // agent's turn is over.
        AgentState::Stopped | AgentState::Failed | AgentState::Ended | AgentState::Starting => {
            Err(ModelCallDenied::Reason(format!("the session is {}", state.name())))
        }
        AgentState::Idle | AgentState::Running | AgentState::AwaitingConfirmation | AgentState::Paused => Ok(()),
    }
}

#[cfg(test)]
mod tests;
