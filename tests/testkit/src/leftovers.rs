//! What is left on this host of a server's sessions once all of them are purged: nothing, of whatever kind there is to count.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    DEADLINE, host,
    rest::RestClient,
    server::{TestServer, data},
};

/// Where a server keeps something for each session, below its data directory.
const FOR_SESSIONS: [&str; 5] = ["run", "workspaces", "homes", "sandboxes", "journal/contents"];

/// What a process holds open, by kind, and how much of each.
pub(crate) type OpenResources = BTreeMap<String, usize>;

/// What a server holds open. Not counted are the connections whose other end lives: its clients decide how long theirs last, and
/// those with a model's service are kept a while for the next call. Nor are the files of its log and index, which are as many as
/// it has, nor what each thread has that runs tasks, as some of them begin after the server is there.
pub(crate) fn open(pid: i32) -> OpenResources {
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
    // Each such thread has one, by which it hears of signals.
    if let Some(sockets) = open.get_mut("socket") {
        *sockets = sockets.saturating_sub(threads);
    }
    open
}

/// The inodes of the TCP connections in a process's network whose other end has not closed.
fn established(pid: i32) -> Vec<String> {
    const ESTABLISHED: &str = "01";
    let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let tables = [table("tcp"), table("tcp6")].concat();
    let rows = tables.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.get(3) == Some(&ESTABLISHED)).filter_map(|row| Some((*row.get(9)?).to_owned())).collect()
}

/// What there is of a server's sessions, in words; empty where nothing is.
async fn look(server: &RestClient, home: &Path, pid: i32, fresh: &OpenResources) -> Vec<String> {
    let mut left = Vec::new();
    left.extend(host::processes(home).into_iter().map(|it| format!("the process {} `{}`", it.pid, it.command)));
    left.extend(host::children(pid).into_iter().map(|it| format!("the server's child {it}")));
    left.extend(host::containers(home).into_iter().map(|it| format!("the container {it}")));
    for name in FOR_SESSIONS {
        let of_each = host::directories(&data(home).join(name));
        left.extend(of_each.into_iter().map(|it| format!("the directory {name}/{it}")));
    }
    // A server's own groups stay; in each tree they are those that no other of them holds.
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

/// Purges every session, and waits until nothing of them is left: what then is, in words.
pub(crate) async fn of(server: &TestServer) -> Vec<String> {
    let until = Instant::now() + DEADLINE;
    loop {
        // One that is just being started says to ask again.
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

/// Returns what could not be purged, and what more there is.
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
