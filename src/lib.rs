//! Greenroom: an actor-based supervisor of interactive AI-agent sessions.

pub mod census;
pub mod clock;
pub mod gateway;
pub mod sandbox;
pub mod session;
pub mod store;
