//! Programs of a test's own in the agent's place, for sandboxes that start from then on.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::json;

use super::{eventually, server::TestServer};

/// Replaces the agent, which it returns.
pub(crate) fn replace_agent(server: &TestServer, program: &str) -> Vec<u8> {
    let programs = fs::read_dir(server.data().join("bin")).expect("they are installed").flatten();
    let agents = programs.filter(|entry| entry.file_name().to_string_lossy().starts_with("greenroom-agent-"));
    let agents: Vec<_> = agents.map(|entry| entry.path()).collect();
    assert_eq!(agents.len(), 1, "{agents:?}");
    let agent = fs::read(&agents[0]).expect("it is ours");
    put(&agents[0], program.as_bytes());
    agent
}

/// Makes a session whose sandbox runs this script around the agent, which the script finds as `$agent`. Returns the session's
/// id and its home.
pub(crate) async fn wrap_agent(server: &TestServer, script: &str) -> (String, PathBuf) {
    let wait = "agent=\"$HOME/agent\"; until [ -x \"$agent\" ]; do sleep 0.02; done";
    let agent = replace_agent(server, &format!("#!/bin/sh\n{wait}\n{script}\n"));
    let session = server.rest.create(json!({})).await;
    let home = server.data().join("homes").join(&session);
    eventually("a home", || async { home.is_dir() }).await;
    put(&home.join("agent"), &agent);
    server.rest.until_state(&session, "idle").await;
    (session, home)
}

/// Whole from the moment at which it can be seen, and another file than one that runs.
fn put(path: &Path, program: &[u8]) {
    let unfinished = path.with_extension("new");
    fs::write(&unfinished, program).expect("there is room");
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::rename(unfinished, path).expect("it is ours");
}
