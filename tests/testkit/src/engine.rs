//! Docker engine of a test's own.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;

use super::host;

/// Image that is small enough to be copied from engine to engine.
pub const IMAGE: &str = "greenroom-test-busybox:latest";

/// Docker engine of a test's own, which the test may stop. Other tests use the machine's engine at
/// the same time.
pub struct TestEngine {
    home: tempfile::TempDir,
    child: Child,
}

impl TestEngine {
    /// Starts an engine. Returns `None` if the image or the programs are missing.
    pub fn start() -> Option<TestEngine> {
        let saved = Command::new("docker").args(["save", IMAGE]).stderr(Stdio::null()).output().ok()?;
        if !saved.status.success() {
            return None;
        }
        let home = tempfile::Builder::new().prefix("greenroom-engine-").tempdir().expect("a directory");
        let child = TestEngine::spawn(home.path());
        let engine = TestEngine { home, child };
        engine.until_it_answers();
        let archive = engine.home.path().join("image.tar");
        std::fs::write(&archive, saved.stdout).expect("there is room");
        engine.docker(&["load", "--input", archive.to_str().expect("a path")]).expect("the image is loaded");
        Some(engine)
    }

    fn spawn(home: &Path) -> Child {
        let log = std::fs::File::create(home.join("log")).expect("a log");
        let at = |name: &str| home.join(name).display().to_string();
        Command::new("dockerd")
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--host", &format!("unix://{}", at("sock")), "--bridge", "none"])
            .args(["--iptables=false", "--ip6tables=false"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("`dockerd` can be started")
    }

    fn until_it_answers(&self) {
        let answers = (0..150).any(|_| {
            std::thread::sleep(Duration::from_millis(200));
            self.docker(&["version"]).is_some()
        });
        let log = std::fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        assert!(answers, "the engine does not start: {}", log.lines().last().unwrap_or_default());
    }

    /// Ends the engine with this signal (`TERM`: as a service manager does) and starts it again.
    pub fn restart(&mut self, with: Signal) {
        let parts = host::children(self.child.id() as i32);
        self.signal(with);
        if with == Signal::KILL {
            // The engine's containerd does not outlive it. Without a process that reaps it, the
            // next engine would wait for the old containerd in vain.
            parts.into_iter().for_each(|part| host::kill(part, with));
            let _not_written = std::fs::remove_file(self.home.path().join("exec/containerd/containerd.pid"));
        }
        let _ended = self.child.wait();
        self.child = TestEngine::spawn(self.home.path());
        self.until_it_answers();
    }

    pub fn address(&self) -> String {
        format!("unix://{}", self.home.path().join("sock").display())
    }

    fn docker(&self, args: &[&str]) -> Option<String> {
        let output = Command::new("docker").args(["--host", &self.address()]).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    pub fn containers(&self) -> usize {
        self.docker(&["ps", "--all", "--quiet"]).expect("the engine answers").lines().count()
    }

    pub fn signal(&self, signal: Signal) {
        host::kill(self.child.id() as i32, signal);
    }
}

impl Drop for TestEngine {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        if let Some(containers) = self.docker(&["ps", "--all", "--quiet"]) {
            let ids: Vec<&str> = containers.lines().collect();
            self.docker(&[&["rm", "--force"], &ids[..]].concat());
        }
        self.signal(Signal::TERM);
        let _ended = self.child.wait();
    }
}
