//! Browser tests: the real server and the web page, in Chromium.
//!
//! `cargo xtask test` runs these tests; `cargo test --test browser -- --ignored` runs them alone.
//! Pictures of every screen are then in `shots/`.

mod approvals;
mod axe;
mod changes;
mod code;
mod files_tab;
mod focus;
mod fork;
mod hostile;
mod keyboard;
mod newcomer;
mod page;
mod phone;
mod plan_tab;
mod proxies;
mod recordings;
mod resilience;
mod screens;
mod session_list;
mod sidebar;
mod sign_in;
mod status;
mod tabs;
mod terminal_tab;
mod workspace;
