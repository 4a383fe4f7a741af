//! Shells of terminals: in sessions of their own, with a controlling terminal. Their processes are
//! no leftovers, and no interrupt of a turn ends them.

use std::{
    collections::HashMap,
    env, fs, io,
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::Path,
    sync::MutexGuard,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::{
    ChildProcesses, OwnerMarks,
    proc_table::{self, ProcessRow, ProcessTree},
    shell,
};

/// Shells of accounts that nobody may log in to.
const NO_LOGIN: [&str; 2] = ["nologin", "false"];

/// Running shell of a terminal. Its holder waits for `child`, then calls
/// [`ChildProcesses::forget_terminal`].
#[derive(Debug)]
pub struct TerminalShell {
    pub child: Child,
    pub pid: i32,
}

impl ChildProcesses {
    /// Starts the login shell in `directory`, with `terminal` as its controlling terminal.
    ///
    /// # Errors
    /// Fails if the shell cannot be started, for example if `directory` is missing.
    pub fn spawn_terminal(&self, item: &str, terminal: OwnedFd, directory: &Path) -> io::Result<TerminalShell> {
        let shell = login_shell();
        // A login shell is told so by its name. All shells follow this, and options differ.
        let name = format!("-{}", shell.rsplit('/').next().unwrap_or("sh"));
        let mut command = Command::new(&shell);
        command
            .arg0(name)
            .current_dir(directory)
            .stdin(terminal.try_clone()?)
            .stdout(terminal.try_clone()?)
            .stderr(terminal)
            .envs(self.gateway_environment().into_iter().filter(|(name, _)| env::var_os(name).is_none()))
            .env("TERM", "xterm-256color")
            .env("COLORTERM", "truecolor")
            .env("SHELL", &shell)
            .env(proc_table::ITEM_VARIABLE, item)
            .env(proc_table::OWNER_VARIABLE, proc_table::OWNER_USER);
        if ["LC_ALL", "LC_CTYPE", "LANG"].iter().all(|name| env::var_os(name).is_none()) {
            // Without a character set, shells take each byte of a character for a key.
            command.env("LANG", "C.UTF-8");
        }
        // SAFETY: both calls are system calls alone, and allocate nothing.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = self.spawn_with_reserve(&mut command)?;
        // A child that was just spawned and not waited for has a pid.
        let pid = child.id().map_or(0, |pid| pid as i32);
        self.terminal_shells().insert(pid, item.to_owned());
        Ok(TerminalShell { child, pid })
    }

    /// Records that the shell of a terminal has been waited for. Background processes that it left
    /// are leftovers from now on.
    pub fn forget_terminal(&self, pid: i32) {
        self.terminal_shells().remove(&pid);
        self.0.leftovers_changed.notify_one();
    }

    /// Kills everything in a terminal: what is below its shell, if that runs, and what has its
    /// mark.
    pub async fn kill_terminal(&self, item: &str, shell: Option<i32>) {
        let roots: Vec<i32> = shell.into_iter().collect();
        let mut tree = proc_table::descendants().map(|rows| ProcessTree::of(&rows, &roots)).unwrap_or_default();
        if let Some(group) = shell.and_then(Pid::from_raw) {
            // The group may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.kill_until_gone(OwnerMarks::Read, |rows| {
            tree.grow(rows);
            rows.retain(|row| tree.contains(row) || row.item.as_deref() == Some(item));
        })
        .await;
    }

    /// Returns the processes below the shells of all terminals.
    pub(super) fn terminal_tree(&self, rows: &[ProcessRow]) -> ProcessTree {
        let roots: Vec<i32> = self.terminal_shells().keys().copied().collect();
        ProcessTree::of(rows, &roots)
    }

    pub(super) fn terminal_shells(&self) -> MutexGuard<'_, HashMap<i32, String>> {
        self.0.terminal_shells.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Returns the shell of the user: `$SHELL`, the entry of the password file, `bash`, or `sh`.
fn login_shell() -> String {
    let own = env::var("SHELL").ok().filter(|shell| is_login_shell(shell));
    own.or_else(|| {
        let passwords = fs::read_to_string("/etc/passwd").unwrap_or_default();
        shell_of_user(&passwords, rustix::process::getuid().as_raw()).filter(|shell| is_login_shell(shell))
    })
    .unwrap_or_else(|| shell().to_owned())
}

fn shell_of_user(passwords: &str, uid: u32) -> Option<String> {
    let mut entries = passwords.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let entry = entries.find(|fields| fields.get(2).and_then(|field| field.parse().ok()) == Some(uid))?;
    entry.get(6).map(|shell| (*shell).to_owned())
}

fn is_login_shell(path: &str) -> bool {
    let is_executable =
        || fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    path.starts_with('/') && !NO_LOGIN.iter().any(|name| path.ends_with(name)) && is_executable()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_comes_from_the_users_entry() {
        let passwords = "root:x:0:0:root:/root:/bin/bash\nbroken\nagent:x:1000:1000::/home/agent:/bin/zsh\n";
        for (uid, shell) in [(0, Some("/bin/bash")), (1000, Some("/bin/zsh")), (7, None)] {
            assert_eq!(shell_of_user(passwords, uid).as_deref(), shell, "{uid}");
        }
        assert!(is_login_shell("/bin/sh"));
        for none in ["sh", "/usr/sbin/nologin", "/bin/false", "/etc/passwd", "/missing"] {
            assert!(!is_login_shell(none), "{none}");
        }
    }
}
