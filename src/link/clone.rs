//! Clone of the session's repository, before the first start of its sandbox.

use actix::WeakAddr;
use greenroom_protocol::repository::{ClonePhase, RepositoryClone};

use super::sandbox_lifecycle::SandboxSupervisor;
use crate::{
    repositories::{ClonedRepository, RepositoryError},
    session::{CloneReported, Session},
    store::SessionRepository,
};

impl SandboxSupervisor {
    /// Clones the repository into the workspace, and reports begin and end to the session.
    ///
    /// Holds the start mutex, so no start and no removal of the session runs meanwhile. Dropping
    /// the supervisor ends the clone.
    ///
    /// # Errors
    /// Fails with the reason, which the session has as an event too.
    pub(super) async fn clone_repository(&self, repository: &SessionRepository) -> Result<(), RepositoryError> {
        let _alone = self.start_mutex.lock().await;
        self.entry.set_state("cloning the repository");
        let report = |phase, cloned: Option<ClonedRepository>, detail| {
            let (commit, branch) = cloned.map(|cloned| (cloned.commit, cloned.branch)).unzip();
            let (url, reference) = (repository.url.clone(), repository.reference.clone());
            send(&self.session, RepositoryClone { phase, url, reference, commit, branch, detail });
        };
        let begun = || report(ClonePhase::Cloning, None, None);
        match self.parts.repositories.clone_into_workspace(self.id, repository, begun).await {
            Ok(cloned) => {
                report(ClonePhase::Cloned, Some(cloned), None);
                Ok(())
            }
            Err(error) => {
                report(ClonePhase::Failed, None, Some(error.to_string()));
                Err(error)
            }
        }
    }
}

fn send(session: &WeakAddr<Session>, clone: RepositoryClone) {
    if let Some(session) = session.upgrade() {
        session.do_send(CloneReported { clone });
    }
}
