//! The process that outlives the server: builds one jail, writes down what the agent says, and how it ended.
//!
//! A server starts it as `sandbox-jailer SESSION`, with an empty environment and no descriptor of the server's; it goes on
//! in a session of its own. When it dies, the kernel ends its sandbox; when the server dies, it does not notice.

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
mod log;
mod mount_setup;
mod oom;
mod privileges;
mod seccomp;

use init::InitPlan;
use jail::JailHandle;
use oom::OomMonitor;
use seccomp::SeccompFilters;

/// The place is the keeper's working directory, as which user ever it goes on.
const CURRENT_DIR: &str = ".";

/// Reads its order from stdin and answers on stdout.
fn main() -> ExitCode {
    let order = match receive() {
        Ok(order) => order,
        Err(e) => {
            eprintln!("greenroom starts this program itself, for each sandbox: {e}");
            return ExitCode::FAILURE;
        }
    };
    // SAFETY: this process has one thread, so the child finds no lock held.
    match unsafe { libc::fork() } {
        0 => run_jailer(order),
        -1 => ExitCode::FAILURE,
        // The server has no child that it would have to wait for, and the keeper no parent that could take it along.
        _ => ExitCode::SUCCESS,
    }
}

fn receive() -> io::Result<JailRequest> {
    let mut order = String::new();
    io::stdin().read_to_string(&mut order)?;
    Ok(serde_json::from_str(&order)?)
}

