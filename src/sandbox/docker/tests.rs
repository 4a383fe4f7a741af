//! The contract, against the engine of this machine, and what only containers can be asked.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::{Arc, Mutex, OnceLock},
};

use greenroom_protocol::observation::SandboxPhase;

use super::{DockerDriver, DockerOptions, test_image};
use crate::sandbox::{
    SandboxDriver, SandboxError, SandboxNetwork, SandboxPresence, SandboxSpec, SandboxVolume, VolumeAccess, contract,
    contract::DriverFixture,
};

mod engine;
mod registry;
mod slow_engine;

fn options() -> DockerOptions {
    let host = std::env::var("DOCKER_HOST").ok();
    DockerOptions { node: "greenroom-tests".into(), host, ..DockerOptions::default() }
}

async fn driver(options: DockerOptions) -> Arc<DockerDriver> {
    match DockerDriver::connect(options).await {
        Ok(docker) => Arc::new(docker),
        Err(e) => panic!("{e}\nrun `cargo xtask test`, which starts an engine, or set GREENROOM_TEST_ENGINE=none"),
    }
}

/// `false`, said aloud, where the tests were told to do without an engine.
fn is_wanted() -> bool {
    let wanted = std::env::var_os("GREENROOM_TEST_ENGINE").is_none_or(|engine| engine != "none");
    if !wanted {
        eprintln!("skipped: GREENROOM_TEST_ENGINE is `none`");
    }
    wanted
}

/// Asks for the image once the engine has answered: it is the engine that makes it.
async fn fixture_with(options: DockerOptions, image: impl FnOnce() -> &'static str) -> DriverFixture {
    let sandbox = driver(options.clone()).await;
    DriverFixture { sandbox, reopened: driver(options).await, image: image().to_owned() }
}

fn busybox() -> &'static str {
    static IMAGE: OnceLock<&str> = OnceLock::new();
    IMAGE.get_or_init(test_image::busybox)
}

async fn fixture() -> Option<DriverFixture> {
    match is_wanted() {
        true => Some(fixture_with(options(), busybox).await),
        false => None,
    }
}

contract::suite!(fixture);

/// What the engine's own command says. For what happens to a container behind our back.
fn docker(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).stderr(Stdio::inherit()).output().expect("`docker` is installed");
    assert!(output.status.success(), "docker {args:?}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn name(spec: &SandboxSpec) -> String {
    format!("greenroom-greenroom-tests-{}", spec.session)
}

/// As after an import: the same session, on another node that shares the engine.
#[tokio::test]
async fn a_container_of_another_node_is_left_alone() {
    let Some(bench) = fixture().await else { return };
    let neighbour = driver(DockerOptions { node: "greenroom-neighbour".into(), ..options() }).await;
    bench
        .with_sandbox("sleep 1000", async |room| {
            room.start().await;
            let session = room.spec.session;
            assert_eq!(neighbour.presence(session).await.expect("it is told"), None);
            neighbour.stop(session).await.expect("there is nothing to stop");
            neighbour.remove(session).await.expect("there is nothing to remove");
            let presence = bench.presence(session).await.expect("it is told");
            assert_eq!(presence, Some(SandboxPresence::Running));
        })
        .await;
}

#[tokio::test]
async fn wait_notices_what_others_do_to_it() {
    let Some(bench) = fixture().await else { return };
    bench
        .with_sandbox("sleep 1000", async |room| {
            for (order, code) in [("kill", Some(137)), ("rm", None)] {
                room.start().await;
                let (exit, _) = tokio::join!(room.exit(), async {
                    // So that the wait is under way.
                    tokio::task::yield_now().await;
                    match order {
                        "rm" => docker(&["rm", "-f", &name(&room.spec)]),
                        _ => docker(&["kill", &name(&room.spec)]),
                    }
                });
                assert!(exit.code == code || exit.code == Some(137), "{order}: {exit:?}");
            }
        })
        .await;
}

#[tokio::test]
async fn out_of_memory_is_told_as_such() {
    let Some(bench) = fixture().await else { return };
    bench
        .with_sandbox("exec tail /dev/zero", async |room| {
            room.start().await;
            let exit = room.exit().await;
            assert_eq!((exit.code, exit.out_of_memory), (Some(137), true));
            let later = bench.reopened.wait(room.spec.session).await.expect("its end is told");
            assert_eq!(later, exit, "also to who comes later");
        })
        .await;
}

