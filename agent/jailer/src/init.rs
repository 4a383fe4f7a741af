//! The first process inside the jail: brings up loopback, gives up every right, starts the agent, and reaps what is
//! orphaned. It is a fork of the keeper, already behind the walls; no line of it runs outside.

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

use greenroom_protocol::sandbox_paths;
use rustix::{
    process::{DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior, set_parent_process_death_signal},
    thread::UnshareFlags,
};

use crate::{privileges, seccomp::SeccompFilters};

/// What the jail's first process says to its keeper, a byte each; then a text, where there is one.
pub const JAIL_ENTERED: u8 = b'w';
pub const AGENT_RUNS: u8 = b'r';
pub const FAILED: u8 = b'f';
/// What the keeper says, once it has put the process into its control group.
pub const PROCEED: u8 = b'g';

/// How the sandbox ends when its first process could not do its part; as `docker run` ends then.
const SETUP_FAILED: i32 = 125;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What it needs to know, all of it prepared before the walls closed.
pub struct InitPlan {
    pub session: String,
    pub filters: SeccompFilters,
    /// Whom to become, where root has built the walls.
    pub user: Option<(u32, u32)>,
}

/// The life of the first process. Returns the code to exit with, and with that exit the kernel ends all others.
pub fn main(plan: &InitPlan) -> i32 {
    let mut keeper = jailer_socket();
    match prepare(&mut keeper, plan) {
        Ok(agent) => match keeper.write_all(&[AGENT_RUNS]) {
            Ok(()) => {
                drop(keeper);
                greenroom_memory::release_code_pages();
                wait_for_agent(agent)
            }
            // It was gone before this process could ask to be taken along.
            Err(_) => SETUP_FAILED,
        },
        Err(why) => {
            let _ = keeper.write_all(&[FAILED]).and_then(|()| keeper.write_all(why.to_string().as_bytes()));
            SETUP_FAILED
        }
    }
}

/// The line to the keeper comes as stdin, the only descriptor that the walls let through beside stdout and stderr.
fn jailer_socket() -> UnixStream {
    // SAFETY: the builder of the jail put the socket there, and nothing else in this process uses descriptor 0.
    UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) })
}

fn prepare(keeper: &mut UnixStream, plan: &InitPlan) -> io::Result<Pid> {
    let _ = rustix::thread::set_name(c"sandbox-init");
    bring_up_loopback().map_err(|e| with_context("bring up the loopback interface", e))?;
    // The builder is about to go. A keeper that goes now closes the line.
    set_parent_process_death_signal(None)?;
    keeper.write_all(&[JAIL_ENTERED])?;
    let mut word = [0];
    keeper.read_exact(&mut word)?;
    hide_cgroup();
    prefer_for_oom_kill();
    if let Some((uid, gid)) = plan.user {
        become_unprivileged_user(uid, gid).map_err(|e| with_context("become the sandbox's user", e.into()))?;
    }
    privileges::drop_all().map_err(|e| with_context("give up its capabilities", e.into()))?;
    // Nothing inside may look into this process: its memory is a copy of the keeper's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Not before: the kernel forgets this wish with every change of the user.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    block_handled_signals()?;
    plan.filters.apply().map_err(|e| io::Error::other(format!("put itself under the system call filter: {e}")))?;
    start_agent(plan)
}

fn with_context(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// A new network namespace has it, and has it down; the agent listens on 127.0.0.1.
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

/// From here on `/proc/self/cgroup` says `/` and not where the sandbox stands on the host. Done now and not with the other
/// namespaces, because only now the keeper has put this process there.
fn hide_cgroup() {
    // SAFETY: unsharing a cgroup namespace leaves every descriptor and all memory as it is.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) };
}

/// When the whole machine runs out of memory, a sandbox is to go before the server and the host's own services.
fn prefer_for_oom_kill() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

/// Its capabilities stay in effect: giving them all up, which is next, takes one of them.
fn become_unprivileged_user(uid: u32, gid: u32) -> rustix::io::Result<()> {
    privileges::become_user(uid, gid)?;
    privileges::retain_capabilities(rustix::thread::capabilities(None)?.permitted)
}

/// The signals that matter wait until they are asked for. A held signal also is one that the kernel does not drop for the
/// first process of a namespace.
fn block_handled_signals() -> io::Result<()> {
    block_only(&HANDLED_SIGNALS)
}

const HANDLED_SIGNALS: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Makes these the signals that wait. Async-signal-safe.
fn block_only(signals: &[i32]) -> io::Result<()> {
    let set = signal_set(signals);
    // SAFETY: the set is read until the call returns.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data, and `sigemptyset` makes it a valid set before signals are added.
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
    agent.envs([
        ("PATH", PATH),
        ("HOME", sandbox_paths::HOME),
        ("LANG", "C.UTF-8"),
        ("USER", "agent"),
        ("LOGNAME", "agent"),
    ]);
    agent.env("GREENROOM_SESSION", &plan.session);
    // What this process holds, its children would hold too, and a shell that never hears of a child's end waits for ever.
    // SAFETY: nothing but async-signal-safe calls is made between fork and exec.
    unsafe { agent.pre_exec(|| block_only(&[])) };
    let child = agent.spawn().map_err(|e| with_context(&format!("start `{}`", sandbox_paths::AGENT_BINARY), e))?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("the agent has no process id"))
}

/// Waits for the agent's end, which is the sandbox's. A wish to stop is the agent's to hear.
fn wait_for_agent(agent: Pid) -> i32 {
    let heard = signal_set(&HANDLED_SIGNALS);
    loop {
        let mut signal = 0;
        // SAFETY: both live until the call returns.
        unsafe { libc::sigwait(&heard, &mut signal) };
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
