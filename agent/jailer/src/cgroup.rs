//! Control groups, versions 1 and 2: they freeze, count and limit a sandbox.
//!
//! Used if the host permits it. Root can create control groups, an ordinary user mostly cannot.

use std::{
    fs::{self, File},
    io::{self, ErrorKind},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFlags, eventfd},
    io::Errno,
    process::{Pid, Signal},
};
use serde::{Deserialize, Serialize};

use crate::{processes::ResourceUsage, request::JailLimits};

const CGROUP_MOUNT: &str = "/sys/fs/cgroup";
const CPU_PERIOD_US: f64 = 100_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum CgroupVersion {
    V1,
    V2,
}

/// Control groups of one sandbox: a directory per controller. In version 2 all controllers share
/// one directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: CgroupVersion,
    freezer: PathBuf,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    /// Version 1 counts CPU time with another controller than the one that limits CPU time.
    cpuacct: Option<PathBuf>,
}

/// Control groups below which this node may create groups for its sandboxes.
#[derive(Debug, Clone)]
pub struct NodeCgroups {
    node_cgroup: Cgroup,
}

impl NodeCgroups {
    /// Creates the node's control groups. Returns `None` if there are none, or none that this user
    /// may write.
    pub fn find(node: &str) -> Option<NodeCgroups> {
        NodeCgroups::find_below(Path::new(CGROUP_MOUNT), node)
    }

    /// Like [`NodeCgroups::find`], below another mount point.
    pub fn find_below(mounted: &Path, node: &str) -> Option<NodeCgroups> {
        let name = format!("greenroom-{node}");
        let node_cgroup = match mounted.join("cgroup.controllers").exists() {
            true => version_2(mounted, &name)?,
            false => version_1(mounted, &name)?,
        };
        Some(NodeCgroups { node_cgroup })
    }

    /// Paths of a session's control group. Nothing is created.
    pub fn of(&self, session: &str) -> Cgroup {
        self.node_cgroup.map(|dir| dir.join(session))
    }

    /// Returns true if these control groups can limit memory.
    pub fn limits_memory(&self) -> bool {
        self.node_cgroup.memory.is_some()
    }

    /// Returns true if these control groups can limit CPU time.
    pub fn limits_cpu(&self) -> bool {
        self.node_cgroup.cpu.is_some()
    }
}

fn version_1(mounted: &Path, name: &str) -> Option<Cgroup> {
    let make = |controller: &str| {
        let dir = mounted.join(controller);
        let dir = dir.is_dir().then(|| dir.join(name))?;
        create_writable(&dir).map(|()| dir)
    };
    Some(Cgroup {
        version: CgroupVersion::V1,
        freezer: make("freezer")?,
        memory: make("memory"),
        pids: make("pids"),
        cpu: make("cpu"),
        cpuacct: make("cpuacct"),
    })
}

fn version_2(mounted: &Path, name: &str) -> Option<Cgroup> {
    let above = match rustix::process::geteuid().is_root() {
        true => mounted.to_owned(),
        // An ordinary user may own the part of the tree that it runs in.
        false => mounted.join(own_group(&fs::read_to_string("/proc/self/cgroup").ok()?)?),
    };
    let dir = above.join(name);
    create_writable(&dir)?;
    for controller in ["memory", "pids", "cpu"] {
        // Rejected if the group above holds processes itself. Then only freezing is available.
        let _ = fs::write(above.join("cgroup.subtree_control"), format!("+{controller}"));
        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    let enabled = fs::read_to_string(dir.join("cgroup.subtree_control")).ok()?;
    let has = |controller: &str| enabled.split_whitespace().any(|it| it == controller).then(|| dir.clone());
    Some(Cgroup {
        version: CgroupVersion::V2,
        memory: has("memory"),
        pids: has("pids"),
        cpu: has("cpu"),
        cpuacct: Some(dir.clone()),
        freezer: dir,
    })
}

/// Creates the directory, or checks that the existing one is writable: it may belong to another
/// user.
fn create_writable(dir: &Path) -> Option<()> {
    fs::create_dir_all(dir).ok()?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).ok()
}

/// Returns the relative path from the line `0::/path`.
fn own_group(listed: &str) -> Option<&str> {
    listed.lines().find_map(|line| line.strip_prefix("0::/"))
}

impl Cgroup {
    fn map(&self, each: impl Fn(&Path) -> PathBuf) -> Cgroup {
        let of = |dir: &Option<PathBuf>| dir.as_deref().map(&each);
        Cgroup {
            version: self.version,
            freezer: each(&self.freezer),
            memory: of(&self.memory),
            pids: of(&self.pids),
            cpu: of(&self.cpu),
            cpuacct: of(&self.cpuacct),
        }
    }

