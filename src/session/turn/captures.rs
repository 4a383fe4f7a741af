//! Rules for checkpoints. A capture holds the queue, and nothing else waits for it. A late capture
//! goes on beside the next turn; a restore never does.

use greenroom_protocol::{EventSource, ObservationKind};
use serde::{Deserialize, Serialize};

use super::{RequestError, SessionState, observation};
use crate::session::{
    effect::Effect,
    transition::{DecisionContext, Transition},
};

/// Captures that have not ended, oldest first.
///
/// Bound: 2. When full: a turn that ends has no checkpoint, and a restore is rejected.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct PendingCaptures(Vec<PendingCapture>);

const MAX_PENDING: usize = 2;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingCapture {
    /// Name of the checkpoint.
    checkpoint: String,
    /// Set if the capture goes on beside the next turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_late: bool,
    /// Set for a restore, which writes files.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_restore: bool,
}

/// Change of a capture or a restore.
#[derive(Debug, Clone, PartialEq)]
pub enum CaptureChange {
    /// A person restores the workspace. The end is the checkpoint of this name.
    RestoreBegun { checkpoint: String },
    /// The capture takes long. The queue goes on, unless this is a restore.
    Delayed { checkpoint: String },
    /// The capture or the restore has ended, with these observations.
    Ended { checkpoint: String, observations: Vec<ObservationKind> },
}

impl PendingCaptures {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if no turn may begin.
    pub(super) fn hold_queue(&self) -> bool {
        self.0.iter().any(|capture| !capture.is_late)
    }

    pub(super) fn contains(&self, checkpoint: &str) -> bool {
        self.0.iter().any(|capture| capture.checkpoint == checkpoint)
    }

    fn begin(&mut self, checkpoint: String, is_restore: bool) {
        self.0.push(PendingCapture { checkpoint, is_late: false, is_restore });
    }

    fn is_restoring(&self, checkpoint: &str) -> bool {
        self.0.iter().any(|capture| capture.is_restore && capture.checkpoint == checkpoint)
    }
}

impl SessionState {
    /// Captures the workspace if `turn`, which ran before the input, has ended.
    pub(super) fn capture_ended_turn(
        &mut self,
        turn: Option<String>,
        context: DecisionContext<'_>,
        d: &mut Transition,
    ) {
        let has_ended = turn.filter(|id| self.turn.as_ref().is_none_or(|running| running.id != *id));
        if let Some(checkpoint) = has_ended
            && context.captures_turns
            && self.captures.0.len() < MAX_PENDING
        {
            self.captures.begin(checkpoint.clone(), false);
            d.push_effect(Effect::CaptureWorkspace { checkpoint, may_be_late: false });
        }
    }

    pub(super) fn capture_changed(&mut self, change: CaptureChange, d: &mut Transition) -> Result<(), RequestError> {
        match change {
            CaptureChange::RestoreBegun { checkpoint } => {
                self.check_open()?;
                if self.turn.is_some() || self.captures.hold_queue() || self.captures.0.len() >= MAX_PENDING {
                    return Err(RequestError::RestoreBusy);
                }
                self.captures.begin(checkpoint, true);
            }
            CaptureChange::Delayed { checkpoint } => {
                let delayed = self.captures.0.iter_mut().find(|capture| capture.checkpoint == checkpoint);
                if let Some(capture) = delayed {
                    capture.is_late = !capture.is_restore;
                }
            }
            CaptureChange::Ended { checkpoint, observations } => {
                let pending = self.captures.0.len();
                self.captures.0.retain(|capture| capture.checkpoint != checkpoint);
                if self.captures.0.len() < pending {
                    for kind in observations {
                        self.note_restore(&kind);
                        d.push_event(EventSource::Server, None, None, observation(kind));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns true if this restore has not ended.
    pub fn is_restoring(&self, checkpoint: &str) -> bool {
        self.captures.is_restoring(checkpoint)
    }

    /// Returns the effects that take up the captures which an earlier server did not end.
    pub fn captures_after_restart(&self) -> Vec<Effect> {
        let redo = |capture: &PendingCapture| Effect::CaptureWorkspace {
            checkpoint: capture.checkpoint.clone(),
            may_be_late: true,
        };
        self.captures.0.iter().map(redo).collect()
    }
}
