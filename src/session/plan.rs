//! Plan of the agent, as the user saves it in the workspace.

use actix::prelude::*;
use greenroom_protocol::plan::PLAN_PATH;

use super::{actor::Session, messages::RequestResult, turn::SessionInput};
use crate::store::SessionId;

/// Records a plan that the user saved. The agent reads the file itself, at its next step.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct PlanSaved {
    /// Path inside the workspace.
    pub path: String,
    pub markdown: String,
}

impl Handler<PlanSaved> for Session {
    type Result = ResponseFuture<RequestResult>;

    fn handle(&mut self, PlanSaved { path, markdown }: PlanSaved, ctx: &mut Context<Session>) -> Self::Result {
        self.handle_request(SessionInput::PlanSaved { path, markdown }, None, ctx)
    }
}

/// Returns the path of a session's plan below its directory. Sessions that share their workspace
/// have a file each.
pub fn plan_path(session: SessionId, is_workspace_shared: bool) -> String {
    match is_workspace_shared {
        true => format!(".greenroom/plans/{session}.md"),
        false => PLAN_PATH.to_owned(),
    }
}
