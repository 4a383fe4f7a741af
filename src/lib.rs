//! Greenroom: an actor-based supervisor of interactive AI-agent sessions.

pub mod census;
pub mod clock;
pub mod config;
pub mod data;
pub mod gateway;
pub mod link;
pub mod sandbox;
pub mod session;
pub mod store;
pub mod telemetry;