fn run_jailer(order: JailRequest) -> ExitCode {
    let started = detach_from_server().map_err(failed("leave the server")).and_then(|()| start(order));
    let (mut kept, answer) = match started {
        Ok(kept) => (Some(kept), JailReply::Started),
        Err(answer) => (None, answer),
    };
    send_reply(&answer);
    match kept.as_mut().map(RunningJail::supervise) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

fn detach_from_server() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::thread::set_name(c"sandbox-jailer")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    for fd in [libc::STDIN_FILENO, libc::STDERR_FILENO] {
        redirect_fd(fd, &nothing)?;
    }
    drop(nothing);
    // SAFETY: no object of this process owns a descriptor above stderr at this point.
    match unsafe { libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn redirect_fd(fd: i32, at: &File) -> io::Result<()> {
    // SAFETY: only standard streams are replaced, which nothing here owns.
    match unsafe { libc::dup2(at.as_raw_fd(), fd) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Answers, and lets go of stdout: the server reads to its end.
fn send_reply(answer: &JailReply) {
    // A server that is gone finds the sandbox by its place.
    let _ = serde_json::to_vec(answer).map(|text| io::stdout().write_all(&text));
    let _ = io::stdout().flush();
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = redirect_fd(libc::STDOUT_FILENO, &nothing);
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> JailReply {
    move |e| JailReply::Failed(format!("{what}: {e}"))
}

/// A sandbox that runs, and its place.
struct RunningJail {
    handle: JailHandle,
    init: ProcessIdentity,
    oom_monitor: OomMonitor,
    /// Never read: it is the lock's life that counts.
    _lock: File,
}

fn start(mut order: JailRequest) -> Result<RunningJail, JailReply> {
    std::env::set_current_dir(&order.sandbox_dir).map_err(failed("enter its state directory"))?;
    let lock = take_lock()?;
    clear_sandbox_dir().map_err(failed("clear its state directory"))?;
    let doors = open_procs_files(&order).map_err(failed("open its control group"))?;
    let kills = OomMonitor::of(order.cgroup.clone());
    let root = rustix::process::geteuid().is_root();
    if root {
        mount_setup::prepare(&mut order).map_err(mount_setup_error)?;
    } else {
        std::fs::create_dir(&order.sources.root).map_err(failed("make a root directory"))?;
    }
    if root && order.user_namespace {
        mount_setup::become_user(order.uid, order.gid).map_err(failed("become the sandbox's user"))?;
    }
    let filters =
        SeccompFilters::compile().map_err(|e| JailReply::Failed(format!("compile the system call filter: {e}")))?;
    let user = (!order.user_namespace).then_some((order.uid, order.gid));
    let plan = InitPlan { session: order.session.clone(), filters, user };
    rustix::process::set_child_subreaper(Some(getpid())).map_err(|e| failed("become a subreaper")(e.into()))?;
    let mut jailed = jail::build(&order, plan).map_err(failed("build the jail"))?;
    let init = admit(&mut jailed, doors)?;
    if order.user_namespace {
        mount_setup::drop_last_capability().map_err(failed("give up its last right"))?;
    }
    let keeper = ProcessIdentity::of(std::process::id() as i32).map_err(failed("find itself in /proc"))?;
    let keeper = keeper.ok_or_else(|| JailReply::Failed("find itself in /proc".into()))?;
    let boot = sandbox_dir::kernel_boot_id().map_err(failed("tell which boot this is"))?;
    let running = RunningSandbox { boot, jailer: keeper, init, cgroup: order.cgroup.clone() };
    sandbox_dir::write_json(Path::new(CURRENT_DIR), sandbox_dir::RUNNING, &running)
        .map_err(failed("write down who runs"))?;
    // Without it the end may still find room when it comes.
    let _ = sandbox_dir::reserve_exit_space(Path::new(CURRENT_DIR));
    Ok(RunningJail { handle: jailed, init, oom_monitor: kills, _lock: lock })
}

/// Root without the right to mount, as in most containers.
fn mount_setup_error(e: io::Error) -> JailReply {
    match e.raw_os_error() == Some(libc::EPERM) {
        true => JailReply::Unconfinable("root may not mount here (EPERM)".into()),
        false => failed("bring the session's directories")(e),
    }
}

fn take_lock() -> Result<File, JailReply> {
    let lock = File::options().create(true).append(true).open(sandbox_dir::LOCK).map_err(failed("make a lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(JailReply::AlreadyLocked),
        Err(e) => Err(JailReply::Failed(format!("take its lock: {e}"))),
        Ok(()) => Ok(lock),
    }
}

/// What the last run left; its log stays. What that one had not finished may belong to another user.
fn clear_sandbox_dir() -> io::Result<()> {
    for left in [sandbox_dir::RUNNING, sandbox_dir::EXIT, sandbox_dir::FROZEN] {
        ignore_not_found(std::fs::remove_file(left))?;
        ignore_not_found(std::fs::remove_file(sandbox_dir::unfinished(left)))?;
    }
    ignore_not_found(std::fs::remove_dir_all("root"))
}

fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opened while this process may; used when the sandbox's first process is there to be put in.
fn open_procs_files(order: &JailRequest) -> io::Result<Vec<File>> {
    let doors = order.cgroup.as_ref().map(Cgroup::procs_files).unwrap_or_default();
    doors.into_iter().map(|door| File::options().write(true).open(door)).collect()
}

/// Sees the first process through the walls and into its control group, before it starts anything.
fn admit(jailed: &mut JailHandle, doors: Vec<File>) -> Result<ProcessIdentity, JailReply> {
    match read_status(jailed) {
        Some((init::JAIL_ENTERED, _)) => {}
        Some((_, why)) => return Err(JailReply::Unconfinable(why)),
        None => {
            let why = jailed.failure_reason();
            return Err(JailReply::Unconfinable(stderr_text(jailed).unwrap_or(why)));
        }
    }
    let first = only_child(jailed.builder()).map_err(failed("find its first process"))?;
    let first = first.ok_or_else(|| JailReply::Failed("its first process is gone".into()))?;
    jailed.dismiss_builder().map_err(failed("dismiss the builder of the jail"))?;
    for mut door in doors {
        door.write_all(first.pid.to_string().as_bytes()).map_err(failed("enter its control group"))?;
    }
    jailed.control_socket.write_all(&[init::PROCEED]).map_err(failed("go on"))?;
    match read_status(jailed) {
        Some((init::AGENT_RUNS, _)) => Ok(first),
        Some((_, why)) => Err(JailReply::Failed(why)),
        None => Err(JailReply::Failed(stderr_text(jailed).unwrap_or_else(|| "its first process has ended".into()))),
    }
}

/// A word of the first process, and the text that follows a bad one. `None` where it died without one.
fn read_status(jailed: &mut JailHandle) -> Option<(u8, String)> {
    let mut word = [0];
    jailed.control_socket.read_exact(&mut word).ok()?;
    let mut why = String::new();
    if word[0] == init::FAILED {
        jailed.control_socket.read_to_string(&mut why).ok()?;
    }
    Some((word[0], why))
}

/// What those who have ended wrote to stderr.
fn stderr_text(jailed: &JailHandle) -> Option<String> {
    let mut written = String::new();
    File::from(jailed.stderr.try_clone().ok()?).read_to_string(&mut written).ok()?;
    let written = written.trim();
    (!written.is_empty()).then(|| written.to_owned())
}

impl RunningJail {
    fn supervise(&mut self) -> io::Result<()> {
        greenroom_memory::release_code_pages();
        let (stdout, stderr) = (self.handle.stdout.try_clone()?, self.handle.stderr.try_clone()?);
        let stderr_tail = log::copy(stdout, stderr, Path::new(CURRENT_DIR), &mut self.oom_monitor)?;
        let code = exit_code(self.init)?;
        let out_of_memory = code == 128 + libc::SIGKILL && self.oom_monitor.has_recent_kill();
        let ended = JailExit { code: Some(code.into()), out_of_memory, stderr_tail };
        sandbox_dir::write_json(Path::new(CURRENT_DIR), sandbox_dir::EXIT, &ended)
    }
}

/// Waits for the first process's end, which is the sandbox's.
fn exit_code(init: ProcessIdentity) -> io::Result<i32> {
    let status = retry_on_intr(|| waitpid(Pid::from_raw(init.pid), WaitOptions::empty()))?;
    let status = status.and_then(|(_, status)| status.exit_status().or(status.terminating_signal().map(|it| 128 + it)));
    status.ok_or_else(|| io::Error::other("the kernel does not say how the sandbox ended"))
}
