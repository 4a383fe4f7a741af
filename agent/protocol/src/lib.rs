//! The vocabulary that agent, journal and browser share: actions, observations, deltas, and the frames of the link.
//!
//! Nothing here does anything. It is the one definition of the wire in code, so a type that changes here changes for
//! everybody at once: read the old data with the new type and the new data with the old one before you commit.
//!
//! | module | what it defines | who speaks it |
//! |---|---|---|
//! | [`event`] | what is journalled and replayed for ever: numbered [`event::Event`]s | server → client, server → agent on restore |
//! | [`action`] | what somebody asked for or did | inside events |
//! | [`observation`] | what came of it | inside events |
//! | [`delta`] | a piece of an item that is still growing; never numbered, never replayed | agent → server → client |
//! | [`client`] | what a client may send, and what it is told about its own connection | client ↔ server |
//! | [`link`] | the exactly-once conversation between server and agent | server ↔ agent |
//! | [`inside`] | where in a sandbox they find each other | a driver, agent |
//!
//! Two rules hold for all of it: a field that a reader does not know is ignored, and a frame that it does not know is
//! answered with an error, never with silence.

pub mod action;
pub mod client;
pub mod delta;
pub mod event;
pub mod link;
pub mod observation;
pub mod sandbox_paths;
mod size;
mod text;

pub use action::Action;
pub use delta::{Delta, DeltaKind};
pub use event::{Event, EventBody, EventSource};
pub use observation::{Observation, ObservationKind};
pub use size::JsonSize;
pub use text::{Excerpt, excerpt, excerpt_remainder, omission_marker};

/// The largest observation content, in bytes, that travels inside an event. What is larger is kept whole on disk, and the
/// event carries its head and tail ([`excerpt`]).
pub const CONTENT_LIMIT: usize = 64 * 1024;

/// The most of one observation's text, in bytes, that is kept whole beside the journal. Of what is larger the beginning and
/// the end are kept.
pub const FULL_TEXT_LIMIT: u64 = 64 * 1024 * 1024;

/// The largest frame that a client may send, in bytes.
pub const CLIENT_FRAME_LIMIT: usize = 1024 * 1024;

/// The largest frame on the link between server and agent, in bytes, in either direction.
pub const LINK_FRAME_LIMIT: usize = 16 * 1024 * 1024;
