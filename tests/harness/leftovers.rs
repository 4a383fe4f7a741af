//! What is left on this host of a server's sessions once all of them are purged: nothing, of whatever kind there is to count.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    DEADLINE, host,
    rest::Rest,
    server::{Server, data},
};

/// Where a server keeps something for each session, below its data directory.
const FOR_SESSIONS: [&str; 5] = ["run", "workspaces", "homes", "sandboxes", "journal/contents"];

/// What a process holds open, by kind, and how much of each.
pub(crate) type Open = BTreeMap<String, usize>;

/// What a server holds open. Not counted are connections with somebody who lives, as that one decides how long they last, and
/// the segments of the journal, of which there are as many as the log has.
pub(crate) fn open(pid: i32) -> Open {
    let alive = established(pid);
    let mut open = Open::new();
    for at in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(what) = fs::read_link(at.path()) else { continue };
        let what = what.to_string_lossy().into_owned();
        let kind = match what.split_once(":[") {
            Some(("socket", inode)) if alive.iter().any(|it| *it == inode.trim_end_matches(']')) => continue,
            Some((kind, _)) => kind.to_owned(),
            None if what.contains("/journal/") => continue,
            None => what,
        };
        *open.entry(kind).or_default() += 1;
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
async fn left(server: &Rest, home: &Path, pid: i32, fresh: &Open) -> Vec<String> {
    let mut left = Vec::new();
    left.extend(host::processes(home).into_iter().map(|it| format!("the process {} `{}`", it.pid, it.command)));
    left.extend(host::children(pid).into_iter().map(|it| format!("the server's child {it}")));
    left.extend(host::containers(home).into_iter().map(|it| format!("the container {it}")));
    for name in FOR_SESSIONS {
        let of_each = host::directories(&data(home).join(name));
        left.extend(of_each.into_iter().map(|it| format!("the directory {name}/{it}")));
    }
    // A server's own groups stay; in each tree they are those that hold no other.
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
pub(crate) async fn of(server: &Server) -> Vec<String> {
    let mut left = Vec::new();
    for archived in [false, true] {
        left.extend(purge(&server.rest, archived).await);
    }
    let until = Instant::now() + DEADLINE;
    loop {
        let still = self::left(&server.rest, server.home(), server.pid(), server.fresh()).await;
        if still.is_empty() || Instant::now() > until {
            left.extend(still);
            return left;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns what could not be purged.
async fn purge(rest: &Rest, archived: bool) -> Vec<String> {
    let (mut left, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = rest.get(&format!("/api/sessions?limit=100&archived={archived}{cursor}")).await.expect(200);
        for session in page["items"].as_array().expect("items") {
            let id = session["id"].as_str().expect("an id");
            let reply = rest.delete(&format!("/api/sessions/{id}?purge=true")).await;
            if !reply.status.is_success() {
                left.push(format!("the session {id}: {} {}", reply.status, reply.text));
            }
        }
        let Some(next) = page["next_cursor"].as_str() else { return left };
        cursor = format!("&cursor={next}");
    }
}
