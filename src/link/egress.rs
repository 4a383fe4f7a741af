//! The model's way out of a sandbox, and the account that its calls are booked on.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actix::WeakAddr;
use futures::future::BoxFuture;
use tokio::{net::UnixListener, sync::Semaphore};

use crate::{
    gateway::{Gateway, GatewayEndpoint, GatewayNotice, ModelCallDenied, SessionAccount},
    session::{Session, SessionBudget, messages::NoticeReceived},
};

/// How many notices of the gateway may be on their way to disk in one session before its next call waits.
const MAX_NOTICES: usize = 16;

/// Opened with the sandbox's first start, and closed when nobody holds this any more.
pub(super) struct ModelEgress {
    account: Arc<LinkAccount>,
    endpoint: Mutex<Option<GatewayEndpoint>>,
}

impl ModelEgress {
    pub(super) fn new(session: WeakAddr<Session>, allowance: Arc<SessionBudget>) -> ModelEgress {
        let account =
            Arc::new(LinkAccount { session, budget: allowance, notices: Arc::new(Semaphore::new(MAX_NOTICES)) });
        ModelEgress { account, endpoint: Mutex::default() }
    }

    /// Has the gateway serve this session on what `listener` gives, unless it does already: then nothing is asked of that.
    /// Must be called inside the runtime that is to serve it.
    pub(super) fn open(
        &self,
        gateway: &Gateway,
        listener: impl FnOnce() -> io::Result<UnixListener>,
    ) -> io::Result<()> {
        if self.endpoint().is_none() {
            // Not under the lock: the disk may take its time, and an interrupt does not wait for that.
            let listener = listener()?;
            // Under the lock: an interrupt that comes behind the first call finds it.
            self.endpoint().get_or_insert_with(|| gateway.open(listener, self.account.clone()));
        }
        Ok(())
    }

    /// Ends the calls that run. Before it is open there are none.
    pub(super) fn abort_streams(&self) {
        if let Some(endpoint) = &*self.endpoint() {
            endpoint.abort_calls();
        }
    }

    fn endpoint(&self) -> MutexGuard<'_, Option<GatewayEndpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's account at the gateway.
struct LinkAccount {
    session: WeakAddr<Session>,
    budget: Arc<SessionBudget>,
    /// One for each notice that may be on its way to disk.
    notices: Arc<Semaphore>,
}

impl SessionAccount for LinkAccount {
    fn may_call(&self) -> Result<(), ModelCallDenied> {
        self.budget.may_call()
    }

    fn has_budget(&self) -> bool {
        self.budget.has_budget()
    }

    fn notify(&self, notice: GatewayNotice) {
        // A few for each call of a model, and no call begins while many are not on disk: the mailbox cannot run full of them.
        let unwritten = self.notices.clone().try_acquire_owned().ok();
        if let Some(session) = self.session.upgrade() {
            session.do_send(NoticeReceived { notice, permit: unwritten });
        }
    }

    fn wait_until_caught_up(&self) -> BoxFuture<'_, ()> {
        // It is never closed, and there is nothing to keep of it.
        Box::pin(async { drop(self.notices.acquire().await) })
    }
}
