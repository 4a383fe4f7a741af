//! Model egress: a sandbox's way to the gateway, with the account that its calls are booked on.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::WeakAddr;
use futures::future::BoxFuture;
use tokio::{net::UnixListener, sync::Semaphore};

use crate::{
    gateway::{
        CallDemand, CallGrant, CallSettlement, Gateway, GatewayEndpoint, GatewayNotice, ModelCallDenied,
        SessionAccount, SessionModels,
    },
    session::{Session, SessionBudget, messages::NoticeReceived},
    store::SessionId,
};

/// Gateway notices of one session in flight to disk, at which the next model call blocks.
const MAX_NOTICES: usize = 16;

/// Model egress of one session. Opened at the first start of the sandbox, closed when the last
/// reference is dropped.
pub(super) struct ModelEgress {
    account: Arc<LinkAccount>,
    endpoint: Mutex<Option<GatewayEndpoint>>,
}

impl ModelEgress {
    pub(super) fn new(id: SessionId, session: WeakAddr<Session>, budget: Arc<SessionBudget>) -> ModelEgress {
        let account = Arc::new(LinkAccount { id, session, budget, notices: Arc::new(Semaphore::new(MAX_NOTICES)) });
        ModelEgress { account, endpoint: Mutex::default() }
    }

    /// Opens the session's gateway endpoint on the socket that `listener` binds. Does nothing if
    /// the endpoint is already open. Must be called inside the runtime that is to serve the
    /// endpoint.
    ///
    /// # Errors
    /// Returns the error of `listener`.
    pub(super) fn open(
        &self,
        gateway: &Gateway,
        listener: impl FnOnce() -> io::Result<UnixListener>,
    ) -> io::Result<()> {
        if self.endpoint().is_none() {
            // Bound outside the lock: a slow disk must not delay an interrupt.
            let listener = listener()?;
            // Opened under the lock, so that an interrupt after the first call finds the endpoint.
            self.endpoint().get_or_insert_with(|| gateway.open(listener, self.account.clone()));
        }
        Ok(())
    }

    /// Aborts the running model calls. Does nothing before the endpoint is open.
    pub(super) fn abort_streams(&self) {
        if let Some(endpoint) = &*self.endpoint() {
            endpoint.abort_calls();
        }
    }

    fn endpoint(&self) -> MutexGuard<'_, Option<GatewayEndpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Account of a session at the gateway.
struct LinkAccount {
    id: SessionId,
    session: WeakAddr<Session>,
    budget: Arc<SessionBudget>,
    /// Permits for notices in flight to disk. Bound: 16 notices. When full: the next model call
    /// blocks.
    notices: Arc<Semaphore>,
}

impl SessionAccount for LinkAccount {
    fn may_call(&self) -> Result<(), ModelCallDenied> {
        self.budget.may_call()
    }

    fn has_budget(&self) -> bool {
        self.budget.has_budget()
    }

    fn models(&self) -> SessionModels {
        self.budget.models()
    }

    fn has_cause(&self) -> Result<(), ModelCallDenied> {
        self.budget.has_cause()
    }

    fn estimate_input(&self, body_bytes: u64) -> u64 {
        self.budget.estimate_input(body_bytes)
    }

    fn reserve(&self, demand: CallDemand) -> BoxFuture<'_, Result<CallGrant, ModelCallDenied>> {
        Box::pin(self.budget.reserve(demand))
    }

    fn settle(&self, settlement: CallSettlement) {
        self.budget.settle(settlement);
    }

    fn notify(&self, notice: GatewayNotice) {
        // A model call causes a few notices, and no call begins while [`MAX_NOTICES`] are in
        // flight. So notices cannot fill the mailbox.
        let permit = self.notices.clone().try_acquire_owned().ok();
        if let Some(session) = self.session.upgrade() {
            session.do_send(NoticeReceived { notice, permit });
        }
    }

    fn log(&self, line: &str) {
        tracing::info!(session = %self.id, "{line}");
    }

    fn wait_until_caught_up(&self) -> BoxFuture<'_, ()> {
        // The semaphore is never closed, and the permit is not kept.
        Box::pin(async { drop(self.notices.acquire().await) })
    }
}
