//! Reviews of tool calls: the server's policy decides before a call runs.
//!
//! A review is the frame `review`, and the frame `verdict` answers. The agent repeats a review on
//! each connection until its verdict. Without a connection, the call waits. An interrupt withdraws
//! the review.

use greenroom_protocol::{
    Action, EventBody,
    approval::{ReviewRequest, Verdict},
    link::EVENT_LIMIT,
};
use ulid::Ulid;

use super::TurnContext;

/// Largest action of a review, in bytes of JSON.
const REVIEW_LIMIT: usize = EVENT_LIMIT / 2;

impl TurnContext {
    /// Sends a tool call for review, and returns the verdict. A server that reviews no calls allows
    /// all. Several reviews may wait at a time.
    ///
    /// An interrupt returns `None` at once. If the future is dropped, a later verdict is ignored.
    pub async fn review(&self, item: &str, action: &Action) -> Option<Verdict> {
        if !self.outgoing.is_reviewed() {
            return Some(Verdict::Allow);
        }
        let action = match reviewable(action) {
            Ok(action) => action,
            Err(reason) => return Some(Verdict::Deny { reason }),
        };
        let request = ReviewRequest { id: Ulid::generate().to_string(), item: Some(item.to_owned()), action };
        let verdict = async { self.outgoing.review(request).await.verdict().await };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            verdict = verdict => verdict,
        }
    }
}

/// Returns the action within [`REVIEW_LIMIT`].
///
/// # Errors
/// Rejects a call with a long text that decides what the call does. A policy that reads a part of a
/// command cannot judge the command.
fn reviewable(action: &Action) -> Result<Action, String> {
    match EventBody::Action(action.clone()).fit(REVIEW_LIMIT) {
        EventBody::Action(fit) if fit == *action || matches!(action, Action::Write { .. } | Action::Edit { .. }) => {
            Ok(fit)
        }
        _ => Err(format!(
            "the arguments of `{}` exceed {REVIEW_LIMIT} bytes, too many for a review; write a file and use it",
            action.name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_reviewed_whole_or_not_at_all() {
        let command = |bytes| Action::Run { command: "x".repeat(bytes) };
        assert_eq!(reviewable(&command(1 << 19)), Ok(command(1 << 19)));
        assert!(reviewable(&command(REVIEW_LIMIT)).is_err());
        let large = Action::Write { path: "a/b".into(), content: "x".repeat(4 * REVIEW_LIMIT) };
        let Ok(Action::Write { path, content }) = reviewable(&large) else { panic!("a write of any size is reviewed") };
        assert!(path == "a/b" && content.len() < REVIEW_LIMIT);
    }
}
