//! Runs the real binary over its real sockets, between a scripted server and a scripted model.

mod agent;
mod cancel;
mod gateway;
mod large;
mod link;
mod model_mistakes;
mod restore;
mod search;
mod session;
mod stalled;
mod turn;
