//! The driver on the contract's bench, and what only a process driver has to show.

use std::{
    cell::RefCell,
    fs,
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{PermissionsExt, chown},
            net::{SocketAddr, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use super::*;
use crate::sandbox::{RunDir, SandboxLimits, SandboxNetwork, SandboxVolume, VolumeAccess, contract::DriverFixture};

mod pauses;
mod unreadable;

const AS_SERVER: &str = "GREENROOM_TEST_SERVER";

/// A directory for a driver and for what a server would bring.
struct ProcessTestDirs<D = TempDir> {
    dir: D,
}

impl ProcessTestDirs {
    fn new() -> ProcessTestDirs {
        ProcessTestDirs { dir: tempfile::tempdir().expect("a temporary directory") }
    }
}

impl<D: AsRef<Path>> ProcessTestDirs<D> {
    fn driver(&self) -> ProcessDriver {
        let (state, programs) = (self.dir.as_ref().join("state"), self.dir.as_ref().to_owned());
        ProcessDriver::new(ProcessOptions { node: "test".into(), state, programs, unconfined: false, engine: None })
            .expect("it opens")
    }

    /// A session whose agent is the `sh` script.
    fn spec(&self, script: &str) -> SandboxSpec {
        let (dir, session) = (self.dir.as_ref(), SessionId::generate());
        let (uid, gid) = (user(), user());
        let run = RunDir::of(&dir.join("run"), session);
        run.prepare(uid, gid).expect("the run directory is made");
        let [workspace, home] = ["workspace", "home"].map(|name| dir.join(name));
        for own in [&workspace, &home] {
            fs::create_dir_all(own).expect("it is made");
            chown(own, Some(uid), Some(gid)).expect("it is given away");
        }
        let agent = dir.join("agent.sh");
        write_program(&agent, &format!("#!/bin/sh\n{script}\n"));
        let limits = SandboxLimits { memory_bytes: 1 << 30, cpus: 2.0, pids: 128 };
        let (image, volumes, network) = (String::new(), Vec::new(), SandboxNetwork::None);
        SandboxSpec { session, image, run, agent, workspace, home, volumes, uid, gid, limits, network }
    }
}

/// Whom a sandbox of these tests runs as; its group has the same number.
fn user() -> u32 {
    match rustix::process::geteuid().as_raw() {
        0 => 10_001,
        own => own,
    }
}

fn write_program(path: &Path, script: &str) {
    fs::write(path, script).expect("the script is written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it may be run");
}

/// Asks until it is so. The patience is only reached by a test that fails.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = timeout(Duration::from_secs(30), async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    asked.await.unwrap_or_else(|_| panic!("{what}: it never was"));
}

/// Two drivers of one site, as before and after a server's restart, over these control groups.
fn fixture_with(cgroups: impl Fn(Option<NodeCgroups>) -> Option<NodeCgroups>) -> DriverFixture {
    thread_local! {
        /// Each test has a thread of its own, and its sites go with it.
        static SITES: RefCell<Vec<ProcessTestDirs>> = const { RefCell::new(Vec::new()) };
    }
    let site = ProcessTestDirs::new();
    let driver = || {
        let driver = site.driver();
        Arc::new(ProcessDriver { cgroups: cgroups(driver.cgroups.clone()), ..driver })
    };
    let bench = DriverFixture { sandbox: driver(), reopened: driver(), image: String::new() };
    SITES.with_borrow_mut(|sites| sites.push(site));
    bench
}

/// Over whatever this user may have here.
async fn fixture() -> Option<DriverFixture> {
    Some(fixture_with(|found| found))
}

mod promises {
    crate::sandbox::contract::suite!(super::fixture);
}

/// Where version 1 is mounted with the controllers, version 2 often is beside it, and freezes.
async fn fixture_with_cgroup_v2() -> Option<DriverFixture> {
    let cgroups = NodeCgroups::find_below(Path::new("/sys/fs/cgroup/unified"), "test")?;
    Some(fixture_with(|_| Some(cgroups.clone())))
}

mod promises_with_cgroup_v2 {
    crate::sandbox::contract::suite!(super::fixture_with_cgroup_v2);
}

/// As most ordinary users have it: freezing, counting and limiting without control groups keep the promises too.
async fn fixture_without_cgroups() -> Option<DriverFixture> {
    Some(fixture_with(|_| None))
}

mod promises_without_cgroups {
    crate::sandbox::contract::suite!(super::fixture_without_cgroups);
}

/// More at once would all be ready later.
#[tokio::test]
async fn a_jail_is_built_when_a_core_is_free_for_it() {
    let (site, cores) = (ProcessTestDirs::new(), available_parallelism().expect("it is known").get());
    let (driver, spec) = (site.driver(), site.spec("exec sleep 1000"));
    let others = driver.builders.acquire_many(cores as u32 + 1).await.expect("so many are built at a time");
    let mut start = std::pin::pin!(driver.start(&spec, &|_, _| {}));
    assert!(timeout(Duration::from_millis(100), &mut start).await.is_err(), "it waits");
    assert_eq!(driver.presence(spec.session).await.expect("it is told"), None, "and nobody waits to be told so");
    drop(others);
    start.await.expect("it starts");
    driver.remove(spec.session).await.expect("it goes again");
}

#[tokio::test]
async fn no_way_out_is_open_and_every_tool_works() {
    no_way_out(true).await;
}

/// What `unconfined` allows where there are no user namespaces, of which there is no way to take them from a test alone.
#[tokio::test]
async fn no_way_out_is_open_without_a_user_namespace() {
    if rustix::process::geteuid().is_root() {
        no_way_out(false).await;
    }
}

async fn no_way_out(user_namespace: bool) {
    let host = tempfile::tempdir().expect("a directory of the host");
    let socket = host.path().join("socket");
    let _unix = UnixListener::bind(&socket).expect("a socket of the host");
    let name = format!("greenroom-{}", SessionId::generate());
    let abstract_address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _abstract = UnixListener::bind_addr(&abstract_address).expect("an abstract socket of the host");
    UnixStream::connect(&socket).expect("the host itself reaches it");
    UnixStream::connect_addr(&abstract_address).expect("the host itself reaches it");
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a service of the host");
    let script = include_str!("escape.sh")
        .replace("@DATA@", &host.path().display().to_string())
        .replace("@SOCKET@", &socket.display().to_string())
        .replace("@ABSTRACT@", &name)
        .replace("@PORT@", &tcp.local_addr().expect("it has a port").port().to_string())
        .replace("@PID@", &std::process::id().to_string())
        .replace("@UID@", &user().to_string());
    let site = ProcessTestDirs::new();
    let spec = site.spec(&format!("{{ {script}\n}} >/workspace/seen 2>&1"));
    let driver = site.driver();
    let order = jail_request::build(&spec, &driver.sandbox_dir(spec.session), None).expect("it is a sound order");
    driver.build_jail(JailRequest { user_namespace, ..order }, &spec).await.expect("it starts");
    driver.wait(spec.session).await.expect("its end is told");
    driver.remove(spec.session).await.expect("nothing is left");
    let seen = fs::read_to_string(spec.workspace.join("seen")).expect("it saw something");
    let bad: Vec<&str> =
        seen.lines().filter(|line| !line.starts_with("held: ") && !line.starts_with("works: ")).collect();
    assert_eq!(bad, ["done"], "{seen}");
    assert!(seen.lines().count() > 60, "{seen}");
}

#[tokio::test]
async fn a_volume_is_as_writable_as_it_was_said() {
    let site = ProcessTestDirs::new();
    let mut spec =
        site.spec("for at in /data /models/a; do cat $at/file; echo more >$at/new; done >/workspace/seen 2>&1");
    for (inside, access) in [("/data", VolumeAccess::ReadWrite), ("/models/a", VolumeAccess::ReadOnly)] {
        let host = site.dir.path().join(inside.replace('/', "-"));
        fs::create_dir(&host).expect("a directory");
        fs::write(host.join("file"), inside).expect("a file");
        fs::set_permissions(&host, fs::Permissions::from_mode(0o777)).expect("anybody may write there");
        spec.volumes.push(SandboxVolume { host, inside: inside.into(), access });
    }
    let driver = site.driver();
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    driver.wait(spec.session).await.expect("its end is told");
    let seen = fs::read_to_string(spec.workspace.join("seen")).expect("it saw something");
    assert!(seen.contains("/data") && seen.contains("/models/a"), "{seen}");
    assert_eq!([0, 1].map(|index| spec.volumes[index].host.join("new").exists()), [true, false], "{seen}");
    driver.remove(spec.session).await.expect("nothing is left");
}

/// As where a server was killed while it had one built: what was half built is cleared away, and its keeper lets go.
#[tokio::test]
async fn a_keeper_that_comes_to_nothing_is_waited_for_and_not_for_long() {
    let site = ProcessTestDirs::new();
    let (driver, spec) = (site.driver(), site.spec("exec sleep 1000"));
    let dir = site.driver().options.state.join(spec.session.to_string());
    fs::create_dir_all(&dir).expect("it is made");
    let lock = fs::File::create(dir.join("lock")).expect("it is made");
    lock.lock().expect("nobody has it");
    let letting_go = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(lock);
    });
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    letting_go.await.expect("it let go");
    assert_eq!(driver.presence(spec.session).await.expect("it is told"), Some(SandboxPresence::Running));
    driver.remove(spec.session).await.expect("nothing is left");
}

