//! What this host itself knows of a server's sandboxes: asked of `/proc` and the engine, not of the product.

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

/// How long the kernel may take to let go of what was killed.
const EMPTYING: Duration = Duration::from_secs(5);

/// A process of this host that lives in a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SandboxProcess {
    pub(crate) pid: i32,
    /// Its command line, with spaces between the arguments.
    pub(crate) command: String,
}

/// The processes of all sandboxes that mount something below `home`, of whatever driver.
pub(crate) fn processes(home: &Path) -> Vec<SandboxProcess> {
    let mounts = SandboxMounts::below(home);
    pids()
        .filter(|pid| mounts.are_of(*pid) && !is_zombie(*pid))
        .map(|pid| SandboxProcess { pid, command: command_line(pid) })
        .collect()
}

/// What a sandbox of a server's home mounts, and nobody else does.
struct SandboxMounts {
    /// The home's own name.
    mark: String,
    /// `major:minor` of the disk that is mounted in the home, where one is.
    disk: Option<String>,
    /// The namespace of this process: what everybody sees is mounted by nobody in particular.
    everybodys: Option<PathBuf>,
}

impl SandboxMounts {
    fn below(home: &Path) -> SandboxMounts {
        let mark = home.file_name().expect("a temporary directory has a name").to_string_lossy().into_owned();
        assert_ne!(mark, "data", "the home of a server: every other one has a directory of that name too");
        let device = |path: &Path| fs::metadata(path).ok().map(|it| it.dev());
        let disk = device(&home.join("data")).filter(|dev| device(home) != Some(*dev));
        let disk = disk.map(|dev| format!("{}:{}", libc::major(dev), libc::minor(dev)));
        SandboxMounts { mark, disk, everybodys: fs::read_link("/proc/self/ns/mnt").ok() }
    }

    fn are_of(&self, pid: i32) -> bool {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        namespace != self.everybodys && mounts.lines().any(|line| self.is_one(line))
    }

    /// A line of `mountinfo`: its third to fifth fields are the device, what of it is mounted, and where.
    fn is_one(&self, line: &str) -> bool {
        let mut fields = line.split(' ').skip(2);
        let (Some(device), Some(root), Some(at)) = (fields.next(), fields.next(), fields.next()) else { return false };
        root.contains(&self.mark) || self.disk.as_deref() == Some(device) && !at.contains(&self.mark)
    }
}

/// The agents among them.
pub(crate) fn agents(home: &Path) -> Vec<SandboxProcess> {
    processes(home)
        .into_iter()
        .filter(|process| process.command.starts_with("/greenroom/bin/greenroom-agent"))
        .collect()
}

/// The processes that keep the sandboxes of the process driver, outside of their walls.
pub(crate) fn keepers(home: &Path) -> Vec<i32> {
    let inside: Vec<i32> = agents(home).into_iter().map(|agent| agent.pid).collect();
    let mut keepers = Vec::new();
    for agent in inside {
        let mut pid = agent;
        while let Some(parent) = parent(pid).filter(|parent| command_line(*parent).contains("sandbox-jailer")) {
            pid = parent;
        }
        keepers.push(pid);
    }
    keepers
}

