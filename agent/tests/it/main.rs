//! Runs the real binary over its real sockets, between a scripted server and a scripted model.

mod agent;
mod approvals;
mod browser;
mod cancel;
mod compaction;
mod endings;
mod gateway;
mod large;
mod leftovers;
mod link;
mod model_mistakes;
mod orphan;
mod pictures;
mod plan;
mod restore;
mod run;
mod search;
mod session;
mod stalled;
mod terminals;
mod turn;
