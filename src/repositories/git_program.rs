//! The host's `git`, with a closed environment.
//!
//! Each call names its repository. No call has a workspace as its repository or as its working
//! directory. The environment is empty but for the variables below, so no configuration of the
//! host's users applies. Docs: git(1), section Environment Variables.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use bytesize::ByteSize;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::error::RepositoryError;

/// Longest output that is read, bytes.
const OUTPUT_BYTES: u64 = 4 << 20;
/// Longest text of a failure, bytes.
const DETAIL_BYTES: usize = 500;
/// Interval between two measurements of a growing directory.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// Time limit for a credential helper.
const HELPER_TIMEOUT: Duration = Duration::from_secs(20);

/// Settings that precede those of any repository. Nothing here may run a program.
const SETTINGS: [&str; 22] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.askPass=",
    "core.sshCommand=false",
    "core.alternateRefsCommand=true",
    "credential.helper=",
    "credential.interactive=false",
    "fetch.recurseSubmodules=false",
    "fetch.unpackLimit=1",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "gpg.program=false",
    "http.followRedirects=false",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=300",
    "maintenance.auto=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "transfer.bundleURI=false",
];

/// Configuration for the programs that git starts for a directory of this host. Such programs get
/// no settings from the command line.
const CONFIG_FILE: &str = "[safe]\n\tdirectory = *\n[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n\
                           [credential]\n\thelper =\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n";

/// Helper that answers from the environment, for one host. No credential is on a command line.
const HELPER: &str = "credential.helper=!f() { test \"$1\" = get || exit 0; h=; while read -r l && test -n \"$l\"; do \
                      case \"$l\" in host=*) h=\"${l#*=}\";; esac; done; test \"$h\" = \"$GREENROOM_GIT_HOST\" || exit 0; \
                      printf 'username=%s\\npassword=%s\\n' \"$GREENROOM_GIT_USERNAME\" \"$GREENROOM_GIT_PASSWORD\"; }; f";

/// Variables of the server that git gets: the way to its parts, and to proxies.
const PASSED_VARIABLES: [&str; 9] = [
    "PATH",
    "HTTPS_PROXY",
    "https_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Transport that a call may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitTransport {
    None,
    /// Directories of this host.
    File,
    Https,
    /// Unencrypted, for loopback names.
    Http,
}

impl GitTransport {
    /// Returns git's name of the transport.
    fn protocol(self) -> &'static str {
        match self {
            GitTransport::None => "none",
            GitTransport::File => "file",
            GitTransport::Https => "https",
            GitTransport::Http => "http",
        }
    }
}

/// User name and secret for one host.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct GitCredential {
    pub(super) host: String,
    pub(super) username: String,
    pub(super) password: String,
}

/// Call of git.
pub(super) struct GitCall {
    pub(super) args: Vec<OsString>,
    pub(super) transport: GitTransport,
    pub(super) credential: Option<GitCredential>,
    pub(super) stdin: Option<fs::File>,
    /// Directory that grows, and the limit on its size.
    pub(super) growing: Option<(PathBuf, ByteSize)>,
}

/// Failed call, with its output.
#[derive(Debug)]
pub(super) struct GitFailure {
    pub(super) stdout: String,
    /// Lines of git for a person, without control characters and credentials.
    pub(super) stderr: String,
}

impl GitFailure {
    /// Returns the reason in one line.
    pub(super) fn detail(&self) -> String {
        let is_reason = |line: &&str| ["fatal: ", "error: ", "remote: "].iter().any(|begin| line.starts_with(begin));
        let reasons: Vec<&str> = self.stderr.lines().filter(is_reason).collect();
        let text = if reasons.is_empty() { self.stderr.trim().to_owned() } else { reasons.join("; ") };
        let text = text.replace("fatal: ", "").replace("error: ", "");
        let end = text.floor_char_boundary(DETAIL_BYTES);
        if end == 0 { "no reason given".to_owned() } else { text[..end].to_owned() }
    }

    /// Returns true if the server asks for a credential.
    pub(super) fn wants_credential(&self) -> bool {
        let signs = [
            "could not read Username",
            "unable to get password from user",
            "Authentication failed",
            "error: 401",
            "error: 403",
        ];
        signs.iter().any(|sign| self.stderr.contains(sign))
    }
}

/// Program `git` of this host.
#[derive(Debug)]
pub(super) struct GitProgram {
    /// Empty directory: `HOME` and the working directory.
    home: PathBuf,
    time_limit: Duration,
}

impl GitProgram {
    pub(super) fn new(home: PathBuf, time_limit: Duration) -> GitProgram {
        GitProgram { home, time_limit }
    }

