//! Greenroom: an actor-based supervisor of interactive AI-agent sessions.

pub mod census;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data;
pub mod directory;
pub mod frontend;
pub mod gateway;
pub mod link;
pub mod sandbox;
pub mod session;
pub mod store;
pub mod sweeper;
pub mod telemetry;
pub mod web;
pub mod wiring;
