//! Approval of a tool call in the built-in driver: the review, the event of the call, and the
//! question to a person.

use std::path::Path;

use greenroom_protocol::{Action, Observation, ObservationKind, action::ApprovalDecision, approval::Verdict, excerpt};
use serde_json::Value;

use super::{ApprovalAnswer, ApprovalRequest, TurnContext};
use crate::tools;

/// Code of the error that ends a denied call.
const DENIED: &str = "denied";

/// Size limit of changed arguments in a note for the model, in bytes.
const NOTE_LIMIT: usize = 8 * 1024;

/// Decision about a tool call of the model.
pub(super) enum CallDecision {
    /// The call runs. `note` precedes its result for the model: empty, unless a person changed the
    /// call.
    Run { action: Action, note: String },
    /// The call must not run, for this reason.
    Denied(String),
    /// The call would fail with this error, or a person's changes do not fit.
    Failed(String),
    /// An interrupt came before the decision.
    Stopped,
}

/// Gets the decision about a call of the tool `name`, and reports the event of the call. Without a
/// review pass `think`, `plan` and `finish`, which change nothing of the user's.
pub(super) async fn approve_call(
    id: &str,
    name: &str,
    action: Action,
    directory: &Path,
    context: &TurnContext,
) -> CallDecision {
    let verdict = if let Action::Think { .. } | Action::Plan { .. } | Action::Finish { .. } = action {
        Some(Verdict::Allow)
    } else {
        context.review(id, &action).await
    };
    let Some(verdict) = verdict else { return CallDecision::Stopped };
    context.outgoing.event(Some(id), action.clone()).await;
    match verdict {
        Verdict::Allow => CallDecision::Run { action, note: String::new() },
        Verdict::Deny { reason } => CallDecision::Denied(reason),
        Verdict::Ask => ask(id, name, action, directory, context).await,
    }
}

/// Asks a person. An edit that would fail fails at once.
async fn ask(id: &str, name: &str, action: Action, directory: &Path, context: &TurnContext) -> CallDecision {
    let preview = tokio::select! {
        biased;
        () = context.stop.cancelled() => return CallDecision::Stopped,
        preview = tools::preview(&action, directory) => preview,
    };
    let diff = match preview {
        Ok(diff) => diff,
        Err(detail) => return CallDecision::Failed(detail),
    };
    let editable =
        matches!(action, Action::Run { .. } | Action::Write { .. } | Action::Edit { .. } | Action::Browse { .. });
    let request = ApprovalRequest { item: id.to_owned(), call: action.clone(), editable, diff };
    let (decision, reason, input) = match context.ask(request).await {
        ApprovalAnswer::Decided { decision, reason, input } => (decision, reason, input),
        ApprovalAnswer::Cancelled => return CallDecision::Stopped,
    };
    match (decision, input) {
        (ApprovalDecision::Deny, _) => {
            let reason = reason.filter(|reason| !reason.trim().is_empty());
            CallDecision::Denied(reason.unwrap_or_else(|| "the user denied it".to_owned()))
        }
        (ApprovalDecision::Allow | ApprovalDecision::AllowAlways, None) => {
            CallDecision::Run { action, note: String::new() }
        }
        (ApprovalDecision::Allow | ApprovalDecision::AllowAlways, Some(input)) => changed_call(name, action, input),
    }
}

/// Returns the call with the arguments of a person. They are parsed as a model's are.
fn changed_call(name: &str, action: Action, input: Value) -> CallDecision {
    let note = changed_note(&input);
    match tools::parse(name, input) {
        Ok(changed) if changed == action => CallDecision::Run { action, note: String::new() },
        Ok(changed) => CallDecision::Run { action: changed, note },
        Err(error) => CallDecision::Failed(format!("the user changed this call, so it did not run: {error}")),
    }
}

/// Returns the text before the result of a call that a person changed.
pub(super) fn changed_note(input: &Value) -> String {
    let input = input.to_string();
    let input = excerpt(&input, NOTE_LIMIT).map_or(input, |cut| cut.text);
    format!("[The user changed this call before it ran. Its arguments were: {input}]\n")
}

/// Returns the observation that ends a denied call.
pub(super) fn denied_observation(reason: &str) -> Observation {
    let kind = ObservationKind::Error { code: DENIED.to_owned(), detail: reason.to_owned() };
    Observation { kind, content: String::new() }
}

/// Returns the result of a denied call, in words for the model.
pub(super) fn denied_text(reason: &str) -> String {
    format!("This call was denied and did not run: {reason}")
}

/// Returns `true` for the code of a denied call.
pub(super) fn is_denied(code: &str) -> bool {
    code == DENIED
}
