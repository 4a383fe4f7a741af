//! Deltas: pieces of an item that still grows, and the wait for a model. Not numbered, not
//! journalled, not replayed.

use serde::{Deserialize, Serialize};

/// Next piece of an item. Exactly one durable event with the same `item` ends the item, and holds
/// the whole text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct Delta {
    #[serde(rename = "delta")]
    pub kind: DeltaKind,
    pub item: String,
    /// Start of `content` within the item, in bytes of UTF-8. 0 discards all earlier content.
    pub offset: u64,
    pub content: String,
}

/// Kind of text that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// Agent's message.
    Text,
    /// Thinking of the agent's model.
    Thinking,
    /// JSON input of a tool call.
    ToolInput,
    /// Output of a command.
    Output,
}

/// Wait of a model call for its next attempt, from the server alone. A client that attaches during
/// the wait receives the newest frame of the session.
///
/// A durable event ends the wait: `notice` with the code `provider_retried`, or the error that ends
/// the turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
pub struct RetryFrame {
    #[serde(rename = "delta")]
    pub kind: RetryFrameKind,
    /// Number of the call. Frames of one call have growing attempts.
    pub call: u64,
    /// Provider's name, for a person.
    pub provider: String,
    /// Number of the coming attempt, so the first retry is 2.
    pub attempt: u32,
    pub max_attempts: u32,
    /// Wait before the attempt, in milliseconds.
    pub wait_ms: u64,
    /// Failure of the last attempt, for a person.
    pub why: String,
}

/// Name of [`RetryFrame`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum RetryFrameKind {
    Retry,
}
