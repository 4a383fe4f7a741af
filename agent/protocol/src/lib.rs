//! Shared types of agent, journal and browser: actions, observations, deltas and link frames.
//!
//! The crate holds data types only, and is the one definition of the wire format in code. A changed
//! type changes for all readers and writers at once. Before a commit, read the old data with the
//! new type, and the new data with the old type.
//!
//! | module | defines | travels |
//! |---|---|---|
//! | [`event`] | numbered events, kept and replayed forever | server → client, agent (on restore) |
//! | [`approval`] | approval of tool calls: modes, risk, reviews | inside events, server ↔ agent |
//! | [`action`] | requests and acts of user and agent | inside events |
//! | [`observation`] | results and changes of state | inside events |
//! | [`plan`] | the plan's file, and its steps | inside observations |
//! | [`tool`] | parts of the generic tool call | inside actions and observations |
//! | [`checkpoint`] | parts of the observations about the workspace | inside events |
//! | [`delta`] | unnumbered pieces of growing items, never replayed | agent → server → client |
//! | [`declarations`] | names of all kinds, and their senders | (read by parser, policy, page) |
//! | [`client`] | client requests, and the status of a client's connection | client ↔ server |
//! | [`link`] | the exactly-once protocol of server and agent | server ↔ agent |
//! | [`terminal`] | frames of the terminal socket | server ↔ agent |
//! | [`sandbox_paths`] | paths inside a sandbox | (used by driver and agent) |
//!
//! Two rules hold for all types. A reader ignores a field that is unknown to the reader's version.
//! A reader answers an unknown frame with an error, never with silence.

pub mod action;
pub mod approval;
pub mod checkpoint;
pub mod client;
pub mod declarations;
pub mod delta;
pub mod event;
#[cfg(test)]
mod generated_files;
pub mod link;
pub mod observation;
pub mod plan;
pub mod repository;
pub mod sandbox_paths;
mod size;
pub mod terminal;
mod text;
pub mod tool;

pub use action::Action;
pub use delta::{Delta, DeltaKind, RetryFrame, RetryFrameKind};
pub use event::{Event, EventBody, EventSource};
pub use observation::{Observation, ObservationKind};
pub use size::JsonSize;
pub use text::{Excerpt, excerpt, excerpt_remainder, fits_json, json_excerpt, json_tail, omission_marker};

/// Largest observation content inside an event, in bytes of JSON.
///
/// Larger content is stored whole on disk. The event carries head and tail ([`excerpt`]).
pub const CONTENT_LIMIT: usize = 64 * 1024;

/// Largest part of one observation's text that is stored whole beside the journal, in bytes.
///
/// If a text is larger, its beginning and its end are kept.
pub const FULL_TEXT_LIMIT: u64 = 64 * 1024 * 1024;

/// Largest frame that a client may send, in bytes.
pub const CLIENT_FRAME_LIMIT: usize = 1024 * 1024;

/// Longest idempotency key of a client frame, in bytes.
pub const REQUEST_ID_LIMIT: usize = 128;

/// Largest frame on the link between server and agent, in bytes, in either direction.
pub const LINK_FRAME_LIMIT: usize = 16 * 1024 * 1024;
