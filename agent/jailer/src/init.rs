//! First process inside the jail: brings up loopback, hides the kernel's files, drops every
//! privilege, starts the agent, and reaps orphans.
//!
//! The process is a fork of the jailer and already isolated. No line of it runs outside the jail.

use std::{
    fs::File,
    io::{self, Read, Write},
    mem,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::{
            net::UnixStream,
            process::{CommandExt, ExitStatusExt},
        },
    },
    process::{Command, ExitStatus, Stdio},
    ptr,
};

use greenroom_jailer::confinement::{ENVIRONMENT, OOM_SCORE_ADJUSTMENT};
use greenroom_protocol::sandbox_paths;
use rustix::{
    process::{DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior, set_parent_process_death_signal},
    thread::UnshareFlags,
};

use crate::{kernel_files, landlock_rules::LandlockRules, privileges, seccomp::SeccompFilters};

/// Status byte from the first process to the jailer: the process is inside the jail.
pub const JAIL_ENTERED: u8 = b'w';
/// Status byte from the first process: the agent was started.
pub const AGENT_RUNS: u8 = b'r';
/// Status byte from the first process: setup failed. The reason follows as text.
pub const FAILED: u8 = b'f';
/// Status byte from the jailer, sent once the process is in its control group.
pub const PROCEED: u8 = b'g';

/// Exit code of a sandbox whose first process failed during setup. `docker run` uses the same code.
const SETUP_FAILED: i32 = 125;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Input of the first process, prepared before the jail closes.
pub struct InitPlan {
    pub session: String,
    pub filters: SeccompFilters,
    pub landlock: LandlockRules,
    /// User and group to change to, if root built the jail.
    pub user: Option<(u32, u32)>,
}

/// Runs the first process. Returns its exit code. When the process exits, the kernel ends all
/// others.
pub fn main(plan: &InitPlan) -> i32 {
    let mut jailer = jailer_socket();
    match prepare(&mut jailer, plan) {
        Ok(agent) => match jailer.write_all(&[AGENT_RUNS]) {
            Ok(()) => {
                drop(jailer);
                greenroom_memory::release_code_pages();
                wait_for_agent(agent)
            }
            // The jailer ended before this process had asked the kernel for a parent-death signal.
            Err(_) => SETUP_FAILED,
        },
        Err(error) => {
            let _ = jailer.write_all(&[FAILED]).and_then(|()| jailer.write_all(error.to_string().as_bytes()));
            SETUP_FAILED
        }
    }
}

/// Socket to the jailer. It is stdin, the only descriptor beside stdout and stderr that enters the
/// jail.
fn jailer_socket() -> UnixStream {
    // SAFETY: the builder of the jail put the socket there, and no other code of this process uses
    // descriptor 0.
    UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) })
}

fn prepare(jailer: &mut UnixStream, plan: &InitPlan) -> io::Result<Pid> {
    let _ = rustix::thread::set_name(c"sandbox-init");
    bring_up_loopback().map_err(|e| with_context("bring up the loopback interface", e))?;
    prefer_for_oom_kill();
    if plan.user.is_none() {
        kernel_files::lower_inotify_quotas();
    }
    kernel_files::protect().map_err(|e| with_context("protect the kernel's files", e))?;
    // The builder is about to end. If the jailer ends now, the socket is closed.
    set_parent_process_death_signal(None)?;
    jailer.write_all(&[JAIL_ENTERED])?;
    let mut status = [0];
    jailer.read_exact(&mut status)?;
    hide_cgroup();
    if let Some((uid, gid)) = plan.user {
        become_unprivileged_user(uid, gid).map_err(|e| with_context("become the sandbox's user", e.into()))?;
    }
    privileges::drop_all().map_err(|e| with_context("drop the capabilities", e.into()))?;
    plan.landlock.apply().map_err(|e| io::Error::other(format!("cannot restrict access by path: {e}")))?;
    // No process inside may read this process, because its memory is a copy of the jailer's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Not earlier: every change of user resets this setting in the kernel.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    block_handled_signals()?;
    plan.filters.apply().map_err(|e| io::Error::other(format!("cannot install the system call filter: {e}")))?;
    start_agent(plan)
}

fn with_context(action: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {action}: {error}"))
}

/// Brings up the loopback interface, on which the agent listens. In a new network namespace the
/// interface exists but is down.
fn bring_up_loopback() -> io::Result<()> {
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)?;
    // SAFETY: `ifreq` is plain data, for which zeroes are valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives until the call returns.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Hides the sandbox's place in the host's control groups: `/proc/self/cgroup` reads `/` from here
/// on.
///
/// Not done with the other namespaces, because only now the jailer has put this process into its
/// control group.
fn hide_cgroup() {
    // SAFETY: unsharing a cgroup namespace leaves every descriptor and all memory as it is.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) };
}

/// Marks the sandbox as a preferred victim: if the machine runs out of memory, a sandbox ends
/// before the server and the host's own services.
fn prefer_for_oom_kill() {
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT.to_string());
}

/// Changes to the sandbox's user. The capabilities stay effective, because dropping them all needs
/// one of them.
fn become_unprivileged_user(uid: u32, gid: u32) -> rustix::io::Result<()> {
    privileges::become_user(uid, gid)?;
    privileges::retain_capabilities(rustix::thread::capabilities(None)?.permitted)
}

/// Blocks the handled signals, so that they stay pending until `sigwait` takes them.
///
/// The kernel drops an unhandled signal to the first process of a namespace, but not a blocked one.
fn block_handled_signals() -> io::Result<()> {
    block_only(&HANDLED_SIGNALS)
}

const HANDLED_SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Blocks exactly these signals. Async-signal-safe.
fn block_only(signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: the set is read until the call returns.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, and `sigemptyset` makes it valid before signals are added.
    unsafe {
        let mut set = mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

fn start_agent(plan: &InitPlan) -> io::Result<Pid> {
    let mut agent = Command::new(sandbox_paths::AGENT_BINARY);
    agent.env_clear().current_dir(sandbox_paths::WORKSPACE).stdin(Stdio::from(File::open("/dev/null")?));
    agent.envs(ENVIRONMENT).env("PATH", PATH).env("GREENROOM_SESSION", &plan.session);
    // A child inherits the blocked signals. A shell that never receives SIGCHLD would block
    // forever.
    // SAFETY: only async-signal-safe calls are made between fork and exec.
    unsafe { agent.pre_exec(|| block_only(&[])) };
    let child = agent.spawn().map_err(|e| with_context(&format!("start `{}`", sandbox_paths::AGENT_BINARY), e))?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("the agent has no process id"))
}

/// Waits for the end of the agent, which is the end of the sandbox. Forwards a request to stop to
/// the agent as SIGTERM.
fn wait_for_agent(agent: Pid) -> i32 {
    let handled = signal_set(&HANDLED_SIGNALS);
    loop {
        let mut signal = 0;
        // SAFETY: both references live until the call returns.
        unsafe { libc::sigwait(&handled, &mut signal) };
        if signal != libc::SIGCHLD {
            let _ = rustix::process::kill_process(agent, Signal::TERM);
            continue;
        }
        while let Ok(Some((ended, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if ended == agent {
                let status = ExitStatus::from_raw(status.as_raw());
                return status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(SETUP_FAILED);
            }
        }
    }
}
