//! The process that outlives the server: builds one jail, writes down what the agent says, and how it ended.
//!
//! A server starts it as `sandbox-keeper SESSION`, with an empty environment and no descriptor of the server's; it goes on
//! in a session of its own. When it dies, the kernel ends its sandbox; when the server dies, it does not notice.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    path::Path,
    process::ExitCode,
};

use greenroom_keeper::{
    cgroup::Cgroup,
    order::{Answer, Order},
    place::{self, Ended, Running},
    processes::{Identity, only_child},
};
use rustix::{
    fs::{FlockOperation, flock},
    io::retry_on_intr,
    process::{Pid, WaitOptions, getpid, waitpid},
};

mod init;
mod jail;
mod kills;
mod log;
mod rights;
mod seccomp;
mod stage;

use init::Plan;
use jail::Jailed;
use kills::Kills;
use seccomp::Filters;

/// The place is the keeper's working directory, as which user ever it goes on.
const HERE: &str = ".";

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
        0 => keep(order),
        -1 => ExitCode::FAILURE,
        // The server has no child that it would have to wait for, and the keeper no parent that could take it along.
        _ => ExitCode::SUCCESS,
    }
}

fn receive() -> io::Result<Order> {
    let mut order = String::new();
    io::stdin().read_to_string(&mut order)?;
    Ok(serde_json::from_str(&order)?)
}

fn keep(order: Order) -> ExitCode {
    let started = leave_the_server().map_err(failed("leave the server")).and_then(|()| start(order));
    let (mut kept, answer) = match started {
        Ok(kept) => (Some(kept), Answer::Started),
        Err(answer) => (None, answer),
    };
    tell(&answer);
    match kept.as_mut().map(Kept::stay) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::FAILURE,
    }
}

