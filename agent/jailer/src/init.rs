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

use greenroom_protocol::inside;
use rustix::{
    process::{DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior, set_parent_process_death_signal},
    thread::UnshareFlags,
};

use crate::{rights, seccomp::Filters};

/// What the jail's first process says to its keeper, a byte each; then a text, where there is one.
pub const BEHIND_THE_WALLS: u8 = b'w';
pub const AGENT_RUNS: u8 = b'r';
pub const FAILED: u8 = b'f';
/// What the keeper says, once it has put the process into its control group.
pub const GO_ON: u8 = b'g';

/// How the sandbox ends when its first process could not do its part; as `docker run` ends then.
const COULD_NOT: i32 = 125;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What it needs to know, all of it prepared before the walls closed.
pub struct Plan {
    pub session: String,
    pub filters: Filters,
    /// Whom to become, where root has built the walls.
    pub user: Option<(u32, u32)>,
}

/// The life of the first process. Returns the code to exit with, and with that exit the kernel ends all others.
pub fn main(plan: &Plan) -> i32 {
    let mut keeper = keeper();
    match prepare(&mut keeper, plan) {
        Ok(agent) => match keeper.write_all(&[AGENT_RUNS]) {
            Ok(()) => {
                drop(keeper);
                greenroom_pages::let_go_of_code();
                outlive(agent)
            }
            // It was gone before this process could ask to be taken along.
            Err(_) => COULD_NOT,
        },
        Err(why) => {
            let _ = keeper.write_all(&[FAILED]).and_then(|()| keeper.write_all(why.to_string().as_bytes()));
            COULD_NOT
        }
    }
}

/// The line to the keeper comes as stdin, the only descriptor that the walls let through beside stdout and stderr.
fn keeper() -> UnixStream {
    // SAFETY: the builder of the jail put the socket there, and nothing else in this process uses descriptor 0.
    UnixStream::from(unsafe { OwnedFd::from_raw_fd(0) })
}

fn prepare(keeper: &mut UnixStream, plan: &Plan) -> io::Result<Pid> {
    let _ = rustix::thread::set_name(c"sandbox-init");
    bring_up_loopback().map_err(|e| named("bring up the loopback interface", e))?;
    // The builder is about to go. A keeper that goes now closes the line.
    set_parent_process_death_signal(None)?;
    keeper.write_all(&[BEHIND_THE_WALLS])?;
    let mut word = [0];
    keeper.read_exact(&mut word)?;
    hide_the_control_group();
    be_the_first_to_go();
    if let Some((uid, gid)) = plan.user {
        become_the_user(uid, gid).map_err(|e| named("become the sandbox's user", e.into()))?;
    }
    rights::give_up_all().map_err(|e| named("give up its capabilities", e.into()))?;
    // Nothing inside may look into this process: its memory is a copy of the keeper's.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Not before: the kernel forgets this wish with every change of the user.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    hold_signals()?;
    plan.filters.apply().map_err(|e| io::Error::other(format!("put itself under the system call filter: {e}")))?;
    start_agent(plan)
}

fn named(what: &str, error: io::Error) -> io::Error {
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
fn hide_the_control_group() {
    // SAFETY: unsharing a cgroup namespace leaves every descriptor and all memory as it is.
    let _ = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) };
}

/// When the whole machine runs out of memory, a sandbox is to go before the server and the host's own services.
fn be_the_first_to_go() {
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
}

/// Its capabilities stay in effect: giving them all up, which is next, takes one of them.
fn become_the_user(uid: u32, gid: u32) -> rustix::io::Result<()> {
    rights::become_user(uid, gid)?;
    rights::keep_only(rustix::thread::capabilities(None)?.permitted)
}

/// The signals that matter wait until they are asked for. A held signal also is one that the kernel does not drop for the
/// first process of a namespace.
fn hold_signals() -> io::Result<()> {
    hold_only(&HEARD)
}

const HEARD: [i32; 4] = [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Makes these the signals that wait. Async-signal-safe.
fn hold_only(signals: &[i32]) -> io::Result<()> {
    let set = set_of(signals);
    // SAFETY: the set is read until the call returns.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, &set, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_of(signals: &[i32]) -> libc::sigset_t {
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

fn start_agent(plan: &Plan) -> io::Result<Pid> {
    let mut agent = Command::new(inside::AGENT);
    agent.env_clear().current_dir(inside::WORKSPACE).stdin(Stdio::from(File::open("/dev/null")?));
    agent.envs([("PATH", PATH), ("HOME", inside::HOME), ("LANG", "C.UTF-8"), ("USER", "agent"), ("LOGNAME", "agent")]);
    agent.env("GREENROOM_SESSION", &plan.session);
    // What this process holds, its children would hold too, and a shell that never hears of a child's end waits for ever.
    // SAFETY: nothing but async-signal-safe calls is made between fork and exec.
    unsafe { agent.pre_exec(|| hold_only(&[])) };
    let child = agent.spawn().map_err(|e| named(&format!("start `{}`", inside::AGENT), e))?;
    Pid::from_raw(child.id() as i32).ok_or_else(|| io::Error::other("the agent has no process id"))
}

/// Waits for the agent's end, which is the sandbox's. A wish to stop is the agent's to hear.
fn outlive(agent: Pid) -> i32 {
    let heard = set_of(&HEARD);
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
                return status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(COULD_NOT);
            }
        }
    }
}
