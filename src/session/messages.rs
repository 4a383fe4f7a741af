//! All that a session hears and says, as typed messages.
//!
//! Clients send [`Relay`], [`Interrupt`], [`Pause`], [`Resume`], [`Stop`], [`End`] and [`Amend`]; listeners
//! [`Attach`], and leave by dropping what they got for it; the link sends [`Greeted`], [`Reported`] and what befell the
//! sandbox. The session tells listeners that something is [`Published`], and gives its link the orders of [`orders`].

use std::{sync::Arc, time::Duration};

use actix::prelude::*;
use greenroom_protocol::{
    client::ClientRequest,
    link::{AgentHello, AgentReport, LINK_VERSION, ServerWelcome},
    observation::{AgentState, SandboxPhase},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::DropGuard;

use super::{
    broadcast::{SessionBroadcast, Subscription},
    turn::RequestError,
    view::SessionView,
};
use crate::{
    gateway::GatewayNotice,
    sandbox::{SandboxExit, SandboxIsolation, SandboxPresence},
    store::{Seq, SessionId},
};

/// How every wish is answered: with where it left the session, or with why it was refused.
pub type RequestResult = Result<RequestAccepted, RequestError>;

/// A wish was carried out, and is in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestAccepted {
    /// The first event that it led to, where it led to one.
    pub seq: Option<Seq>,
    /// The state after it.
    pub state: AgentState,
}

/// Carry out what a client wants: a message, a task, an act, an answer, a change of the queue or the model.
///
/// Sent with the same `key` again, it is answered with what it led to, and acts once. Another wish with that `key` is refused.
#[derive(Debug, Clone, Message)]
#[rtype(result = "RequestResult")]
pub struct Relay {
    pub request: ClientRequest,
    /// The client's own name for the wish: a frame's `id`, or `Idempotency-Key`.
    pub idempotency_key: Option<String>,
}

/// Stop whatever runs, the agent's turn and a user's act alike. A second one takes the agent away.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Interrupt {
    pub idempotency_key: Option<String>,
}

/// Freeze the sandbox where it stands, mid-token or mid-tool.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Pause {
    pub idempotency_key: Option<String>,
}

/// Thaw a paused sandbox, or start a stopped one again.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Resume {
    pub idempotency_key: Option<String>,
}

/// Free the memory: the sandbox stops, its file system and the journal stay.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct Stop {
    pub idempotency_key: Option<String>,
    /// Why, where it is not a person who wants it.
    pub reason: Option<String>,
}

/// Close the session for good.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "RequestResult")]
pub struct End {
    pub idempotency_key: Option<String>,
}

/// Rest, if nothing has happened for so long: be paused, and later be stopped. Refused where something runs, waits for a
/// person, or is watched.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct PauseOrStopIfIdle {
    pub pause_after: Duration,
    pub stop_after: Duration,
    /// For how long the server has been awake.
    pub server_awake: Duration,
}

/// Change what a person may change beside the conversation. `None` leaves a field as it is.
#[derive(Debug, Clone, Default, Message)]
#[rtype(result = "Result<SessionView, RequestError>")]
pub struct UpdateMetadata {
    pub title: Option<String>,
    pub archived: Option<bool>,
    pub model: Option<String>,
}

/// Listen: from now on the listener is told that there is more to pull.
#[derive(Message)]
#[rtype(result = "AttachReply")]
pub struct Attach {
    pub subscriber: Recipient<Published>,
}

/// What a new listener needs.
pub struct AttachReply {
    pub view: SessionView,
    /// The place from which the listener pulls what is live, and by which it leaves when dropped.
    pub subscription: Subscription,
}

/// There is more to pull than there was. Idempotent: one of these for many events and deltas is as good as many.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Published;

/// The session as it stands: what `hello` and REST show.
#[derive(Debug, Message)]
#[rtype(result = "SessionView")]
pub struct GetView;

// What the link says.

/// The agent introduced itself. Answered with how to welcome it.
#[derive(Debug, Message)]
#[rtype(result = "Result<HelloAccepted, HelloRejected>")]
pub struct HelloReceived {
    pub hello: AgentHello,
}

/// Why an agent is not welcomed.
#[derive(Debug, thiserror::Error)]
pub enum HelloRejected {
    #[error("the agent speaks version {theirs} of the link, this server {LINK_VERSION}")]
    Version { theirs: u32 },
    /// Everything of it is written down already.
    #[error("its sandbox is being taken away")]
    SandboxStopping,
}

/// How the link goes on after `hello`.
pub struct HelloAccepted {
    pub welcome: ServerWelcome,
    /// Where it puts what grows.
    pub broadcast: Arc<SessionBroadcast>,
    /// Whether the user acts beside the agent: `hello` does not say so.
    pub has_user_action: bool,
    /// Up to here the journal is sent as history, where `welcome.restore` says so.
    pub history_to: Seq,
}

/// Durable reports of the agent: one, or several of which [`goes_with_others`](super::goes_with_others) holds. The answer
/// comes when they have their places, which those get at once. One of which that does not hold may take a while: nothing else
/// is reported before its answer.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Reported {
    pub boot: String,
    /// The number of the first; the others follow it.
    pub n: u64,
    pub reports: Vec<AgentReport>,
    pub durable: DurableReply,
}

/// Answered when all that was [`Reported`] before has its place.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AwaitReports;

/// Told when what it belongs to is on disk, and only then is that acknowledged to the agent; dropped when it will not be.
pub type DurableReply = oneshot::Sender<Result<(), OutOfOrder>>;

