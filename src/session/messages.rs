//! Messages that a session receives and sends.
//!
//! - Clients send [`Relay`], [`Interrupt`], [`Pause`], [`Resume`], [`Stop`], [`End`] and
//!   [`UpdateMetadata`]. The answer arrives when the request's events are on disk.
//! - Subscribers send [`Attach`]. Dropping the returned [`Subscription`] detaches them.
//! - The link sends [`HelloReceived`], [`ReviewToolCall`], [`Reported`], [`AwaitReports`],
//!   [`CommandAccepted`], [`EffectFailed`], and the state changes of the sandbox.
//! - The gateway sends [`NoticeReceived`].
//! - The sweeper sends [`PauseOrStopIfIdle`], [`Reconcile`] and [`WorkspaceFull`]. The Directory
//!   sends [`StartTask`], [`Passivate`], [`Flush`] and [`Purged`].
//! - The session sends [`Published`] to its subscribers, [`Effect`](super::effect::Effect) to its
//!   link and [`SessionStopped`] to the Directory.

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use greenroom_protocol::{
    action::EffortChoice,
    approval::{ApprovalMode, ReviewRequest, Verdict},
    client::ClientRequest,
    link::{AgentHello, AgentReport, LINK_VERSION, ServerWelcome},
    observation::{AgentState, SandboxPhase},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub use super::broadcast::Published;
use super::{
    broadcast::{SessionBroadcast, Subscription},
    request_error::RequestError,
    view::SessionView,
};
use crate::{
    gateway::GatewayNotice,
    sandbox::{SandboxExit, SandboxIsolation, SandboxPresence},
    store::{Seq, SessionId},
};

/// Answer to a client request: the result, or the reason for the rejection.
pub type RequestResult = Result<RequestAccepted, RequestError>;

/// Accepted client request. Its events are in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestAccepted {
    /// Number of the first event that the request caused, if any.
    pub seq: Option<Seq>,
    /// State of the session after the request.
    pub state: AgentState,
}

/// Request of a client's socket or of the REST API. Those that stop or continue something have
/// messages of their own: [`Interrupt`], [`Pause`], [`Resume`], [`Stop`], [`End`].
///
/// A repeated request with the same idempotency key acts once and gets the first result. Another
/// request with that key is rejected.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct Relay {
    pub request: ClientRequest,
    /// Client's name for the request: the `id` of a frame, or the header `Idempotency-Key`.
    pub idempotency_key: Option<String>,
    /// Browser or token of the person, for the record of a decision. `None`: unknown.
    pub requested_by: Option<String>,
}

/// Stops the agent's turn and the user's actions. An interrupt during an interrupt restarts the
/// agent.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Interrupt {
    pub idempotency_key: Option<String>,
}

/// Pauses the sandbox at once, even in the middle of a model call or a tool call.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Pause {
    pub idempotency_key: Option<String>,
}

/// Unpauses a paused sandbox, starts a stopped or failed sandbox, and continues a paused queue.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Resume {
    pub idempotency_key: Option<String>,
}

/// Stops the sandbox to free its memory. Its file system and the journal stay.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Stop {
    pub idempotency_key: Option<String>,
    /// Reason, if the server requests the stop. `None` for a person's request.
    pub reason: Option<String>,
}

/// Closes the session for good: removes the sandbox, keeps journal and workspace.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct End {
    pub idempotency_key: Option<String>,
}

/// Pauses the sandbox of an idle session, or stops a sandbox that has been paused for long.
///
/// Rejected if the session was active lately, has work, waits for an approval, or has a subscriber.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct PauseOrStopIfIdle {
    /// Idle time before the pause.
    pub pause_after: Duration,
    /// Idle time before the stop.
    pub stop_after: Duration,
    /// Time since the server last started or woke from a suspend. Limits the idle time that counts.
    pub server_awake: Duration,
}

/// Changes metadata of the session. `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "Result<SessionView, RequestError>")]
pub struct UpdateMetadata {
    pub title: Option<String>,
    pub archived: Option<bool>,
    pub model: Option<String>,
    pub effort: Option<EffortChoice>,
    pub mode: Option<ApprovalMode>,
    /// Name of the security analyzer.
    pub analyzer: Option<String>,
}

/// Subscribes to the session. The subscriber receives [`Published`] when there is more to pull.
#[derive(Message)]
#[rtype(result = "AttachReply")]
pub struct Attach {
    pub subscriber: Recipient<Published>,
}

/// Answer to [`Attach`].
pub struct AttachReply {
    pub view: SessionView,
    /// Source of growing items for the subscriber. Dropping the subscription ends it.
    pub subscription: Subscription,
}

/// Requests the session as `hello` and REST show it.
#[derive(Debug, Message)]
#[rtype(result = "SessionView")]
pub struct GetView;

// Messages from the link.

/// Hello of the agent. The answer is the welcome, or the reason for a rejection.
#[derive(Debug, Message)]
#[rtype(result = "Result<HelloAccepted, HelloRejected>")]
pub struct HelloReceived {
    pub hello: AgentHello,
}

