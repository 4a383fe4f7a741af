//! What runs below us, read from `/proc`: whose child, of which command.
//!
//! A process may leave its group and its session, and its parent may die. It stays our descendant all the same, because we
//! are the child subreaper; and it keeps the environment that its command began with, unless it took pains not to.

use std::{collections::HashSet, fs, io};

use rustix::process::{Pid, Signal, kill_process};

use crate::threads::off_thread;

/// Names the item that a process belongs to, in its environment.
pub(super) const ITEM_VARIABLE: &str = "GREENROOM_ITEM";
/// Names whose act that item is: [`USER`], or the agent's own.
pub(super) const OWNER_VARIABLE: &str = "GREENROOM_BY";
/// The value of [`BY`] for what the user ran.
pub(super) const OWNER_USER: &str = "user";

/// What no two processes share: a pid, and when it began.
type ProcessKey = (i32, u64);

/// Processes and what came of them, as all looks so far have it: a process whose parent died is below it no more at the next.
#[derive(Debug, Default)]
pub(super) struct ProcessTree(HashSet<ProcessKey>);

/// One of our descendants.
#[derive(Debug, Clone)]
pub(super) struct ProcessRow {
    pub(super) pid: i32,
    /// When it began, in ticks since the machine did. A pid may be given again, and then it is another process.
    started: u64,
    parent: i32,
    pub(super) zombie: bool,
    /// The command that its environment names; one without is a stray. Unknown, as the next is, before [`marked`].
    pub(super) item: Option<String>,
    pub(super) by_user: bool,
}

/// All of our descendants, as far as one look can tell, without their marks. The kernel has all of this at hand, and nobody
/// waits.
pub(super) fn descendants() -> io::Result<Vec<ProcessRow>> {
    let mut all: Vec<ProcessRow> = fs::read_dir("/proc")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(read_stat)
        .collect();
    let mut ours = HashSet::from([std::process::id() as i32]);
    // A parent may have a larger pid than its child once pids wrap around, so one pass is not enough.
    loop {
        let before = ours.len();
        ours.extend(all.iter().filter(|row| ours.contains(&row.parent)).map(|row| row.pid).collect::<Vec<_>>());
        if ours.len() == before {
            break;
        }
    }
    ours.remove(&(std::process::id() as i32));
    all.retain(|row| ours.contains(&row.pid));
    Ok(all)
}

/// The same with their marks. An environment is memory of its process: to read it may have to wait for a process that itself
/// waits for a file system which does not answer, so the one thread does not.
pub(super) async fn with_marks(mut rows: Vec<ProcessRow>) -> Vec<ProcessRow> {
    off_thread(move || {
        rows.iter_mut().for_each(read_marks);
        rows
    })
    .await
}

impl ProcessTree {
    /// Those of `rows` with these pids, and what is below them.
    pub(super) fn of(rows: &[ProcessRow], roots: &[i32]) -> ProcessTree {
        let mut tree = ProcessTree(rows.iter().filter(|row| roots.contains(&row.pid)).map(ProcessRow::key).collect());
        tree.grow(rows);
        tree
    }

    /// Takes in what of `rows` is below it.
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
    fn key(&self) -> ProcessKey {
        (self.pid, self.started)
    }
}

/// Our own zombies.
pub(super) fn zombie_children(rows: &[ProcessRow]) -> impl Iterator<Item = i32> + '_ {
    let us = std::process::id() as i32;
    rows.iter().filter(move |row| row.zombie && row.parent == us).map(|row| row.pid)
}

/// Kills one process. One that is gone already is no error, and another one that has its pid by now is left alone.
pub(super) fn kill(row: &ProcessRow) {
    let is_there = read_stat(row.pid).is_some_and(|now| now.key() == row.key());
    if let (true, Some(pid)) = (is_there, Pid::from_raw(row.pid)) {
        // It may have died since we looked, and there is nobody else whom we may not kill.
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn read_stat(pid: i32) -> Option<ProcessRow> {
    // Its name may hold any bytes, and must not hide it.
    parse_stat(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
}

fn parse_stat(pid: i32, stat: &str) -> Option<ProcessRow> {
    // The name in brackets may hold spaces and brackets; the fields after its end are the third and those that follow.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    // One whose first thread has ended shows as a zombie, and its other threads work on.
    let zombie = matches!(field(3)?, "Z" | "X") && field(20)?.parse::<u32>().ok()? <= 1;
    let (parent, started) = (field(4)?.parse().ok()?, field(22)?.parse().ok()?);
    Some(ProcessRow { pid, started, parent, zombie, item: None, by_user: false })
}

/// As its threads show it: one that has ended shows nothing.
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
    fn a_name_that_is_no_text_hides_nobody() {
        let dir = tempfile::tempdir().expect("a directory");
        let name = OsStr::from_bytes(b"greenroom-\xff");
        let program = dir.path().join(name);
        symlink("/bin/sleep", &program).expect("it is made");
        let mut child = Command::new(&program).arg0("sleep").arg("1000").spawn().expect("it runs");
        let pid = child.id() as i32;
        let named = fs::read(format!("/proc/{pid}/comm")).expect("it is there");
        let seen = descendants().expect("they are read").iter().any(|row| row.pid == pid);
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        assert_eq!(named.trim_ascii_end(), name.as_bytes());
        assert!(seen);
    }

    #[test]
    fn a_process_is_dead_when_its_last_thread_is() {
        let row = |state: &str, threads: u32| {
            let rest = format!("{state} 7 9 9 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 {threads} 0 4242 10000 55");
            parse_stat(9, &format!("9 (a) b) {rest}")).expect("it is understood")
        };
        for (state, threads, zombie) in [("S", 1, false), ("Z", 1, true), ("X", 0, true), ("Z", 2, false)] {
            let row = row(state, threads);
            assert_eq!((row.zombie, row.parent, row.started), (zombie, 7, 4242), "{state} with {threads}");
        }
    }

    #[test]
    fn what_was_below_a_process_stays_of_its_tree() {
        let row = |pid, parent, started| ProcessRow { pid, started, parent, zombie: false, item: None, by_user: false };
        let [shell, child, grandchild, other] = [row(2, 1, 20), row(9, 2, 21), row(3, 9, 22), row(4, 1, 20)];
        let look = [grandchild, other.clone(), shell, child.clone()];
        let mut tree = ProcessTree::of(&look, &[2]);
        assert_eq!(look.iter().map(|row| tree.contains(row)).collect::<Vec<_>>(), [true, false, true, true]);
        // The shell is dead, its child is ours and has one more, and another process has the pid of what is gone.
        let look = [ProcessRow { parent: 1, ..child }, row(5, 9, 30), row(3, 4, 31), row(6, 3, 32), other];
        tree.grow(&look);
        assert_eq!(look.iter().map(|row| tree.contains(row)).collect::<Vec<_>>(), [true, true, false, false, false]);
    }

    #[test]
    fn an_environment_is_read_from_any_thread() {
        let environment = environment(std::process::id() as i32).expect("it is our own");
        let path = std::env::var("PATH").expect("it is text");
        assert!(String::from_utf8_lossy(&environment).contains(&format!("PATH={path}")));
    }
}
