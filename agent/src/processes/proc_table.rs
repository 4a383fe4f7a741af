//! Processes below the agent, read from `/proc`: parent and command of each.
//!
//! A process may leave its group and its session, and its parent may die. It stays a descendant,
//! because the agent is the child subreaper. It also keeps the environment of its command, unless
//! it clears the environment itself.

use std::{collections::HashSet, fs, io};

use rustix::process::{Pid, Signal, kill_process};

use crate::threads::off_thread;

/// Environment variable that names the item of a process.
pub(super) const ITEM_VARIABLE: &str = "GREENROOM_ITEM";
/// Environment variable that names the owner of that item: [`OWNER_USER`], or the agent.
pub(super) const OWNER_VARIABLE: &str = "GREENROOM_BY";
/// Value of [`OWNER_VARIABLE`] for the user's commands.
pub(super) const OWNER_USER: &str = "user";

/// Unique key of a process: pid and start time.
type ProcessKey = (i32, u64);

/// Processes and their descendants over all scans so far. A process whose parent died appears below
/// it in earlier scans only.
#[derive(Debug, Default)]
pub(super) struct ProcessTree(HashSet<ProcessKey>);

/// Descendant of the agent.
#[derive(Debug, Clone)]
pub(super) struct ProcessRow {
    pub(super) pid: i32,
    /// Start time, in ticks since boot. Tells apart two processes that get the same pid.
    pub(super) started: u64,
    parent: i32,
    pub(super) zombie: bool,
    /// Item in the process's environment; `None` for a stray. Like `by_user`, unset before
    /// [`with_marks`].
    pub(super) item: Option<String>,
    pub(super) by_user: bool,
}

/// Returns all descendants that one scan finds, without their marks. Does not block: the kernel has
/// these values at hand.
pub(super) fn descendants() -> io::Result<Vec<ProcessRow>> {
    let mut all: Vec<ProcessRow> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read_stat)
        .collect();
    let mut pids = HashSet::from([std::process::id() as i32]);
    // A parent may have a larger pid than its child once pids wrap around, so one pass is not
    // enough.
    loop {
        let before = pids.len();
        pids.extend(all.iter().filter(|row| pids.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>());
        if pids.len() == before {
            break;
        }
    }
    pids.remove(&(std::process::id() as i32));
    all.retain(|row| pids.contains(&row.pid));
    Ok(all)
}

/// Adds the marks to `rows`. An environment is memory of its process. Reading it may block on a
/// process that itself waits for a file system, so another thread reads it.
pub(super) async fn with_marks(mut rows: Vec<ProcessRow>) -> Vec<ProcessRow> {
    off_thread(move || {
        rows.iter_mut().for_each(read_marks);
        rows
    })
    .await
}

impl ProcessTree {
    /// Returns the processes with the pids `roots`, and their descendants.
    pub(super) fn of(rows: &[ProcessRow], roots: &[i32]) -> ProcessTree {
        let mut tree = ProcessTree(rows.iter().filter(|row| roots.contains(&row.pid)).map(ProcessRow::key).collect());
        tree.grow(rows);
        tree
    }

    /// Adds the rows whose parent is in the tree.
    pub(super) fn grow(&mut self, rows: &[ProcessRow]) {
        loop {
            let parents: HashSet<i32> = rows.iter().filter(|row| self.contains(row)).map(|row| row.pid).collect();
            let before = self.0.len();
            self.0.extend(rows.iter().filter(|row| parents.contains(&row.parent)).map(ProcessRow::key));
            if self.0.len() == before {
                return;
            }
        }
    }

    pub(super) fn contains(&self, row: &ProcessRow) -> bool {
        self.0.contains(&row.key())
    }
}

impl ProcessRow {
    /// Returns true if both rows are the same process.
    pub(super) fn is(&self, other: &ProcessRow) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> ProcessKey {
        (self.pid, self.started)
    }
}

/// Returns the pids of zombies that are children of the agent.
pub(super) fn zombie_children(rows: &[ProcessRow]) -> impl Iterator<Item = i32> + '_ {
    let own_pid = std::process::id() as i32;
    rows.iter().filter(move |row| row.zombie && row.parent == own_pid).map(|row| row.pid)
}

/// Kills one process.
pub(super) fn kill(row: &ProcessRow) {
    signal(row, Signal::KILL);
}