/// The processes that a process started and that are there.
pub(crate) fn children(pid: i32) -> Vec<i32> {
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

/// The ids of the containers that mount something below `data`, running or not.
pub(crate) fn containers(data: &Path) -> Vec<String> {
    let format = ["ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.SandboxMounts}}"];
    let Ok(output) = Command::new("docker").args(format).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mark = data.to_string_lossy().into_owned();
    text.lines()
        .filter(|line| line.contains(&mark))
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// Takes away whatever the sandboxes of `data` left: a test that kills a server leaves its sandboxes, by design.
pub(crate) fn clear(data: &Path) {
    let containers = containers(data);
    if !containers.is_empty() {
        let removed = Command::new("docker").args(["rm", "--force"]).args(containers).output();
        drop(removed);
    }
    for process in processes(data) {
        unfreeze(process.pid);
        kill(process.pid, rustix::process::Signal::KILL);
    }
    // The kernel has only so many control groups, and killed servers use them up. It takes a moment until they are empty.
    let began = Instant::now();
    let remain = || control_groups(data).iter().filter(|group| fs::remove_dir(group).is_err()).count();
    while remain() > 0 && began.elapsed() < EMPTYING {
        thread::sleep(Duration::from_millis(5));
    }
}

/// The control groups that a server of this home made: in each tree those of its sandboxes, then its own.
pub(crate) fn control_groups(home: &Path) -> Vec<PathBuf> {
    let Ok(node) = fs::read_to_string(home.join("data/node")) else { return Vec::new() };
    let below = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect::<Vec<_>>()
    };
    // In version 1 of them each controller has a tree of its own.
    let mounted = Path::new("/sys/fs/cgroup");
    let trees = [vec![mounted.to_owned()], below(mounted)].concat();
    let own = trees.iter().map(|tree| tree.join(format!("greenroom-{}", node.trim()))).filter(|own| own.is_dir());
    own.flat_map(|own| [below(&own), vec![own]].concat()).collect()
}

/// Ends every process whose command line has this in it.
pub(crate) fn kill_all(with: &str) {
    for pid in pids().filter(|pid| command_line(*pid).contains(with)) {
        kill(pid, rustix::process::Signal::KILL);
    }
}

/// Version 1 of the control groups frees nobody for his end.
fn unfreeze(pid: i32) {
    if let Some((switch, [awake, _])) = freezer(pid) {
        let _was_not_frozen = fs::write(switch, awake);
    }
}

/// Where the group of a process is frozen and thawed, and with which words, of either version of the control groups.
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

/// Whether a process stands still with its whole group.
pub(crate) fn is_frozen(pid: i32) -> bool {
    freezer(pid)
        .is_some_and(|(switch, [_, frozen])| fs::read_to_string(switch).is_ok_and(|state| state.trim() == frozen))
}

/// Freezes or thaws all sandboxes of a server's home behind its back.
pub(crate) fn set_frozen(home: &Path, driver: TestDriver, frozen: bool) {
    match driver {
        TestDriver::Docker => {
            let verb = if frozen { "pause" } else { "unpause" };
            let done = Command::new("docker").arg(verb).args(containers(home)).output().expect("docker is installed");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        TestDriver::Process => {
            for agent in agents(home) {
                let (switch, words) = freezer(agent.pid).expect("there are control groups");
                fs::write(switch, words[usize::from(frozen)]).expect("it is root's");
            }
        }
    }
}

/// Sends a signal; a process that is gone already is fine.
pub(crate) fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, signal);
    }
}

/// The names of the directories right below `dir`.
pub(crate) fn directories(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// How many bytes the kernel holds for a client of this host who has not read them, at the server's end.
pub(crate) fn unread_by(client: &TcpStream) -> u64 {
    let port = |address: io::Result<SocketAddr>| format!("0100007F:{:04X}", address.expect("it is connected").port());
    let [server, client] = [port(client.peer_addr()), port(client.local_addr())];
    let table = fs::read_to_string("/proc/net/tcp").expect("this is Linux");
    let mut rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.get(1..3) == Some(&[&server[..], &client[..]][..])).expect("it is connected");
    let queued = row[4].split(':').next().and_then(|sent| u64::from_str_radix(sent, 16).ok());
    queued.expect("a number of bytes")
}

/// Lets this process have as many descriptors as it may.
pub(crate) fn take_all_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let _has_what_it_had = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// How many descriptors a process has open.
pub(crate) fn descriptors(pid: i32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().count()
}

/// The memory that a process holds for itself, in KiB.
pub(crate) fn resident_kib(pid: i32) -> u64 {
    memory(pid, "VmRSS:")
}

/// The most that it held since [`forget_peak`], in KiB.
pub(crate) fn peak_kib(pid: i32) -> u64 {
    memory(pid, "VmHWM:")
}

/// From now on the peak is counted anew; returns what is held now, in KiB.
pub(crate) fn forget_peak(pid: i32) -> u64 {
    const THE_PEAK: &str = "5";
    fs::write(format!("/proc/{pid}/clear_refs"), THE_PEAK).expect("it is our child");
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

/// What a client sends is lost, until this is dropped.
pub(crate) struct PacketLoss([String; 4]);

impl PacketLoss {
    /// `None` where that cannot be had: it takes root, and `iptables`.
    pub(crate) fn of(client: &TcpStream) -> Option<PacketLoss> {
        let port = |address: io::Result<SocketAddr>| address.expect("it is connected").port().to_string();
        // The kernel may give the first to another test's client as well, whose server has another than the second.
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

/// Whether the rule is there now, or is gone.
fn rule(change: &str, packets: &[String]) -> bool {
    let rule = ["--wait", change, "INPUT", "--in-interface", "lo", "--protocol", "tcp"];
    let status =
        Command::new("iptables").args(rule).args(packets).args(["--jump", "DROP"]).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
