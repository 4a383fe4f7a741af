//! Processes as `/proc` shows them: who is who, who descends from whom, and how to stop them all by signals.
//!
//! Everything that runs in a sandbox descends from its first process, because an orphan in a pid namespace falls to that
//! namespace's first. So the family tree is the sandbox, and needs no right to look into namespaces.
//!
//! Nobody is thought gone because `/proc` could not be read, as where descriptors have run out: that is an error, and whoever
//! asks has learnt nothing.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{self, ErrorKind},
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one of the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    /// Clock ticks after boot: field 22 of `/proc/PID/stat`.
    pub started: u64,
}

impl ProcessIdentity {
    pub fn of(pid: i32) -> io::Result<Option<ProcessIdentity>> {
        Ok(ProcessStat::read(pid)?.map(|stat| stat.identity))
    }

    /// A handle on the process, if it is still the same and has not ended.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = pidfd_open(pid, PidfdFlags::empty());
        // Asked after the handle is there: whoever has the id now is whom the handle means. And why there is none does not
        // matter where the process is gone: of a thread that has the id now, say, there is no handle.
        match self.is_alive()? {
            true => Ok(Some(handle?)),
            false => Ok(None),
        }
    }

    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(ProcessStat::read(self.pid)?.is_some_and(|stat| stat.identity == *self && !stat.is_dead()))
    }

    /// Sends a signal. One that is gone is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(handle) = self.open()? else { return Ok(()) };
        match pidfd_send_signal(handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// The fields of `/proc/PID/stat` that are used here (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessStat {
    identity: ProcessIdentity,
    state: u8,
    parent: i32,
    cpu_ticks: u64,
    /// Also the first one, when it has ended before the others.
    threads: u64,
    resident_pages: u64,
}

/// What `/proc` has of a process. `None` where there is no such one, or none that this user is shown (`hidepid`).
fn if_visible<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        other => other.map(Some),
    }
}

impl ProcessStat {
    fn read(pid: i32) -> io::Result<Option<ProcessStat>> {
        ProcessStat::read_at(pid, Path::new(&format!("/proc/{pid}/stat")))
    }

    fn read_at(pid: i32, path: &Path) -> io::Result<Option<ProcessStat>> {
        // A process may give itself a name that is no text, and is there all the same.
        Ok(if_visible(fs::read(path))?.and_then(|line| ProcessStat::parse(pid, &String::from_utf8_lossy(&line))))
    }

    /// Its threads, each as if it were a process.
    fn of_threads(&self) -> io::Result<Vec<ProcessStat>> {
        let pid = self.identity.pid;
        let mut threads = Vec::new();
        for thread in if_visible(fs::read_dir(format!("/proc/{pid}/task")))?.into_iter().flatten() {
            if let Some(thread) = if_visible(thread)? {
                threads.extend(ProcessStat::read_at(pid, &thread.path().join("stat"))?);
            }
        }
        Ok(threads)
    }

    fn parse(pid: i32, line: &str) -> Option<ProcessStat> {
        // The name stands in parentheses and may hold any character, a closing one too.
        let fields: Vec<&str> = line.get(line.rfind(')')? + 2..)?.split(' ').collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(ProcessStat {
            identity: ProcessIdentity { pid, started: number(22)? },
            state: *fields.first()?.as_bytes().first()?,
            parent: fields.get(1)?.parse().ok()?,
            cpu_ticks: number(14)? + number(15)?,
            threads: number(20)?,
            resident_pages: number(24)?,
        })
    }

    /// Whose first thread has ended.
    fn is_headless(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn is_dead(&self) -> bool {
        self.is_headless() && self.threads <= 1
    }

    /// In a call that no signal ends. Once it is told to stop it takes no step outside the kernel any more; and it may not
    /// come out at all, as a parent in `vfork` does not while its child is stopped.
    fn is_uninterruptible(&self) -> bool {
        self.state == b'D'
    }

    fn is_stopped(&self) -> io::Result<bool> {
        let is_stopped = |stat: &ProcessStat| matches!(stat.state, b'T' | b't');
        Ok(match self.is_headless() {
            true => self.of_threads()?.iter().all(|thread| thread.is_headless() || is_stopped(thread)),
            false => is_stopped(self),
        })
    }
}

/// The process and all that descend from it.
fn process_tree(first: ProcessIdentity) -> io::Result<Vec<ProcessStat>> {
    let mut children: HashMap<i32, Vec<ProcessStat>> = HashMap::new();
    let mut found = Vec::new();
    for stat in every_process()? {
        if stat.identity == first {
            found.push(stat);
        }
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|stat| stat.identity.pid) {
        found.extend(children.remove(&parent).unwrap_or_default());
        next += 1;
    }
    Ok(found)
}

fn every_process() -> io::Result<Vec<ProcessStat>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) {
            found.extend(ProcessStat::read(pid)?);
        }
    }
    Ok(found)
}

