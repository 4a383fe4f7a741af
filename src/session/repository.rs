//! Messages about the repository that a workspace is a clone of.

use std::sync::Arc;

use actix::prelude::*;
use greenroom_protocol::{
    EventSource, Observation, ObservationKind,
    repository::{ClonePhase, RepositoryClone},
};

use super::{actor::Session, messages::RequestResult, transition::Transition};

/// Progress of the clone into the workspace, from the link.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CloneReported {
    pub clone: RepositoryClone,
}

/// Completed push of commits, for the journal.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct BranchPushed {
    /// Address of the repository, without credentials.
    pub url: String,
    pub branch: String,
    pub commit: String,
}

impl Handler<CloneReported> for Session {
    type Result = ();

    fn handle(&mut self, CloneReported { clone }: CloneReported, ctx: &mut Context<Session>) {
        let Some(repository) = &self.record.repository else { return };
        // A server that died after the clone, or a second start, reports the clone again.
        if repository.commit.is_some() {
            return;
        }
        if clone.phase == ClonePhase::Cloned {
            let (commit, branch) = (clone.commit.clone(), clone.branch.clone());
            if let Some(repository) = &mut Arc::make_mut(&mut self.record).repository {
                (repository.commit, repository.branch) = (commit, branch);
            }
            self.record_changed = true;
        }
        self.commit_observation(ObservationKind::Repository(clone), Vec::new(), ctx);
    }
}

impl Handler<BranchPushed> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, pushed: BranchPushed, ctx: &mut Context<Session>) -> Self::Result {
        let BranchPushed { url, branch, commit } = pushed;
        let mut transition = Transition::after(self.tail);
        let kind = ObservationKind::Pushed { url, branch, commit };
        let seq = Some(self.tail + 1);
        transition.push_event(EventSource::Server, None, None, Observation { kind, content: String::new() });
        self.commit_and_answer(transition, seq, ctx)
    }
}
