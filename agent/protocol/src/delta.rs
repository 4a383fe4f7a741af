//! Deltas: pieces of an item that still grows. Not numbered, not journalled, not replayed.

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
