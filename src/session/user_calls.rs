//! Account of model calls that a user causes outside of turns, such as a proposed commit message.
//!
//! Such a call needs no turn and no sandbox, and changes nothing but the session's usage. The user
//! who asked gets its errors.

use std::sync::Arc;

use actix::prelude::*;
use futures::future::BoxFuture;
use greenroom_protocol::observation::AgentState;

use super::{actor::Session, budget::SessionBudget, messages::NoticeReceived, request_error::RequestError};
use crate::{
    gateway::{CallDemand, CallGrant, CallSettlement, GatewayNotice, ModelCallDenied, SessionAccount, SessionModels},
    store::SessionId,
};

/// Request for the account of a call.
#[derive(Debug, Message)]
#[rtype(result = "Result<UserCall, RequestError>")]
pub struct BeginUserCall;

/// Model that the session uses, and the account of a call.
pub struct UserCall {
    pub model: String,
    pub account: Arc<UserCallAccount>,
}

/// Account of a user's calls. The session stays loaded while it exists.
pub struct UserCallAccount {
    id: SessionId,
    session: Addr<Session>,
    budget: Arc<SessionBudget>,
    _keeps_loaded: Arc<()>,
}

impl Handler<BeginUserCall> for Session {
    type Result = ResponseFuture<Result<UserCall, RequestError>>;

    fn handle(&mut self, _: BeginUserCall, ctx: &mut Context<Session>) -> Self::Result {
        let begun = if self.state.visible_state() == AgentState::Ended {
            Err(RequestError::Ended)
        } else {
            let account = UserCallAccount {
                id: self.id,
                session: ctx.address(),
                budget: self.budget.clone(),
                _keeps_loaded: self.user_calls.clone(),
            };
            Ok(UserCall { model: self.record.model.clone(), account: Arc::new(account) })
        };
        Box::pin(async { begun })
    }
}

impl SessionAccount for UserCallAccount {
    fn may_call(&self) -> Result<(), ModelCallDenied> {
        Ok(())
    }

    fn has_budget(&self) -> bool {
        self.budget.has_budget()
    }

    fn models(&self) -> SessionModels {
        self.budget.models()
    }

    fn estimate_input(&self, body_bytes: u64) -> u64 {
        self.budget.estimate_input(body_bytes)
    }

    fn reserve(&self, demand: CallDemand) -> BoxFuture<'_, Result<CallGrant, ModelCallDenied>> {
        Box::pin(self.budget.reserve_for_user(demand))
    }

    fn settle(&self, settlement: CallSettlement) {
        self.budget.settle(settlement);
    }

    fn notify(&self, notice: GatewayNotice) {
        // Failures and retries of this call are none of the agent's.
        if let GatewayNotice::Used(_) = notice {
            self.session.do_send(NoticeReceived { notice, permit: None });
        }
    }

    fn log(&self, line: &str) {
        tracing::info!(session = %self.id, "{line}");
    }
}
