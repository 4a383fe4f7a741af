//! Processes as `/proc` shows them: identity, descent, and stopping of a whole process tree by
//! signals.
//!
//! Every process of a sandbox descends from the sandbox's first process. An orphan in a pid
//! namespace becomes a child of the namespace's first process. The process tree therefore is the
//! sandbox, and no right to inspect namespaces is needed.
//!
//! An unreadable `/proc` is an error, for example if descriptors have run out. No process counts as
//! gone because of it.

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

/// Identity of a process, distinct from a later process with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: i32,
    /// Start time in clock ticks after boot: field 22 of `/proc/PID/stat`.
    pub started: u64,
}

impl ProcessIdentity {
    /// Reads the identity of a process. Returns `None` if it does not exist or is hidden.
    pub fn of(pid: i32) -> io::Result<Option<ProcessIdentity>> {
        Ok(ProcessStat::read(pid)?.map(|stat| stat.identity))
    }

    /// Returns a handle on the process if it is still the same and has not ended.
    pub fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let handle = pidfd_open(pid, PidfdFlags::empty());
        // The check follows the open: if the identity still matches, the handle refers to this
        // process. If the process is gone, the error of the open does not matter. For example, a
        // thread that now has the id has no handle.
        match self.is_alive()? {
            true => Ok(Some(handle?)),
            false => Ok(None),
        }
    }

    /// Returns true if the process is still the same and has not ended.
    pub fn is_alive(&self) -> io::Result<bool> {
        Ok(ProcessStat::read(self.pid)?.is_some_and(|stat| stat.identity == *self && !stat.is_dead()))
    }

    /// Sends a signal. A process that is gone is no error.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let Some(handle) = self.open()? else { return Ok(()) };
        match pidfd_send_signal(handle, signal) {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Used fields of `/proc/PID/stat`, see proc_pid_stat(5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessStat {
    identity: ProcessIdentity,
    state: u8,
    parent: i32,
    cpu_ticks: u64,
    /// Number of threads. Includes the first thread if it ended before the others.
    threads: u64,
    resident_pages: u64,
}

/// Maps an error of `/proc` to `None` if the process does not exist or is hidden from this user
/// (`hidepid`).
fn if_visible<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
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
        // A process may have a name that is not UTF-8. It must be found all the same.
        Ok(if_visible(fs::read(path))?.and_then(|line| ProcessStat::parse(pid, &String::from_utf8_lossy(&line))))
    }

    /// Reads the process's threads, each as if it were a process.
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
        // The name stands in parentheses and may hold any character, even a closing parenthesis.
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

    /// Returns true if the first thread has ended.
    fn is_headless(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }

    fn is_dead(&self) -> bool {
        self.is_headless() && self.threads <= 1
    }

    /// Returns true if the process is in a system call that no signal interrupts.
    ///
    /// After a stop signal, such a process executes no more code outside the kernel. It may stay in
    /// the call, as a parent in `vfork` does while its child is stopped.
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

/// Returns the process and all its descendants.
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

/// Returns the process tree without reading the other processes of the host.
///
/// The kernel may omit a child while another child ends. The result therefore serves to stop
/// processes soon, not to prove that all are stopped.
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

/// Returns the children of all threads of a process.
///
/// Empty if the kernel lacks the list (`CONFIG_PROC_CHILDREN`), or if it is unreadable. A caller
/// that needs all children must read every process.
fn children(parent: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Returns the only child of a process, such as the jail's first process, whose parent is the
/// builder.
pub fn only_child(parent: i32) -> io::Result<Option<ProcessIdentity>> {
    if let Some(child) = children(parent).first()
        && let Some(listed) = ProcessIdentity::of(*child)?
    {
        return Ok(Some(listed));
    }
    Ok(every_process()?.into_iter().find(|stat| stat.parent == parent).map(|stat| stat.identity))
}

/// Returns the stopped processes of the tree.
pub fn stopped_processes(first: ProcessIdentity) -> io::Result<Vec<ProcessIdentity>> {
    let mut stopped = Vec::new();
    for stat in process_tree(first)? {
        if stat.is_stopped()? {
            stopped.push(stat.identity);
        }
    }
    Ok(stopped)
}

/// Returns the processes that may still execute code before they stop as signalled.
fn not_yet_stopped(stats: Vec<ProcessStat>, signalled: &HashSet<ProcessIdentity>) -> io::Result<Vec<ProcessStat>> {
    let mut running = Vec::new();
    for stat in stats {
        let is_held = stat.is_uninterruptible() && signalled.contains(&stat.identity) || stat.is_stopped()?;
        if !is_held {
            running.push(stat);
        }
    }
    Ok(running)
}

/// Stops the whole process tree, even if it forks meanwhile. A stopped process forks no more, so
/// each round leaves fewer.
///
/// # Errors
/// Returns `TimedOut` if a process does not stop in time, or the error of `/proc`. Some processes
/// may then be stopped.
pub fn stop_all(first: ProcessIdentity, timeout: Duration) -> io::Result<()> {
    let began = Instant::now();
    let mut stats = process_tree(first)?;
    let mut signalled = HashSet::new();
    loop {
        let mut left = not_yet_stopped(stats, &signalled)?;
        if left.is_empty() {
            left = not_yet_stopped(process_tree(first)?, &signalled)?;
        }
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > timeout {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("{} processes did not stop in time", left.len())));
        }
        for stat in left {
            stat.identity.signal(Signal::STOP)?;
            signalled.insert(stat.identity);
        }
        stats = process_tree_by_children(first)?;
    }
}

