//! Contract of the driver on this machine's engine, and tests of what only containers have.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

use greenroom_protocol::observation::SandboxPhase;

use super::{DockerDriver, test_image};
use crate::{
    config::{Config, SandboxConfig, SandboxNetwork, SandboxVolume, VolumeAccess},
    sandbox::{SandboxDriver, SandboxError, SandboxPresence, SandboxSpec, contract, contract::DriverFixture},
};

mod engine;
mod registry;
mod slow_engine;

fn options() -> SandboxConfig {
    let docker_host = std::env::var("DOCKER_HOST").unwrap_or_default();
    SandboxConfig { docker_host, ..Config::with_data_dir("/x").sandbox }
}

async fn connect(options: SandboxConfig) -> Result<DockerDriver, SandboxError> {
    DockerDriver::connect(Arc::new(options), "greenroom-tests".to_owned()).await
}

async fn driver(options: SandboxConfig) -> Arc<DockerDriver> {
    expect_engine(connect(options).await)
}

fn expect_engine(connected: Result<DockerDriver, SandboxError>) -> Arc<DockerDriver> {
    match connected {
        Ok(docker) => Arc::new(docker),
        Err(e) => panic!("{e}\nrun `cargo xtask test`, which starts an engine, or set GREENROOM_TEST_ENGINE=none"),
    }
}

/// Returns false, with a message, if `GREENROOM_TEST_ENGINE` is `none`.
fn engine_is_enabled() -> bool {
    let is_enabled = std::env::var_os("GREENROOM_TEST_ENGINE").is_none_or(|engine| engine != "none");
    if !is_enabled {
        eprintln!("skipped: GREENROOM_TEST_ENGINE is `none`");
    }
    is_enabled
}

/// Returns a fixture. Requests the image after the engine has answered, because the engine builds
/// it.
async fn fixture_with(options: SandboxConfig, image: impl FnOnce() -> &'static str) -> DriverFixture {
    let sandbox = driver(options.clone()).await;
    DriverFixture { sandbox, reopened: driver(options).await, image: image().to_owned() }
}

fn busybox() -> &'static str {
    static IMAGE: OnceLock<&str> = OnceLock::new();
    IMAGE.get_or_init(test_image::busybox)
}

async fn fixture() -> Option<DriverFixture> {
    match engine_is_enabled() {
        true => Some(fixture_with(options(), busybox).await),
        false => None,
    }
}

contract::suite!(fixture);

/// Runs the engine's own command, to change a container without the driver.
fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).stderr(Stdio::inherit()).output().expect("`docker` is installed");
    assert!(output.status.success(), "docker {args:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn name(spec: &SandboxSpec) -> String {
    format!("greenroom-greenroom-tests-{}", spec.session)
}

/// After an import, two nodes that share an engine have the same session.
#[tokio::test]
async fn containers_of_another_node_are_left_alone() {
    let Some(fixture) = fixture().await else { return };
    let neighbour = expect_engine(DockerDriver::connect(Arc::new(options()), "greenroom-neighbour".to_owned()).await);
    fixture
        .with_sandbox("sleep 1000", async |sandbox| {
            sandbox.start().await;
            let session = sandbox.spec.session;
            assert_eq!(neighbour.presence(session).await.expect("state is reported"), None);
            neighbour.stop(session).await.expect("stop of a missing sandbox is no error");
            neighbour.remove(session).await.expect("remove of a missing sandbox is no error");
            let presence = fixture.presence(session).await.expect("state is reported");
            assert_eq!(presence, Some(SandboxPresence::Running));
        })
        .await;
}

#[tokio::test]
async fn external_container_kill_and_removal_end_wait() {
    let Some(fixture) = fixture().await else { return };
    fixture
        .with_sandbox("sleep 1000", async |sandbox| {
            for (command, code) in [("kill", Some(137)), ("rm", None)] {
                sandbox.start().await;
                let (exit, _) = tokio::join!(sandbox.exit(), async {
                    // Lets the wait begin.
                    tokio::task::yield_now().await;
                    match command {
                        "rm" => docker(&["rm", "-f", &name(&sandbox.spec)]),
                        _ => docker(&["kill", &name(&sandbox.spec)]),
                    }
                });
                assert!(exit.code == code || exit.code == Some(137), "{command}: {exit:?}");
            }
        })
        .await;
}

