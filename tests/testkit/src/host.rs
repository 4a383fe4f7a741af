//! State of a server's sandboxes on this host, read from `/proc` and the engine instead of the
//! product.

use std::{
    collections::BTreeSet,
    fs, io,
    net::SocketAddr,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tokio::net::TcpStream;

use super::driver::TestDriver;

/// Time that the kernel gets to release the control groups of killed processes.
const EMPTYING: Duration = Duration::from_secs(5);

/// Process of this host that lives in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxProcess {
    pub pid: i32,
    /// Command line, with spaces between the arguments.
    pub command: String,
}

/// Returns the processes of all sandboxes that mount something below `home`, of either driver.
pub fn processes(home: &Path) -> Vec<SandboxProcess> {
    let mounts = SandboxMounts::below(home);
    pids()
        .filter(|pid| mounts.are_of(*pid) && !is_zombie(*pid))
        .map(|pid| SandboxProcess { pid, command: command_line(pid) })
        .collect()
}

/// Mounts by which the sandboxes of one server's home are recognised.
struct SandboxMounts {
    /// Name of the home directory.
    mark: String,
    /// `major:minor` of the disk that is mounted in the home, if there is one.
    disk: Option<String>,
    /// Mount namespace of this process. A process in the same namespace is in no sandbox.
    own_namespace: Option<PathBuf>,
}

impl SandboxMounts {
    fn below(home: &Path) -> SandboxMounts {
        let mark = home.file_name().expect("a temporary directory has a name").to_string_lossy().into_owned();
        assert_ne!(mark, "data", "the argument is a server's home, not its data directory");
        let device = |path: &Path| fs::metadata(path).ok().map(|it| it.dev());
        let disk = device(&home.join("data")).filter(|dev| device(home) != Some(*dev));
        let disk = disk.map(|dev| format!("{}:{}", libc::major(dev), libc::minor(dev)));
        SandboxMounts { mark, disk, own_namespace: fs::read_link("/proc/self/ns/mnt").ok() }
    }

    fn are_of(&self, pid: i32) -> bool {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        namespace != self.own_namespace && mounts.lines().any(|line| self.is_one(line))
    }

    /// Returns true if a line of `mountinfo` is a mount of the home. Its third to fifth fields are
    /// the device, the mounted part of it, and the mount point.
    fn is_one(&self, line: &str) -> bool {
        let mut fields = line.split(' ').skip(2);
        let (Some(device), Some(root), Some(at)) = (fields.next(), fields.next(), fields.next()) else { return false };
        root.contains(&self.mark) || self.disk.as_deref() == Some(device) && !at.contains(&self.mark)
    }
}

/// Returns the agents among these processes.
pub fn agents(home: &Path) -> Vec<SandboxProcess> {
    processes(home)
        .into_iter()
        .filter(|process| process.command.starts_with("/greenroom/bin/greenroom-agent"))
        .collect()
}

/// Returns the jailers of the process driver's sandboxes, which run outside of the jails.
pub fn jailers(home: &Path) -> Vec<i32> {
    let inside: Vec<i32> = agents(home).into_iter().map(|agent| agent.pid).collect();
    let mut jailers = Vec::new();
    for agent in inside {
        let mut pid = agent;
        while let Some(parent) = parent(pid).filter(|parent| command_line(*parent).contains("sandbox-jailer")) {
            pid = parent;
        }
        jailers.push(pid);
    }
    jailers
}