/// Continues the process tree, except the processes in `stopped_before`.
pub fn continue_all(first: ProcessIdentity, stopped_before: &[ProcessIdentity]) -> io::Result<()> {
    let stopped_before: HashSet<&ProcessIdentity> = stopped_before.iter().collect();
    // Children first: a parent that continues must not find its child stopped.
    for stat in process_tree(first)?.into_iter().rev().filter(|stat| !stopped_before.contains(&stat.identity)) {
        stat.identity.signal(Signal::CONT)?;
    }
    Ok(())
}

/// Current resource usage of a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUsage {
    pub memory_bytes: u64,
    /// CPU time so far, in microseconds.
    pub cpu_us: u64,
    pub processes: u64,
}

/// Sums the usage of all processes of the tree. Shared memory counts once per process.
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
    fn process_name_may_hold_any_character() {
        let rest = "S 7 9 9 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 4242 10000 55 184467";
        for name in ["sh", "a b", "x) R 1 (", ")"] {
            let stat = ProcessStat::parse(9, &format!("9 ({name}) {rest}")).expect("the line is well-formed");
            let identity = ProcessIdentity { pid: 9, started: 4242 };
            let expected =
                ProcessStat { identity, state: b'S', parent: 7, cpu_ticks: 42, threads: 1, resident_pages: 55 };
            assert_eq!(stat, expected, "{name}");
        }
        assert_eq!(ProcessStat::parse(9, "9 (sh) S 7"), None);
    }

    const LOSE_FIRST_THREAD: &str = "GREENROOM_TEST_PROCESS_TO_LOSE_ITS_FIRST_THREAD";

    /// Helper process of the next test, not a test of its own.
    #[test]
    fn helper_process_that_loses_its_first_thread() {
        extern "C" fn end(_: libc::c_int) {
            // SAFETY: the call ends this thread alone, and no other thread uses its data.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        if std::env::var_os(LOSE_FIRST_THREAD).is_none() {
            return;
        }
        std::thread::spawn(|| std::thread::sleep(Duration::from_secs(1000)));
        let first = std::process::id();
        // SAFETY: the handler makes one system call.
        unsafe {
            libc::signal(libc::SIGUSR1, end as *const () as libc::sighandler_t);
            libc::syscall(libc::SYS_tgkill, first, first, libc::SIGUSR1);
        }
        std::thread::sleep(Duration::from_secs(1000));
    }

    #[test]
    fn process_lives_as_long_as_any_of_its_threads() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("the test's executable is known"))
            .args(["--exact", "processes::tests::helper_process_that_loses_its_first_thread"])
            .env(LOSE_FIRST_THREAD, "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("the process starts");
        let first = ProcessIdentity::of(child.id() as i32).expect("`/proc` is readable").expect("the process exists");
        let is_headless =
            || ProcessStat::read(first.pid).expect("`/proc` is readable").is_some_and(|stat| stat.is_headless());
        let stopped = || stopped_processes(first).expect("`/proc` is readable");
        let began = Instant::now();
        while !is_headless() {
            assert!(began.elapsed() < Duration::from_secs(10), "the first thread still runs");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(first.is_alive().expect("`/proc` is readable"));
        assert_eq!(usage(first).expect("`/proc` is readable").processes, 1);
        assert!(stopped().is_empty());
        stop_all(first, Duration::from_secs(10)).expect("the process stops in time");
        assert_eq!(stopped(), [first]);
        continue_all(first, &[]).expect("the process is continued");
        let began = Instant::now();
        while !stopped().is_empty() {
            assert!(began.elapsed() < Duration::from_secs(10), "the process is still stopped");
        }
        first.signal(Signal::KILL).expect("the signal is sent");
        child.wait().expect("the process ends");
        assert!(!first.is_alive().expect("`/proc` is readable"));
        assert!(first.open().expect("`/proc` is readable").is_none());
    }

    #[test]
    fn process_whose_name_is_not_utf8_is_found() {
        let name = OsStr::from_bytes(b"greenroom-\xff");
        let dir = std::env::temp_dir().join(format!("greenroom-{}", std::process::id()));
        fs::create_dir(&dir).expect("the temporary directory is writable");
        let program = dir.join(name);
        std::os::unix::fs::symlink("/bin/sleep", &program).expect("the temporary directory is writable");
        let mut child =
            std::process::Command::new(&program).arg0("sleep").arg("1000").spawn().expect("the process starts");
        let pid = child.id() as i32;
        let named = fs::read(format!("/proc/{pid}/comm")).expect("the process exists");
        let identity = ProcessIdentity::of(pid).expect("`/proc` is readable").expect("the process exists");
        let (alive, counted) = (identity.is_alive(), usage(identity));
        child.kill().expect("the process is a child of this test");
        child.wait().expect("the process ends");
        fs::remove_dir_all(dir).expect("the directory belongs to this test");
        assert_eq!(named.trim_ascii_end(), name.as_bytes());
        assert!(alive.expect("`/proc` is readable"));
        assert_eq!(counted.expect("`/proc` is readable").processes, 1);
    }

    const WITHOUT_DESCRIPTORS: &str = "GREENROOM_TEST_PROCESS_WITHOUT_DESCRIPTORS";

    /// Runs in a process of its own, because the limit holds for the whole process.
    #[test]
    fn lack_of_descriptors_is_an_error_and_no_process_is_gone() {
        if std::env::var_os(WITHOUT_DESCRIPTORS).is_none() {
            let alone = std::process::Command::new(std::env::current_exe().expect("the test's executable is known"))
                .args(["--exact", "processes::tests::lack_of_descriptors_is_an_error_and_no_process_is_gone"])
                .env(WITHOUT_DESCRIPTORS, "1")
                .output()
                .expect("the process starts");
            return assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        }
        let me =
            ProcessIdentity::of(std::process::id() as i32).expect("`/proc` is readable").expect("this process exists");
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).expect("a lower limit is permitted");
        let results = [
            ProcessIdentity::of(me.pid).map(drop),
            me.open().map(drop),
            me.is_alive().map(drop),
            me.signal(Signal::CONT),
            only_child(me.pid).map(drop),
            stopped_processes(me).map(drop),
            continue_all(me, &[]),
            usage(me).map(drop),
        ];
        setrlimit(Resource::Nofile, before).expect("the earlier limit is permitted");
        for (index, result) in results.into_iter().enumerate() {
            assert_eq!(result.map_err(|e| e.raw_os_error()), Err(Some(libc::EMFILE)), "call {index}");
        }
        assert!(me.is_alive().expect("`/proc` is readable"));
    }
}
