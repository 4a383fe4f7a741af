//! Captures of the workspace for the session. They run beside everything else that the link does.

use std::pin::pin;

use greenroom_protocol::{ObservationKind, checkpoint::CheckpointKind};
use tokio::time::timeout;
use tracing::warn;

use super::AgentLink;
use crate::{
    checkpoints::{CAPTURE_WAIT, CheckpointError, RESTORE},
    session::{CaptureDelayed, CaptureEnded, report_capture_end, send_request},
};

impl AgentLink {
    /// Captures the workspace and reports the end to the session. If the session's actor is gone by
    /// then, the next one requests the capture again, which returns this one.
    ///
    /// A restore whose server or actor died is captured too, once it no longer writes.
    pub(super) fn capture_workspace(&self, checkpoint: String, may_be_late: bool) {
        let (checkpoints, session, id) = (self.parts.checkpoints.clone(), self.session.clone(), self.id);
        // A restore whose server died has this name.
        let is_restore = checkpoint.starts_with(RESTORE);
        let kind = if is_restore { CheckpointKind::Restore } else { CheckpointKind::Turn };
        actix::spawn(async move {
            let mut capture = pin!(checkpoints.capture(id, checkpoint.clone(), kind, may_be_late));
            let taken = match timeout(CAPTURE_WAIT, &mut capture).await {
                Ok(taken) => taken,
                Err(_) => {
                    if let Some(session) = session.upgrade() {
                        session.do_send(CaptureDelayed { checkpoint: checkpoint.clone() });
                    }
                    capture.await
                }
            };
            let observations = match taken {
                Ok(taken) => taken.observations(),
                Err(CheckpointError::NotOffered(_) | CheckpointError::Cancelled) => Vec::new(),
                Err(error) => {
                    warn!(session = %id, "no checkpoint `{checkpoint}`: {error}");
                    vec![capture_failed(&error)]
                }
            };
            report_capture_end(CaptureEnded { checkpoint, observations }, async |end| {
                send_request(&session.upgrade()?, end).await.ok()
            })
            .await;
        });
    }
}

fn capture_failed(error: &CheckpointError) -> ObservationKind {
    ObservationKind::Notice {
        code: "checkpoint_failed".to_owned(),
        detail: format!("the workspace was not captured: {error}"),
        attempts: None,
        waited_ms: None,
    }
}
