//! Memory of the reviewed tool calls of one session.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hasher},
    io,
};

use greenroom_protocol::{
    Action,
    approval::{RiskAssessment, Verdict},
};
use tokio_util::sync::CancellationToken;

use crate::approvals::PolicyDecision;

/// Number of reviewed calls that a session remembers. Bound: 256. When full: the oldest is
/// forgotten, and reviewed again if the agent repeats it.
const MAX_REVIEWED: usize = 256;

/// Reviewed calls of the agent, oldest first, and the reviews that are pending.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    reviewed: VecDeque<ReviewedCall>,
    /// Cancelled to end the pending reviews. `None` before the first one.
    pending: Option<CancellationToken>,
}

/// Reviewed call.
#[derive(Debug, Clone)]
pub(super) struct ReviewedCall {
    pub(super) review: String,
    pub(super) item: Option<String>,
    /// Digest of the call. The call itself may be large.
    pub(super) digest: u64,
    pub(super) risk: Option<RiskAssessment>,
    pub(super) decision: PolicyDecision,
    /// Set if the call was asked about because the agent repeats itself.
    pub(super) is_forced: bool,
}

impl Reviews {
    /// Returns the newest review of an item.
    pub(super) fn of_item(&self, item: &str) -> Option<&ReviewedCall> {
        self.reviewed.iter().rfind(|reviewed| reviewed.item.as_deref() == Some(item))
    }

    /// Returns the risk of the item's call, if the call was reviewed.
    pub(super) fn risk_of(&self, item: &str) -> Option<RiskAssessment> {
        self.of_item(item)?.risk.clone()
    }

    pub(super) fn verdict_of(&self, review: &str, digest: u64) -> Option<Verdict> {
        let known = self.reviewed.iter().rfind(|known| known.review == review && known.digest == digest)?;
        Some(verdict(&known.decision))
    }

    pub(super) fn remember(&mut self, reviewed: ReviewedCall) {
        if self.reviewed.len() >= MAX_REVIEWED {
            self.reviewed.pop_front();
        }
        self.reviewed.push_back(reviewed);
    }

    /// Returns the token that ends the pending reviews.
    pub(super) fn end_token(&mut self) -> CancellationToken {
        self.pending.get_or_insert_default().clone()
    }

    /// Ends the pending reviews. They deny their calls.
    pub(super) fn end_pending(&mut self) {
        if let Some(pending) = self.pending.take() {
            pending.cancel();
        }
    }
}

/// Returns the digest by which a call is recognised.
pub(super) fn digest_of(call: &Action) -> u64 {
    struct HashWriter(DefaultHasher);
    impl io::Write for HashWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hash = HashWriter(DefaultHasher::new());
    // Invariant: all types of the protocol have string keys and an infallible `Serialize`.
    serde_json::to_writer(&mut hash, call).expect("calls serialize without errors");
    hash.0.finish()
}

pub(super) fn verdict(decision: &PolicyDecision) -> Verdict {
    match decision {
        PolicyDecision::Allow => Verdict::Allow,
        PolicyDecision::Ask { .. } => Verdict::Ask,
        PolicyDecision::Deny { reason, .. } => Verdict::Deny { reason: reason.clone() },
    }
}
