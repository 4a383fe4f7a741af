//! Leftovers: processes that go on after the command that started them has ended.

use std::{collections::HashSet, fs, io, sync::atomic::Ordering};

use greenroom_protocol::{
    action::abbreviate,
    observation::{LEFTOVERS_LIMIT, LeftoverProcess},
};
use rustix::process::Signal;
use tokio::process::{Child, Command};

use super::{
    ChildProcesses, OwnerMarks,
    proc_table::{self, ProcessRow, ProcessTree},
};
use crate::threads::off_thread;

/// Unit of a process's start time (`USER_HZ`, the same on all supported processors).
const TICKS_PER_SECOND: u64 = 100;

/// Scans that stop the leftovers. More are needed only while a process forks.
const STOP_SCANS: usize = 10;

impl ChildProcesses {
    /// Returns when a command has ended, or when leftovers were killed. Such an end since the last
    /// call counts.
    pub async fn leftovers_changed(&self) {
        self.0.leftovers_changed.notified().await;
    }

    /// Returns the leftovers, oldest first, and the number of those beyond [`LEFTOVERS_LIMIT`].
    pub async fn leftovers(&self) -> (Vec<LeftoverProcess>, usize) {
        let mut rows = self.leftover_rows().await;
        if rows.is_empty() && self.children().is_empty() {
            self.0.reserve.release();
        }
        rows.sort_by_key(|row| row.started);
        let more = rows.len().saturating_sub(LEFTOVERS_LIMIT);
        rows.truncate(LEFTOVERS_LIMIT);
        // A command line is memory of its process, and reading it may block.
        (off_thread(move || rows.iter().map(describe).collect()).await, more)
    }

    /// Kills the leftover with this pid, and everything below it. Another process is left alone.
    pub async fn kill_leftover(&self, pid: i32) {
        let rows = self.leftover_rows().await;
        if rows.iter().any(|row| row.pid == pid) {
            let mut tree = ProcessTree::of(&rows, &[pid]);
            self.kill_until_gone(OwnerMarks::Unread, |rows| {
                tree.grow(rows);
                rows.retain(|row| tree.contains(row));
            })
            .await;
        }
        self.kill_done();
    }

    /// Kills all leftovers. Running commands go on.
    pub async fn kill_leftovers(&self) {
        self.kill_until_gone(OwnerMarks::Read, |rows| self.retain_leftovers(rows)).await;
        self.kill_done();
    }

    /// Returns true once after each request to kill leftovers.
    pub fn take_kill_request(&self) -> bool {
        self.0.kill_requested.swap(false, Ordering::Relaxed)
    }

    fn kill_done(&self) {
        self.0.kill_requested.store(true, Ordering::Relaxed);
        self.0.leftovers_changed.notify_one();
    }

    /// Starts `command`, also if leftovers have taken nearly all process ids of the sandbox. They
    /// are stopped then, and the command gets the reserved ids.
    pub(super) fn spawn_with_reserve(&self, command: &mut Command) -> io::Result<Child> {
        if self.0.reserve.fill() {
            match command.spawn() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
        self.stop_leftovers();
        self.0.reserve.release();
        let spawned = command.spawn();
        if spawned.is_err() {
            self.continue_leftovers();
        }
        spawned
    }

    /// Continues the leftovers that a command without room has stopped, when no command runs.
    pub(super) fn continue_leftovers(&self) {
        if !self.children().is_empty() {
            return;
        }
        let stopped = std::mem::take(&mut *self.stopped());
        if !stopped.is_empty() {
            self.0.reserve.fill();
        }
        // A process that is gone needs no signal. Each of these was below the agent.
        stopped.into_iter().for_each(|row| proc_table::signal(&row, Signal::CONT));
    }

    /// Stops everything below the agent that no running command and no terminal has as its
    /// parent.
    fn stop_leftovers(&self) {
        for _ in 0..STOP_SCANS {
            let Ok(mut rows) = proc_table::descendants() else { return };
            let tree = self.running_tree(&rows);
            let mut stopped = self.stopped();
            rows.retain(|row| !row.zombie && !tree.contains(row) && !stopped.iter().any(|known| known.is(row)));
            if rows.is_empty() {
                return;
            }
            rows.iter().for_each(|row| proc_table::signal(row, Signal::STOP));
            stopped.append(&mut rows);
        }
    }

    async fn leftover_rows(&self) -> Vec<ProcessRow> {
        let Ok(mut rows) = proc_table::descendants() else { return Vec::new() };
        self.reap(&rows);
        rows.retain(|row| !row.zombie);
        let tree = self.running_tree(&rows);
        rows.retain(|row| !tree.contains(row));
        if rows.is_empty() {
            return rows;
        }
        let mut rows = proc_table::with_marks(rows).await;
        self.retain_leftovers(&mut rows);
        rows
    }

    /// Removes the processes of running commands and of terminals. A process without marks counts
    /// as a leftover only while no command runs and no terminal is open.
    fn retain_leftovers(&self, rows: &mut Vec<ProcessRow>) {
        let tree = self.running_tree(rows);
        let mut items: HashSet<String> = self.children().values().cloned().collect();
        items.extend(self.terminal_shells().values().cloned());
        rows.retain(|row| {
            !tree.contains(row) && row.item.as_ref().map_or(items.is_empty(), |item| !items.contains(item))
        });
    }

    fn running_tree(&self, rows: &[ProcessRow]) -> ProcessTree {
        let commands: Vec<i32> = self.children().keys().copied().collect();
        let terminals: Vec<i32> = self.terminal_shells().keys().copied().collect();
        ProcessTree::of(rows, &[commands, terminals].concat())
    }

    fn stopped(&self) -> std::sync::MutexGuard<'_, Vec<ProcessRow>> {
        self.0.stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn describe(row: &ProcessRow) -> LeftoverProcess {
    let read = |name: &str| fs::read(format!("/proc/{}/{name}", row.pid)).unwrap_or_default();
    let mut name: String = String::from_utf8_lossy(&read("cmdline"))
        .split('\0')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ");
    if name.is_empty() {
        name = String::from_utf8_lossy(&read("comm")).trim_end().to_owned();
    }
    let name = abbreviate(&name).replace(char::is_control, "\u{fffd}");
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let uptime_s: u64 = uptime.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or_default();
    let age_s = uptime_s.saturating_sub(row.started / TICKS_PER_SECOND);
    let status = read("status");
    let resident = String::from_utf8_lossy(&status).lines().find_map(|line| {
        let kib = line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?;
        kib.parse::<u64>().ok()
    });
    LeftoverProcess { pid: row.pid, name, age_s, memory_bytes: resident.unwrap_or_default() << 10 }
}