/// Sends a signal to one process. A process that is gone is no error. Another process that has its
/// pid by now is left alone.
pub(super) fn signal(row: &ProcessRow, signal: Signal) {
    let is_same = read_stat(row.pid).is_some_and(|now| now.is(row));
    if let (true, Some(pid)) = (is_same, Pid::from_raw(row.pid)) {
        // The process may have exited since the check. The agent may signal each of its
        // descendants, so no other error is expected.
        let _ = kill_process(pid, signal);
    }
}

fn read_stat(pid: i32) -> Option<ProcessRow> {
    // The name may hold any bytes, and must not hide its process.
    parse_stat(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

fn parse_stat(pid: i32, stat: &str) -> Option<ProcessRow> {
    // The name in brackets may hold spaces and brackets. After its end, the third field follows.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    // A process whose first thread has ended shows as a zombie while its other threads run.
    let zombie = matches!(field(3)?, "Z" | "X") && field(20)?.parse::<u32>().ok()? <= 1;
    let (parent, started) = (field(4)?.parse().ok()?, field(22)?.parse().ok()?);
    Some(ProcessRow { pid, started, parent, zombie, item: None, by_user: false })
}

/// Reads the environment from the process's threads. A thread that has ended shows none.
fn environment(pid: i32) -> Option<Vec<u8>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.flatten().find_map(|thread| fs::read(thread.path().join("environ")).ok().filter(|read| !read.is_empty()))
}

fn read_marks(row: &mut ProcessRow) {
    let Some(environment) = environment(row.pid) else { return };
    let value = |name: &str| {
        environment.split(|byte| *byte == 0).find_map(|pair| {
            let value = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(String::from_utf8_lossy(value).into_owned())
        })
    };
    row.item = value(ITEM_VARIABLE);
    row.by_user = value(OWNER_VARIABLE).as_deref() == Some(OWNER_USER);
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        os::unix::{ffi::OsStrExt, fs::symlink, process::CommandExt},
        process::Command,
    };

    use super::*;

    #[test]
    fn process_with_non_utf8_name_is_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = OsStr::from_bytes(b"greenroom-\xff");
        let program = dir.path().join(name);
        symlink("/bin/sleep", &program).expect("a symlink");
        let mut child = Command::new(&program).arg0("sleep").arg("1000").spawn().expect("the program runs");
        let pid = child.id() as i32;
        let named = fs::read(format!("/proc/{pid}/comm")).expect("the process exists");
        let seen = descendants().expect("/proc is readable").iter().any(|row| row.pid == pid);
        child.kill().expect("the child can be killed");
        child.wait().expect("the child ends");
        assert_eq!(named.trim_ascii_end(), name.as_bytes());
        assert!(seen);
    }

    #[test]
    fn process_is_zombie_after_its_last_thread() {
        let row = |state: &str, threads: u32| {
            let rest = format!("{state} 7 9 9 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 {threads} 0 4242 10000 55");
            parse_stat(9, &format!("9 (a) b) {rest}")).expect("a valid line")
        };
        for (state, threads, zombie) in [("S", 1, false), ("Z", 1, true), ("X", 0, true), ("Z", 2, false)] {
            let row = row(state, threads);
            assert_eq!((row.zombie, row.parent, row.started), (zombie, 7, 4242), "{state} with {threads}");
        }
    }

    #[test]
    fn tree_keeps_orphaned_descendants() {
        let row = |pid, parent, started| ProcessRow { pid, started, parent, zombie: false, item: None, by_user: false };
        let [shell, child, grandchild, other] = [row(2, 1, 20), row(9, 2, 21), row(3, 9, 22), row(4, 1, 20)];
        let scan = [grandchild, other.clone(), shell, child.clone()];
        let mut tree = ProcessTree::of(&scan, &[2]);
        assert_eq!(scan.iter().map(|row| tree.contains(row)).collect::<Vec<_>>(), [true, false, true, true]);
        // The shell is dead and its child, now a child of the agent, has a new child. Another
        // process has the pid of the dead grandchild.
        let scan = [ProcessRow { parent: 1, ..child }, row(5, 9, 30), row(3, 4, 31), row(6, 3, 32), other];
        tree.grow(&scan);
        assert_eq!(scan.iter().map(|row| tree.contains(row)).collect::<Vec<_>>(), [true, true, false, false, false]);
    }

    #[test]
    fn environment_is_read_from_threads() {
        let environment = environment(std::process::id() as i32).expect("a process can read its own environment");
        let path = std::env::var("PATH").expect("PATH is UTF-8");
        assert!(String::from_utf8_lossy(&environment).contains(&format!("PATH={path}")));
    }
}
