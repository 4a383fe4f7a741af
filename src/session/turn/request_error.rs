//! Why a wish was not carried out.

/// Why a wish was not carried out. Shown to the person word for word; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("the agent is still working; queue the message or interrupt it")]
    Busy,
    #[error("nothing is running")]
    NothingToInterrupt,
    #[error("the session is already {0}")]
    AlreadyInState(&'static str),
    #[error("the session is {state}, so it cannot {request}; {way_out}")]
    WrongState { state: &'static str, request: &'static str, way_out: &'static str },
    #[error("the session has ended; it can be read and exported, and a new one can go on from here")]
    Ended,
    #[error("no message `{0}` is waiting")]
    NotQueued(String),
    #[error("no request `{0}` is open; it may have been answered already")]
    NoRequest(String),
    #[error("`{0}` stands for another wish already; send this one under an id, or with a key, of its own")]
    IdReused(String),
    #[error("{0}")]
    BadArgs(String),
    #[error("no session `{0}`")]
    NoSession(String),
    /// Nobody goes on with the session, as nobody here knows what it remembers. To ask again does not help.
    #[error("{0}")]
    Unreadable(String),
    #[error("the session's budget of {0} USD is spent; a new session can go on with another one")]
    BudgetSpent(String),
    /// The journal did not take it.
    #[error("{0}; what was acknowledged before is safe")]
    Journal(String),
    #[error("{0} sandboxes wait for their start already; try again in a moment (`sandbox.max_waiting`)")]
    Overloaded(usize),
    /// It was not done.
    #[error("{0}")]
    Unavailable(String),
    /// The session fell before it could answer. It may be done or not.
    #[error("the session went down before it could answer; once it is back it shows whether this was done")]
    Unanswered,
}

impl RequestError {
    /// Stable, for programs: the `code` of the error frame and of REST's errors.
    pub fn code(&self) -> &'static str {
        match self {
            RequestError::Busy => "busy",
            RequestError::NothingToInterrupt => "nothing_to_interrupt",
            RequestError::AlreadyInState(_) => "already",
            RequestError::WrongState { .. } => "wrong_state",
            RequestError::Ended => "ended",
            RequestError::NotQueued(_) => "not_queued",
            RequestError::NoRequest(_) => "no_request",
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