/// Returns the children of a process that still run.
pub fn children(pid: i32) -> Vec<i32> {
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .map(of)
        .flat_map(|pids| pids.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("this is Linux").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// Returns the ids of the containers that mount something below `data`, running or not.
pub fn containers(data: &Path) -> Vec<String> {
    let format = ["ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.Mounts}}"];
    let Ok(output) = Command::new("docker").args(format).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mark = data.to_string_lossy().into_owned();
    text.lines()
        .filter(|line| line.contains(&mark))
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Removes all that the sandboxes of `data` left. A test that kills a server leaves its sandboxes,
/// by design.
pub fn clear(data: &Path) {
    let containers = containers(data);
    if !containers.is_empty() {
        let removed = Command::new("docker").args(["rm", "--force"]).args(containers).output();
        drop(removed);
    }
    for process in processes(data) {
        unfreeze(process.pid);
        kill(process.pid, rustix::process::Signal::KILL);
    }
    // The number of control groups in a kernel is limited, and killed servers use them up. The
    // groups become empty with a delay.
    let began = Instant::now();
    let remain = || control_groups(data).iter().filter(|group| fs::remove_dir(group).is_err()).count();
    while remain() > 0 && began.elapsed() < EMPTYING {
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the control groups that a server of this home made: in each tree the groups of its
/// sandboxes, then its own.
pub fn control_groups(home: &Path) -> Vec<PathBuf> {
    let Ok(node) = fs::read_to_string(home.join("data/node")) else { return Vec::new() };
    let below = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    // In version 1 of the control groups, each controller has a tree of its own.
    let mounted = Path::new("/sys/fs/cgroup");
    let trees = [vec![mounted.to_owned()], below(mounted)].concat();
    let own = trees.iter().map(|tree| tree.join(format!("greenroom-{}", node.trim()))).filter(|own| own.is_dir());
    own.flat_map(|own| [below(&own), vec![own]].concat()).collect()
}

/// Kills every process with this text in its command line.
pub fn kill_all(with: &str) {
    for pid in pids().filter(|pid| command_line(*pid).contains(with)) {
        kill(pid, rustix::process::Signal::KILL);
    }
}

/// Unfreezes a process's control group. In version 1 of the control groups, a frozen process does
/// not end when it is killed.
fn unfreeze(pid: i32) {
    if let Some((switch, [awake, _])) = freezer(pid) {
        let _was_not_frozen = fs::write(switch, awake);
    }
}

/// Returns the file that freezes and unpauses a process's control group, and the two words for it.
/// Handles both versions of the control groups.
fn freezer(pid: i32) -> Option<(PathBuf, [&'static str; 2])> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let group = |mark| groups.lines().find_map(|line| line.split_once(mark)).map(|(_, group)| group);
    match (group(":freezer:/"), group("0::/")) {
        (Some(first), _) => {
            Some((format!("/sys/fs/cgroup/freezer/{first}/freezer.state").into(), ["THAWED", "FROZEN"]))
        }
        (None, Some(second)) => Some((format!("/sys/fs/cgroup/{second}/cgroup.freeze").into(), ["0", "1"])),
        (None, None) => None,
    }
}

/// Returns true if a process is frozen with its whole control group.
pub fn is_frozen(pid: i32) -> bool {
    freezer(pid)
        .is_some_and(|(switch, [_, frozen])| fs::read_to_string(switch).is_ok_and(|state| state.trim() == frozen))
}

/// Pauses or unpauses all sandboxes of a server's home without the server's involvement.
pub fn set_frozen(home: &Path, driver: TestDriver, frozen: bool) {
    match driver {
        TestDriver::Docker => {
            let verb = if frozen { "pause" } else { "unpause" };
            let done = Command::new("docker").arg(verb).args(containers(home)).output().expect("docker is installed");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        TestDriver::Process => {
            for agent in agents(home) {
                let (switch, words) = freezer(agent.pid).expect("there are control groups");
                fs::write(switch, words[usize::from(frozen)]).expect("root may write it");
            }
        }
    }
}

/// Sends a signal. A process that is already gone is no error.
pub fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}

/// Returns the names of the directories right below `dir`.
pub fn directories(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Returns the bytes that the kernel holds at the server's end for a client of this host that has
/// not read them.
pub fn unread_by(client: &TcpStream) -> u64 {
    let port =
        |address: io::Result<SocketAddr>| format!("0100007F:{:04X}", address.expect("the socket is connected").port());
    let [server, client] = [port(client.peer_addr()), port(client.local_addr())];
    let table = fs::read_to_string("/proc/net/tcp").expect("this is Linux");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1..3) == Some(&[&server[..], &client[..]][..])).expect("the socket is connected");
    let queued = row[4].split(':').next().and_then(|sent| u64::from_str_radix(sent, 16).ok());
    queued.expect("a number of bytes")
}

/// Raises this process's descriptor limit to its hard limit.
pub fn take_all_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let _has_what_it_had = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// Returns the number of open descriptors of a process.
pub fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().count()
}

/// Returns the resident memory of a process, in KiB.
pub fn resident_kib(pid: i32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Returns the peak of the resident memory since [`forget_peak`], in KiB.
pub fn peak_kib(pid: i32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Resets the peak of the resident memory. Returns the resident memory now, in KiB.
pub fn forget_peak(pid: i32) -> u64 {
    const THE_PEAK: &str = "5";
    fs::write(format!("/proc/{pid}/clear_refs"), THE_PEAK).expect("the server is a child of this process");
    resident_kib(pid)
}

fn memory(pid: i32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn is_zombie(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

fn command_line(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\0', " ").trim().to_owned()
}

/// Drops all packets that a client sends, until this value is dropped.
pub struct PacketLoss([String; 4]);

impl PacketLoss {
    /// Starts to drop packets. Returns `None` without root or `iptables`.
    pub fn of(client: &TcpStream) -> Option<PacketLoss> {
        let port = |address: io::Result<SocketAddr>| address.expect("the socket is connected").port().to_string();
        // The kernel may give the client's port to another test's client too; that client's server
        // has another port.
        let [from, to] = [port(client.local_addr()), port(client.peer_addr())];
        let packets = ["--source-port".to_owned(), from, "--destination-port".to_owned(), to];
        rule("--insert", &packets).then_some(packets).map(PacketLoss)
    }
}

impl Drop for PacketLoss {
    fn drop(&mut self) {
        rule("--delete", &self.0);
    }
}

/// Inserts or deletes the firewall rule. Returns true on success.
fn rule(change: &str, packets: &[String]) -> bool {
    let rule = ["--wait", change, "INPUT", "--in-interface", "lo", "--protocol", "tcp"];
    let status =
        Command::new("iptables").args(rule).args(packets).args(["--jump", "DROP"]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
