//! Greenroom runs interactive AI-agent sessions. A person or a script sends a task. An agent works
//! on the task in a sandbox. The server writes every event to a journal and streams the events to
//! all clients. After a crash of any part, each session is restored from the journal.
//!
//! # Codemap
//!
//! The table is in reading order, base modules first. A module imports only from rows above its
//! own. `tests/layers.rs` checks this. See ARCHITECTURE.md for the overview.
//!
//! | module | content |
//! |---|---|
//! | `greenroom_protocol` | crate `agent/protocol`: types of link, journal and client frames |
//! | [`config`] | settings, from `config/default.toml`, a file, the environment and options |
//! | [`data`] | data directory: layout, access rights, lock, access token |
//! | [`telemetry`] [`clock`] | logs and metrics; the wall clock |
//! | [`terminal`] | output of the command line, with foreign text escaped |
//! | `api_schema` | schemas of the OpenAPI document: texts with limits, and types of the wire |
//! | [`actor_registry`] | live actors, as `GET /api/admin/actors` lists them |
//! | [`allocator`] | memory allocator |
//! | [`net`] | listener, connections that leave HTTP, threads by key, wake batches |
//! | [`store`] | journal: append-only log on disk, with an index |
//! | `greenroom_jailer` | crate `agent/jailer`: builds a process jail, and outlives the server |
//! | [`sandbox`] | port to the sandboxes, and a registry of drivers: Docker, process jails |
//! | [`approvals`] | policy for tool calls: modes, rules, security analyzers |
//! | [`files`] | files of the workspaces: lists, downloads, uploads, archives |
//! | [`gateway`] | proxy to the model providers; only holder of model keys |
//! | [`session`] | **Session actor**: decides by pure rules, appends to the journal, publishes |
//! | [`checkpoints`] | captured workspaces, their differences, and restores |
//! | [`repositories`] | clones into workspaces, and pushes from them, by the host's git |
//! | [`frontend`] | FrontendSocket actor: one attached client, as a cursor over the journal |
//! | [`link`] | AgentLink actor: one session's sandbox, and the WebSocket to its agent |
//! | [`directory`] | Directory actor: starts and forks sessions, maps session ids to addresses |
//! | [`sweeper`] | Sweeper actor: pauses or stops idle sessions, and removes leftovers |
//! | [`web`] | HTTP: authorization, REST API, WebSocket upgrades, the embedded page |
//! | [`server`] | assembles all parts, and shuts them down |
//! | [`transfer`] | `greenroom export` and `greenroom import` |
//! | [`cli`] [`doctor`] | command line; `greenroom doctor` |
//!
//! # Path of a message
//!
//! 1. `frontend::socket` receives a client's frame and sends the request to its [`session`].
//! 2. The session's pure rules turn the request into new events and effects. The session appends
//!    the events to the [`store`].
//! 3. When the events are on disk, clients receive them, and the [`link`] delivers the agent's
//!    command.
//! 4. The agent works. Its reports come back over the link and pass steps 2 and 3. Deltas (text
//!    that still grows) pass neither: the link hands them to the session's subscribers directly.

pub mod actor_registry;
pub mod allocator;
mod api_schema;
pub mod approvals;
pub mod checkpoints;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data;
pub mod directory;
pub mod doctor;
pub mod files;
pub mod frontend;
pub mod gateway;
pub mod link;
pub mod net;
pub mod repositories;
pub mod sandbox;
pub mod server;
pub mod session;
pub mod store;
pub mod sweeper;
pub mod telemetry;
pub mod terminal;
pub mod transfer;
pub mod web;
