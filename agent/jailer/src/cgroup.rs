//! Control groups, version 1 and 2: where a sandbox is frozen at once, counted and limited. Used where the host lets us
//! make one, which root can and an ordinary user mostly cannot.

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

/// The control groups of one sandbox: a directory for each controller, in version 2 always the same one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: CgroupVersion,
    freezer: PathBuf,
    memory: Option<PathBuf>,
    pids: Option<PathBuf>,
    cpu: Option<PathBuf>,
    /// Version 1 counts CPU time apart from limiting it.
    cpuacct: Option<PathBuf>,
}

/// Where this node may make control groups.
#[derive(Debug, Clone)]
pub struct NodeCgroups {
    node_cgroup: Cgroup,
}

impl NodeCgroups {
    /// Looks for them by making one. `None` where there are none, or none for this user.
    pub fn find(node: &str) -> Option<NodeCgroups> {
        NodeCgroups::find_below(Path::new(CGROUP_MOUNT), node)
    }

    pub fn find_below(mounted: &Path, node: &str) -> Option<NodeCgroups> {
        let name = format!("greenroom-{node}");
        let of_node = match mounted.join("cgroup.controllers").exists() {
            true => version_2(mounted, &name)?,
            false => version_1(mounted, &name)?,
        };
        Some(NodeCgroups { node_cgroup: of_node })
    }

    pub fn of(&self, session: &str) -> Cgroup {
        self.node_cgroup.map(|dir| dir.join(session))
    }

    pub fn limits_memory(&self) -> bool {
        self.node_cgroup.memory.is_some()
    }

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
        // An ordinary user may have been given the part of the tree that it runs in.
        false => mounted.join(own_group(&fs::read_to_string("/proc/self/cgroup").ok()?)?),
    };
    let dir = above.join(name);
    create_writable(&dir)?;
    for controller in ["memory", "pids", "cpu"] {
        // Refused where the group above holds processes itself; then freezing is all that can be had.
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

/// One that is there may be another user's.
fn create_writable(dir: &Path) -> Option<()> {
    fs::create_dir_all(dir).ok()?;
    rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).ok()
}

