//! The real binary over its real sockets, between a server and a model that are scripts.

mod agent;
mod cancel;
mod gateway;
mod large;
mod link;
mod model_mistakes;
mod restore;
mod session;
mod stalled;
mod turn;
