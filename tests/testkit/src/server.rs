//! The product's own binary, started on a free port with a data directory of its own.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{
    disk::TestDisk,
    driver::{IMAGE, TestDriver},
    host, leftovers,
    model::ScriptedModel,
    rest::RestClient,
    within,
};

/// How a server is started.
#[derive(Debug, Clone)]
pub(crate) struct TestServerOptions {
    /// As `--sandbox` names it.
    sandbox: &'static str,
    bind: String,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    /// Where it logs to; a file in its home if nothing else is said.
    log: Option<PathBuf>,
}

impl TestServerOptions {
    /// With the demo model, as fast as it can.
    pub(crate) fn new(driver: TestDriver) -> TestServerOptions {
        let (args, env) = (Vec::new(), Vec::new());
        let options = TestServerOptions { sandbox: driver.name(), bind: "127.0.0.1:0".into(), args, env, log: None };
        options.env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "0").env("GREENROOM_SANDBOX__IMAGE", IMAGE)
    }

    /// With a scripted model that speaks Anthropic's format.
    pub(crate) fn anthropic(driver: TestDriver, model: &ScriptedModel) -> TestServerOptions {
        TestServerOptions::new(driver).model("anthropic/scripted", &model.url())
    }

    /// With a scripted model that speaks OpenAI's format.
    pub(crate) fn openai(driver: TestDriver, model: &ScriptedModel) -> TestServerOptions {
        TestServerOptions::new(driver).model("openai/scripted", &format!("{}/v1", model.url()))
    }

    fn model(self, name: &str, url: &str) -> TestServerOptions {
        self.env("LLM_MODEL", name).env("LLM_BASE_URL", url).env("LLM_API_KEY", KEY)
    }

    /// With another sandbox driver, or `auto`.
    pub(crate) fn sandbox(self, name: &'static str) -> TestServerOptions {
        TestServerOptions { sandbox: name, ..self }
    }

    pub(crate) fn bind(self, bind: &str) -> TestServerOptions {
        TestServerOptions { bind: bind.to_owned(), ..self }
    }

    pub(crate) fn log_to(self, path: &str) -> TestServerOptions {
        TestServerOptions { log: Some(path.into()), ..self }
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> TestServerOptions {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn arg(mut self, arg: impl Into<OsString>) -> TestServerOptions {
        self.args.push(arg.into());
        self
    }
}

/// The model key that servers are given: it must never be seen anywhere.
pub(crate) const KEY: &str = "sk-canary-7f3a9c1e5b";

/// A running server, ended when dropped, with all its sandboxes and its data.
pub(crate) struct TestServer {
    child: Child,
    pub(crate) rest: RestClient,
    options: TestServerOptions,
    home: TestServerHome,
}

/// Where a server's log and data are; removed when dropped.
pub(crate) struct TestServerHome {
    /// Before the directory that it is mounted in.
    disk: Option<TestDisk>,
    dir: TempDir,
    /// What the first server here held open before it had a session; empty before there was one.
    fresh: leftovers::OpenResources,
}

/// A server that has ended, and what it left on disk.
pub(crate) struct StoppedServer {
    options: TestServerOptions,
    home: TestServerHome,
}

/// What a server that did not come up said.
#[derive(Debug)]
pub(crate) struct FailedServerStart {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl TestServerHome {
    pub(crate) fn new() -> TestServerHome {
        let dir = tempfile::Builder::new().prefix("greenroom-it-").tempdir().expect("a temporary directory");
        TestServerHome { disk: None, dir, fresh: leftovers::OpenResources::new() }
    }

    /// With the data on a disk of their own; `None` where nobody may mount one.
    pub(crate) fn on_a_disk() -> Option<TestServerHome> {
        let home = TestServerHome::new();
        let disk = TestDisk::mount(&data(home.path()))?;
        Some(TestServerHome { disk: Some(disk), ..home })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl TestServer {
    pub(crate) async fn start(options: TestServerOptions) -> TestServer {
        TestServer::start_in(TestServerHome::new(), options).await
    }

    pub(crate) async fn start_in(home: TestServerHome, options: TestServerOptions) -> TestServer {
        let mut child = command(home.path(), &options)
            .stdout(Stdio::piped())
            .stderr(log_file(options.log.as_deref().unwrap_or(&log_path(home.path()))))
            .kill_on_drop(true)
            .spawn()
            .expect("the binary that cargo built starts");
        let stdout = child.stdout.take().expect("its stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let line = within("the server's one line on stdout", lines.next_line()).await.expect("its stdout is text");
        let Some(line) = line else {
            panic!("the server ended before it was ready:\n{}", tail(&log_path(home.path())));
        };
        // The pipe stays open, and whatever else comes there is a fault.
        tokio::spawn(async move {
            if let Ok(Some(line)) = lines.next_line().await {
                panic!("a second line on stdout: {line}");
            }
        });
        let mut server = TestServer { child, rest: RestClient::from_line(&line), options, home };
        if server.home.fresh.is_empty() {
            server.home.fresh = leftovers::open(server.pid());
        }
        server
    }

    /// Starts one that must not come up, and waits for its end.
    pub(crate) async fn refused(home: &Path, options: &TestServerOptions) -> FailedServerStart {
        let output = within("the server to refuse", command(home, options).kill_on_drop(true).output()).await;
        let output = output.expect("the binary that cargo built starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        FailedServerStart { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Where its data directory and its log are.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        data(self.home.path())
    }

    pub(crate) fn disk(&self) -> Option<&TestDisk> {
        self.home.disk.as_ref()
    }

    pub(crate) fn pid(&self) -> i32 {
        let id = self.child.id().expect("it has not been waited for");
        id.try_into().expect("process ids are small")
    }

    /// All that it has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(log_path(self.home.path())).expect("its log is text")
    }

    /// Has another process replace its token, and returns the new one.
    pub(crate) async fn renew_token(&self) -> String {
        self.run(&["token", "--renew"]).await.expect("it is replaced").trim().to_owned()
    }

    /// Runs another command of the same program on the same data: what it writes, or why it failed.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<String, String> {
        run(self.home.path(), &self.options, args).await
    }

    /// Ends it as a power cut would.
    pub(crate) async fn kill9(mut self) -> StoppedServer {
        self.child.kill().await.expect("it was running");
        self.ended()
    }

    /// Asks it to end.
    pub(crate) async fn terminate(mut self) -> (ExitStatus, StoppedServer) {
        host::kill(self.pid(), Signal::TERM);
        let status = within("the server to end", self.child.wait()).await.expect("it is our child");
        (status, self.ended())
    }

    /// What the first server of this home held open before it had a session.
    pub(crate) fn fresh(&self) -> &leftovers::OpenResources {
        &self.home.fresh
    }

    /// Purges every session: then nothing of them is left on this host.
    pub(crate) async fn leaves_nothing(&self) {
        let left = leftovers::of(self).await;
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        host::kill(self.pid(), signal);
    }

    /// Waits for its end.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        within("the server to end", self.child.wait()).await.expect("it is our child")
    }

    fn ended(mut self) -> StoppedServer {
        StoppedServer { options: self.options.clone(), home: std::mem::replace(&mut self.home, TestServerHome::new()) }
    }
}

impl StoppedServer {
    /// As if one had been, which left nothing.
    pub(crate) fn nowhere(dir: TempDir, options: TestServerOptions) -> StoppedServer {
        StoppedServer { options, home: TestServerHome { disk: None, dir, fresh: leftovers::OpenResources::new() } }
    }

    /// Runs another command of the same program on the same data: what it writes, or why it failed.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<String, String> {
        run(self.home.path(), &self.options, args).await
    }

    /// Starts it again on the same data.
    pub(crate) async fn restart(mut self) -> TestServer {
        let home = std::mem::replace(&mut self.home, TestServerHome::new());
        TestServer::start_in(home, self.options.clone()).await
    }

    /// Starts it again on the same data, otherwise.
    pub(crate) async fn restart_with(
        mut self,
        change: impl FnOnce(TestServerOptions) -> TestServerOptions,
    ) -> TestServer {
        self.options = change(self.options.clone());
        self.restart().await
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        data(self.home.path())
    }

    pub(crate) fn disk(&mut self) -> Option<&mut TestDisk> {
        self.home.disk.as_mut()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log ends with:\n{}", tail(&log_path(self.home.path())));
        }
        let _ended_already = self.child.start_kill();
        host::clear(self.home.path());
    }
}

impl Drop for StoppedServer {
    fn drop(&mut self) {
        host::clear(self.home.path());
    }
}

/// How a process ended, in one number: its exit code, or 128 and the signal.
pub(crate) fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn command(home: &Path, options: &TestServerOptions) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_greenroom"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["GREENROOM_", "LLM_", "ANTHROPIC_", "OPENAI_", "SANDBOX_", "XDG_"].iter().any(|mine| name.starts_with(mine))
        {
            command.env_remove(&*name);
        }
    }
    command
        .args(["--bind", &options.bind, "--sandbox", options.sandbox, "--data"])
        .arg(data(home))
        .args(&options.args)
        .env("XDG_CONFIG_HOME", home)
        .envs(options.env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    command
}

async fn run(home: &Path, options: &TestServerOptions, args: &[&str]) -> Result<String, String> {
    let output = within("a command", command(home, options).args(args).output()).await;
    let output = output.expect("the binary that cargo built starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

pub(crate) fn data(home: &Path) -> PathBuf {
    home.join("data")
}

fn log_path(home: &Path) -> PathBuf {
    home.join("server.log")
}

fn log_file(path: &Path) -> File {
    File::options().create(true).append(true).open(path).expect("the log can be opened")
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
