//! Session actor: one live session.
//!
//! The actor receives client requests, agent reports and the state changes of the sandbox. For each
//! input, in this order:
//!
//! 1. `handlers`, `client_input` and `reports` convert the message to a `SessionInput`.
//! 2. `decide` passes the input to [`turn`], whose rules are pure. A plain event of the agent needs
//!    no decision.
//! 3. `commit` appends the new events to the journal.
//! 4. When the append is on disk, `commit` publishes the events, executes the effects and sends
//!    the answers. Effects that only stop something precede the append.
//!
//! `approvals` applies the `policy` to the agent's tool calls, and remembers `reviews`. `loops`
//! detects an agent that repeats itself.
//!
//! `actor` holds the actor's state. `restart` reads it from the journal. `fork` is the beginning of
//! a forked session.
//!
//! Deltas do not pass the actor: the link puts them into [`SessionBroadcast`].
//!
//! The actor contains no client JSON, HTTP, Docker or socket code. It awaits its store and nothing
//! else.

mod actor;
mod approvals;
mod broadcast;
mod budget;
mod captures;
mod client_input;
mod commit;
mod decide;
pub mod effect;
mod fork;
mod handlers;
mod journal_quota;
mod latest;
mod loops;
pub mod messages;
mod names;
mod pending;
mod plan;
mod policy;
mod render;
mod reports;
mod repository;
mod request;
mod request_error;
mod restart;
mod reviews;
mod spending;
mod terminals;
#[cfg(test)]
pub(crate) mod testkit;
mod title;
mod transition;
mod turn;
mod usage;
mod user_calls;
mod view;

pub(crate) use self::names::{DirectorySchema, ModelNameSchema, NameSchema, TitleSchema};
pub use self::{
    actor::{LinkFactory, ModelCheck, Session, SessionDeps},
    approvals::security,
    broadcast::{DeliveryPoll, DeltaChunk, DeltaPositions, SessionBroadcast, Subscription},
    budget::SessionBudget,
    captures::{BeginRestore, CaptureDelayed, CaptureEnded, report_capture_end},
    fork::{ForkBeginning, begin_fork, is_capturing, latest_of},
    names::{check_directory, check_name, check_title},
    plan::{PlanSaved, plan_path},
    policy::{ProjectRuleStore, SessionPolicy},
    reports::is_batchable,
    repository::{BranchPushed, CloneReported},
    request::{CallError, SessionRequest, request_with_retry, send_request},
    request_error::RequestError,
    restart::{initial_state, turn_start_seq},
    spending::{ServerSpending, SpendingError},
    terminals::{StartForTerminal, TerminalsListed},
    turn::{IdempotencyKey, OpenApproval, request_digest},
    user_calls::{BeginUserCall, UserCall},
    view::SessionView,
};
