//! The web page as people use it: the real server, in Chromium. `cargo xtask test` runs these, `cargo test --test browser --
//! --ignored` does so alone; pictures of every screen are then in `shots/`.

#[path = "../harness/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "most of the harness is for the tests in tests/it")]
mod harness;

mod chromium;
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
mod workspace;
