//! Integration tests of the real product from outside: its binary, its wire, its sandboxes. One
//! module per promise.

mod access;
mod actors;
mod bad_input;
mod budgets;
mod chats;
mod damage;
mod deaf;
mod deaths;
mod disks;
mod driver_migration;
mod files;
mod greedy;
mod interrupts;
mod main_job;
mod metrics;
mod models;
mod overload;
mod pauses;
mod queue;
mod quotas;
mod raw_http;
mod rest;
mod restarts;
mod sleeps;
mod snapshots;
mod soak;
mod stalls;
mod startup;
mod storms;
mod streams;
mod sweeps;
mod transfers;
mod upgrades;
mod users;
mod ws_conformance;
