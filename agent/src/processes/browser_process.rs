//! Browser of the tools: kept like the shell of a terminal. It is no leftover, and no interrupt of
//! a turn ends it.

use std::{io, path::Path, process::Stdio};

use tokio::process::{Child, Command};

use super::{ChildProcesses, proc_table};

/// Script that hands its stdin and stdout to the program as descriptors 3 and 4.
const ON_PIPES: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1"#;

/// Mark of the browser's processes.
const BROWSER_ITEM: &str = "browser";

/// Running browser. Its holder ends it with [`ChildProcesses::kill_browser`].
#[derive(Debug)]
pub struct BrowserProcess {
    /// Its stdin takes the commands, and its stdout has the answers.
    pub child: Child,
    pid: i32,
}

impl ChildProcesses {
    /// Starts a browser that reads commands from descriptor 3 and writes answers to descriptor 4.
    /// Its files go below `profile`.
    ///
    /// # Errors
    /// Fails if no process can be started.
    pub fn spawn_browser(&self, program: &Path, arguments: &[String], profile: &Path) -> io::Result<BrowserProcess> {
        let mut command = Command::new("sh");
        command
            .args(["-c", ON_PIPES])
            .arg(program)
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .env("XDG_CONFIG_HOME", profile)
            .env("XDG_CACHE_HOME", profile)
            .env(proc_table::ITEM_VARIABLE, BROWSER_ITEM)
            .env(proc_table::OWNER_VARIABLE, proc_table::OWNER_USER);
        let child = self.spawn_with_reserve(&mut command)?;
        // A child that was just spawned and not waited for has a pid.
        let pid = child.id().map_or(0, |pid| pid as i32);
        self.terminal_shells().insert(pid, BROWSER_ITEM.to_owned());
        Ok(BrowserProcess { child, pid })
    }

    /// Kills the browser and everything below it. Returns when nothing of it is left.
    pub async fn kill_browser(&self, mut browser: BrowserProcess) {
        self.kill_terminal(BROWSER_ITEM, Some(browser.pid)).await;
        // The browser is dead; only its exit status is reaped.
        let _ = browser.child.wait().await;
        self.forget_terminal(browser.pid);
    }

    /// Returns the loopback port of the model gateway.
    pub fn gateway_port(&self) -> Option<u16> {
        self.0.gateway_url.as_ref()?.rsplit(':').next()?.parse().ok()
    }
}
