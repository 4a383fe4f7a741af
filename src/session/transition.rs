//! What the rules decide: what to write down, and what to order once it is written.

use greenroom_protocol::{DeltaKind, EventBody, EventSource, link::CommandFrame};

use super::messages::effects::AfterStop;
use crate::store::Seq;

/// An event that has no time yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub source: EventSource,
    pub cause: Option<Seq>,
    pub item: Option<String>,
    pub body: EventBody,
}

/// What the link is to do once the events of the same decision are on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    StartSandbox,
    /// The agent has introduced itself as this start: give it what follows, and nothing that was ordered before.
    AgentConnected(String),
    DeliverToAgent(CommandFrame),
    AbortModelStreams,
    PauseSandbox,
    UnpauseSandbox,
    StopSandbox(AfterStop),
}

/// The timer of the interrupt's ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalation {
    /// Fire once after so many milliseconds; replaces one that is armed.
    Arm(u64),
    Disarm,
}

/// An item that has not ended: what the rules need to keep a cut text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenItem {
    pub item: String,
    pub kind: DeltaKind,
    /// Where `text` begins in the item, bytes: what was before is not known any more.
    pub start: u64,
    pub text: String,
}

/// The moment at which a decision is made: all that the rules may know of the world.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// The number of the newest event that is decided.
    pub tail: Seq,
    /// Milliseconds since 1970 by the wall clock: what is waited for may outlast a server.
    pub now_ms: i64,
    /// Items that have begun and not ended.
    pub open: &'a [OpenItem],
}

/// What was decided, in the order in which it is carried out: write down, then tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Transition {
    tail: Seq,
    pub new_events: Vec<NewEvent>,
    pub effects: Vec<Effect>,
    pub escalation: Option<Escalation>,
    /// A turn is over, however it ended: no call whose input is still growing will be made.
    pub turn_is_over: bool,
}

impl Transition {
    pub(super) fn after(tail: Seq) -> Transition {
        Transition { tail, ..Transition::default() }
    }

    /// Writes an event down; returns the number that it will have.
    pub(super) fn push_event(
        &mut self,
        source: EventSource,
        cause: Option<Seq>,
        item: Option<String>,
        body: impl Into<EventBody>,
    ) -> Seq {
        self.new_events.push(NewEvent { source, cause, item, body: body.into() });
        self.tail + self.new_events.len() as Seq
    }

    pub(super) fn push_effect(&mut self, order: Effect) {
        self.effects.push(order);
    }
}
