//! Leftovers on this host of a server's sessions after all are purged. None are expected, of any
//! kind.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    DEADLINE, host,
    rest::RestClient,
    server::{TestServer, data},
};

/// Directories below the data directory with an entry for each session.
const FOR_SESSIONS: [&str; 5] = ["run", "workspaces", "homes", "sandboxes", "journal/contents"];

/// Open resources of a process: their number by kind.
pub type OpenResources = BTreeMap<String, usize>;

/// Counts the open resources of a server.
///
/// Not counted are:
/// - connections with a live peer: the clients decide how long theirs last, and connections to a
///   model's service are kept for a while, for the next call;
/// - the files of the log and the index, whose number varies;
/// - the resources of each thread that runs tasks: some of these threads start after the server is
///   ready.
pub fn open(pid: i32) -> OpenResources {
    let alive = established(pid);
    let mut open = OpenResources::new();
    let mut threads = 0;
    for at in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(what) = fs::read_link(at.path()) else { continue };
        let what = what.to_string_lossy().into_owned();
        let kind = match what.split_once(":[") {
            Some(("socket", inode)) if alive.iter().any(|it| *it == inode.trim_end_matches(']')) => continue,
            Some(("anon_inode", "eventpoll]")) => continue,
            Some(("anon_inode", "eventfd]")) => {
                threads += 1;
                continue;
            }
            Some((kind @ ("socket" | "pipe"), _)) => kind.to_owned(),
            _ if ["/journal/log/", "/journal/index/"].iter().any(|its| what.contains(its)) => continue,
            _ => what,
        };
        *open.entry(kind).or_default() += 1;
    }
    // Each thread that runs tasks has one socket for signals.
    if let Some(sockets) = open.get_mut("socket") {
        *sockets = sockets.saturating_sub(threads);
    }
    open
}

/// Returns the inodes of a process's TCP connections whose peer has not closed.
fn established(pid: i32) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let tables = [table("tcp"), table("tcp6")].concat();
    let rows = tables.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&ESTABLISHED)).filter_map(|row| Some((*row.get(9)?).to_owned())).collect()
}

/// Returns the leftovers of a server's sessions, in words. Empty if there are none.
async fn look(server: &RestClient, home: &Path, pid: i32, fresh: &OpenResources) -> Vec<String> {
    let mut left = Vec::new();
    left.extend(host::processes(home).into_iter().map(|it| format!("the process {} `{}`", it.pid, it.command)));
    left.extend(host::children(pid).into_iter().map(|it| format!("the server's child {it}")));
    left.extend(host::containers(home).into_iter().map(|it| format!("the container {it}")));
    for name in FOR_SESSIONS {
        let of_each = host::directories(&data(home).join(name));
        left.extend(of_each.into_iter().map(|it| format!("the directory {name}/{it}")));
    }
    // A server's own control groups stay. In each tree they are the groups that no other listed
    // group contains.
    let groups = host::control_groups(home);
    let of_a_sandbox = groups.iter().filter(|it| groups.iter().any(|own| it.parent() == Some(own)));
    left.extend(of_a_sandbox.map(|it| format!("the control group {}", it.display())));
    for (kind, now) in open(pid) {
        let before = fresh.get(&kind).copied().unwrap_or(0);
        if now > before {
            left.push(format!("{} descriptors: {kind}", now - before));
        }
    }
    let actors = server.get("/api/admin/actors").await.expect(200);
    let actors = actors["items"].as_array().expect("items");
    left.extend(actors.iter().filter(|row| row["session"] != Value::Null).map(|row| format!("the actor {row}")));
    left
}

/// Purges every session and waits until nothing of them is left. Returns the leftovers, in words.
pub async fn of(server: &TestServer) -> Vec<String> {
    let until = Instant::now() + DEADLINE;
    loop {
        // A session that is just being started answers with a request to retry.
        let mut left = [purge(&server.rest, false).await, purge(&server.rest, true).await].concat();
        if left.is_empty() {
            left = look(&server.rest, server.home(), server.pid(), server.fresh()).await;
        }
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the sessions that could not be purged, and a note if there are further pages.
async fn purge(rest: &RestClient, archived: bool) -> Vec<String> {
    let page = rest.get(&format!("/api/sessions?limit=500&archived={archived}")).await.expect(200);
    let mut left = Vec::new();
    for session in page["items"].as_array().expect("items") {
        let id = session["id"].as_str().expect("an id");
        let reply = rest.delete(&format!("/api/sessions/{id}?purge=true")).await;
        if !reply.status.is_success() {
            left.push(format!("the session {id}: {} {}", reply.status, reply.text));
        }
    }
    left.extend(page["next_cursor"].as_str().map(|_| "sessions of a further page".to_owned()));
    left
}
