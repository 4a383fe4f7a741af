//! Contract of the process driver, and tests of what only this driver has.

use std::{
    cell::RefCell,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
};

use greenroom_jailer::request::JailRequest;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::timeout;

use super::{jailer::JAILER_NAME, *};
use crate::{
    config::{Config, SandboxLimits, SandboxNetwork, SandboxVolume, VolumeAccess},
    sandbox::{
        RunDir,
        contract::{self, DriverFixture, ProbeTargets, check_probes},
    },
};

mod pauses;
mod unreadable;

/// Environment variable with the directory in which the test [`server`] runs as a server.
const AS_SERVER: &str = "GREENROOM_TEST_SERVER";

/// Directory for a driver and for the files that a server would provide.
struct ProcessTestDirs<D = TempDir> {
    dir: D,
}

impl ProcessTestDirs {
    fn new() -> ProcessTestDirs {
        ProcessTestDirs { dir: tempfile::tempdir().expect("temporary directory is created") }
    }
}

impl<D: AsRef<Path>> ProcessTestDirs<D> {
    fn driver(&self) -> ProcessDriver {
        let (sandboxes, programs) = (self.dir.as_ref().join("state"), self.dir.as_ref().to_owned());
        let config = Arc::new(Config::with_data_dir("/x").sandbox);
        ProcessDriver::open(config, SandboxNode { name: "test".into(), sandboxes, programs }).expect("driver opens")
    }

    /// Returns the spec of a new session whose agent is the `sh` script.
    fn spec(&self, script: &str) -> SandboxSpec {
        let (dir, session) = (self.dir.as_ref(), SessionId::generate());
        let (uid, gid) = (user(), user());
        let run = RunDir::of(&dir.join("run"), session);
        run.prepare(uid, gid).expect("run directory is created");
        let [workspace, home] = ["workspace", "home"].map(|name| dir.join(name));
        for own in [&workspace, &home] {
            fs::create_dir_all(own).expect("directory is created");
            chown(own, Some(uid), Some(gid)).expect("owner is changed");
        }
        let agent = dir.join("agent.sh");
        write_program(&agent, &format!("#!/bin/sh\n{script}\n"));
        let limits = SandboxLimits { memory: bytesize::ByteSize::gib(1), cpus: 2.0, pids: 128 };
        let (image, volumes, network) = (String::new(), Vec::new(), SandboxNetwork::None);
        SandboxSpec { session, image, run, agent, workspace, home, volumes, uid, gid, limits, network }
    }
}

/// Returns the user id of the sandboxes in these tests. The group id is the same number.
fn user() -> u32 {
    match rustix::process::geteuid().as_raw() {
        0 => 10_001,
        own => own,
    }
}

fn write_program(path: &Path, script: &str) {
    fs::write(path, script).expect("script is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("program is executable");
}

/// Polls until the condition holds.
///
/// # Panics
/// Panics after 30 s. Only a failing test waits that long.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let polled = timeout(Duration::from_secs(30), async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    polled.await.unwrap_or_else(|_| panic!("{what}: not within 30 s"));
}

/// Returns two drivers of one directory, as before and after a server's restart, with these control
/// groups.
fn fixture_with(cgroups: impl Fn(Option<NodeCgroups>) -> Option<NodeCgroups>) -> DriverFixture {
    thread_local! {
        /// Directories of this test. Each test has its own thread, and they are removed with it.
        static DIRS: RefCell<Vec<ProcessTestDirs>> = const { RefCell::new(Vec::new()) };
    }
    let dirs = ProcessTestDirs::new();
    let driver = || {
        let driver = dirs.driver();
        Arc::new(ProcessDriver { cgroups: cgroups(driver.cgroups.clone()), ..driver })
    };
    let fixture = DriverFixture { sandbox: driver(), reopened: driver(), image: String::new() };
    DIRS.with_borrow_mut(|all| all.push(dirs));
    fixture
}

