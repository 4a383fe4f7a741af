//! Greenroom supervises interactive AI-agent sessions. A person, or a script, gives a task; an agent works on it in a
//! sandbox of its own; everything that happens is journalled, relayed as it happens, and survives the death of every part.
//!
//! Read it in this order; a module imports only from those above it.
//!
//! | module | what it is |
//! |---|---|
//! | `greenroom_protocol` | the vocabulary of agent, journal and browser (a crate of its own) |
//! | [`config`] [`data`] [`telemetry`] [`census`] [`clock`] [`allocator`] [`wakeups`] | settings, the data directory, logs, the register of live actors, the time, where memory comes from, what threads wake on each other |
//! | [`store`] | the journal: an append-only log, and what is looked up in it |
//! | `greenroom_jailer` | the small program that builds a jail of this host's own and keeps it over the server's death (a crate of its own) |
//! | [`sandbox`] | walls around an agent: Docker, or a jail of this host's own |
//! | [`gateway`] | the way to the models, and the only holder of keys |
//! | [`session`] | **the Session actor**: pure rules decide, the journal is written, then it is told |
//! | [`threads`] | on which thread a session lives, and all that belongs to it |
//! | [`frontend`] | the FrontendSocket actor: one attached client, a cursor over the journal |
//! | [`link`] | the AgentLink actor: one sandbox, one agent, one WebSocket |
//! | [`directory`] | the Directory actor: session id → address |
//! | [`sweeper`] | the Sweeper actor: what is idle rests, what nobody owns goes |
//! | [`web`] | who may enter, REST, the embedded UI |
//! | [`server`] | the parts list: how all of it is put together |
//! | [`transfer`] | sessions out of a journal and into another: `greenroom export` and `import` |
//! | [`cli`] [`doctor`] | the command line |
//!
//! One message from start to end: `frontend::socket` hears it → [`session`] decides and appends it to the [`store`] → the
//! [`link`] delivers it → the agent works, its reports come back the same way → every socket pulls what is new.

pub mod actor_registry;
pub mod allocator;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data;
pub mod directory;
pub mod doctor;
pub mod frontend;
pub mod gateway;
pub mod link;
pub mod sandbox;
pub mod server;
pub mod session;
pub mod session_threads;
pub mod store;
pub mod sweeper;
pub mod telemetry;
pub mod transfer;
pub mod wake_batch;
pub mod web;
mod wiring;
