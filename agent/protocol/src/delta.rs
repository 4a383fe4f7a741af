//! A piece of an item that is still growing. Not numbered, not journalled, not replayed.

use serde::{Deserialize, Serialize};

/// The next piece of an item. Exactly one durable event with the same `item` ends it, and holds the whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    #[serde(rename = "delta")]
    pub kind: DeltaKind,
    pub item: String,
    /// Where in the item `content` begins, in bytes of UTF-8. 0 means: forget what you had.
    pub offset: u64,
    pub content: String,
}

/// What kind of text is growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaKind {
    /// What the agent says.
    Text,
    /// What its model thinks.
    Thinking,
    /// The JSON input of a tool call.
    ToolInput,
    /// What a command prints.
    Output,
}
