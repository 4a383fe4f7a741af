//! Server under test: the product's own binary, on a free port, with a data directory of its own.

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

/// Options that a server is started with.
#[derive(Debug, Clone)]
pub struct TestServerOptions {
    /// Value of `--sandbox`.
    sandbox: &'static str,
    bind: String,
    args: Vec<OsString>,
    env: Vec<(String, String)>,
    /// Log file. Default: a file in the server's home.
    log: Option<PathBuf>,
}

impl TestServerOptions {
    /// Returns options for the demo model without its delay between tokens.
    pub fn new(driver: TestDriver) -> TestServerOptions {
        let (args, env) = (Vec::new(), Vec::new());
        let options = TestServerOptions { sandbox: driver.name(), bind: "127.0.0.1:0".into(), args, env, log: None };
        options.env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "0").env("GREENROOM_SANDBOX__IMAGE", IMAGE)
    }

    /// Returns options for a scripted model in Anthropic's format.
    pub fn anthropic(driver: TestDriver, model: &ScriptedModel) -> TestServerOptions {
        TestServerOptions::new(driver).model("anthropic/scripted", &model.url())
    }

    /// Returns options for a scripted model in OpenAI's format.
    pub fn openai(driver: TestDriver, model: &ScriptedModel) -> TestServerOptions {
        TestServerOptions::new(driver).model("openai/scripted", &format!("{}/v1", model.url()))
    }

    fn model(self, name: &str, url: &str) -> TestServerOptions {
        self.env("LLM_MODEL", name).env("LLM_BASE_URL", url).env("LLM_API_KEY", KEY)
    }

    /// Sets another sandbox driver, or `auto`.
    pub fn sandbox(self, name: &'static str) -> TestServerOptions {
        TestServerOptions { sandbox: name, ..self }
    }

    pub fn bind(self, bind: &str) -> TestServerOptions {
        TestServerOptions { bind: bind.to_owned(), ..self }
    }

    pub fn log_to(self, path: &str) -> TestServerOptions {
        TestServerOptions { log: Some(path.into()), ..self }
    }

    pub fn env(mut self, name: &str, value: &str) -> TestServerOptions {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn arg(mut self, arg: impl Into<OsString>) -> TestServerOptions {
        self.args.push(arg.into());
        self
    }
}

/// Model key of all servers under test. The key must never appear in any output.
pub const KEY: &str = "sk-canary-7f3a9c1e5b";

/// Running server. When dropped, it ends, with all its sandboxes and its data.
pub struct TestServer {
    child: Child,
    pub rest: RestClient,
    options: TestServerOptions,
    home: TestServerHome,
}

/// Directory of a server's log and data. Removed when dropped.
pub struct TestServerHome {
    /// Dropped before the directory that it is mounted in.
    disk: Option<TestDisk>,
    dir: TempDir,
    /// Open resources of the first server here, before its first session. Empty before that server
    /// starts.
    fresh: leftovers::OpenResources,
}

/// Server that has ended, and its data on disk.
pub struct StoppedServer {
    options: TestServerOptions,
    home: TestServerHome,
}

/// Output of a server that failed to start.
#[derive(Debug)]
pub struct FailedServerStart {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl TestServerHome {
    #[expect(clippy::new_without_default, reason = "creating a directory is no default")]
    pub fn new() -> TestServerHome {
        let dir = tempfile::Builder::new().prefix("greenroom-it-").tempdir().expect("a temporary directory");
        TestServerHome { disk: None, dir, fresh: leftovers::OpenResources::new() }
    }

