//! Commands of the tools: started in process groups of their own, killed with everything they
//! started.

use std::{
    collections::HashMap,
    io,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, atomic::AtomicBool},
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    sync::Notify,
};

mod browser_process;
mod exit;
mod leftovers;
mod output;
mod pid_reserve;
mod proc_table;
mod terminal_shells;

pub use browser_process::BrowserProcess;
pub use exit::CommandExit;
pub use output::OutputReader;
pub use terminal_shells::TerminalShell;

/// Longest command that the shell gets as an argument, in bytes. The kernel accepts about twice as
/// much.
const ARGUMENT_LIMIT: usize = 64 * 1024;

/// Script that reads the command from stdin and runs it as an argument would be, without stdin.
const FROM_STDIN: &str = r#"eval "$(cat)" </dev/null"#;

/// Delay between two scans while a process tree is being killed. Doubles while the same processes
/// survive: a process that waits for a dead disk cannot be killed.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Longest delay between two such scans.
const MAX_KILL_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Owner of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessOwner {
    Agent,
    User,
}

/// Selects whether a scan reads the owner of each process.
enum OwnerMarks {
    Read,
    Unread,
}

/// Child processes that are not waited for yet. The agent has one such set.
#[derive(Debug, Clone)]
pub struct ChildProcesses(Arc<ProcessesShared>);

#[derive(Debug)]
struct ProcessesShared {
    /// Item of each child that a tool waits for, by pid. The reaper skips these.
    children: Mutex<HashMap<i32, String>>,
    /// Item of each terminal's shell and of the browser, by pid. The reaper skips these too.
    terminal_shells: Mutex<HashMap<i32, String>>,
    /// Address of the model gateway for programs in the sandbox.
    gateway_url: Option<String>,
    reserve: pid_reserve::PidReserve,
    /// Leftovers that were stopped, so that a command could start.
    stopped: Mutex<Vec<proc_table::ProcessRow>>,
    /// Notified when the list of leftovers may have changed.
    leftovers_changed: Notify,
    /// Set after leftovers were killed on request.
    kill_requested: AtomicBool,
}

/// Running command. Its holder waits for `child`, then calls [`ChildProcesses::forget_child`].
#[derive(Debug)]
pub struct RunningCommand {
    pub child: Child,
    /// Pid of the shell, which is also its process group.
    pub pid: i32,
    /// Stdout and stderr, in the order written.
    pub output: OutputReader,
}

