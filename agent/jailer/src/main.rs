//! Jailer: builds one jail, records the agent's output and exit, and outlives the server.
//!
//! A server starts the jailer as `sandbox-jailer SESSION`, with an empty environment and none of
//! the server's descriptors. The jailer runs in a process session of its own. If the jailer dies,
//! the kernel ends its sandbox. If the server dies, the jailer is unaffected.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    path::Path,
    process::ExitCode,
};

use greenroom_jailer::{
    cgroup::Cgroup,
    processes::{ProcessIdentity, only_child},
    request::{JailReply, JailRequest},
    sandbox_dir::{self, JailExit, RunningSandbox},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::retry_on_intr,
    process::{Pid, WaitOptions, getpid, waitpid},
};

mod init;
mod jail;
mod kernel_files;
mod landlock_rules;
mod log;
mod mount_setup;
mod oom;
mod privileges;
mod seccomp;

use init::InitPlan;
use jail::JailHandle;
use landlock_rules::LandlockRules;
use oom::OomMonitor;
use seccomp::SeccompFilters;

/// Sandbox dir: the jailer's working directory, whichever user the jailer becomes.
const CURRENT_DIR: &str = ".";

/// Reads the jail request from stdin and writes the reply to stdout.
fn main() -> ExitCode {
    let request = match receive() {
        Ok(request) => request,
        Err(e) => {
            eprintln!("`sandbox-jailer` reads a jail request from stdin; greenroom starts it for each sandbox: {e}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: this process has one thread, so the child inherits no held lock.
    match unsafe { libc::fork() } {
        0 => run_jailer(request),
        -1 => ExitCode::FAILURE,
        // The server has no child left to wait for, and the jailer no parent whose end could end
        // it.
        _ => ExitCode::SUCCESS,
    }
}

fn receive() -> io::Result<JailRequest> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}

fn run_jailer(request: JailRequest) -> ExitCode {
    let started = detach_from_server().map_err(failed("detach from the server")).and_then(|()| start(request));
    let (mut running, reply) = match started {
        Ok(running) => (Some(running), JailReply::Started),
        Err(reply) => (None, reply),
    };
    send_reply(&reply);
    match running.as_mut().map(RunningJail::supervise) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

fn detach_from_server() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::thread::set_name(c"sandbox-jailer")?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    for fd in [libc::STDIN_FILENO, libc::STDERR_FILENO] {
        redirect_fd(fd, &null)?;
    }
    drop(null);
    // SAFETY: no object of this process owns a descriptor above stderr at this point.
    match unsafe { libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn redirect_fd(fd: i32, to: &File) -> io::Result<()> {
    // SAFETY: only standard streams are replaced, and no object here owns them.
    match unsafe { libc::dup2(to.as_raw_fd(), fd) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Sends the reply and closes stdout, which the server reads to its end.
fn send_reply(reply: &JailReply) {
    // If the server is gone, the next server finds the sandbox by its directory.
    let _ = serde_json::to_vec(reply).map(|text| io::stdout().write_all(&text));
    let _ = io::stdout().flush();
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = redirect_fd(libc::STDOUT_FILENO, &null);
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> JailReply {
    move |e| JailReply::Failed(format!("cannot {what}: {e}"))
}

/// Running jail with its first process and its lock.
struct RunningJail {
    handle: JailHandle,
    init: ProcessIdentity,
    oom_monitor: OomMonitor,
    /// Never read: the lock is held while the jail runs.
    _lock: File,
}

fn start(mut request: JailRequest) -> Result<RunningJail, JailReply> {
    std::env::set_current_dir(&request.sandbox_dir).map_err(failed("enter the state directory"))?;
    let lock = take_lock()?;
    clear_sandbox_dir().map_err(failed("clear the state directory"))?;
    let procs_files = open_procs_files(&request).map_err(failed("open the control group"))?;
    let oom_monitor = OomMonitor::of(request.cgroup.clone());
    let root = rustix::process::geteuid().is_root();
    if root {
        mount_setup::prepare(&mut request).map_err(mount_setup_error)?;
    } else {
        std::fs::create_dir(&request.sources.root).map_err(failed("create the root directory"))?;
    }
    if root && request.user_namespace {
        mount_setup::become_user(request.uid, request.gid).map_err(failed("become the sandbox's user"))?;
    }
    let filters = SeccompFilters::compile()
        .map_err(|e| JailReply::Failed(format!("cannot compile the system call filter: {e}")))?;
    let user = (!request.user_namespace).then_some((request.uid, request.gid));
    let landlock = LandlockRules::of(&request);
    let plan = InitPlan { session: request.session.clone(), filters, landlock, user };
    rustix::process::set_child_subreaper(Some(getpid())).map_err(|e| failed("become a subreaper")(e.into()))?;
    let mut handle = jail::build(&request, plan).map_err(failed("build the jail"))?;
    let init = admit(&mut handle, procs_files)?;
    if request.user_namespace {
        mount_setup::drop_last_capability().map_err(failed("drop the last capability"))?;
    }
    let jailer = ProcessIdentity::of(std::process::id() as i32).map_err(failed("find the jailer in `/proc`"))?;
    let jailer = jailer.ok_or_else(|| JailReply::Failed("cannot find the jailer in `/proc`".into()))?;
    let boot = sandbox_dir::kernel_boot_id().map_err(failed("read the kernel's boot id"))?;
    let running = RunningSandbox { boot, jailer, init, cgroup: request.cgroup.clone() };
    sandbox_dir::write_json(Path::new(CURRENT_DIR), sandbox_dir::RUNNING, &running)
        .map_err(failed("record the running processes"))?;
    // Without the reserved space, the exit record may still fit when it is written.
    let _ = sandbox_dir::reserve_exit_space(Path::new(CURRENT_DIR));
    Ok(RunningJail { handle, init, oom_monitor, _lock: lock })
}

/// Maps the error of a mount. Root may lack the right to mount, as in most containers.
fn mount_setup_error(e: io::Error) -> JailReply {
    match e.raw_os_error() == Some(libc::EPERM) {
        true => JailReply::Unconfinable("root may not mount here (EPERM)".into()),
        false => failed("mount the session's directories")(e),
    }
}

fn take_lock() -> Result<File, JailReply> {
    let lock =
        File::options().create(true).append(true).open(sandbox_dir::LOCK).map_err(failed("create the lock file"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JailReply::AlreadyLocked),
        Err(e) => Err(JailReply::Failed(format!("cannot lock the lock file: {e}"))),
        Ok(()) => Ok(lock),
    }
}

/// Removes what the last run left, except its log.
///
/// An unfinished file is removed too, because it may belong to another user.
fn clear_sandbox_dir() -> io::Result<()> {
    for name in [sandbox_dir::RUNNING, sandbox_dir::EXIT, sandbox_dir::FROZEN] {
        ignore_not_found(std::fs::remove_file(name))?;
        ignore_not_found(std::fs::remove_file(sandbox_dir::unfinished(name)))?;
    }
    ignore_not_found(std::fs::remove_dir_all("root"))
}

fn ignore_not_found(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opens the `cgroup.procs` files while this process may do so. They admit the sandbox's first
/// process later.
fn open_procs_files(request: &JailRequest) -> io::Result<Vec<File>> {
    let paths = request.cgroup.as_ref().map(Cgroup::procs_files).unwrap_or_default();
    paths.into_iter().map(|path| File::options().write(true).open(path)).collect()
}

/// Waits until the first process is inside the jail, and moves it into its control group before it
/// starts anything.
fn admit(handle: &mut JailHandle, procs_files: Vec<File>) -> Result<ProcessIdentity, JailReply> {
    match read_status(handle) {
        Some((init::JAIL_ENTERED, _)) => {}
        Some((_, reason)) => return Err(JailReply::Unconfinable(reason)),
        None => {
            let reason = handle.failure_reason();
            return Err(JailReply::Unconfinable(stderr_text(handle).unwrap_or(reason)));
        }
    }
    let first = only_child(handle.builder()).map_err(failed("find the first process"))?;
    let first = first.ok_or_else(|| JailReply::Failed("the first process is gone".into()))?;
    handle.dismiss_builder().map_err(failed("dismiss the builder of the jail"))?;
    for mut file in procs_files {
        file.write_all(first.pid.to_string().as_bytes()).map_err(failed("enter the control group"))?;
    }
    handle.control_socket.write_all(&[init::PROCEED]).map_err(failed("signal the first process to proceed"))?;
    match read_status(handle) {
        Some((init::AGENT_RUNS, _)) => Ok(first),
        Some((_, reason)) => Err(JailReply::Failed(reason)),
        None => Err(JailReply::Failed(stderr_text(handle).unwrap_or_else(|| "the first process has ended".into()))),
    }
}

/// Reads a status byte of the first process, and the reason that follows a failure. Returns `None`
/// if the process ended without a status.
fn read_status(handle: &mut JailHandle) -> Option<(u8, String)> {
    let mut status = [0];
    handle.control_socket.read_exact(&mut status).ok()?;
    let mut reason = String::new();
    if status[0] == init::FAILED {
        handle.control_socket.read_to_string(&mut reason).ok()?;
    }
    Some((status[0], reason))
}

/// Returns the stderr text of the builder and the first process after both have ended.
fn stderr_text(handle: &JailHandle) -> Option<String> {
    let mut text = String::new();
    File::from(handle.stderr.try_clone().ok()?).read_to_string(&mut text).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

impl RunningJail {
    fn supervise(&mut self) -> io::Result<()> {
        greenroom_memory::release_code_pages();
        let (stdout, stderr) = (self.handle.stdout.try_clone()?, self.handle.stderr.try_clone()?);
        let stderr_tail = log::copy(stdout, stderr, Path::new(CURRENT_DIR), &mut self.oom_monitor)?;
        let code = exit_code(self.init)?;
        let out_of_memory = code == 128 + libc::SIGKILL && self.oom_monitor.has_recent_kill();
        let exit = JailExit { code: Some(code.into()), out_of_memory, stderr_tail };
        sandbox_dir::write_json(Path::new(CURRENT_DIR), sandbox_dir::EXIT, &exit)
    }
}

/// Waits for the end of the first process, which is the end of the sandbox. Returns its exit code,
/// or 128 + n for signal n.
fn exit_code(init: ProcessIdentity) -> io::Result<i32> {
    let status = retry_on_intr(|| waitpid(Pid::from_raw(init.pid), WaitOptions::empty()))?;
    let status = status.and_then(|(_, status)| status.exit_status().or(status.terminating_signal().map(|it| 128 + it)));
    status.ok_or_else(|| io::Error::other("the kernel does not report how the sandbox ended"))
}