    fn dirs(&self) -> Vec<&Path> {
        let others = [&self.memory, &self.pids, &self.cpu, &self.cpuacct];
        let mut dirs: Vec<&Path> = others.into_iter().flatten().map(PathBuf::as_path).collect();
        dirs.push(&self.freezer);
        dirs.sort();
        dirs.dedup();
        dirs
    }

    /// Returns true if the group limits memory.
    pub fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Returns true if the group limits the number of processes.
    pub fn limits_pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Creates the control group with its limits. A group from an earlier run is removed first.
    ///
    /// # Errors
    /// Returns the I/O error of the removal, or of a file that sets a limit.
    pub fn make(&self, limits: &JailLimits, timeout: Duration) -> io::Result<()> {
        self.remove(timeout)?;
        for dir in self.dirs() {
            fs::create_dir_all(dir)?;
        }
        let quota = (limits.cpus * CPU_PERIOD_US) as u64;
        if let Some(dir) = &self.pids {
            fs::write(dir.join("pids.max"), limits.pids.to_string())?;
        }
        match self.version {
            CgroupVersion::V1 => {
                set(&self.memory, "memory.limit_in_bytes", limits.memory_bytes)?;
                // Without swap accounting this file does not exist, and swap is not limited.
                let _ = set(&self.memory, "memory.memsw.limit_in_bytes", limits.memory_bytes);
                set(&self.cpu, "cpu.cfs_period_us", CPU_PERIOD_US)?;
                set(&self.cpu, "cpu.cfs_quota_us", quota)
            }
            CgroupVersion::V2 => {
                set(&self.memory, "memory.max", limits.memory_bytes)?;
                let _ = set(&self.memory, "memory.swap.max", 0);
                set(&self.cpu, "cpu.max", format!("{quota} {CPU_PERIOD_US}"))
            }
        }
    }

    /// Files that accept a process id, which adds the process and its future children.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.dirs().into_iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// Freezes the group. Returns when every process is frozen.
    ///
    /// # Errors
    /// Returns `TimedOut` if a process is not frozen in time. All processes are then unfrozen.
    pub fn freeze(&self, timeout: Duration) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match self.version {
                // Written again in each round: a process forked during the freeze may need it.
                CgroupVersion::V1 => fs::write(self.freezer.join("freezer.state"), "FROZEN")?,
                CgroupVersion::V2 => fs::write(self.freezer.join("cgroup.freeze"), "1")?,
            }
            // An unreadable state counts as not frozen. A later round may be able to read it.
            if self.is_frozen().unwrap_or(false) {
                return Ok(());
            }
            if began.elapsed() > timeout {
                self.unfreeze()?;
                return Err(io::Error::new(ErrorKind::TimedOut, "the kernel did not freeze every process in time"));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Unfreezes the group. Its processes continue.
    pub fn unfreeze(&self) -> io::Result<()> {
        match self.version {
            CgroupVersion::V1 => fs::write(self.freezer.join("freezer.state"), "THAWED"),
            CgroupVersion::V2 => fs::write(self.freezer.join("cgroup.freeze"), "0"),
        }
    }

    /// Returns true if the group is frozen. A group that does not exist is not frozen.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let (file, frozen) = match self.version {
            CgroupVersion::V1 => ("freezer.state", "FROZEN"),
            CgroupVersion::V2 => ("cgroup.events", "frozen 1"),
        };
        match fs::read_to_string(self.freezer.join(file)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            // The group was removed while the file was open.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            state => Ok(state?.lines().any(|line| line.trim() == frozen)),
        }
    }

    /// Current usage. Returns `None` unless control groups count memory, CPU time and processes.
    pub fn usage(&self) -> Option<ResourceUsage> {
        let (memory, cpuacct, pids) = (self.memory.as_ref()?, self.cpuacct.as_ref()?, self.pids.as_ref()?);
        let (used, idle_cache, cpu_us) = match self.version {
            CgroupVersion::V1 => (
                number(&memory.join("memory.usage_in_bytes"))?,
                field(&memory.join("memory.stat"), "total_inactive_file"),
                number(&cpuacct.join("cpuacct.usage"))? / 1000,
            ),
            CgroupVersion::V2 => (
                number(&memory.join("memory.current"))?,
                field(&memory.join("memory.stat"), "inactive_file"),
                field(&cpuacct.join("cpu.stat"), "usage_usec")?,
            ),
        };
        // The kernel can reclaim the inactive cache at once, so it does not count as used memory.
        let memory_bytes = used.saturating_sub(idle_cache.unwrap_or_default());
        Some(ResourceUsage { memory_bytes, cpu_us, processes: number(&pids.join("pids.current"))? })
    }

    /// Number of this group's processes that the kernel has killed for lack of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        let Some(memory) = &self.memory else { return 0 };
        let counted = match self.version {
            CgroupVersion::V1 => field(&memory.join("memory.oom_control"), "oom_kill"),
            CgroupVersion::V2 => field(&memory.join("memory.events"), "oom_kill"),
        };
        counted.unwrap_or_default()
    }

    /// Returns a file and its poll event, which signals memory pressure or an out-of-memory
    /// condition of the group.
    ///
    /// The caller needs the privileges of the user that created the group.
    pub fn memory_events(&self) -> io::Result<(File, PollFlags)> {
        let memory = self.memory.as_ref().ok_or(ErrorKind::Unsupported)?;
        match self.version {
            CgroupVersion::V1 => {
                let events = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
                let oom_control = File::open(memory.join("memory.oom_control"))?;
                let registration = format!("{} {}", events.as_raw_fd(), oom_control.as_raw_fd());
                fs::write(memory.join("cgroup.event_control"), registration)?;
                Ok((events, PollFlags::IN))
            }
            CgroupVersion::V2 => Ok((File::open(memory.join("memory.events"))?, PollFlags::PRI)),
        }
    }

    /// Kills the remaining processes. Frozen processes do not end with the jailer, although they
    /// should.
    fn kill_all(&self) -> io::Result<()> {
        let listed = fs::read_to_string(self.freezer.join("cgroup.procs"))?;
        for pid in listed.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
            match rustix::process::kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // Version 1 does not even kill a frozen process before it is unfrozen.
        self.unfreeze()
    }

    /// Removes the group and kills its remaining processes, which takes the kernel a moment. A
    /// missing group is no error.
    pub fn remove(&self, timeout: Duration) -> io::Result<()> {
        let began = Instant::now();
        for dir in self.dirs() {
            loop {
                match fs::remove_dir(dir) {
                    Err(e) if e.kind() == ErrorKind::ResourceBusy && began.elapsed() < timeout => {
                        self.kill_all()?;
                        thread::sleep(Duration::from_millis(1));
                    }
                    Err(e) if e.kind() == ErrorKind::NotFound => break,
                    other => break other?,
                }
            }
        }
        Ok(())
    }
}

