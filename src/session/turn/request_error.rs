//! Why a wish was not carried out.

/// Why a wish was not carried out. Shown to the person word for word; nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the agent is still working; queue the message or interrupt it")]
    Busy,
    #[error("nothing is running")]
    NothingToInterrupt,
    #[error("the session is already {0}")]
    Already(&'static str),
    #[error("the session is {state}, so it cannot {wish}; {way_out}")]
    WrongState { state: &'static str, wish: &'static str, way_out: &'static str },
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

impl Refusal {
    /// Stable, for programs: the `code` of the error frame and of REST's errors.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Busy => "busy",
            Refusal::NothingToInterrupt => "nothing_to_interrupt",
            Refusal::Already(_) => "already",
            Refusal::WrongState { .. } => "wrong_state",
            Refusal::Ended => "ended",
            Refusal::NotQueued(_) => "not_queued",
            Refusal::NoRequest(_) => "no_request",
            Refusal::IdReused(_) => "id_reused",
            Refusal::BadArgs(_) => "invalid_args",
            Refusal::NoSession(_) => "not_found",
            Refusal::Unreadable(_) => "conflict",
            Refusal::BudgetSpent(_) => "budget_spent",
            Refusal::Journal(_) => "journal_unavailable",
            Refusal::Overloaded(_) => "overloaded",
            Refusal::Unavailable(_) => "unavailable",
            Refusal::Unanswered => "unanswered",
        }
    }
}