fn leave_the_server() -> io::Result<()> {
    rustix::process::setsid()?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    rustix::thread::set_name(c"sandbox-keeper")?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    for fd in [libc::STDIN_FILENO, libc::STDERR_FILENO] {
        point(fd, &nothing)?;
    }
    drop(nothing);
    // SAFETY: no object of this process owns a descriptor above stderr at this point.
    match unsafe { libc::syscall(libc::SYS_close_range, libc::STDERR_FILENO + 1, libc::c_uint::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn point(fd: i32, at: &File) -> io::Result<()> {
    // SAFETY: only standard streams are replaced, which nothing here owns.
    match unsafe { libc::dup2(at.as_raw_fd(), fd) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Answers, and lets go of stdout: the server reads to its end.
fn tell(answer: &Answer) {
    // A server that is gone finds the sandbox by its place.
    let _ = serde_json::to_vec(answer).map(|text| io::stdout().write_all(&text));
    let _ = io::stdout().flush();
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = point(libc::STDOUT_FILENO, &nothing);
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Answer {
    move |e| Answer::Failed(format!("{what}: {e}"))
}

/// A sandbox that runs, and its place.
struct Kept {
    jailed: Jailed,
    init: Identity,
    kills: Kills,
    /// Never read: it is the lock's life that counts.
    _lock: File,
}

fn start(mut order: Order) -> Result<Kept, Answer> {
    std::env::set_current_dir(&order.place).map_err(failed("enter its state directory"))?;
    let lock = take_lock()?;
    clear_place().map_err(failed("clear its state directory"))?;
    let doors = open_doors(&order).map_err(failed("open its control group"))?;
    let kills = Kills::of(order.cgroup.clone());
    let root = rustix::process::geteuid().is_root();
    if root {
        stage::set(&mut order).map_err(no_view_of_its_own)?;
    } else {
        std::fs::create_dir(&order.sources.root).map_err(failed("make a root directory"))?;
    }
    if root && order.user_namespace {
        stage::become_user(order.uid, order.gid).map_err(failed("become the sandbox's user"))?;
    }
    let filters = Filters::compile().map_err(|e| Answer::Failed(format!("compile the system call filter: {e}")))?;
    let user = (!order.user_namespace).then_some((order.uid, order.gid));
    let plan = Plan { session: order.session.clone(), filters, user };
    rustix::process::set_child_subreaper(Some(getpid())).map_err(|e| failed("become a subreaper")(e.into()))?;
    let mut jailed = jail::enter(&order, plan).map_err(failed("build the jail"))?;
    let init = admit(&mut jailed, doors)?;
    if order.user_namespace {
        stage::give_up_the_last_right().map_err(failed("give up its last right"))?;
    }
    let keeper = Identity::of(std::process::id() as i32).map_err(failed("find itself in /proc"))?;
    let keeper = keeper.ok_or_else(|| Answer::Failed("find itself in /proc".into()))?;
    let boot = place::boot_id().map_err(failed("tell which boot this is"))?;
    let running = Running { boot, keeper, init, cgroup: order.cgroup.clone() };
    place::write_json(Path::new(HERE), place::RUNNING, &running).map_err(failed("write down who runs"))?;
    // Without it the end may still find room when it comes.
    let _ = place::keep_room_for_the_end(Path::new(HERE));
    Ok(Kept { jailed, init, kills, _lock: lock })
}

/// Root without the right to mount, as in most containers.
fn no_view_of_its_own(e: io::Error) -> Answer {
    match e.raw_os_error() == Some(libc::EPERM) {
        true => Answer::Unconfinable("root may not mount here (EPERM)".into()),
        false => failed("bring the session's directories")(e),
    }
}

fn take_lock() -> Result<File, Answer> {
    let lock = File::options().create(true).append(true).open(place::LOCK).map_err(failed("make a lock"))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Answer::Held),
        Err(e) => Err(Answer::Failed(format!("take its lock: {e}"))),
        Ok(()) => Ok(lock),
    }
}

/// What the last run left; its log stays. What that one had not finished may belong to another user.
fn clear_place() -> io::Result<()> {
    for left in [place::RUNNING, place::EXIT, place::FROZEN] {
        not_there_is_fine(std::fs::remove_file(left))?;
        not_there_is_fine(std::fs::remove_file(place::unfinished(left)))?;
    }
    not_there_is_fine(std::fs::remove_dir_all("root"))
}

fn not_there_is_fine(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Opened while this process may; used when the sandbox's first process is there to be put in.
fn open_doors(order: &Order) -> io::Result<Vec<File>> {
    let doors = order.cgroup.as_ref().map(Cgroup::doors).unwrap_or_default();
    doors.into_iter().map(|door| File::options().write(true).open(door)).collect()
}

/// Sees the first process through the walls and into its control group, before it starts anything.
fn admit(jailed: &mut Jailed, doors: Vec<File>) -> Result<Identity, Answer> {
    match hear(jailed) {
        Some((init::BEHIND_THE_WALLS, _)) => {}
        Some((_, why)) => return Err(Answer::Unconfinable(why)),
        None => {
            let why = jailed.why_not();
            return Err(Answer::Unconfinable(written(jailed).unwrap_or(why)));
        }
    }
    let first = only_child(jailed.builder()).map_err(failed("find its first process"))?;
    let first = first.ok_or_else(|| Answer::Failed("its first process is gone".into()))?;
    jailed.dismiss_builder().map_err(failed("dismiss the builder of the jail"))?;
    for mut door in doors {
        door.write_all(first.pid.to_string().as_bytes()).map_err(failed("enter its control group"))?;
    }
    jailed.line.write_all(&[init::GO_ON]).map_err(failed("go on"))?;
    match hear(jailed) {
        Some((init::AGENT_RUNS, _)) => Ok(first),
        Some((_, why)) => Err(Answer::Failed(why)),
        None => Err(Answer::Failed(written(jailed).unwrap_or_else(|| "its first process has ended".into()))),
    }
}

/// A word of the first process, and the text that follows a bad one. `None` where it died without one.
fn hear(jailed: &mut Jailed) -> Option<(u8, String)> {
    let mut word = [0];
    jailed.line.read_exact(&mut word).ok()?;
    let mut why = String::new();
    if word[0] == init::FAILED {
        jailed.line.read_to_string(&mut why).ok()?;
    }
    Some((word[0], why))
}

/// What those who have ended wrote to stderr.
fn written(jailed: &Jailed) -> Option<String> {
    let mut written = String::new();
    File::from(jailed.stderr.try_clone().ok()?).read_to_string(&mut written).ok()?;
    let written = written.trim();
    (!written.is_empty()).then(|| written.to_owned())
}

impl Kept {
    fn stay(&mut self) -> io::Result<()> {
        greenroom_pages::let_go_of_code();
        let (stdout, stderr) = (self.jailed.stdout.try_clone()?, self.jailed.stderr.try_clone()?);
        let stderr_tail = log::copy(stdout, stderr, Path::new(HERE), &mut self.kills)?;
        let code = exit_code(self.init)?;
        let out_of_memory = code == 128 + libc::SIGKILL && self.kills.are_fresh();
        let ended = Ended { code: Some(code.into()), out_of_memory, stderr_tail };
        place::write_json(Path::new(HERE), place::EXIT, &ended)
    }
}

/// Waits for the first process's end, which is the sandbox's.
fn exit_code(init: Identity) -> io::Result<i32> {
    let status = retry_on_intr(|| waitpid(Pid::from_raw(init.pid), WaitOptions::empty()))?;
    let status = status.and_then(|(_, status)| status.exit_status().or(status.terminating_signal().map(|it| 128 + it)));
    status.ok_or_else(|| io::Error::other("the kernel does not say how the sandbox ended"))
}
