//! Approval requests: a turn asks a person and waits for the decision.
//!
//! The request is a durable report, the observation `confirm`. The server keeps the request until a
//! person decides, and sends the decision as the command `answer`. Requests are open only within
//! their turn. An interrupt cancels them; after a restart of the agent none is open.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use greenroom_protocol::{
    Action, EventBody, Observation, ObservationKind, action::ApprovalDecision, link::MAX_OPEN_APPROVALS,
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use ulid::Ulid;

use super::{TurnContext, lock};

/// Size limit of the call in a request, in bytes of JSON. Longer texts of a call are abbreviated.
const CALL_LIMIT: usize = 32 * 1024;

/// Question to a person before work is done.
#[derive(Debug, Clone, PartialEq)]
pub struct ApprovalRequest {
    /// Item of the tool call.
    pub item: String,
    /// Tool call that runs if it is allowed.
    pub call: Action,
    /// True if a person may change the arguments of `call`. An abbreviated call is not editable.
    pub editable: bool,
    /// Unified diff of the change that the call would make.
    pub diff: Option<String>,
}

/// End of an approval request.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalAnswer {
    /// A person decided.
    Decided {
        decision: ApprovalDecision,
        reason: Option<String>,
        /// Arguments that replace those of the call.
        input: Option<Value>,
    },
    /// An interrupt came before a decision. The work must not be done.
    Cancelled,
}

impl TurnContext {
    /// Asks a person, and returns the decision. Several requests may be open at a time.
    ///
    /// An interrupt returns [`ApprovalAnswer::Cancelled`] at once. If the future is dropped, a
    /// later answer is ignored.
    pub async fn ask(&self, request: ApprovalRequest) -> ApprovalAnswer {
        let ApprovalRequest { item, call, editable, diff } = request;
        let decided = async {
            let mut pending = self.approvals.open().await;
            let shown = abbreviated(&call);
            let editable = editable && shown == call;
            let kind = ObservationKind::Confirm {
                request: pending.request.clone(),
                action: call.summary_line(),
                risk: None,
                // The agent remembers no decision. The server adds rules.
                options: vec![ApprovalDecision::Allow, ApprovalDecision::Deny],
                choices: Vec::new(),
                asked_by: None,
                call: Some(Box::new(shown)),
                editable,
                diff,
            };
            self.outgoing.event(Some(&item), Observation { kind, content: String::new() }).await;
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

/// Returns the call within [`CALL_LIMIT`].
fn abbreviated(call: &Action) -> Action {
    match EventBody::Action(call.clone()).fit(CALL_LIMIT) {
        EventBody::Action(shown) => shown,
        // A body of no known kind. The report abbreviates the call to its own limit.
        EventBody::Observation(_) | EventBody::Opaque(_) => call.clone(),
    }
}

/// Approval requests without an answer. Bound: [`MAX_OPEN_APPROVALS`]. When full: a further request
/// waits for the end of another.
#[derive(Debug, Clone)]
pub struct ApprovalWaiters {
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<ApprovalAnswer>>>>,
    permits: Arc<Semaphore>,
}

impl Default for ApprovalWaiters {
    fn default() -> ApprovalWaiters {
        ApprovalWaiters { waiting: Arc::default(), permits: Arc::new(Semaphore::new(MAX_OPEN_APPROVALS)) }
    }
}

impl ApprovalWaiters {
    /// Passes a person's answer to the turn that asked. Returns `false` if no such request is open.
    pub fn answer(&self, request: &str, answer: ApprovalAnswer) -> bool {
        let waiting = lock(&self.waiting).remove(request);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    async fn open(&self) -> PendingApproval {
        // The semaphore is never closed, so there always is a permit.
        let permit = self.permits.clone().acquire_owned().await.ok();
        let (request, (sender, answer)) = (Ulid::generate().to_string(), oneshot::channel());
        lock(&self.waiting).insert(request.clone(), sender);
        PendingApproval { open: self.clone(), request, answer, _permit: permit }
    }
}

/// Open request. Closed when dropped.
struct PendingApproval {
    open: ApprovalWaiters,
    request: String,
    answer: oneshot::Receiver<ApprovalAnswer>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for PendingApproval {
    fn drop(&mut self) {
        lock(&self.open.waiting).remove(&self.request);
    }
}