/// The path in the line `0::/path`, relative.
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

    pub fn limits_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub fn limits_pids(&self) -> bool {
        self.pids.is_some()
    }

    /// Makes it, with its limits and no past: one that an earlier run left goes first.
    pub fn make(&self, limits: &JailLimits, patience: Duration) -> io::Result<()> {
        self.remove(patience)?;
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
                // Where swap is not accounted there is no such file; then swap is not limited.
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

    /// The files that take a process id, and with it that process and all that it will start.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        self.dirs().into_iter().map(|dir| dir.join("cgroup.procs")).collect()
    }

    /// Returns when every process stands still. Where not all do in time, none is left so.
    pub fn freeze(&self, patience: Duration) -> io::Result<()> {
        let began = Instant::now();
        loop {
            match self.version {
                // Written again each time: a fork while it froze may have to be taken too.
                CgroupVersion::V1 => fs::write(self.freezer.join("freezer.state"), "FROZEN")?,
                CgroupVersion::V2 => fs::write(self.freezer.join("cgroup.freeze"), "1")?,
            }
            // What cannot be read now may be read in a moment, and is not frozen until then.
            if self.is_frozen().unwrap_or(false) {
                return Ok(());
            }
            if began.elapsed() > patience {
                self.unfreeze()?;
                return Err(io::Error::new(ErrorKind::TimedOut, "the kernel has not frozen every process"));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    pub fn unfreeze(&self) -> io::Result<()> {
        match self.version {
            CgroupVersion::V1 => fs::write(self.freezer.join("freezer.state"), "THAWED"),
            CgroupVersion::V2 => fs::write(self.freezer.join("cgroup.freeze"), "0"),
        }
    }

    /// One that is not there is not frozen.
    pub fn is_frozen(&self) -> io::Result<bool> {
        let (file, frozen) = match self.version {
            CgroupVersion::V1 => ("freezer.state", "FROZEN"),
            CgroupVersion::V2 => ("cgroup.events", "frozen 1"),
        };
        match fs::read_to_string(self.freezer.join(file)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            // It was removed while the file was open.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(false),
            state => Ok(state?.lines().any(|line| line.trim() == frozen)),
        }
    }

    /// What it takes now. `None` where it is not counted by control groups in full.
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
        // What the kernel would give back at once is not the sandbox's need.
        let memory_bytes = used.saturating_sub(idle_cache.unwrap_or_default());
        Some(ResourceUsage { memory_bytes, cpu_us, processes: number(&pids.join("pids.current"))? })
    }

    /// How many of its processes the kernel has killed for want of memory.
    pub fn out_of_memory_kills(&self) -> u64 {
        let Some(memory) = &self.memory else { return 0 };
        let counted = match self.version {
            CgroupVersion::V1 => field(&memory.join("memory.oom_control"), "oom_kill"),
            CgroupVersion::V2 => field(&memory.join("memory.events"), "oom_kill"),
        };
        counted.unwrap_or_default()
    }

    /// What can be read, as poll has it, when the kernel has had too little memory for it, or had to look for some. To be made
    /// with the rights of whoever made the group.
    pub fn memory_events(&self) -> io::Result<(File, PollFlags)> {
        let memory = self.memory.as_ref().ok_or(ErrorKind::Unsupported)?;
        match self.version {
            CgroupVersion::V1 => {
                let notices = File::from(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
                let of = File::open(memory.join("memory.oom_control"))?;
                let wish = format!("{} {}", notices.as_raw_fd(), of.as_raw_fd());
                fs::write(memory.join("cgroup.event_control"), wish)?;
                Ok((notices, PollFlags::IN))
            }
            CgroupVersion::V2 => Ok((File::open(memory.join("memory.events"))?, PollFlags::PRI)),
        }
    }

    /// Ends what is still in it. Frozen processes do not fall with the keeper that they should fall with.
    fn kill_all(&self) -> io::Result<()> {
        let listed = fs::read_to_string(self.freezer.join("cgroup.procs"))?;
        for pid in listed.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
            match rustix::process::kill_process(pid, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
        // In version 1 a frozen process is not even killed before it is thawed.
        self.unfreeze()
    }

    /// Removes it with whatever is still in it, for which the kernel takes a moment. One that is not there is no error.
    pub fn remove(&self, patience: Duration) -> io::Result<()> {
        let began = Instant::now();
        for dir in self.dirs() {
            loop {
                match fs::remove_dir(dir) {
                    Err(e) if e.kind() == ErrorKind::ResourceBusy && began.elapsed() < patience => {
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

/// The number in the line `name number`.
fn field(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    /// A group of processes that never rest. They go with it.
    struct BusyProcesses {
        node_cgroup: Cgroup,
        cgroup: Cgroup,
        processes: Vec<Child>,
    }

    impl BusyProcesses {
        fn start(cgroups: &NodeCgroups) -> BusyProcesses {
            let cgroup = cgroups.of("busy");
            let limits = JailLimits { memory_bytes: 1 << 30, cpus: 4.0, pids: 64 };
            cgroup.make(&limits, TIMEOUT).expect("it is made");
            let busy = |_| Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("it starts");
            let processes: Vec<Child> = (0..4).map(busy).collect();
            for door in cgroup.procs_files() {
                processes.iter().for_each(|process| fs::write(&door, process.id().to_string()).expect("it goes in"));
            }
            BusyProcesses { node_cgroup: cgroups.node_cgroup.clone(), cgroup, processes }
        }

        /// Frozen, or on its way there.
        fn is_freezing(&self) -> bool {
            let (file, thawed) = match self.cgroup.version {
                CgroupVersion::V1 => ("freezer.state", "THAWED"),
                CgroupVersion::V2 => ("cgroup.freeze", "0"),
            };
            fs::read_to_string(self.cgroup.freezer.join(file)).expect("it is read").trim() != thawed
        }
    }

    impl Drop for BusyProcesses {
        fn drop(&mut self) {
            let removed = self.cgroup.remove(TIMEOUT);
            for process in &mut self.processes {
                let _ = process.wait();
            }
            for dir in self.node_cgroup.dirs() {
                // Another test may have one there.
                let _ = fs::remove_dir(dir);
            }
            assert!(removed.is_ok() || thread::panicking(), "{removed:?}");
        }
    }

    #[test]
    fn a_freeze_that_comes_to_no_end_lets_all_go_on() {
        for mounted in [CGROUP_MOUNT, "/sys/fs/cgroup/unified"] {
            let Some(cgroups) = NodeCgroups::find_below(Path::new(mounted), "keeper-test") else { continue };
            let busy = BusyProcesses::start(&cgroups);
            // Who runs on another processor right now does not stand still at once. None may.
            while busy.cgroup.freeze(Duration::ZERO).is_ok() {
                busy.cgroup.unfreeze().expect("it thaws");
            }
            assert!(!busy.is_freezing());
            thread::sleep(Duration::from_millis(50));
            assert!(!busy.is_freezing(), "and it does not freeze later");
        }
    }
}
