//! Greenroom: an actor-based supervisor of interactive AI-agent sessions.

pub mod census;
pub mod clock;
pub mod directory;
pub mod frontend;
pub mod gateway;
pub mod link;
pub mod sandbox;
pub mod session;
pub mod store;
pub mod sweeper;