    /// Runs git and returns its output.
    ///
    /// Dropping the future ends git with all its children.
    ///
    /// # Errors
    /// The outer error: git did not run to its end. The inner error: git failed.
    pub(super) async fn run(&self, call: GitCall) -> Result<Result<String, GitFailure>, RepositoryError> {
        let config = self.home.with_extension("config");
        if !config.exists() {
            fs::create_dir_all(&self.home)?;
            fs::write(&config, CONFIG_FILE)?;
        }
        let mut command = Command::new("git");
        command.env_clear().current_dir(&self.home).process_group(0).kill_on_drop(true);
        command.envs(PASSED_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env("HOME", &self.home).env("GIT_CONFIG_GLOBAL", &config).env("GIT_CEILING_DIRECTORIES", "/");
        command.envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_PROTOCOL_FROM_USER", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_PAGER", "cat"),
            ("LC_ALL", "C"),
        ]);
        command.env("GIT_ALLOW_PROTOCOL", call.transport.protocol());
        command.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        if let Some(GitCredential { host, username, password }) = &call.credential {
            command.args(["-c", HELPER]);
            command.env("GREENROOM_GIT_HOST", host).env("GREENROOM_GIT_USERNAME", username);
            command.env("GREENROOM_GIT_PASSWORD", password);
        }
        command.args(&call.args);
        command.stdin(call.stdin.map_or_else(Stdio::null, Stdio::from)).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command)?;
        let mut group = ProcessGroup::of(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ended = async { tokio::join!(read_bounded(stdout), read_bounded(stderr), child.wait()) };
        let (stdout, stderr, status) = tokio::select! {
            ended = timeout(self.time_limit, ended) => {
                ended.map_err(|_| RepositoryError::TimedOut(self.time_limit.as_secs()))?
            }
            error = until_too_large(call.growing) => return Err(error),
        };
        let status = status?;
        group.has_ended();
        if status.success() {
            return Ok(Ok(stdout));
        }
        let hide = |text: String| match &call.credential {
            Some(credential) => text.replace(&credential.password, "…"),
            None => text,
        };
        let stderr = hide(stderr).chars().filter(|c| *c == '\n' || !c.is_control()).collect::<String>();
        if stderr.contains("No space left on device") || stderr.contains("Disk quota exceeded") {
            return Err(RepositoryError::DiskFull);
        }
        Ok(Err(GitFailure { stdout: hide(stdout), stderr }))
    }

    /// Asks the credential helpers of the server's user, with that user's environment. No
    /// repository is involved, and no helper may ask a person.
    pub(super) async fn ask_helpers(&self, transport: GitTransport, host: &str) -> Option<GitCredential> {
        let mut command = Command::new("git");
        command.args(["-c", "core.askPass=", "-c", "credential.interactive=false", "credential", "fill"]);
        command.current_dir(&self.home).process_group(0).kill_on_drop(true).env("GIT_CEILING_DIRECTORIES", "/");
        command.env("GIT_TERMINAL_PROMPT", "0").env_remove("GIT_ASKPASS").env_remove("SSH_ASKPASS");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = spawn(&mut command).ok()?;
        let mut group = ProcessGroup::of(&child);
        let (mut stdin, stdout) = (child.stdin.take()?, child.stdout.take());
        let filled = timeout(HELPER_TIMEOUT, async {
            let _ended_early =
                stdin.write_all(format!("protocol={}\nhost={host}\n\n", transport.protocol()).as_bytes()).await;
            drop(stdin);
            tokio::join!(read_bounded(stdout), child.wait())
        });
        let (text, status) = filled.await.ok()?;
        group.has_ended();
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let (username, password) = (value("username="), value("password="));
        let credential = GitCredential { host: host.to_owned(), username: username?, password: password? };
        status.is_ok_and(|status| status.success() && !credential.password.is_empty()).then_some(credential)
    }
}

impl GitCall {
    /// Returns a call without a transport.
    pub(super) fn plain(args: &[&str]) -> GitCall {
        let args = args.iter().map(OsString::from).collect();
        GitCall { args, transport: GitTransport::None, credential: None, stdin: None, growing: None }
    }

    /// Returns a call without a transport, in a repository of the server's own.
    pub(super) fn local(repository: &Path, args: &[&str]) -> GitCall {
        args.iter().fold(GitCall::plain(&["--git-dir"]).arg(repository), |call, arg| call.arg(arg))
    }

    pub(super) fn arg(mut self, arg: impl AsRef<OsStr>) -> GitCall {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    pub(super) fn over(self, transport: GitTransport) -> GitCall {
        GitCall { transport, ..self }
    }
}

fn spawn(command: &mut Command) -> Result<Child, RepositoryError> {
    command.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => RepositoryError::NoGit,
        _ => RepositoryError::Io(e),
    })
}

/// Processes of a call. Killed when dropped before their end.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> ProcessGroup {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        ProcessGroup(id.and_then(Pid::from_raw))
    }

    fn has_ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _has_ended = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads the beginning of a stream as text. Further output ends the program.
async fn read_bounded(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        let _as_far_as_it_came = stream.take(OUTPUT_BYTES).read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Completes when the directory is larger than its limit.
async fn until_too_large(growing: Option<(PathBuf, ByteSize)>) -> RepositoryError {
    let Some((dir, limit)) = growing else { return std::future::pending().await };
    loop {
        sleep(MEASURE_INTERVAL).await;
        let dir = dir.clone();
        if spawn_blocking(move || size_of(&dir)).await.is_ok_and(|size| size > limit.as_u64()) {
            return RepositoryError::TooLarge(limit);
        }
    }
}

/// Returns the size on disk of a tree of the server's own, in bytes.
pub(super) fn size_of(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let (mut pending, mut size) = (vec![dir.to_owned()], 0);
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            size += found.blocks() * 512;
            if found.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    size
}

/// Reads at most `limit` bytes of a file.
pub(super) fn read_limited(file: impl Read, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= limit).then_some(bytes))
}