#[tokio::test]
async fn a_readonly_root_holds_and_everything_is_in_it_still() {
    if !is_wanted() {
        return;
    }
    let bench = fixture_with(DockerOptions { readonly_root: true, ..options() }, busybox).await;
    let script = "grep ' / ' /proc/mounts >/workspace/.root; : >/tmp/x && : >$HOME/x && mv /workspace/.root /workspace/root; sleep 1000";
    bench
        .with_sandbox(script, async |room| {
            room.start().await;
            let root = room.wait_for_file("root").await;
            assert!(root.split_whitespace().nth(3).is_some_and(|flags| flags.starts_with("ro,")), "{root}");
        })
        .await;
}

#[tokio::test]
async fn volumes_are_as_the_operator_said() {
    let Some(bench) = fixture().await else { return };
    let shared = tempfile::tempdir().expect("a directory");
    fs::write(shared.path().join("data"), "42").expect("it is written");
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o777)).expect("all may write");
    let script = "cat /sets/data >/workspace/.out; : >/mine/x; (: >/sets/x) || echo kept >>/workspace/.out; mv /workspace/.out /workspace/out";
    bench
        .with_sandbox(script, async |room| {
            let volume =
                |inside: &str, access| SandboxVolume { host: shared.path().into(), inside: inside.into(), access };
            let volumes = vec![volume("/sets", VolumeAccess::ReadOnly), volume("/mine", VolumeAccess::ReadWrite)];
            let spec = SandboxSpec { volumes, ..room.spec.clone() };
            bench.start(&spec, &|_, _| ()).await.expect("it starts");
            assert_eq!(room.wait_for_file("out").await, "42kept\n");
            assert!(shared.path().join("x").exists());
        })
        .await;
}

#[tokio::test]
async fn what_is_missing_or_dangerous_is_named() {
    let Some(bench) = fixture().await else { return };
    bench
        .with_sandbox("sleep 1000", async |room| {
            let at = |host: &str| SandboxSpec {
                volumes: vec![SandboxVolume { host: host.into(), inside: "/v".into(), access: VolumeAccess::ReadOnly }],
                ..room.spec.clone()
            };
            for (host, words) in [("/no/such/place", "/no/such/place"), ("/", "holds a container engine's socket")] {
                let told = bench.start(&at(host), &|_, _| ()).await.expect_err("it does not start");
                assert!(told.to_string().contains(words), "{told}");
                assert_eq!(room.presence().await, None);
            }
            let elsewhere =
                SandboxSpec { network: SandboxNetwork::Named("no-such-network".into()), ..room.spec.clone() };
            let told = bench.start(&elsewhere, &|_, _| ()).await.expect_err("it does not start");
            assert!(told.to_string().contains("no-such-network"), "{told}");
            assert!(!fs::exists("/no").expect("it can be asked"), "nothing was made on the host");
        })
        .await;
}

#[tokio::test]
async fn an_exited_one_that_was_made_otherwise_is_made_anew() {
    let Some(bench) = fixture().await else { return };
    bench
        .with_sandbox(": >/workspace/first; sleep 1000", async |room| {
            let newer = room.data().join("newer.sh");
            fs::write(&newer, "#!/bin/sh\n: >/workspace/second; sleep 1000\n").expect("it is written");
            fs::set_permissions(&newer, fs::metadata(&room.spec.agent).expect("it is there").permissions())
                .expect("it may be run");
            let spec = SandboxSpec { agent: newer, ..room.spec.clone() };
            room.start().await;
            room.wait_for_file("first").await;
            let id = || docker(&["inspect", "--format", "{{.Id}}", &name(&spec)]);
            let first = id();
            bench.start(&spec, &|_, _| ()).await.expect("it runs");
            assert_eq!(id(), first, "one that runs is left alone, whatever has changed");
            bench.stop(spec.session).await.expect("it stops");
            let told = Mutex::new(Vec::new());
            let hears = |_, detail: &str| told.lock().expect("nobody panicked").push(detail.to_owned());
            futures::future::join_all((0..4).map(|_| bench.start(&spec, &hears)))
                .await
                .into_iter()
                .for_each(|started| started.expect("it starts"));
            let told = told.into_inner().expect("nobody panicked");
            assert!(told.iter().any(|detail| detail.starts_with("made anew")), "{told:?}");
            room.wait_for_file("second").await;
            let second = id();
            assert_ne!(second, first);
            bench.stop(spec.session).await.expect("it stops");
            bench.start(&spec, &|_, _| ()).await.expect("it starts");
            assert_eq!(id(), second, "the same as it would be made now");
        })
        .await;
}

