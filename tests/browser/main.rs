//! Browser tests: the real server and the web page, in Chromium.
//!
//! `cargo xtask test` runs these tests; `cargo test --test browser -- --ignored` runs them alone.
//! Pictures of every screen are then in `shots/`.

mod axe;
mod files_tab;
mod focus;
mod hostile;
mod keyboard;
mod newcomer;
mod page;
mod recordings;
mod resilience;
mod screens;
mod sidebar;
mod tabs;
mod terminal_tab;
mod workspace;