/// Reason why the session rejects an agent's hello.
#[derive(Debug, thiserror::Error)]
pub enum HelloRejected {
    #[error("the agent uses link version {theirs}, this server uses version {LINK_VERSION}")]
    Version { theirs: u32 },
    /// The sandbox is being stopped. All results of its agent are committed already.
    #[error("its sandbox is being stopped")]
    SandboxStopping,
}

/// Answer to an accepted hello.
pub struct HelloAccepted {
    pub welcome: ServerWelcome,
    /// Receives the deltas of growing items.
    pub broadcast: Arc<SessionBroadcast>,
    /// Newest event of the history that the link sends if `welcome.restore` is set.
    pub history_to: Seq,
}

/// Review of a tool call before it runs. The answer is the verdict. Sent by the link.
///
/// Several reviews may be pending. A repeated review gets the same verdict. The end of the turn and
/// an interrupt answer all pending reviews.
#[derive(Debug, Message)]
#[rtype(result = "Verdict")]
pub struct ReviewToolCall {
    pub review: ReviewRequest,
}

/// Durable reports of the agent: one report, or several that are all
/// [batchable](super::is_batchable).
///
/// The answer arrives when the reports have their event numbers. Batchable reports get them at
/// once. Any other report may first store its content, and the link sends no further report before
/// the answer.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reported {
    pub boot: String,
    /// Number of the first report. The others follow without gaps.
    pub n: u64,
    pub reports: Vec<AgentReport>,
    pub durable: DurableReply,
}

/// Barrier: answered when all earlier [`Reported`] messages have their event numbers.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AwaitReports;

/// Receives `Ok` when its report is on disk; only then is the report acknowledged to the agent.
/// Dropped without a value if the report cannot reach the disk.
pub type DurableReply = oneshot::Sender<Result<(), OutOfOrder>>;

/// Report number that does not follow the newest one. An agent that keeps the link's rules sends
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfOrder {
    pub n: u64,
    /// Number of the newest accepted report.
    pub newest: u64,
}

/// Confirmation that the agent has taken a command and will execute it: the frame `taken`.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CommandAccepted {
    pub command: String,
}

/// Progress of the sandbox's start.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SandboxPhaseChanged {
    pub phase: SandboxPhase,
    /// Progress text for a person, for example `12 of 48 MB`.
    pub detail: String,
    /// Isolation of the sandbox, if known by now.
    pub isolation: Option<SandboxIsolation>,
}

/// Failure of the sandbox or its agent, by the link's judgement. The sandbox did not start, its
/// agent broke the protocol or was unresponsive, or the link panicked. The session fails until the
/// next message retries the start.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SandboxFailed {
    pub why: String,
    pub stderr_tail: Option<String>,
}

/// Exit of the sandbox that no effect of the session requested.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SandboxLost {
    pub exit: SandboxExit,
}

/// Failure of a pause, an unpause or a stop of the sandbox. A failed start is a [`SandboxFailed`].
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct EffectFailed {
    /// Name of the effect: `pause`, `unpause` or `stop`.
    pub what: &'static str,
    pub why: String,
}

/// Notice that the session was purged. The actor stops, and its subscribers are informed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Purged;

/// Notice of the gateway: usage of a model call, or an error of the provider.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NoticeReceived {
    pub notice: GatewayNotice,
    /// Released when the notice is on disk.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// Notice to the Directory that a session's actor has stopped.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionStopped {
    pub id: SessionId,
    pub reason: SessionStopReason,
}

/// Reason why a session's actor stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStopReason {
    /// Unloaded on purpose: passivated, or purged.
    Passivated,
    /// The journal rejected an append.
    JournalRejected,
    /// The actor panicked. Also the value for every end that sets no other reason.
    Panicked,
}

/// Task that the session was created for. Ignored, with a positive answer, if the session has
/// received an input before.
///
/// A client that creates a session under an idempotency key may repeat its request. The first
/// attempt may have created the session without starting the task.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct StartTask {
    pub task: String,
}

/// Barrier: answered when everything that the session has decided so far is on disk.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct Flush;

/// Notice that the session's files exceed their quota.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkspaceFull {
    pub reason: String,
}

/// Notice that the disk is nearly full, so the agent's reports wait.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ReportsWaitForDisk;

/// Observed state of the sandbox. Returns `true` if the session sends an effect to correct it.
///
/// The session sends the effect if the sandbox differs from the session's state. While a commit or
/// a stop is in flight, the session sends none. Causes of a difference are a server that was killed
/// between commit and effect, and an engine that acted late.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Reconcile {
    pub observed: SandboxPresence,
}

/// Unloads a session that is not needed as an actor.
///
/// Returns `false` if a subscriber is attached or the session needs its sandbox, even a paused one.
/// Returns `false` also if a commit or a stop is in flight.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Passivate;
