//! Reasons for rejected client requests.

/// Reason for a rejected client request. The text is shown to the user. The request had no effect,
/// except perhaps after `Unanswered`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the agent is still working; queue the message or interrupt it")]
    Busy,
    #[error("a turn, its capture or another restore runs; interrupt the turn or wait, and repeat the restore")]
    RestoreBusy,
    #[error("nothing is running")]
    NothingToInterrupt,
    #[error("the session is already {0}")]
    AlreadyInState(&'static str),
    #[error("the session is {state}, so it cannot {request}; {way_out}")]
    WrongState { state: &'static str, request: &'static str, way_out: &'static str },
    #[error("the session has ended; read or export it, or start a new session")]
    Ended,
    #[error("no message `{0}` is queued")]
    NotQueued(String),
    #[error("no request `{0}` is open; it may have been answered already")]
    NoRequest(String),
    #[error("no process `{0}` is left running; it may have ended already")]
    NoProcess(i32),
    #[error("`{0}` already names another request; send this request with a new id or key")]
    IdReused(String),
    #[error("{0}")]
    BadArgs(String),
    #[error("no session `{0}`")]
    NoSession(String),
    /// The session state cannot be read by this version, or the import is incomplete. A retry fails
    /// again.
    #[error("{0}")]
    Unreadable(String),
    #[error("the session's budget of {0} USD is spent; raise or remove the budget")]
    BudgetSpent(String),
    /// The journal rejected the append.
    #[error("{0}; what was acknowledged before is safe")]
    Journal(String),
    #[error("{0} sandboxes already wait to start; try again in a moment (limit: `sandbox.max_waiting`)")]
    Overloaded(usize),
    /// The request had no effect. A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
    /// The session stopped before it answered. The request may have taken effect.
    #[error("the session stopped before it answered; after its restart it shows whether the request took effect")]
    Unanswered,
}

impl RequestError {
    /// Returns the stable code for programs: `code` in error frames and in errors of the REST API.
    pub fn code(&self) -> &'static str {
        match self {
            RequestError::Busy | RequestError::RestoreBusy => "busy",
            RequestError::NothingToInterrupt => "nothing_to_interrupt",
            RequestError::AlreadyInState(_) => "already",
            RequestError::WrongState { .. } => "wrong_state",
            RequestError::Ended => "ended",
            RequestError::NotQueued(_) => "not_queued",
            RequestError::NoRequest(_) => "no_request",
            RequestError::NoProcess(_) => "no_process",
            RequestError::IdReused(_) => "id_reused",
            RequestError::BadArgs(_) => "invalid_args",
            RequestError::NoSession(_) => "not_found",
            RequestError::Unreadable(_) => "conflict",
            RequestError::BudgetSpent(_) => "budget_spent",
            RequestError::Journal(_) => "journal_unavailable",
            RequestError::Overloaded(_) => "overloaded",
            RequestError::Unavailable(_) => "unavailable",
            RequestError::Unanswered => "unanswered",
        }
    }
}