/// An image that brings all that an image can bring: none of it reaches beyond its files.
#[tokio::test]
async fn an_image_decides_nothing() {
    if !is_wanted() {
        return;
    }
    let bench = fixture_with(options(), test_image::stubborn).await;
    bench
        .with_sandbox(
            "id -u >/workspace/.who; pwd >>/workspace/.who; mv /workspace/.who /workspace/who; sleep 1000",
            async |room| {
                room.start().await;
                assert_eq!(room.wait_for_file("who").await, format!("{}\n/workspace\n", room.spec.uid));
                let volumes = "{{range .Mounts}}{{if eq .Type \"volume\"}}{{.Name}}{{end}}{{end}}";
                let volume = docker(&["inspect", "--format", volumes, &name(&room.spec)]);
                assert!(!volume.is_empty(), "the image's own volume is there");
                assert_eq!(
                    docker(&["inspect", "--format", "{{.Config.Labels}}", &name(&room.spec)]).matches("forged").count(),
                    0
                );
                bench.remove(room.spec.session).await.expect("it is removed");
                assert!(!docker(&["volume", "ls", "--quiet"]).contains(&volume), "and goes with it");
            },
        )
        .await;
}

/// A static agent needs nothing of the image. Busybox stands for it: called by a name that it does not know, it says so.
#[tokio::test]
async fn any_image_will_do() {
    if !is_wanted() {
        return;
    }
    let bench = fixture_with(options(), test_image::empty).await;
    bench
        .with_sandbox("", async |room| {
            let spec = SandboxSpec { agent: test_image::busybox_binary().into(), ..room.spec.clone() };
            bench.start(&spec, &|_, _| ()).await.expect("it starts");
            let exit = room.exit().await;
            assert_eq!(exit.code, Some(127));
            assert_eq!(exit.stderr_tail, "greenroom-agent: applet not found\n");
        })
        .await;
}

#[tokio::test]
#[ignore = "makes an image with debootstrap, which needs a Debian mirror"]
async fn the_promises_hold_in_debian_too() {
    if !is_wanted() {
        return;
    }
    let bench = fixture_with(options(), test_image::debian).await;
    contract::it_holds_no_privileges(&bench).await;
    contract::it_reaches_no_network(&bench).await;
    contract::its_environment_is_clean(&bench).await;
    contract::it_writes_only_where_it_may(&bench).await;
    contract::a_fork_bomb_is_held(&bench).await;
    contract::a_memory_hog_is_ended(&bench).await;
    contract::wait_tells_the_code_and_the_last_words(&bench).await;
}

#[tokio::test]
async fn a_missing_image_is_pulled_with_figures() {
    if !is_wanted() {
        return;
    }
    let registry = registry::serve().await;
    let image = registry.image();
    let bench = fixture_with(options(), busybox).await;
    let docker_driver = driver(options()).await;
    assert!(!docker_driver.has_image(&image).await.expect("it can be asked"));
    let told = Mutex::new(Vec::new());
    bench
        .with_sandbox("", async |room| {
            let agent = test_image::busybox_binary().into();
            let spec = SandboxSpec { image: image.clone(), agent, ..room.spec.clone() };
            let tell = |phase, detail: &str| told.lock().expect("no test panicked").push((phase, detail.to_owned()));
            let told = bench.start(&spec, &tell).await.expect_err("it is to be fetched first");
            assert!(matches!(told, SandboxError::NoImage { .. }), "{told}");
            docker_driver.fetch(&image, &tell).await.expect("it is fetched");
            bench.start(&spec, &tell).await.expect("it starts");
        })
        .await;
    assert!(docker_driver.has_image(&image).await.expect("it can be asked"));
    docker(&["rmi", "-f", &image]);
    let told = told.into_inner().expect("no test panicked");
    let phases: Vec<SandboxPhase> = told.iter().map(|(phase, _)| *phase).collect();
    assert_eq!(phases.first(), Some(&SandboxPhase::Creating));
    assert_eq!(phases.last(), Some(&SandboxPhase::Starting));
    assert!(
        told.iter().any(|(phase, detail)| *phase == SandboxPhase::Pulling && detail.ends_with(" of 8 MB")),
        "{told:?}"
    );
}

#[tokio::test]
async fn an_image_that_cannot_be_had_is_named() {
    let Some(bench) = fixture().await else { return };
    bench
        .with_sandbox("", async |room| {
            // Nothing listens on that port, which is the whole way to the registry's own words.
            for (image, words) in
                [("127.0.0.1:9/none:1", "connection refused"), ("no such/../name", "no name of an image")]
            {
                let spec = SandboxSpec { image: image.into(), ..room.spec.clone() };
                assert!(matches!(bench.start(&spec, &|_, _| ()).await, Err(SandboxError::NoImage { .. })));
                match bench.fetch(image, &|_, _| ()).await {
                    Err(SandboxError::NoImage { image: named, detail }) if named == image => {
                        assert!(detail.contains(words), "{detail}");
                    }
                    told => panic!("{image}: {told:?}"),
                }
                assert_eq!(room.presence().await, None);
            }
        })
        .await;
}