#[tokio::test]
async fn what_a_jail_cannot_do_is_refused_in_words() {
    let site = ProcessTestDirs::new();
    let driver = site.driver();
    let volume =
        |inside: &str| SandboxVolume { host: "/srv".into(), inside: inside.into(), access: VolumeAccess::ReadOnly };
    let check = async |change: &dyn Fn(&mut SandboxSpec), expected: &str| {
        let mut spec = site.spec("true");
        change(&mut spec);
        let told = driver.start(&spec, &|_, _| ()).await.expect_err("it is refused").to_string();
        assert!(told.contains(expected), "{told}");
        assert_eq!(driver.list().await.expect("they are listed"), [], "nothing was made");
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
async fn an_agent_that_cannot_be_run_is_said_so() {
    let site = ProcessTestDirs::new();
    let spec = site.spec("true");
    fs::set_permissions(&spec.agent, fs::Permissions::from_mode(0o644)).expect("it may not be run");
    let told = site.driver().start(&spec, &|_, _| ()).await.expect_err("it does not run").to_string();
    assert!(told.contains("start `/greenroom/bin/greenroom-agent`"), "{told}");
    site.driver().remove(spec.session).await.expect("nothing is left");
}

#[tokio::test]
async fn an_agent_that_is_killed_for_memory_is_told_so() {
    let site = ProcessTestDirs::new();
    let driver = site.driver();
    let limited = driver.cgroups.as_ref().is_some_and(NodeCgroups::limits_memory);
    let mut spec = site.spec("exec tail /dev/zero");
    spec.limits.memory_bytes = 64 << 20;
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    let exit = driver.wait(spec.session).await.expect("its end is told");
    assert_eq!(site.driver().wait(spec.session).await.expect("its end is told"), exit, "also to who comes later");
    // Without control groups a process is refused the memory, and ends itself.
    assert_eq!((exit.out_of_memory, exit.code == Some(137)), (limited, limited), "{exit:?}");
    assert_ne!(exit.code, Some(0));
    driver.remove(spec.session).await.expect("nothing is left");
}

/// What a sandbox costs beside its agent, a machine with a thousand of them pays a thousand times.
#[tokio::test]
async fn it_is_kept_by_two_small_processes() {
    let site = ProcessTestDirs::new();
    let (driver, spec) = (site.driver(), site.spec("exec sleep 600"));
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    let of = |pid: &str, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let command = format!("{JAILER_NAME}\0{}\0", spec.session);
    let all = fs::read_dir("/proc").expect("it is mounted").flatten().map(|entry| entry.file_name());
    let keepers: Vec<String> =
        all.filter_map(|pid| pid.into_string().ok()).filter(|pid| of(pid, "cmdline") == command).collect();
    assert_eq!(keepers.len(), 2, "the keeper, and the first process inside");
    for pid in keepers {
        let status = of(&pid, "status");
        let mapped_kib = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
        let mapped_kib: u64 = mapped_kib.and_then(|size| size.parse().ok()).expect("it says its size");
        assert!(mapped_kib < 8 << 10, "{status}");
    }
    driver.remove(spec.session).await.expect("nothing is left");
}

/// Not a test but a server that is killed: starts what it is told to, and waits for the end.
#[tokio::test]
async fn server() {
    let Some(dir) = std::env::var_os(AS_SERVER) else { return };
    let site = ProcessTestDirs { dir: PathBuf::from(dir) };
    let spec = site.spec("echo alive; n=0; while :; do n=$((n+1)); echo $n >/workspace/tick; sleep 0.02; done");
    site.driver().start(&spec, &|_, _| ()).await.expect("it starts");
    fs::write(site.dir.join("started"), spec.session.to_string()).expect("it is told");
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn it_outlives_a_killed_server_and_not_its_keeper() {
    let temp = ProcessTestDirs::new();
    let program = std::env::current_exe().expect("this program has a path");
    let mut server = std::process::Command::new(program)
        .args(["--exact", "sandbox::process::tests::server"])
        .env(AS_SERVER, temp.dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a server starts");
    let told = temp.dir.path().join("started");
    eventually("the server has started it", async || told.exists()).await;
    server.kill().expect("it is killed");
    server.wait().expect("it is dead");
    let session = fs::read_to_string(told).expect("it was told").parse().expect("a session");
    let driver = temp.driver();
    assert_eq!(
        driver.list().await.expect("they are listed"),
        [FoundSandbox { session, driver: NAME, presence: SandboxPresence::Running }]
    );
    let tick = || fs::read_to_string(temp.dir.path().join("workspace/tick")).unwrap_or_default();
    let before = tick();
    eventually("it goes on", async || tick() != before).await;
    driver.pause(session).await.expect("it freezes");
    driver.unpause(session).await.expect("it thaws");
    assert!(driver.logs(session, 100).await.expect("there are logs").contains("alive"));

    let running = driver.sandbox_dir(session).running().expect("it is read").expect("it runs");
    let (_, killed) = tokio::join!(driver.wait(session), async { running.jailer.signal(Signal::KILL) });
    killed.expect("the keeper is killed");
    eventually("its sandbox has gone with it", async || !running.init.is_alive().expect("it is read")).await;
    assert_eq!(driver.wait(session).await.expect("it is over").code, None);
    driver.remove(session).await.expect("nothing is left");
    assert_eq!(driver.list().await.expect("they are listed"), []);
}

/// By signals, which is the way that could lose the race against new processes.
#[tokio::test]
async fn a_fork_storm_stands_still() {
    let site = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..site.driver() };
    let spec = site.spec(
        "drop() { (echo x >>/workspace/storm) & }\nstorm() { while :; do drop; drop; drop; drop; wait; done; }\n\
         storm & storm & storm & storm",
    );
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    let storm = || fs::metadata(spec.workspace.join("storm")).map_or(0, |file| file.len());
    for _ in 0..5 {
        let before = storm();
        eventually("it rages", async || storm() > before).await;
        driver.pause(spec.session).await.expect("it freezes");
        let frozen = storm();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(storm(), frozen);
        driver.unpause(spec.session).await.expect("it thaws");
    }
    driver.remove(spec.session).await.expect("nothing is left");
}

/// A process that was stopped by its own shell is not woken by a thaw.
#[tokio::test]
async fn what_stood_still_before_stays_so() {
    let site = ProcessTestDirs::new();
    let driver = ProcessDriver { cgroups: None, ..site.driver() };
    let spec = site.spec(
        "sh -c 'kill -STOP $$; : >/workspace/woken' & while :; do cat /proc/$!/stat >/workspace/.job; \
         mv /workspace/.job /workspace/job; : >/workspace/tick; done",
    );
    driver.start(&spec, &|_, _| ()).await.expect("it starts");
    let job = || fs::read_to_string(spec.workspace.join("job")).unwrap_or_default();
    eventually("the job has stopped itself", async || job().contains(") T ")).await;
    driver.pause(spec.session).await.expect("it freezes");
    driver.unpause(spec.session).await.expect("it thaws");
    fs::remove_file(spec.workspace.join("tick")).expect("it was there");
    eventually("the rest goes on", async || spec.workspace.join("tick").exists()).await;
    assert!(job().contains(") T ") && !spec.workspace.join("woken").exists(), "{}", job());
    driver.remove(spec.session).await.expect("nothing is left");
}

#[tokio::test]
async fn what_is_frozen_when_its_keeper_is_killed_is_in_nobodys_way() {
    let site = ProcessTestDirs::new();
    for cgroups in [site.driver().cgroups, None] {
        let driver = ProcessDriver { cgroups, ..site.driver() };
        let spec = site.spec("while :; do sleep 0.02; done");
        driver.start(&spec, &|_, _| ()).await.expect("it starts");
        driver.pause(spec.session).await.expect("it freezes");
        let first = driver.sandbox_dir(spec.session).running().expect("it is read").expect("it runs");
        first.jailer.signal(Signal::KILL).expect("the keeper is killed");
        driver.wait(spec.session).await.expect("its end is told");
        driver.start(&spec, &|_, _| ()).await.expect("another takes its place");
        assert!(!first.init.is_alive().expect("it is read"), "there is one sandbox");
        driver.pause(spec.session).await.expect("it freezes");
        let second = driver.sandbox_dir(spec.session).running().expect("it is read").expect("it runs");
        second.jailer.signal(Signal::KILL).expect("the keeper is killed");
        driver.wait(spec.session).await.expect("its end is told");
        driver.remove(spec.session).await.expect("nothing is left");
        eventually("the second has gone", async || !second.init.is_alive().expect("it is read")).await;
    }
}
