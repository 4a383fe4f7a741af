//! Requests about terminals: list, rename, close.

use std::time::Duration;

use greenroom_protocol::terminal::{
    TERMINALS_LIMIT, TerminalErrorCode, TerminalReply, TerminalRequest, TerminalStatus, check_terminal_name,
};
use tokio::time::timeout;

use super::agent_stream::{self, ReceivedTerminalFrame};
use crate::sandbox::RunDir;

/// Time in which an agent must answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest title or command line that is passed on, in characters.
const TEXT_LIMIT: usize = 200;

/// Reason why a request about terminals failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminalRequestError {
    /// Rejection of the agent, for a person.
    #[error("{message}")]
    Rejected { code: TerminalErrorCode, message: String },
    #[error("the agent's terminals do not answer; try again")]
    Unavailable,
}

/// Sends a request to the agent of the sandbox with this run directory. Returns the terminals for
/// `list`, and an empty list for other requests.
///
/// # Errors
/// The agent rejects the request, or does not answer as an agent does.
pub async fn request_terminals(
    run: &RunDir,
    request: &TerminalRequest,
) -> Result<Vec<TerminalStatus>, TerminalRequestError> {
    let answer = async {
        let stream = run.dial_terminals().await.ok()?;
        let (mut answers, _input) = agent_stream::begin(stream, request);
        match answers.next().await.ok()?? {
            ReceivedTerminalFrame::Reply(reply) => Some(reply),
            ReceivedTerminalFrame::Bytes(_) => None,
        }
    };
    let reply = timeout(ANSWER_TIMEOUT, answer).await.ok().flatten().ok_or(TerminalRequestError::Unavailable)?;
    match (request, reply) {
        (_, TerminalReply::Error { code, message }) => {
            Err(TerminalRequestError::Rejected { code, message: harmless(&message) })
        }
        (TerminalRequest::List {}, TerminalReply::Terminals { items }) => Ok(checked(items)),
        (TerminalRequest::Rename { .. } | TerminalRequest::Close { .. }, TerminalReply::Done {}) => Ok(Vec::new()),
        _ => Err(TerminalRequestError::Unavailable),
    }
}

/// Drops what an agent does not send. A program in the sandbox may imitate the agent.
fn checked(items: Vec<TerminalStatus>) -> Vec<TerminalStatus> {
    let valid = items.into_iter().filter(|status| check_terminal_name(&status.name).is_ok()).take(TERMINALS_LIMIT);
    valid
        .map(|status| TerminalStatus {
            title: status.title.as_deref().map(harmless),
            command: status.command.as_deref().map(harmless),
            ..status
        })
        .collect()
}

/// Returns the beginning of a text, without control characters.
pub(super) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(TEXT_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_a_hostile_agent_is_bounded() {
        let status = |name: &str| TerminalStatus {
            name: name.to_owned(),
            title: Some("\x1b]0;x\x07".to_owned()),
            cols: 80,
            rows: 24,
            clients: 0,
            command: Some("c".repeat(60_000)),
            age_s: 0,
        };
        let items: Vec<_> = (0..100).map(|n| status(&format!("t{n}"))).chain([status("../x")]).collect();
        let checked = checked(items);
        assert_eq!(checked.len(), TERMINALS_LIMIT);
        assert!(
            checked.iter().all(|status| status.command.as_ref().is_some_and(|command| command.len() == TEXT_LIMIT))
        );
        assert_eq!(checked[0].title.as_deref(), Some("\u{fffd}]0;x\u{fffd}"));
        assert_eq!(super::checked(vec![status("../x"), status("")]), []);
    }
}