#[tokio::test]
async fn out_of_memory_kill_is_reported_in_the_exit() {
    let Some(fixture) = fixture().await else { return };
    fixture
        .with_sandbox("exec tail /dev/zero", async |sandbox| {
            sandbox.start().await;
            let exit = sandbox.exit().await;
            assert_eq!((exit.code, exit.out_of_memory), (Some(137), true));
            let later = fixture.reopened.wait(sandbox.spec.session).await.expect("exit is reported");
            assert_eq!(later, exit, "a later call returns the same exit");
        })
        .await;
}

#[tokio::test]
async fn readonly_root_keeps_tmp_home_and_workspace_writable() {
    if !engine_is_enabled() {
        return;
    }
    let fixture = fixture_with(SandboxConfig { readonly_root: true, ..options() }, busybox).await;
    let script = "grep ' / ' /proc/mounts >/workspace/.root; : >/tmp/x && : >$HOME/x && mv /workspace/.root /workspace/root; sleep 1000";
    fixture
        .with_sandbox(script, async |sandbox| {
            sandbox.start().await;
            let root = sandbox.wait_for_file("root").await;
            assert!(root.split_whitespace().nth(3).is_some_and(|flags| flags.starts_with("ro,")), "{root}");
        })
        .await;
}

#[tokio::test]
async fn volumes_keep_their_access_mode() {
    let Some(fixture) = fixture().await else { return };
    let shared = tempfile::tempdir().expect("temporary directory is created");
    fs::write(shared.path().join("data"), "42").expect("file is written");
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).expect("directory is writable for all");
    let script = "cat /sets/data >/workspace/.out; : >/mine/x; (: >/sets/x) || echo kept >>/workspace/.out; mv /workspace/.out /workspace/out";
    fixture
        .with_sandbox(script, async |sandbox| {
            let volume =
                |inside: &str, access| SandboxVolume { host: shared.path().into(), inside: inside.into(), access };
            let volumes = vec![volume("/sets", VolumeAccess::ReadOnly), volume("/mine", VolumeAccess::ReadWrite)];
            let spec = SandboxSpec { volumes, ..sandbox.spec.clone() };
            fixture.start(&spec, &|_, _| ()).await.expect("start succeeds");
            assert_eq!(sandbox.wait_for_file("out").await, "42kept\n");
            assert!(shared.path().join("x").exists());
        })
        .await;
}

#[tokio::test]
async fn start_names_missing_or_dangerous_volume_and_network() {
    let Some(fixture) = fixture().await else { return };
    fixture
        .with_sandbox("sleep 1000", async |sandbox| {
            let with_volume = |host: &str| SandboxSpec {
                volumes: vec![SandboxVolume { host: host.into(), inside: "/v".into(), access: VolumeAccess::ReadOnly }],
                ..sandbox.spec.clone()
            };
            for (host, text) in [("/no/such/place", "/no/such/place"), ("/", "contains a container engine's socket")] {
                let error = fixture.start(&with_volume(host), &|_, _| ()).await.expect_err("start fails");
                assert!(error.to_string().contains(text), "{error}");
                assert_eq!(sandbox.presence().await, None);
            }
            let with_network =
                SandboxSpec { network: SandboxNetwork::Named("no-such-network".into()), ..sandbox.spec.clone() };
            let error = fixture.start(&with_network, &|_, _| ()).await.expect_err("start fails");
            assert!(error.to_string().contains("no-such-network"), "{error}");
            assert!(!fs::exists("/no").expect("query succeeds"), "nothing is created on the host");
        })
        .await;
}

