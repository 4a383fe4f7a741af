//! Programs that terminals and files are measured beside: the engine's own commands, and node-pty.

use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command as StdCommand, Stdio},
    time::{Duration, Instant},
};

use nix::pty::openpty;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

/// Packages of the echo server.
const PACKAGES: [&str; 2] = ["node-pty@1.1.0", "ws@8"];

/// `docker exec -it`, with a terminal of its own as a person has one.
pub(super) struct DockerExec {
    child: Child,
    terminal: File,
}

impl DockerExec {
    /// Starts a command in a container, and waits until it prints `READY`.
    pub(super) fn start(container: &str, command: &str) -> DockerExec {
        let pty = openpty(None, None).expect("a terminal is free");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        let mut child = StdCommand::new("docker");
        child.args(["exec", "-it", container, "sh", "-c", command]).stdin(end()).stdout(end()).stderr(end());
        let child = child.spawn().expect("docker is there");
        let mut exec = DockerExec { child, terminal: File::from(pty.master) };
        let mut seen = String::new();
        while !seen.contains("READY\n") && !seen.contains("READY\r\n") {
            seen.push_str(&String::from_utf8_lossy(&exec.output()));
        }
        exec
    }

    /// Types a key, and returns the time until it comes back.
    pub(super) fn echo(&mut self, key: u8) -> Duration {
        let began = Instant::now();
        self.terminal.write_all(&[key]).expect("the terminal is open");
        while !self.output().contains(&key) {}
        began.elapsed()
    }

    fn output(&mut self) -> Vec<u8> {
        let mut buffer = vec![0; 4096];
        let length = self.terminal.read(&mut buffer).expect("the terminal is open");
        buffer.truncate(length);
        buffer
    }
}

impl Drop for DockerExec {
    fn drop(&mut self) {
        // The command ends with its client.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Echo server on node-pty and ws, with a shell of its own for each client.
pub(super) struct NodePty {
    pub(super) port: u16,
    _process: tokio::process::Child,
}

impl NodePty {
    /// Starts the server. The shells start in `directory`.
    ///
    /// # Errors
    /// Node or npm is missing, or the packages cannot be installed.
    pub(super) async fn start(directory: &Path) -> Result<NodePty, String> {
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("node-pty");
        std::fs::create_dir_all(&home).map_err(|e| format!("`{}`: {e}", home.display()))?;
        let script = home.join("server.mjs");
        std::fs::write(&script, include_str!("node_pty.mjs")).map_err(|e| format!("`{}`: {e}", script.display()))?;
        if !home.join("node_modules/node-pty").is_dir() {
            let mut npm = Command::new("npm");
            npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"]).arg(&home).args(PACKAGES);
            let output = npm.output().await.map_err(|e| format!("npm: {e}"))?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        let mut node = Command::new("node");
        node.arg(&script).arg(directory).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = node.spawn().map_err(|e| format!("node: {e}"))?;
        let mut line = String::new();
        let output = process.stdout.take().expect("the output is a pipe");
        BufReader::new(output).read_line(&mut line).await.map_err(|e| format!("node: {e}"))?;
        let port = line.trim().parse().map_err(|_| "the server on node-pty did not start".to_owned())?;
        Ok(NodePty { port, _process: process })
    }
}

pub(super) async fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().await.expect("docker is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
