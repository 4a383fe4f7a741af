//! Engines that are away, forbid, stall or hang up.

use std::{io, path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{UnixListener, UnixStream},
    task::JoinHandle,
};

use super::{
    super::{PING, engine::engine_error},
    *,
};

fn at(socket: &std::path::Path) -> DockerOptions {
    DockerOptions { host: Some(format!("unix://{}", socket.display())), ..options() }
}

#[tokio::test]
async fn an_engine_that_is_away_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("none.sock");
    for _ in 0..2 {
        match DockerDriver::connect(at(&socket)).await.map(drop) {
            Err(SandboxError::NoEngine { address, .. }) => assert!(address.contains("none.sock")),
            told => panic!("{told:?}"),
        }
        // And the second time, a socket that nobody listens on any more.
        drop(UnixListener::bind(&socket));
    }
    let elsewhere = DockerOptions { host: Some("ssh://elsewhere".into()), ..options() };
    assert!(matches!(DockerDriver::connect(elsewhere).await.map(drop), Err(SandboxError::NoEngine { .. })));
}

/// Its sessions would fail one by one, each with other words.
#[tokio::test]
async fn podman_is_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("podman.sock");
    let listener = UnixListener::bind(&socket).expect("it binds");
    tokio::spawn(async move {
        let version = r#"{"Components":[{"Name":"Podman Engine","Version":"4.3.1"}],"ApiVersion":"1.41"}"#;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", version.len());
            let _ = stream.write_all((head + version).as_bytes()).await;
        }
    });
    let told = DockerDriver::connect(at(&socket)).await.map(drop).expect_err("it is not Docker");
    assert!(matches!(told, SandboxError::NoEngine { .. }), "so another driver is taken where that may be");
    assert!(told.to_string().contains("Podman") && told.to_string().contains("--sandbox process"), "{told}");
}

#[test]
fn a_forbidden_socket_comes_with_the_way_out() {
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let told = SandboxError::from(engine_error("unix:///var/run/docker.sock", PING, denied.into())).to_string();
    assert!(told.contains("`/var/run/docker.sock`") && told.contains("usermod -aG docker"), "{told}");
}

/// The clock is paused, so the deadline comes as soon as nothing else can.
#[tokio::test(start_paused = true)]
async fn an_engine_that_never_answers_meets_the_deadline() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("mute.sock");
    let _mute = UnixListener::bind(&socket).expect("it binds");
    let told = DockerDriver::connect(at(&socket)).await.map(drop);
    assert!(matches!(told, Err(SandboxError::Deadline { seconds: 5, .. })), "{told:?}");
}

/// The engine of this machine behind a socket that can be cut.
struct EngineProxy {
    _dir: TempDir,
    socket: PathBuf,
    relay: JoinHandle<()>,
    /// Takes connections, of which nobody hears.
    stalled_listener: Option<UnixListener>,
}

impl EngineProxy {
    fn start() -> EngineProxy {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("it binds");
        EngineProxy { _dir: dir, socket, relay: tokio::spawn(relay(listener)), stalled_listener: None }
    }

    /// Cleans up past the wire.
    async fn fixture(&self) -> DriverFixture {
        DriverFixture {
            sandbox: driver(at(&self.socket)).await,
            reopened: driver(options()).await,
            image: busybox().to_owned(),
        }
    }

    /// All its connections end, and none is taken any more.
    fn disconnect(&self) {
        self.relay.abort();
    }

    fn stall(&mut self) {
        self.disconnect();
        self.stalled_listener = Some(self.bind());
    }

    fn reconnect(&mut self) {
        self.stalled_listener = None;
        self.relay = tokio::spawn(relay(self.bind()));
    }

    fn bind(&self) -> UnixListener {
        fs::remove_file(&self.socket).expect("it was there");
        UnixListener::bind(&self.socket).expect("it binds")
    }
}

async fn relay(listener: UnixListener) {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let engine = host.strip_prefix("unix://").expect("the tests' engine has a socket").to_owned();
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let engine = engine.clone();
        connections.spawn(async move {
            let mut far = UnixStream::connect(engine).await?;
            copy_bidirectional(&mut near, &mut far).await
        });
    }
}

/// As when the engine dies and comes back, and the container died meanwhile.
#[tokio::test]
async fn an_end_is_noticed_though_the_engine_hung_up() {
    if !is_wanted() {
        return;
    }
    let mut wire = EngineProxy::start();
    let bench = wire.fixture().await;
    bench
        .with_sandbox("sleep 1000", async |room| {
            room.start().await;
            let mut exit = Box::pin(room.exit());
            let early = tokio::time::timeout(Duration::from_millis(300), &mut exit).await;
            assert!(early.is_err(), "it runs still: {early:?}");
            wire.disconnect();
            tokio::task::yield_now().await;
            assert!(matches!(bench.check().await, Err(SandboxError::NoEngine { .. })));
            docker(&["kill", &name(&room.spec)]);
            wire.reconnect();
            assert_eq!(exit.await.code, Some(137));
        })
        .await;
}

#[tokio::test]
async fn a_stalled_engine_costs_a_deadline_and_makes_no_second_container() {
    if !is_wanted() {
        return;
    }
    let mut wire = EngineProxy::start();
    let bench = wire.fixture().await;
    bench
        .with_sandbox("echo run >>/workspace/runs; : >/workspace/up; sleep 1000", async |room| {
            room.start().await;
            room.wait_for_file("up").await;
            wire.stall();
            // From here to `resume` nothing can come but deadlines, so they come at once.
            tokio::time::pause();
            for told in [
                bench.pause(room.spec.session).await,
                bench.start(&room.spec, &|_, _| ()).await,
                bench.check().await,
                bench.list().await.map(drop),
                bench.logs(room.spec.session, 100).await.map(drop),
                bench.stats(room.spec.session).await.map(drop),
            ] {
                assert!(matches!(told, Err(SandboxError::Deadline { .. })), "{told:?}");
            }
            tokio::time::resume();
            wire.reconnect();
            room.start().await;
            assert_eq!(room.read("runs"), "run\n");
        })
        .await;
}
