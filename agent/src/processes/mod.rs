//! The commands that tools run: started in groups of their own, killed with everything that came of them.

use std::{
    collections::HashMap,
    io,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use tokio::{
    net::unix::pipe,
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

mod proc_table;

/// How long between two looks at what is left of a tree that is being killed.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Who a command belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessOwner {
    Agent,
    User,
}

/// Whether somebody has to know whose a process is.
enum OwnerMarks {
    Read,
    Unread,
}

/// All that was started and not yet waited for. One for the whole program.
#[derive(Debug, Clone)]
pub struct ChildProcesses(Arc<ProcessesShared>);

#[derive(Debug)]
struct ProcessesShared {
    /// The item of each child that is ours to wait for, by pid. The reaper leaves these alone.
    children: Mutex<HashMap<i32, String>>,
    /// Where any program in here finds the model gateway.
    gateway_url: Option<String>,
}

/// A command that runs. Whoever holds it waits for it, then calls [`Processes::gone`].
#[derive(Debug)]
pub struct RunningCommand {
    pub child: Child,
    pub pid: i32,
    /// Its stdout and stderr, in the order written.
    pub output: pipe::Receiver,
}

impl ChildProcesses {
    /// Makes this process the parent of every orphan below it.
    pub fn new(gateway_url: Option<String>) -> io::Result<ChildProcesses> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(ChildProcesses(Arc::new(ProcessesShared { children: Mutex::default(), gateway_url })))
    }

    /// Runs `command` by a shell in `directory`.
    pub fn spawn(&self, item: &str, by: ProcessOwner, command: &str, directory: &Path) -> io::Result<RunningCommand> {
        let (output, input) = io::pipe()?;
        let mut shell = Command::new(shell());
        shell
            .args(["-c", command])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(input.try_clone()?)
            .stderr(input)
            .process_group(0)
            .envs(self.environment())
            .env(proc_table::ITEM_VARIABLE, item)
            .env(proc_table::OWNER_VARIABLE, if by == ProcessOwner::User { proc_table::OWNER_USER } else { "agent" });
        let child = shell.spawn()?;
        // A child that was just started and not waited for has a pid.
        let pid = child.id().map_or(0, |pid| pid as i32);
        self.children().insert(pid, item.to_owned());
        Ok(RunningCommand { child, pid, output: pipe::Receiver::from_owned_fd(output.into())? })
    }

    /// Says that a child has been waited for.
    pub fn forget_child(&self, pid: i32) {
        self.children().remove(&pid);
    }

    /// Kills what `item` started, wherever it went, and returns when nothing of it is left.
    pub async fn kill_tree(&self, item: &str) {
        let roots: Vec<i32> = self.children().iter().filter(|(_, of)| *of == item).map(|(pid, _)| *pid).collect();
        // Before the first blow: what that orphans is our child, and without marks nothing tells whose it was.
        let mut tree =
            proc_table::descendants().map(|rows| proc_table::ProcessTree::of(&rows, &roots)).unwrap_or_default();
        for group in roots.iter().filter_map(|root| Pid::from_raw(*root)) {
            // The most of it at one blow, also where there is no `/proc`. The group may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // A process that has no marks and was not seen below a root may be another command's while one runs.
        let alone = self.children().values().all(|of| of == item);
        self.kill_until_gone(OwnerMarks::Read, |rows| {
            tree.grow(rows);
            rows.retain(|row| tree.contains(row) || row.item.as_ref().map_or(alone, |of| of == item));
        })
        .await;
    }

    /// Kills everything that the agent's own commands started, of whatever turn; what the user runs stays.
    pub async fn kill_agent_processes(&self) {
        self.kill_until_gone(OwnerMarks::Read, |rows| rows.retain(|row| !row.by_user)).await;
    }

    /// Kills everything below us.
    pub async fn kill_all(&self) {
        self.kill_until_gone(OwnerMarks::Unread, |_| {}).await;
    }

    /// Takes the exit of every orphan that became our child, for ever, and leaves our own children to those who wait.
    pub async fn reap_orphans(self) -> io::Result<()> {
        let mut deaths = signal(SignalKind::child())?;
        loop {
            deaths.recv().await;
            if let Ok(rows) = proc_table::descendants() {
                self.reap(&rows);
            }
        }
    }

    fn reap(&self, rows: &[proc_table::ProcessRow]) {
        for pid in proc_table::zombie_children(rows) {
            let known = self.children().contains_key(&pid);
            if let (false, Some(pid)) = (known, Pid::from_raw(pid)) {
                // It is a zombie and ours, so this takes its exit; which one it was does not matter.
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Looks and kills until two looks in a row find nobody: what forked while we looked is found by the next look. What
    /// died becomes our child and is reaped here, so that its pid is gone too. `choose` takes out what is to live.
    async fn kill_until_gone(&self, marks: OwnerMarks, mut choose: impl FnMut(&mut Vec<proc_table::ProcessRow>)) {
        let mut clean = 0;
        while clean < 2 {
            let Ok(mut rows) = proc_table::descendants() else { return };
            self.reap(&rows);
            rows.retain(|row| !row.zombie);
            if let OwnerMarks::Read = marks {
                rows = proc_table::with_marks(rows).await;
            }
            choose(&mut rows);
            if rows.is_empty() {
                clean += 1;
                continue;
            }
            clean = 0;
            rows.iter().for_each(proc_table::kill);
            tokio::time::sleep(KILL_POLL_INTERVAL).await;
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("TERM", "dumb".to_owned()),
            ("PAGER", "cat".to_owned()),
            ("GIT_PAGER", "cat".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
        ];
        if let Some(url) = &self.0.gateway_url {
            environment.extend([
                ("GREENROOM_GATEWAY_URL", url.clone()),
                ("ANTHROPIC_BASE_URL", format!("{url}/anthropic")),
                ("OPENAI_BASE_URL", format!("{url}/openai/v1")),
                // The gateway sets the real ones; programs refuse to start without any.
                ("ANTHROPIC_API_KEY", "set-by-the-gateway".to_owned()),
                ("OPENAI_API_KEY", "set-by-the-gateway".to_owned()),
            ]);
        }
        environment.retain(|(name, _)| *name == "TERM" || std::env::var_os(name).is_none());
        environment
    }

    fn children(&self) -> MutexGuard<'_, HashMap<i32, String>> {
        self.0.children.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// `bash` where there is one.
fn shell() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let has_bash = std::env::split_paths(&path).any(|directory| directory.join("bash").is_file());
    if has_bash { "bash" } else { "sh" }
}
