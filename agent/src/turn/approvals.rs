//! Approval requests: a turn asks a person and waits for the decision.
//!
//! The request is a durable report, the observation `confirm`. The server keeps the request until a
//! person decides, and sends the decision as the command `answer`. Requests are open only within
//! their turn. An interrupt cancels them; after a restart of the agent none is open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use greenroom_protocol::{Observation, ObservationKind, action::ApprovalDecision};
use tokio::sync::oneshot;
use ulid::Ulid;

use super::{TurnContext, lock};

/// Question to a person before work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// Work that needs the approval, in words.
    pub action: String,
    /// Possible harm, in words.
    pub risk: String,
    /// Decisions that apply.
    pub options: Vec<ApprovalDecision>,
}

/// End of an approval request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// A person decided.
    Decided { decision: ApprovalDecision, reason: Option<String> },
    /// An interrupt came before a decision. The work must not be done.
    Cancelled,
}

impl TurnContext {
    /// Asks a person, and returns the decision. Several requests may be open at a time.
    ///
    /// An interrupt returns [`ApprovalAnswer::Cancelled`] at once. If the future is dropped, a
    /// later answer is ignored.
    pub async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let ApprovalRequest { action, risk, options } = request;
        let mut pending = self.approvals.open();
        let kind = ObservationKind::Confirm { request: pending.request.clone(), action, risk, options };
        let decided = async {
            self.outgoing.event(None, Observation { kind, content: String::new() }).await;
            // The sender stays in `approvals` until it has sent, or until `pending` is dropped.
            (&mut pending.answer).await.unwrap_or(ApprovalAnswer::Cancelled)
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => ApprovalAnswer::Cancelled,
            answer = decided => answer,
        }
    }
}

/// Approval requests without an answer. Bound: those that the running turn asks at a time.
#[derive(Debug, Clone, Default)]
pub struct ApprovalWaiters(Arc<Mutex<HashMap<String, oneshot::Sender<ApprovalAnswer>>>>);

impl ApprovalWaiters {
    /// Passes a person's answer to the turn that asked. Returns `false` if no such request is open.
    pub fn answer(&self, request: &str, decision: ApprovalDecision, reason: Option<String>) -> bool {
        let waiting = lock(&self.0).remove(request);
        waiting.is_some_and(|waiting| waiting.send(ApprovalAnswer::Decided { decision, reason }).is_ok())
    }

    fn open(&self) -> PendingApproval {
        let (request, (sender, answer)) = (Ulid::generate().to_string(), oneshot::channel());
        lock(&self.0).insert(request.clone(), sender);
        PendingApproval { open: self.clone(), request, answer }
    }
}

/// Open request. Closed when dropped.
struct PendingApproval {
    open: ApprovalWaiters,
    request: String,
    answer: oneshot::Receiver<ApprovalAnswer>,
}

impl Drop for PendingApproval {
    fn drop(&mut self) {
        lock(&self.open.0).remove(&self.request);
    }
}
