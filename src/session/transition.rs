//! Types at the border of the pure rules: what a decision may read, and what it returns.

use greenroom_protocol::{DeltaKind, EventBody, EventSource, approval::RiskAssessment};

use super::effect::{Effect, InFlightStops};
use crate::store::Seq;

/// Event without number and time, which the commit assigns.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEvent {
    pub source: EventSource,
    pub cause: Option<Seq>,
    pub item: Option<String>,
    /// Risk of an agent's tool call.
    pub risk: Option<RiskAssessment>,
    pub body: EventBody,
}

/// Change of the timer that escalates an interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Escalation {
    /// Fires once after this time, in milliseconds. Replaces an armed timer.
    Arm(u64),
    Disarm,
}

/// Item that has not ended. The rules use it to keep the text of an interrupted item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenItem {
    pub item: String,
    pub kind: DeltaKind,
    /// Offset of `text` in the item, in bytes. The text before `start` was dropped.
    pub start: u64,
    pub text: String,
}

/// Facts that the rules may read beside the session state and the input.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'a> {
    /// Number of the newest decided event.
    pub tail: Seq,
    /// Milliseconds since 1970. By the wall clock, because an interrupt may outlast a server.
    pub now_ms: i64,
    /// Items that have begun and not ended.
    pub open: &'a [OpenItem],
    /// True if the end of a turn captures the workspace.
    pub captures_turns: bool,
    /// Counter that each stop of the sandbox holds until it is executed.
    pub in_flight_stops: &'a InFlightStops,
}

/// Result of a decision. The events are committed, then published. The effects follow, except those
/// that only stop work: these precede the commit.
#[derive(Debug, Default)]
pub struct Transition {
    /// Number of the newest event before this transition.
    tail: Seq,
    pub new_events: Vec<NewEvent>,
    pub effects: Vec<Effect>,
    pub escalation: Option<Escalation>,
    /// Set if a turn ended, for any reason. Tool calls whose input still grows will not be made.
    pub turn_is_over: bool,
}

impl Transition {
    pub(super) fn after(tail: Seq) -> Transition {
        Transition { tail, ..Transition::default() }
    }

    /// Adds an event. Returns the number that the event will have.
    pub(super) fn push_event(
        &mut self,
        source: EventSource,
        cause: Option<Seq>,
        item: Option<String>,
        body: impl Into<EventBody>,
    ) -> Seq {
        self.new_events.push(NewEvent { source, cause, item, risk: None, body: body.into() });
        self.tail + self.new_events.len() as Seq
    }

    /// Adds what the rules decided about the events of this transition.
    pub(super) fn append(&mut self, decided: Transition) {
        self.new_events.extend(decided.new_events);
        self.effects.extend(decided.effects);
        self.escalation = decided.escalation.or(self.escalation);
        self.turn_is_over |= decided.turn_is_over;
    }

    pub(super) fn push_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