impl ChildProcesses {
    /// Makes the agent the parent of every orphan below it (`PR_SET_CHILD_SUBREAPER`).
    ///
    /// # Errors
    /// Fails if the kernel rejects that.
    pub fn new(gateway_url: Option<String>) -> io::Result<ChildProcesses> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        Ok(ChildProcesses(Arc::new(ProcessesShared {
            children: Mutex::default(),
            terminal_shells: Mutex::default(),
            gateway_url,
            reserve: pid_reserve::PidReserve::default(),
            stopped: Mutex::default(),
            leftovers_changed: Notify::new(),
            kill_requested: AtomicBool::new(false),
        })))
    }

    /// Runs `command` with a shell in `directory`.
    ///
    /// # Errors
    /// Fails if the output or the shell cannot be made, for example if `directory` is missing, and
    /// for a command with a NUL character.
    pub fn spawn(
        &self,
        item: &str,
        owner: ProcessOwner,
        command: &str,
        directory: &Path,
    ) -> io::Result<RunningCommand> {
        if command.contains('\0') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it has a NUL character"));
        }
        let (output, writer) = OutputReader::open()?;
        let is_argument = command.len() <= ARGUMENT_LIMIT;
        let mut shell = Command::new(shell());
        shell
            .args(["-c", if is_argument { command } else { FROM_STDIN }])
            .current_dir(directory)
            .stdin(if is_argument { Stdio::null() } else { Stdio::piped() })
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0)
            .envs(self.environment())
            .env(proc_table::ITEM_VARIABLE, item)
            .env(
                proc_table::OWNER_VARIABLE,
                if owner == ProcessOwner::User { proc_table::OWNER_USER } else { "agent" },
            );
        let mut child = self.spawn_with_reserve(&mut shell)?;
        if let Some(mut stdin) = child.stdin.take() {
            let command = command.to_owned();
            // A shell that was killed reads no more; its end is reported anyway.
            tokio::spawn(async move { stdin.write_all(command.as_bytes()).await });
        }
        // A child that was just spawned and not waited for has a pid.
        let pid = child.id().map_or(0, |pid| pid as i32);
        self.children().insert(pid, item.to_owned());
        Ok(RunningCommand { child, pid, output })
    }

    /// Records that a child has been waited for.
    pub fn forget_child(&self, pid: i32) {
        self.children().remove(&pid);
        self.continue_leftovers();
        self.0.leftovers_changed.notify_one();
    }

    /// Kills everything that `item` started, and returns when nothing of it is left.
    pub async fn kill_tree(&self, item: &str) {
        let roots: Vec<i32> =
            self.children().iter().filter(|(_, child_item)| *child_item == item).map(|(pid, _)| *pid).collect();
        // Scanned before the first kill: a kill makes orphans, and an orphan without marks cannot
        // be assigned.
        let mut tree =
            proc_table::descendants().map(|rows| proc_table::ProcessTree::of(&rows, &roots)).unwrap_or_default();
        for group in roots.iter().filter_map(|root| Pid::from_raw(*root)) {
            // Kills most of the tree at once, also without `/proc`. The group may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        // An unmarked process outside the tree may belong to another running command.
        let is_only_command = self.children().values().all(|child_item| child_item == item);
        self.kill_until_gone(OwnerMarks::Read, |rows| {
            tree.grow(rows);
            let terminals = self.terminal_tree(rows);
            rows.retain(|row| {
                let may_be_its_own = is_only_command && !terminals.contains(row);
                tree.contains(row) || row.item.as_ref().map_or(may_be_its_own, |row_item| row_item == item)
            });
        })
        .await;
    }

    /// Kills everything that the agent's own commands started, in any turn. The user's processes
    /// stay, and terminals with everything in them.
    pub async fn kill_agent_processes(&self) {
        self.kill_until_gone(OwnerMarks::Read, |rows| {
            let terminals = self.terminal_tree(rows);
            rows.retain(|row| !row.by_user && !terminals.contains(row));
        })
        .await;
    }

    /// Kills every process below the agent.
    pub async fn kill_all(&self) {
        self.kill_until_gone(OwnerMarks::Unread, |_| {}).await;
    }

    /// Reaps every orphan that became a child of the agent, until dropped. Children of the tools
    /// are left to their holders.
    ///
    /// # Errors
    /// Fails if SIGCHLD cannot be handled.
    pub async fn reap_orphans(self) -> io::Result<()> {
        let mut exits = signal(SignalKind::child())?;
        loop {
            exits.recv().await;
            if let Ok(rows) = proc_table::descendants() {
                self.reap(&rows);
            }
        }
    }

    fn reap(&self, rows: &[proc_table::ProcessRow]) {
        for pid in proc_table::zombie_children(rows) {
            let known = self.children().contains_key(&pid) || self.terminal_shells().contains_key(&pid);
            if let (false, Some(pid)) = (known, Pid::from_raw(pid)) {
                // The process is a zombie and a child of the agent, so this reaps it at once. Its
                // exit status does not matter.
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
        }
    }

    /// Scans and kills until two scans in a row find nothing. A process that forks during one scan
    /// is found by the next. Dead processes become children of the agent and are reaped here, so
    /// their pids are gone too. `select` removes the processes that must survive from the list.
    async fn kill_until_gone(&self, marks: OwnerMarks, mut select: impl FnMut(&mut Vec<proc_table::ProcessRow>)) {
        let (mut empty_scans, mut delay) = (0, KILL_POLL_INTERVAL);
        let mut killed: Vec<i32> = Vec::new();
        while empty_scans < 2 {
            let Ok(mut rows) = proc_table::descendants() else { return };
            self.reap(&rows);
            rows.retain(|row| !row.zombie);
            if let OwnerMarks::Read = marks {
                rows = proc_table::with_marks(rows).await;
            }
            select(&mut rows);
            if rows.is_empty() {
                empty_scans += 1;
                continue;
            }
            empty_scans = 0;
            rows.iter().for_each(proc_table::kill);
            let pids: Vec<i32> = rows.iter().map(|row| row.pid).collect();
            delay = if pids == killed { MAX_KILL_POLL_INTERVAL.min(delay * 2) } else { KILL_POLL_INTERVAL };
            killed = pids;
            tokio::time::sleep(delay).await;
        }
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("TERM", "dumb".to_owned()),
            ("PAGER", "cat".to_owned()),
            // Pagers that end after the first screen, without a question.
            ("LESS", "-dFX".to_owned()),
            ("MORE", "-e".to_owned()),
            ("GIT_PAGER", "cat".to_owned()),
            ("GIT_TERMINAL_PROMPT", "0".to_owned()),
            // Output of a Python program that writes into another program is live too.
            ("PYTHONUNBUFFERED", "1".to_owned()),
        ];
        environment.extend(self.gateway_environment());
        environment.retain(|(name, _)| *name == "TERM" || std::env::var_os(name).is_none());
        environment
    }

    /// Returns the variables that lead programs to the model gateway.
    fn gateway_environment(&self) -> Vec<(&'static str, String)> {
        let Some(url) = &self.0.gateway_url else { return Vec::new() };
        vec![
            ("GREENROOM_GATEWAY_URL", url.clone()),
            ("ANTHROPIC_BASE_URL", format!("{url}/anthropic")),
            ("OPENAI_BASE_URL", format!("{url}/openai/v1")),
            // The gateway sets the real keys. Programs refuse to start without any.
            ("ANTHROPIC_API_KEY", "set-by-the-gateway".to_owned()),
            ("OPENAI_API_KEY", "set-by-the-gateway".to_owned()),
        ]
    }

    fn children(&self) -> MutexGuard<'_, HashMap<i32, String>> {
        self.0.children.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns `bash` if it is installed, else `sh`.
fn shell() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    let has_bash = std::env::split_paths(&path).any(|directory| directory.join("bash").is_file());
    if has_bash { "bash" } else { "sh" }
}