/// The same, without looking at the rest of the host. The kernel may leave a child out while another one ends, so this
/// finds whom to stop soonest, and not that all are stopped.
fn process_tree_by_children(first: ProcessIdentity) -> io::Result<Vec<ProcessStat>> {
    let mut found: Vec<ProcessStat> =
        ProcessStat::read(first.pid)?.filter(|stat| stat.identity == first).into_iter().collect();
    let mut next = 0;
    while let Some(parent) = found.get(next).map(|stat| stat.identity.pid) {
        for child in children(parent) {
            found.extend(ProcessStat::read(child)?.filter(|stat| stat.parent == parent));
        }
        next += 1;
    }
    Ok(found)
}

/// Of each thread. Empty where the kernel was built without this list (`CONFIG_PROC_CHILDREN`), or it cannot be read: whoever
/// misses somebody in it looks at every process.
fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// The only child of a process, as the jail's first process is of its builder.
pub fn only_child(parent: i32) -> io::Result<Option<ProcessIdentity>> {
    if let Some(child) = children(parent).first()
        && let Some(listed) = ProcessIdentity::of(*child)?
    {
        return Ok(Some(listed));
    }
    Ok(every_process()?.into_iter().find(|stat| stat.parent == parent).map(|stat| stat.identity))
}

/// Who of the family stands still.
pub fn stopped_processes(first: ProcessIdentity) -> io::Result<Vec<ProcessIdentity>> {
    let mut still = Vec::new();
    for stat in process_tree(first)? {
        if stat.is_stopped()? {
            still.push(stat.identity);
        }
    }
    Ok(still)
}

/// Who of these goes on, and may yet do something before it stands still as it was told.
fn not_yet_stopped(of: Vec<ProcessStat>, told: &HashSet<ProcessIdentity>) -> io::Result<Vec<ProcessStat>> {
    let mut moving = Vec::new();
    for stat in of {
        let is_held = stat.is_uninterruptible() && told.contains(&stat.identity) || stat.is_stopped()?;
        if !is_held {
            moving.push(stat);
        }
    }
    Ok(moving)
}

/// Stops the whole family, also one that forks meanwhile: who is stopped forks no more, so each round leaves fewer. Where not
/// all of it stands still in time, or that cannot be told, some of it does.
pub fn stop_all(first: ProcessIdentity, patience: Duration) -> io::Result<()> {
    let began = Instant::now();
    let mut now = process_tree(first)?;
    let mut told = HashSet::new();
    loop {
        let mut left = not_yet_stopped(now, &told)?;
        if left.is_empty() {
            left = not_yet_stopped(process_tree(first)?, &told)?;
        }
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > patience {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("{} processes do not stand still", left.len())));
        }
        for stat in left {
            stat.identity.signal(Signal::STOP)?;
            told.insert(stat.identity);
        }
        now = process_tree_by_children(first)?;
    }
}

/// Lets the family go on, but for those who stood still before.
pub fn continue_all(first: ProcessIdentity, but: &[ProcessIdentity]) -> io::Result<()> {
    let but: HashSet<&ProcessIdentity> = but.iter().collect();
    // The youngest first: a parent that wakes must not find its child stopped.
    for stat in process_tree(first)?.into_iter().rev().filter(|stat| !but.contains(&stat.identity)) {
        stat.identity.signal(Signal::CONT)?;
    }
    Ok(())
}

/// What a sandbox takes right now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub memory_bytes: u64,
    /// CPU time so far, microseconds.
    pub cpu_us: u64,
    pub processes: u64,
}

/// What the family takes: the sum of what each shows, so memory that they share is counted more than once.
pub fn usage(first: ProcessIdentity) -> io::Result<ResourceUsage> {
    let (page, tick) = (rustix::param::page_size() as u64, rustix::param::clock_ticks_per_second());
    Ok(process_tree(first)?.iter().filter(|stat| !stat.is_dead()).fold(ResourceUsage::default(), |sum, stat| {
        ResourceUsage {
            memory_bytes: sum.memory_bytes + stat.resident_pages * page,
            cpu_us: sum.cpu_us + stat.cpu_ticks * 1_000_000 / tick,
            processes: sum.processes + 1,
        }
    }))
}

