//! Programs of a test's own in the agent's place, for sandboxes that start from then on.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{eventually, server::TestServer};

/// Replaces the agent, and returns the original.
pub fn replace_agent(server: &TestServer, program: &str) -> Vec<u8> {
    let programs = fs::read_dir(server.data().join("bin")).expect("the agent's programs are installed").flatten();
    let agents = programs.filter(|entry| entry.file_name().to_string_lossy().starts_with("greenroom-agent-"));
    let agents: Vec<_> = agents.map(|entry| entry.path()).collect();
    assert_eq!(agents.len(), 1, "{agents:?}");
    let agent = fs::read(&agents[0]).expect("the file is in the test's directory");
    put(&agents[0], program.as_bytes());
    agent
}

/// Creates a session whose sandbox runs this script around the agent. The script finds the agent as
/// `$agent`. Returns the session's id and its home.
pub async fn wrap_agent(server: &TestServer, script: &str) -> (String, PathBuf) {
    let wait = "agent=\"$HOME/agent\"; until [ -x \"$agent\" ]; do sleep 0.02; done";
    let agent = replace_agent(server, &format!("#!/bin/sh\n{wait}\n{script}\n"));
    let session = server.rest.create(json!({})).await;
    let home = server.data().join("homes").join(&session);
    eventually("a home", || async { home.is_dir() }).await;
    put(&home.join("agent"), &agent);
    server.rest.until_state(&session, "idle").await;
    (session, home)
}

/// Writes a program atomically, to a new file: a running program's file cannot be overwritten.
fn put(path: &Path, program: &[u8]) {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, program).expect("there is room");
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).expect("the file is in the test's directory");
    fs::rename(unfinished, path).expect("the file is in the test's directory");
}
