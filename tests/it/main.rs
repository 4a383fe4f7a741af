//! The real product from outside: its binary, its wire, its sandboxes. One module for each thing that people rely on.

#[path = "../harness/mod.rs"]
#[allow(dead_code, reason = "the benches use the same harness, and other parts of it")]
mod harness;
#[path = "../soak/mod.rs"]
mod soaking;

mod access;
mod actors;
mod bad_input;
mod chats;
mod damage;
mod deaf;
mod deaths;
mod disks;
mod driver_migration;
mod greedy;
mod interrupts;
mod main_job;
mod models;
mod overload;
mod pauses;
mod queue;
mod rest;
mod restarts;
mod sleeps;
mod soak;
mod stalls;
mod startup;
mod storms;
mod streams;
mod sweeps;
mod transfers;
mod upgrades;