/// Uses the control groups that this user may use.
async fn fixture() -> Option<DriverFixture> {
    Some(fixture_with(|found| found))
}

mod promises {
    crate::sandbox::contract::suite!(super::fixture);
}

/// Uses version 2 of control groups. Beside a version 1 that has the controllers, version 2 is
/// often mounted too, and can pause.
async fn fixture_with_cgroup_v2() -> Option<DriverFixture> {
    let cgroups = NodeCgroups::find_below(Path::new("/sys/fs/cgroup/unified"), "test")?;
    Some(fixture_with(|_| Some(cgroups.clone())))
}

mod promises_with_cgroup_v2 {
    crate::sandbox::contract::suite!(super::fixture_with_cgroup_v2);
}

/// Uses no control groups, as most ordinary users. Pausing, measuring and limiting must work
/// without them.
async fn fixture_without_cgroups() -> Option<DriverFixture> {
    Some(fixture_with(|_| None))
}

mod promises_without_cgroups {
    crate::sandbox::contract::suite!(super::fixture_without_cgroups);
}

/// More jails at a time would all be ready later.
#[tokio::test]
async fn jail_is_built_when_a_permit_is_free() {
    let (dirs, cores) = (ProcessTestDirs::new(), available_parallelism().expect("core count is known").get());
    let (driver, spec) = (dirs.driver(), dirs.spec("exec sleep 1000"));
    let others = driver.builders.acquire_many(cores as u32 + 1).await.expect("all build permits are free");
    let mut start = std::pin::pin!(driver.start(&spec, &|_, _| {}));
    assert!(timeout(Duration::from_millis(100), &mut start).await.is_err(), "the start waits for a permit");
    assert_eq!(driver.presence(spec.session).await.expect("state is reported"), None, "an inspection needs no permit");
    drop(others);
    start.await.expect("start succeeds");
    driver.remove(spec.session).await.expect("remove succeeds");
}

#[tokio::test]
async fn escape_attempts_fail_and_tools_work() {
    check_escape_attempts(true).await;
}

/// Tests what `unconfined` allows on a kernel without user namespaces. A test cannot remove user
/// namespaces, so the request leaves them out.
#[tokio::test]
async fn escape_attempts_fail_without_a_user_namespace() {
    if rustix::process::geteuid().is_root() {
        check_escape_attempts(false).await;
    }
}