#[tokio::test]
async fn exited_container_with_other_settings_is_created_again() {
    let Some(fixture) = fixture().await else { return };
    fixture
        .with_sandbox(": >/workspace/first; sleep 1000", async |sandbox| {
            let newer = sandbox.data().join("newer.sh");
            fs::write(&newer, "#!/bin/sh\n: >/workspace/second; sleep 1000\n").expect("file is written");
            fs::set_permissions(&newer, fs::metadata(&sandbox.spec.agent).expect("file exists").permissions())
                .expect("program is executable");
            let spec = SandboxSpec { agent: newer, ..sandbox.spec.clone() };
            sandbox.start().await;
            sandbox.wait_for_file("first").await;
            let id = || docker(&["inspect", "--format", "{{.Id}}", &name(&spec)]);
            let first = id();
            fixture.start(&spec, &|_, _| ()).await.expect("sandbox runs");
            assert_eq!(id(), first, "a running container is left alone, whatever has changed");
            fixture.stop(spec.session).await.expect("stop succeeds");
            let details = Mutex::new(Vec::new());
            let progress = |_, detail: &str| {
                details.lock().expect("lock is never poisoned: no holder panics").push(detail.to_owned())
            };
            futures::future::join_all((0..4).map(|_| fixture.start(&spec, &progress)))
                .await
                .into_iter()
                .for_each(|started| started.expect("start succeeds"));
            let details = details.into_inner().expect("lock is never poisoned: no holder panics");
            assert!(details.iter().any(|detail| detail.starts_with("created again")), "{details:?}");
            sandbox.wait_for_file("second").await;
            let second = id();
            assert_ne!(second, first);
            fixture.stop(spec.session).await.expect("stop succeeds");
            fixture.start(&spec, &|_, _| ()).await.expect("start succeeds");
            assert_eq!(id(), second, "an unchanged container is started again");
        })
        .await;
}

/// The image of this test has every setting an image can have. None of them applies to the sandbox.
#[tokio::test]
async fn image_settings_do_not_apply() {
    if !engine_is_enabled() {
        return;
    }
    let fixture = fixture_with(options(), test_image::stubborn).await;
    fixture
        .with_sandbox(
            "id -u >/workspace/.who; pwd >>/workspace/.who; mv /workspace/.who /workspace/who; sleep 1000",
            async |sandbox| {
                sandbox.start().await;
                assert_eq!(sandbox.wait_for_file("who").await, format!("{}\n/workspace\n", sandbox.spec.uid));
                let volumes = "{{range .Mounts}}{{if eq .Type \"volume\"}}{{.Name}}{{end}}{{end}}";
                let volume = docker(&["inspect", "--format", volumes, &name(&sandbox.spec)]);
                assert!(!volume.is_empty(), "the image's own volume exists");
                assert_eq!(
                    docker(&["inspect", "--format", "{{.Config.Labels}}", &name(&sandbox.spec)])
                        .matches("forged")
                        .count(),
                    0
                );
                fixture.remove(sandbox.spec.session).await.expect("remove succeeds");
                assert!(
                    !docker(&["volume", "ls", "--quiet"]).contains(&volume),
                    "the volume is removed with the container"
                );
            },
        )
        .await;
}

/// A static agent needs nothing from the image. Busybox stands in for the agent. Called by an
/// unknown name, it prints an error.
#[tokio::test]
async fn static_agent_runs_in_an_empty_image() {
    if !engine_is_enabled() {
        return;
    }
    let fixture = fixture_with(options(), test_image::empty).await;
    fixture
        .with_sandbox("", async |sandbox| {
            let spec = SandboxSpec { agent: test_image::busybox_binary().into(), ..sandbox.spec.clone() };
            fixture.start(&spec, &|_, _| ()).await.expect("start succeeds");
            let exit = sandbox.exit().await;
            assert_eq!(exit.code, Some(127));
            assert_eq!(exit.stderr_tail, "greenroom-agent: applet not found\n");
        })
        .await;
}

/// Adds the programs of this machine to a container of [`test_image::bare`].
fn with_programs(spec: SandboxSpec) -> SandboxSpec {
    let programs = SandboxVolume { host: "/usr".into(), inside: "/usr".into(), access: VolumeAccess::ReadOnly };
    SandboxSpec { volumes: vec![programs], ..spec }
}

#[tokio::test]
async fn greedy_sandbox_leaves_quotas_to_its_neighbour() {
    if engine_is_enabled() {
        let fixture = fixture_with(options(), test_image::bare).await;
        contract::greedy_sandbox_leaves_quotas_to_its_neighbour(&fixture, with_programs).await;
    }
}