/// A report whose number does not follow on those that were taken: an agent that keeps the link's rules sends none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfOrder {
    pub n: u64,
    /// The newest that was taken.
    pub newest: u64,
}

/// The agent knows this command and will carry it out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CommandAccepted {
    pub command: String,
}

/// The sandbox is on its way.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SandboxPhaseChanged {
    pub phase: SandboxPhase,
    /// For a person: `12 of 48 MB`.
    pub detail: String,
    /// What keeps it in, where that is known now.
    pub isolation: Option<SandboxIsolation>,
}

/// The sandbox could not be started, for a reason that trying again will not change.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartFailed {
    pub why: String,
    pub stderr_tail: Option<String>,
}

/// The sandbox died, and nobody asked it to.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SandboxLost {
    pub exit: SandboxExit,
}

/// An order to the sandbox was not carried out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct EffectFailed {
    pub what: &'static str,
    pub why: String,
}

/// The session was removed with every trace: whoever still listens to it is to find that out.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Purged;

/// The gateway says what a model call took, or what is wrong with the provider.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NoticeReceived {
    pub notice: GatewayNotice,
    /// To be dropped when it is on disk.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// What a session orders its link to do. The link carries them out in the order in which they were sent.
pub mod effects {
    use std::sync::Arc;

    use actix::prelude::*;
    use greenroom_protocol::link::CommandFrame;

    /// Bring the sandbox up, or find it running, and dial the agent.
    #[derive(Debug, Clone, Message)]
    #[rtype(result = "()")]
    pub struct StartSandbox {
        pub image: Option<String>,
        pub recorded: RecordedSandbox,
    }

    /// How the sandbox was left, as the journal says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum RecordedSandbox {
        /// It is not to run: there never was one, it died, or it was to be taken away.
        Down,
        /// It runs, or it died while nobody watched.
        Up,
        /// The same, and it stands frozen, and stays so: the agent is dialled when it is thawed.
        Paused,
    }

    /// Give the agent something.
    #[derive(Debug, Clone, Message)]
    #[rtype(result = "()")]
    pub enum DeliverToAgent {
        /// From here on comes all that the agent may not have which has just introduced itself as this start, oldest first; what
        /// was ordered before this is among it, or the agent has it. It is not for a start that came after: an agent may have
        /// introduced itself once more before anything of this was given.
        AgentConnected { boot: String },
        /// Boxed, because a channel of them has room for dozens from its start.
        Command(Box<CommandFrame>),
    }

    /// Cut this session's model streams at the gateway.
    #[derive(Debug, Clone, Copy, Message)]
    #[rtype(result = "()")]
    pub struct AbortModelStreams;

    #[derive(Debug, Clone, Copy, Message)]
    #[rtype(result = "()")]
    pub struct PauseSandbox;

    #[derive(Debug, Clone, Copy, Message)]
    #[rtype(result = "()")]
    pub struct UnpauseSandbox;

    /// Take the sandbox away.
    #[derive(Debug, Clone, Message)]
    #[rtype(result = "()")]
    pub struct StopSandbox {
        pub then: AfterStop,
        /// Dropped with the order, once it is carried out.
        pub in_flight: InFlightStops,
    }

    /// Tells whether orders are under way: each of them has a clone of this.
    #[derive(Debug, Clone, Default)]
    pub struct InFlightStops(Arc<()>);

    impl InFlightStops {
        /// Whether there is another than this one.
        pub fn any_in_flight(&self) -> bool {
            Arc::strong_count(&self.0) > 1
        }
    }

    /// What comes after a [`Kill`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AfterStop {
        /// It is started again: the agent goes on from the journal.
        Restart,
        /// Its file system stays.
        KeepFiles,
        /// It is removed; the workspace stays.
        Remove,
    }
}

/// The session's link, seen from the session: whoever takes these orders.
pub struct LinkPort {
    pub start_sandbox: Recipient<effects::StartSandbox>,
    pub deliver_to_agent: Recipient<effects::DeliverToAgent>,
    pub abort_model_streams: Recipient<effects::AbortModelStreams>,
    pub pause_sandbox: Recipient<effects::PauseSandbox>,
    pub unpause_sandbox: Recipient<effects::UnpauseSandbox>,
    pub stop_sandbox: Recipient<effects::StopSandbox>,
    /// However the session ends: dropped with it, this takes the link along. (An actor with work under way outlives its
    /// addresses.)
    pub cancel_on_drop: DropGuard,
}

/// A session's actor is gone: it had nothing left to do, or it died. Told to whoever keeps addresses.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct SessionStopped {
    pub id: SessionId,
    pub reason: SessionStopReason,
}

/// Why a session's actor is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStopReason {
    /// Nobody listens and nothing runs: its journal is all there is to it.
    Passivated,
    /// The journal refused an event.
    JournalRejected,
    /// It panicked.
    Panicked,
}

/// The task that a session was made for: taken where nobody has said anything to it yet. Whoever makes a session with a name of
/// their own may have to ask twice, and the first time may have come as far as the session and no further.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct StartTask {
    pub task: String,
}

/// Answer when all that the session has decided so far is on disk.
#[derive(Debug, Message)]
#[rtype(result = "RequestResult")]
pub struct Flush;

/// Its sandbox was seen like this: to be made what the session says it is, where it is not. `true`: it is ordered to. A server
/// that was killed between writing down and ordering left it so, or an engine that did something late.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Reconcile {
    pub observed: SandboxPresence,
}

/// Let go of a session that is not needed as an actor: refused (`false`) where somebody listens, something runs, or a sandbox is
/// still being taken away.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct Passivate;
