//! Greenroom: an actor-based supervisor of interactive AI-agent sessions.

pub mod gateway;
pub mod sandbox;
pub mod store;