/// The probes need more programs than busybox has.
#[tokio::test]
async fn escape_attempts_fail_and_tools_work() {
    if !engine_is_enabled() {
        return;
    }
    let (fixture, targets) = (fixture_with(options(), test_image::bare).await, contract::ProbeTargets::open());
    fixture
        .with_sandbox("", async |sandbox| {
            let agent = sandbox.data().join("probes.sh");
            fs::write(&agent, format!("#!/bin/sh\n{}\n", targets.script(sandbox.spec.uid, "")))
                .expect("file is written");
            fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).expect("program is executable");
            let mut spec = with_programs(SandboxSpec { agent, ..sandbox.spec.clone() });
            spec.limits.memory = bytesize::ByteSize::gib(1);
            fixture.start(&spec, &|_, _| ()).await.expect("start succeeds");
            sandbox.exit().await;
            contract::check_probes(&sandbox.read("seen"));
        })
        .await;
}

#[tokio::test]
#[ignore = "builds an image with debootstrap, which needs a Debian mirror"]
async fn isolation_holds_in_a_debian_image() {
    if !engine_is_enabled() {
        return;
    }
    let fixture = fixture_with(options(), test_image::debian).await;
    contract::agent_has_no_privileges(&fixture).await;
    contract::agent_reaches_no_network(&fixture).await;
    contract::agent_environment_is_clean(&fixture).await;
    contract::agent_writes_only_to_its_directories(&fixture).await;
    contract::fork_bomb_stays_within_pid_limit(&fixture).await;
    contract::memory_hog_is_killed(&fixture).await;
    contract::wait_returns_exit_code_and_stderr_tail(&fixture).await;
}

#[tokio::test]
async fn missing_image_is_pulled_with_progress() {
    if !engine_is_enabled() {
        return;
    }
    let registry = registry::serve().await;
    let image = registry.image();
    let fixture = fixture_with(options(), busybox).await;
    let docker_driver = driver(options()).await;
    assert!(!docker_driver.has_image(&image).await.expect("query succeeds"));
    let reports = Mutex::new(Vec::new());
    fixture
        .with_sandbox("", async |sandbox| {
            let agent = test_image::busybox_binary().into();
            let spec = SandboxSpec { image: image.clone(), agent, ..sandbox.spec.clone() };
            let progress = |phase, detail: &str| {
                reports.lock().expect("lock is never poisoned: no holder panics").push((phase, detail.to_owned()))
            };
            let error = fixture.start(&spec, &progress).await.expect_err("image is missing");
            assert!(matches!(error, SandboxError::NoImage { .. }), "{error}");
            docker_driver.fetch(&image, &progress).await.expect("fetch succeeds");
            fixture.start(&spec, &progress).await.expect("start succeeds");
        })
        .await;
    assert!(docker_driver.has_image(&image).await.expect("query succeeds"));
    docker(&["rmi", "-f", &image]);
    let reports = reports.into_inner().expect("lock is never poisoned: no holder panics");
    let phases: Vec<SandboxPhase> = reports.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases.first(), Some(&SandboxPhase::Creating));
    assert_eq!(phases.last(), Some(&SandboxPhase::Starting));
    assert!(
        reports.iter().any(|(phase, detail)| *phase == SandboxPhase::Pulling && detail.ends_with(" of 8 MB")),
        "{reports:?}"
    );
}

#[tokio::test]
async fn unavailable_image_is_named() {
    let Some(fixture) = fixture().await else { return };
    fixture
        .with_sandbox("", async |sandbox| {
            // Nothing listens on that port. The error of the connection attempt shows the
            // registry's part.
            for (image, text) in
                [("127.0.0.1:9/none:1", "connection refused"), ("no such/../name", "an image name must look like")]
            {
                let spec = SandboxSpec { image: image.into(), ..sandbox.spec.clone() };
                assert!(matches!(fixture.start(&spec, &|_, _| ()).await, Err(SandboxError::NoImage { .. })));
                match fixture.fetch(image, &|_, _| ()).await {
                    Err(SandboxError::NoImage { image: image_in_error, detail }) if image_in_error == image => {
                        assert!(detail.contains(text), "{detail}");
                    }
                    result => panic!("{image}: {result:?}"),
                }
                assert_eq!(sandbox.presence().await, None);
            }
        })
        .await;
}
