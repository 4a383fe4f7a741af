//! What the rules decide: what to write down, and what to order once it is written.

use greenroom_protocol::{Body, DeltaKind, Source, link::Numbered};

use super::messages::orders::Then;
use crate::store::Seq;

/// An event that has no time yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub source: Source,
    pub cause: Option<Seq>,
    pub item: Option<String>,
    pub body: Body,
}

/// What the link is to do once the events of the same decision are on disk.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    Raise,
    /// The agent has introduced itself as this start: give it what follows, and nothing that was ordered before.
    Anew(String),
    Deliver(Numbered),
    Cut,
    Freeze,
    Thaw,
    Kill(Then),
}

/// The timer of the interrupt's ladder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ladder {
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
pub struct Moment<'a> {
    /// The number of the newest event that is decided.
    pub tail: Seq,
    /// Milliseconds since 1970 by the wall clock: what is waited for may outlast a server.
    pub now_ms: i64,
    /// Items that have begun and not ended.
    pub open: &'a [OpenItem],
}

/// What was decided, in the order in which it is carried out: write down, then tell.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decision {
    tail: Seq,
    pub drafts: Vec<Draft>,
    pub orders: Vec<Order>,
    pub ladder: Option<Ladder>,
    /// A turn is over, however it ended: no call whose input is still growing will be made.
    pub turn_is_over: bool,
}

impl Decision {
    pub(super) fn after(tail: Seq) -> Decision {
        Decision { tail, ..Decision::default() }
    }

    /// Writes an event down; returns the number that it will have.
    pub(super) fn record(
        &mut self,
        source: Source,
        cause: Option<Seq>,
        item: Option<String>,
        body: impl Into<Body>,
    ) -> Seq {
        self.drafts.push(Draft { source, cause, item, body: body.into() });
        self.tail + self.drafts.len() as Seq
    }

    pub(super) fn order(&mut self, order: Order) {
        self.orders.push(order);
    }
}