#[cfg(test)]
mod tests {
    use std::{
        ffi::OsStr,
        os::unix::{ffi::OsStrExt, process::CommandExt},
    };

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 7 9 9 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 4242 10000 55 184467";
        for name in ["sh", "a b", "x) R 1 (", ")"] {
            let stat = ProcessStat::parse(9, &format!("9 ({name}) {rest}")).expect("it is understood");
            let identity = ProcessIdentity { pid: 9, started: 4242 };
            let expected =
                ProcessStat { identity, state: b'S', parent: 7, cpu_ticks: 42, threads: 1, resident_pages: 55 };
            assert_eq!(stat, expected, "{name}");
        }
        assert_eq!(ProcessStat::parse(9, "9 (sh) S 7"), None);
    }

    const LOSE_FIRST_THREAD: &str = "GREENROOM_TEST_PROCESS_TO_LOSE_ITS_FIRST_THREAD";

    /// Not a test of its own: the process of the next one.
    #[test]
    fn works_on_without_its_first_thread() {
        extern "C" fn end(_: libc::c_int) {
            // SAFETY: it ends this thread alone, which has nothing that anybody else uses.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        if std::env::var_os(LOSE_FIRST_THREAD).is_none() {
            return;
        }
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1000)));
        let first = std::process::id();
        // SAFETY: the handler does one system call.
        unsafe {
            libc::signal(libc::SIGUSR1, end as *const () as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, first, first, libc::SIGUSR1);
        }
        std::thread::sleep(Duration::from_secs(1000));
    }

    #[test]
    fn a_process_lives_as_long_as_any_of_its_threads() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("our own"))
            .args(["--exact", "processes::tests::works_on_without_its_first_thread"])
            .env(LOSE_FIRST_THREAD, "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it runs");
        let first = ProcessIdentity::of(child.id() as i32).expect("it is read").expect("it is there");
        let is_headless = || ProcessStat::read(first.pid).expect("it is read").is_some_and(|stat| stat.is_headless());
        let still = || stopped_processes(first).expect("they are read");
        let began = Instant::now();
        while !is_headless() {
            assert!(began.elapsed() < Duration::from_secs(10), "its first thread goes on");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(first.is_alive().expect("it is read"));
        assert_eq!(usage(first).expect("they are read").processes, 1);
        assert!(still().is_empty());
        stop_all(first, Duration::from_secs(10)).expect("it stands still");
        assert_eq!(still(), [first]);
        continue_all(first, &[]).expect("it goes on");
        let began = Instant::now();
        while !still().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "it stands still");
        }
        first.signal(Signal::KILL).expect("it is told");
        child.wait().expect("it ends");
        assert!(!first.is_alive().expect("it is read"));
        assert!(first.open().expect("it is read").is_none());
    }

    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        let name = OsStr::from_bytes(b"greenroom-\xff");
        let dir = std::env::temp_dir().join(format!("greenroom-{}", std::process::id()));
        fs::create_dir(&dir).expect("it is made");
        let program = dir.join(name);
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("it is made");
        let mut child = std::process::Command::new(&program).arg0("sleep").arg("1000").spawn().expect("it runs");
        let pid = child.id() as i32;
        let named = fs::read(format!("/proc/{pid}/comm")).expect("it is there");
        let identity = ProcessIdentity::of(pid).expect("it is read").expect("it is there");
        let (alive, counted) = (identity.is_alive(), usage(identity));
        child.kill().expect("it is killed");
        child.wait().expect("it ends");
        fs::remove_dir_all(dir).expect("it is removed");
        assert_eq!(named.trim_ascii_end(), name.as_bytes());
        assert!(alive.expect("it is read"));
        assert_eq!(counted.expect("they are read").processes, 1);
    }

    const WITHOUT_DESCRIPTORS: &str = "GREENROOM_TEST_PROCESS_WITHOUT_DESCRIPTORS";

    /// In a process of its own, because the limit is one of the whole process.
    #[test]
    fn nobody_is_gone_because_descriptors_have_run_out() {
        if std::env::var_os(WITHOUT_DESCRIPTORS).is_none() {
            let alone = std::process::Command::new(std::env::current_exe().expect("our own"))
                .args(["--exact", "processes::tests::nobody_is_gone_because_descriptors_have_run_out"])
                .env(WITHOUT_DESCRIPTORS, "1")
                .output()
                .expect("it runs");
            return assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        }
        let me = ProcessIdentity::of(std::process::id() as i32).expect("it is read").expect("this process lives");
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).expect("there may be fewer");
        let told = [
            ProcessIdentity::of(me.pid).map(drop),
            me.open().map(drop),
            me.is_alive().map(drop),
            me.signal(Signal::CONT),
            only_child(me.pid).map(drop),
            stopped_processes(me).map(drop),
            continue_all(me, &[]),
            usage(me).map(drop),
        ];
        setrlimit(Resource::Nofile, before).expect("as before");
        for (index, told) in told.into_iter().enumerate() {
            assert_eq!(told.map_err(|e| e.raw_os_error()), Err(Some(libc::EMFILE)), "question {index}");
        }
        assert!(me.is_alive().expect("it is read"));
    }
}