/// Probes of what only this driver has.
const JAIL_PROBES: &str = "try 'the memory of init' cat /proc/1/environ; try '/sys' ls /sys/kernel
try 'more inotify instances' python 'import ctypes,sys; c = ctypes.CDLL(None)
sys.exit(any(c.inotify_init1(0) < 0 for _ in range(1 + int(open(\"/proc/sys/fs/inotify/max_user_instances\").read()) // 4)))'
try 'all terminals' python 'import os; [os.open(\"/dev/ptmx\", os.O_RDWR) for _ in range(200)]'";

async fn check_escape_attempts(user_namespace: bool) {
    let (targets, dirs) = (ProbeTargets::open(), ProcessTestDirs::new());
    // The quota of inotify instances belongs to the user namespace.
    let further = if user_namespace { JAIL_PROBES } else { JAIL_PROBES.split('\n').next().unwrap_or_default() };
    let spec = dirs.spec(&targets.script(user(), further));
    let driver = dirs.driver();
    let request = jail_request::build(&spec, &driver.sandbox_dir(spec.session), None).expect("spec is valid");
    driver.build_jail(JailRequest { user_namespace, ..request }, &spec).await.expect("start succeeds");
    driver.wait(spec.session).await.expect("exit is reported");
    driver.remove(spec.session).await.expect("remove succeeds");
    check_probes(&fs::read_to_string(spec.workspace.join("seen")).expect("script wrote its output"));
}

#[tokio::test]
async fn greedy_sandbox_leaves_quotas_to_its_neighbour() {
    let Some(fixture) = fixture().await else { return };
    contract::greedy_sandbox_leaves_quotas_to_its_neighbour(&fixture, |spec| spec).await;
}

#[tokio::test]
async fn volume_keeps_its_access_mode() {
    let dirs = ProcessTestDirs::new();
    let mut spec =
        dirs.spec("for at in /data /models/a; do cat $at/file; echo more >$at/new; done >/workspace/seen 2>&1");
    for (inside, access) in [("/data", VolumeAccess::ReadWrite), ("/models/a", VolumeAccess::ReadOnly)] {
        let host = dirs.dir.path().join(inside.replace('/', "-"));
        fs::create_dir(&host).expect("directory is created");
        fs::write(host.join("file"), inside).expect("file is written");
        fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).expect("directory is writable for all");
        spec.volumes.push(SandboxVolume { host, inside: inside.into(), access });
    }
    let driver = dirs.driver();
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    driver.wait(spec.session).await.expect("exit is reported");
    let seen = fs::read_to_string(spec.workspace.join("seen")).expect("script wrote its output");
    assert!(seen.contains("/data") && seen.contains("/models/a"), "{seen}");
    assert_eq!([0, 1].map(|index| spec.volumes[index].host.join("new").exists()), [true, false], "{seen}");
    driver.remove(spec.session).await.expect("remove succeeds");
}

/// A server was killed during a build: the half-built directory is cleared, and its jailer releases
/// the lock.
#[tokio::test]
async fn start_waits_for_a_failed_jailer_but_not_long() {
    let dirs = ProcessTestDirs::new();
    let (driver, spec) = (dirs.driver(), dirs.spec("exec sleep 1000"));
    let dir = dirs.driver().node.sandboxes.join(spec.session.to_string());
    fs::create_dir_all(&dir).expect("directory is created");
    let lock = fs::File::create(dir.join("lock")).expect("file is created");
    lock.lock().expect("lock is free");
    let holder = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(lock);
    });
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    holder.await.expect("lock holder does not panic");
    assert_eq!(driver.presence(spec.session).await.expect("state is reported"), Some(SandboxPresence::Running));
    driver.remove(spec.session).await.expect("remove succeeds");
}

#[tokio::test]
async fn unsupported_specs_are_rejected_with_a_reason() {
    let dirs = ProcessTestDirs::new();
    let driver = dirs.driver();
    let volume =
        |inside: &str| SandboxVolume { host: "/srv".into(), inside: inside.into(), access: VolumeAccess::ReadOnly };
    let check = async |change: &dyn Fn(&mut SandboxSpec), expected: &str| {
        let mut spec = dirs.spec("true");
        change(&mut spec);
        let error = driver.start(&spec, &|_, _| ()).await.expect_err("start is rejected").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(driver.list().await.expect("list succeeds"), [], "nothing is created");
    };
    check(&|spec| spec.network = SandboxNetwork::Named("web".into()), "no network `web`").await;
    if rustix::process::geteuid().is_root() {
        check(&|spec| spec.uid = 0, "does not run as root").await;
    }
    for inside in ["/", "/usr", "/workspace/deps", "/home", "/greenroom/run", "relative", "/data/../etc"] {
        check(&|spec| spec.volumes = vec![volume(inside)], &format!("mounted at `{inside}`")).await;
    }
    check(&|spec| spec.volumes = vec![SandboxVolume { host: "/var/run".into(), ..volume("/data") }], "engine's socket")
        .await;
    check(&|spec| spec.workspace = "/var/run".into(), "engine's socket").await;
}

#[tokio::test]
async fn agent_that_cannot_run_is_reported() {
    let dirs = ProcessTestDirs::new();
    let spec = dirs.spec("true");
    fs::set_permissions(&spec.agent, fs::Permissions::from_mode(0o644)).expect("script is not executable");
    let error = dirs.driver().start(&spec, &|_, _| ()).await.expect_err("start fails").to_string();
    assert!(error.contains("start `/greenroom/bin/greenroom-agent`"), "{error}");
    dirs.driver().remove(spec.session).await.expect("remove succeeds");
}

#[tokio::test]
async fn out_of_memory_kill_is_reported_in_the_exit() {
    let dirs = ProcessTestDirs::new();
    let driver = dirs.driver();
    let limited = driver.cgroups.as_ref().is_some_and(NodeCgroups::limits_memory);
    let mut spec = dirs.spec("exec tail /dev/zero");
    spec.limits.memory = bytesize::ByteSize::mib(64);
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    let exit = driver.wait(spec.session).await.expect("exit is reported");
    assert_eq!(
        dirs.driver().wait(spec.session).await.expect("exit is reported"),
        exit,
        "a later call returns the same exit"
    );
    // Without control groups, an allocation of the process fails, and the process exits by itself.
    assert_eq!((exit.out_of_memory, exit.code == Some(137)), (limited, limited), "{exit:?}");
    assert_ne!(exit.code, Some(0));
    driver.remove(spec.session).await.expect("remove succeeds");
}

/// Cost of a sandbox beside its agent. A machine with a thousand sandboxes pays it a thousand
/// times.
#[tokio::test]
async fn sandbox_has_two_small_processes_beside_its_agent() {
    let dirs = ProcessTestDirs::new();
    let (driver, spec) = (dirs.driver(), dirs.spec("exec sleep 600"));
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    let read_proc = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let command = format!("{JAILER_NAME}\0{}\0", spec.session);
    let all = fs::read_dir("/proc").expect("`/proc` is mounted").flatten().map(|entry| entry.file_name());
    let jailers: Vec<String> =
        all.filter_map(|pid| pid.into_string().ok()).filter(|pid| read_proc(pid, "cmdline") == command).collect();
    assert_eq!(jailers.len(), 2, "the jailer and the first process inside");
    for pid in jailers {
        let status = read_proc(&pid, "status");
        let mapped_kib = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
        let mapped_kib: u64 = mapped_kib.and_then(|size| size.parse().ok()).expect("status names the size");
        assert!(mapped_kib < 8 << 10, "{status}");
    }
    driver.remove(spec.session).await.expect("remove succeeds");
}

/// Not a test but a server to be killed. Starts a sandbox and then blocks.
#[tokio::test]
async fn server() {
    let Some(dir) = std::env::var_os(AS_SERVER) else { return };
    let dirs = ProcessTestDirs { dir: PathBuf::from(dir) };
    let spec = dirs.spec("echo alive; n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.02; done");
    dirs.driver().start(&spec, &|_, _| ()).await.expect("start succeeds");
    fs::write(dirs.dir.join("started"), spec.session.to_string()).expect("file is written");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn sandbox_outlives_its_server_but_not_its_jailer() {
    let dirs = ProcessTestDirs::new();
    let program = std::env::current_exe().expect("path of the test binary is readable");
    let mut server = std::process::Command::new(program)
        .args(["--exact", "sandbox::process::tests::server"])
        .env(AS_SERVER, dirs.dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("server process starts");
    let started_file = dirs.dir.path().join("started");
    eventually("the server has started the sandbox", async || started_file.exists()).await;
    server.kill().expect("server is killed");
    server.wait().expect("server has exited");
    let session =
        fs::read_to_string(started_file).expect("session id is readable").parse().expect("session id is valid");
    let driver = dirs.driver();
    assert_eq!(
        driver.list().await.expect("list succeeds"),
        [FoundSandbox { session, driver: NAME, presence: SandboxPresence::Running }]
    );
    let tick = || fs::read_to_string(dirs.dir.path().join("workspace/tick")).unwrap_or_default();
    let before = tick();
    eventually("the script continues", async || tick() != before).await;
    driver.pause(session).await.expect("pause succeeds");
    driver.unpause(session).await.expect("unpause succeeds");
    assert!(driver.logs(session, 100).await.expect("log is readable").contains("alive"));

    let running = driver.sandbox_dir(session).running().expect("state is readable").expect("sandbox runs");
    let (_, killed) = tokio::join!(driver.wait(session), async { running.jailer.signal(Signal::KILL) });
    killed.expect("jailer is killed");
    eventually("the sandbox ends with its jailer", async || !running.init.is_alive().expect("state is readable")).await;
    assert_eq!(driver.wait(session).await.expect("exit is reported").code, None);
    driver.remove(session).await.expect("remove succeeds");
    assert_eq!(driver.list().await.expect("list succeeds"), []);
}

/// Pauses by signals. That could lose the race against new processes.
#[tokio::test]
async fn fork_storm_can_be_paused() {
    let dirs = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..dirs.driver() };
    let spec = dirs.spec(
        "drop() { (echo x >>/workspace/storm) & }\nstorm() { while :; do drop; drop; drop; drop; wait; done; }\n\
         storm & storm & storm & storm",
    );
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    let storm = || fs::metadata(spec.workspace.join("storm")).map_or(0, |file| file.len());
    for _ in 0..5 {
        let before = storm();
        eventually("the script forks", async || storm() > before).await;
        driver.pause(spec.session).await.expect("pause succeeds");
        let while_paused = storm();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(storm(), while_paused);
        driver.unpause(spec.session).await.expect("unpause succeeds");
    }
    driver.remove(spec.session).await.expect("remove succeeds");
}

/// An unpause does not continue a process that its own shell had stopped.
#[tokio::test]
async fn unpause_leaves_already_stopped_processes_stopped() {
    let dirs = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..dirs.driver() };
    let spec = dirs.spec(
        "sh -c 'kill -STOP $$; : >/workspace/woken' & while :; do cat /proc/$!/stat >/workspace/.job; \
         mv /workspace/.job /workspace/job; : >/workspace/tick; done",
    );
    driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
    let job = || fs::read_to_string(spec.workspace.join("job")).unwrap_or_default();
    eventually("the job has stopped itself", async || job().contains(") T ")).await;
    driver.pause(spec.session).await.expect("pause succeeds");
    driver.unpause(spec.session).await.expect("unpause succeeds");
    fs::remove_file(spec.workspace.join("tick")).expect("file exists");
    eventually("the other processes continue", async || spec.workspace.join("tick").exists()).await;
    assert!(job().contains(") T ") && !spec.workspace.join("woken").exists(), "{}", job());
    driver.remove(spec.session).await.expect("remove succeeds");
}

#[tokio::test]
async fn paused_sandbox_of_a_killed_jailer_does_not_block_the_next() {
    let dirs = ProcessTestDirs::new();
    for cgroups in [dirs.driver().cgroups, None] {
        let driver = ProcessDriver { cgroups, ..dirs.driver() };
        let spec = dirs.spec("while :; do sleep 0.02; done");
        driver.start(&spec, &|_, _| ()).await.expect("start succeeds");
        driver.pause(spec.session).await.expect("pause succeeds");
        let first = driver.sandbox_dir(spec.session).running().expect("state is readable").expect("sandbox runs");
        first.jailer.signal(Signal::KILL).expect("jailer is killed");
        driver.wait(spec.session).await.expect("exit is reported");
        driver.start(&spec, &|_, _| ()).await.expect("start succeeds after the jailer's death");
        assert!(!first.init.is_alive().expect("state is readable"), "only one sandbox runs");
        driver.pause(spec.session).await.expect("pause succeeds");
        let second = driver.sandbox_dir(spec.session).running().expect("state is readable").expect("sandbox runs");
        second.jailer.signal(Signal::KILL).expect("jailer is killed");
        driver.wait(spec.session).await.expect("exit is reported");
        driver.remove(spec.session).await.expect("remove succeeds");
        eventually("the second sandbox ends", async || !second.init.is_alive().expect("state is readable")).await;
    }
}
