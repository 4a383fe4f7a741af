//! Effects: actions of the link that the rules decide. The link executes them in the order sent.
//!
//! An effect is sent when its transition is on disk. An effect that only stops something is sent
//! earlier, at the decision.

use std::sync::Arc;

use actix::prelude::*;
use greenroom_protocol::link::{CancelHint, CommandFrame};
use tokio_util::sync::DropGuard;

/// Action of the link. Also the message that carries the action to the link.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum Effect {
    /// Starts the sandbox, or finds it running, and dials the agent.
    StartSandbox {
        recorded: RecordedSandbox,
    },
    DeliverToAgent(AgentDelivery),
    /// Aborts this session's model streams at the gateway.
    AbortModelStreams,
    PauseSandbox,
    UnpauseSandbox,
    /// Captures the workspace as this checkpoint, in the background.
    CaptureWorkspace {
        checkpoint: String,
        /// Set if later changes may be part of the checkpoint: an earlier server began it.
        may_be_late: bool,
    },
    StopSandbox {
        then: AfterStop,
        /// Dropped by the link when the effect is executed. Until then, the stop is in flight.
        in_flight: InFlightStops,
    },
}

impl Effect {
    /// Returns true for an effect that only stops something, so it need not wait for the disk.
    pub fn precedes_commit(&self) -> bool {
        match self {
            Effect::AbortModelStreams | Effect::DeliverToAgent(AgentDelivery::CancelHint(_)) => true,
            Effect::StartSandbox { .. }
            | Effect::DeliverToAgent(AgentDelivery::AgentConnected { .. } | AgentDelivery::Command(_))
            | Effect::PauseSandbox
            | Effect::UnpauseSandbox
            | Effect::CaptureWorkspace { .. }
            | Effect::StopSandbox { .. } => false,
        }
    }
}

/// Delivery to the agent over its connection.
#[derive(Debug, Clone)]
pub enum AgentDelivery {
    /// Opens the delivery to the agent with this boot id, whose hello the session accepted.
    ///
    /// All commands that the agent may not have follow, oldest first. A command sent before this
    /// effect follows again, unless the agent has taken it. If the agent has sent a hello with
    /// another boot id meanwhile, the link drops the commands. The session sends another
    /// `AgentConnected` for that hello.
    AgentConnected { boot: String },
    /// Boxed, because a channel of these allocates dozens of slots from its start.
    Command(Box<CommandFrame>),
    /// Stops the named work early. Dropped without a connection to an agent that reads hints: the
    /// `cancel` command follows.
    CancelHint(Box<CancelHint>),
}

/// State of the sandbox according to the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedSandbox {
    /// Not up: being started, failed, or to be stopped. Whatever still runs is stopped first.
    Down,
    /// Running, unless it exited while no server ran.
    Up,
    /// Like `Up`, but paused. The link dials the agent after the unpause.
    Paused,
}

/// Step after a [`Effect::StopSandbox`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterStop {
    /// Start the sandbox again. The agent continues from the journal.
    Restart,
    /// Keep the sandbox's file system.
    KeepFiles,
    /// Remove the sandbox. The workspace stays.
    Remove,
}

/// Counter of stops in flight: from their decision until the link has executed them. Each
/// [`Effect::StopSandbox`] holds a clone.
#[derive(Debug, Clone, Default)]
pub struct InFlightStops(Arc<()>);

impl InFlightStops {
    /// Returns true if a clone other than this one exists.
    pub fn any_in_flight(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Session's handle to its link.
pub struct LinkPort {
    pub effects: Recipient<Effect>,
    /// Stops the link when the session is dropped, whatever ended the session. Addresses alone do
    /// not: an actor with pending futures outlives its addresses.
    pub cancel_on_drop: DropGuard,
}