    /// Returns a home with the data on a disk of their own, or `None` without the right to mount.
    pub fn on_a_disk() -> Option<TestServerHome> {
        let home = TestServerHome::new();
        let disk = TestDisk::mount(&data(home.path()))?;
        Some(TestServerHome { disk: Some(disk), ..home })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl TestServer {
    pub async fn start(options: TestServerOptions) -> TestServer {
        TestServer::start_in(TestServerHome::new(), options).await
    }

    pub async fn start_in(home: TestServerHome, options: TestServerOptions) -> TestServer {
        let mut child = command(home.path(), &options)
            .stdout(Stdio::piped())
            .stderr(log_file(options.log.as_deref().unwrap_or(&log_path(home.path()))))
            .kill_on_drop(true)
            .spawn()
            .expect("the binary that cargo built starts");
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let line = within("the server's one line on stdout", lines.next_line()).await.expect("stdout is text");
        let Some(line) = line else {
            panic!("the server ended before it was ready:\n{}", tail(&log_path(home.path())));
        };
        // The pipe stays open. Any further line is a fault.
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

    /// Starts a server that must fail to start, and waits for its end.
    pub async fn refused(home: &Path, options: &TestServerOptions) -> FailedServerStart {
        let output = within("the server's failed start", command(home, options).kill_on_drop(true).output()).await;
        let output = output.expect("the binary that cargo built starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        FailedServerStart { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns the directory of the data and the log.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn data(&self) -> PathBuf {
        data(self.home.path())
    }

    pub fn disk(&self) -> Option<&TestDisk> {
        self.home.disk.as_ref()
    }

    pub fn pid(&self) -> i32 {
        let id = self.child.id().expect("the server has not ended");
        id.try_into().expect("process ids are small")
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(log_path(self.home.path())).expect("the log is text")
    }

    /// Replaces the token with another process, and returns the new token.
    pub async fn renew_token(&self) -> String {
        self.run(&["token", "--renew"]).await.expect("the token is replaced").trim().to_owned()
    }

    /// Runs another command of the same program on the same data. Returns its output, or its stderr
    /// if it failed.
    pub async fn run(&self, args: &[&str]) -> Result<String, String> {
        run(self.home.path(), &self.options, args).await
    }

    /// Kills the server, as a power cut would.
    pub async fn kill9(mut self) -> StoppedServer {
        self.child.kill().await.expect("the server runs");
        self.ended()
    }

    /// Ends the server with `SIGTERM`.
    pub async fn terminate(mut self) -> (ExitStatus, StoppedServer) {
        host::kill(self.pid(), Signal::TERM);
        let status =
            within("the server to end", self.child.wait()).await.expect("the server is a child of this process");
        (status, self.ended())
    }

    /// Returns the open resources of this home's first server before its first session.
    pub fn fresh(&self) -> &leftovers::OpenResources {
        &self.home.fresh
    }

    /// Purges every session and checks that nothing of them is left on this host.
    pub async fn leaves_nothing(&self) {
        let left = leftovers::of(self).await;
        assert!(left.is_empty(), "left behind: {left:#?}");
    }

    pub fn signal(&self, signal: Signal) {
        host::kill(self.pid(), signal);
    }

    /// Waits for the server's end.
    pub async fn wait(&mut self) -> ExitStatus {
        within("the server to end", self.child.wait()).await.expect("the server is a child of this process")
    }

    fn ended(mut self) -> StoppedServer {
        StoppedServer { options: self.options.clone(), home: std::mem::replace(&mut self.home, TestServerHome::new()) }
    }
}

impl StoppedServer {
    /// Returns a stopped server without a run before it, in `dir`.
    pub fn nowhere(dir: TempDir, options: TestServerOptions) -> StoppedServer {
        StoppedServer { options, home: TestServerHome { disk: None, dir, fresh: leftovers::OpenResources::new() } }
    }

    /// Runs another command of the same program on the same data. Returns its output, or its stderr
    /// if it failed.
    pub async fn run(&self, args: &[&str]) -> Result<String, String> {
        run(self.home.path(), &self.options, args).await
    }

    /// Starts the server again on the same data.
    pub async fn restart(mut self) -> TestServer {
        let home = std::mem::replace(&mut self.home, TestServerHome::new());
        TestServer::start_in(home, self.options.clone()).await
    }

    /// Starts the server again on the same data, with changed options.
    pub async fn restart_with(mut self, change: impl FnOnce(TestServerOptions) -> TestServerOptions) -> TestServer {
        self.options = change(self.options.clone());
        self.restart().await
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn data(&self) -> PathBuf {
        data(self.home.path())
    }

    pub fn disk(&mut self) -> Option<&mut TestDisk> {
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

/// Returns the exit code of a process, or 128 plus the signal that ended it.
pub fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn command(home: &Path, options: &TestServerOptions) -> Command {
    let mut command = Command::new(crate::greenroom_binary());
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

pub fn data(home: &Path) -> PathBuf {
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