fn set(dir: &Option<PathBuf>, file: &str, value: impl ToString) -> io::Result<()> {
    match dir {
        Some(dir) => fs::write(dir.join(file), value.to_string()),
        None => Ok(()),
    }
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Returns the number from the line `name number`.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// Group of processes that are always busy. The processes end with it.
    struct BusyProcesses {
        node_cgroup: Cgroup,
        cgroup: Cgroup,
        processes: Vec<Child>,
    }

    impl BusyProcesses {
        fn start(cgroups: &NodeCgroups) -> BusyProcesses {
            let cgroup = cgroups.of("busy");
            let limits = JailLimits { memory_bytes: 1 << 30, cpus: 4.0, pids: 64 };
            cgroup.make(&limits, TIMEOUT).expect("the test may create control groups");
            let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("`sh` starts");
            let processes: Vec<Child> = (0..4).map(busy).collect();
            for file in cgroup.procs_files() {
                let add = |process: &Child| fs::write(&file, process.id().to_string()).expect("the group accepts it");
                processes.iter().for_each(add);
            }
            BusyProcesses { node_cgroup: cgroups.node_cgroup.clone(), cgroup, processes }
        }

        /// Returns true if the group is frozen or being frozen.
        fn is_freezing(&self) -> bool {
            let (file, unfrozen) = match self.cgroup.version {
                CgroupVersion::V1 => ("freezer.state", "THAWED"),
                CgroupVersion::V2 => ("cgroup.freeze", "0"),
            };
            fs::read_to_string(self.cgroup.freezer.join(file)).expect("the state is readable").trim() != unfrozen
        }
    }

    impl Drop for BusyProcesses {
        fn drop(&mut self) {
            let removed = self.cgroup.remove(TIMEOUT);
            for process in &mut self.processes {
                let _ = process.wait();
            }
            for dir in self.node_cgroup.dirs() {
                // Another test may have a group there.
                let _ = fs::remove_dir(dir);
            }
            assert!(removed.is_ok() || thread::panicking(), "{removed:?}");
        }
    }

    #[test]
    fn freeze_that_times_out_leaves_nothing_frozen() {
        for mounted in [CGROUP_MOUNT, "/sys/fs/cgroup/unified"] {
            let Some(cgroups) = NodeCgroups::find_below(Path::new(mounted), "jailer-test") else { continue };
            let busy = BusyProcesses::start(&cgroups);
            // A process that runs on another processor is not frozen at once. The loop ends when a
            // freeze has timed out.
            while busy.cgroup.freeze(Duration::ZERO).is_ok() {
                busy.cgroup.unfreeze().expect("the group exists");
            }
            assert!(!busy.is_freezing());
            thread::sleep(Duration::from_millis(50));
            assert!(!busy.is_freezing(), "no freeze follows later");
        }
    }
}
