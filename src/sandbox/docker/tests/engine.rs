//! Engines that are unreachable, deny access, stall or hang up.

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

fn at(socket: &std::path::Path) -> SandboxConfig {
    SandboxConfig { docker_host: format!("unix://{}", socket.display()), ..options() }
}

#[tokio::test]
async fn unreachable_engine_is_named() {
    let dir = tempfile::tempdir().expect("temporary directory is created");
    let socket = dir.path().join("none.sock");
    for _ in 0..2 {
        match connect(at(&socket)).await.map(drop) {
            Err(SandboxError::NoEngine { address, .. }) => assert!(address.contains("none.sock")),
            result => panic!("{result:?}"),
        }
        // The second attempt finds a socket without a listener.
        drop(UnixListener::bind(&socket));
    }
    let elsewhere = SandboxConfig { docker_host: "ssh://elsewhere".into(), ..options() };
    assert!(matches!(connect(elsewhere).await.map(drop), Err(SandboxError::NoEngine { .. })));
}

/// Sessions on Podman would fail one by one, each with another error.
#[tokio::test]
async fn podman_is_rejected() {
    let dir = tempfile::tempdir().expect("temporary directory is created");
    let socket = dir.path().join("podman.sock");
    let listener = UnixListener::bind(&socket).expect("socket binds");
    tokio::spawn(async move {
        let version = r#"{"Components":[{"Name":"Podman Engine","Version":"4.3.1"}],"ApiVersion":"1.41"}"#;
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", version.len());
            let _ = stream.write_all((head + version).as_bytes()).await;
        }
    });
    let result = connect(at(&socket)).await.map(drop).expect_err("engine is rejected");
    assert!(matches!(result, SandboxError::NoEngine { .. }), "the server may fall back to another driver");
    assert!(result.to_string().contains("Podman") && result.to_string().contains("--sandbox process"), "{result}");
}

#[test]
fn forbidden_socket_error_names_the_way_out() {
    let denied = io::Error::from(io::ErrorKind::PermissionDenied);
    let result = SandboxError::from(engine_error("unix:///var/run/docker.sock", PING, denied.into())).to_string();
    assert!(result.contains("`/var/run/docker.sock`") && result.contains("usermod -aG docker"), "{result}");
}

/// The clock is paused, so the deadline comes as soon as no other task can run.
#[tokio::test(start_paused = true)]
async fn silent_engine_meets_the_deadline() {
    let dir = tempfile::tempdir().expect("temporary directory is created");
    let socket = dir.path().join("mute.sock");
    let _mute = UnixListener::bind(&socket).expect("socket binds");
    let result = connect(at(&socket)).await.map(drop);
    assert!(matches!(result, Err(SandboxError::Deadline { seconds: 5, .. })), "{result:?}");
}

/// Proxy before this machine's engine. Its connections can be cut or stalled.
struct EngineProxy {
    _dir: TempDir,
    socket: PathBuf,
    relay: JoinHandle<()>,
    /// Accepts connections in its backlog and never answers.
    stalled_listener: Option<UnixListener>,
}

impl EngineProxy {
    fn start() -> EngineProxy {
        let dir = tempfile::tempdir().expect("temporary directory is created");
        let socket = dir.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).expect("socket binds");
        EngineProxy { _dir: dir, socket, relay: tokio::spawn(relay(listener)), stalled_listener: None }
    }

    /// Returns a fixture that uses the proxy. Its cleanup reaches the engine directly.
    async fn fixture(&self) -> DriverFixture {
        DriverFixture {
            sandbox: driver(at(&self.socket)).await,
            reopened: driver(options()).await,
            image: busybox().to_owned(),
        }
    }

    /// Ends all connections and accepts no new ones.
    fn disconnect(&self) {
        self.relay.abort();
    }

    /// Ends all connections and leaves new ones unanswered.
    fn stall(&mut self) {
        self.disconnect();
        self.stalled_listener = Some(self.bind());
    }

    fn reconnect(&mut self) {
        self.stalled_listener = None;
        self.relay = tokio::spawn(relay(self.bind()));
    }

    fn bind(&self) -> UnixListener {
        fs::remove_file(&self.socket).expect("file exists");
        UnixListener::bind(&self.socket).expect("socket binds")
    }
}

async fn relay(listener: UnixListener) {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".into());
    let engine = host.strip_prefix("unix://").expect("engine's address is a Unix socket").to_owned();
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let engine = engine.clone();
        connections.spawn(async move {
            let mut far = UnixStream::connect(engine).await?;
            copy_bidirectional(&mut near, &mut far).await
        });
    }
}

/// The engine dies and comes back, and the container dies meanwhile.
#[tokio::test]
async fn exit_is_reported_although_the_engine_hung_up() {
    if !engine_is_enabled() {
        return;
    }
    let mut proxy = EngineProxy::start();
    let fixture = proxy.fixture().await;
    fixture
        .with_sandbox("sleep 1000", async |sandbox| {
            sandbox.start().await;
            let mut exit = Box::pin(sandbox.exit());
            let early = tokio::time::timeout(Duration::from_millis(300), &mut exit).await;
            assert!(early.is_err(), "the container still runs: {early:?}");
            proxy.disconnect();
            tokio::task::yield_now().await;
            assert!(matches!(fixture.check().await, Err(SandboxError::NoEngine { .. })));
            docker(&["kill", &name(&sandbox.spec)]);
            proxy.reconnect();
            assert_eq!(exit.await.code, Some(137));
        })
        .await;
}

#[tokio::test]
async fn stalled_engine_meets_deadlines_and_creates_no_second_container() {
    if !engine_is_enabled() {
        return;
    }
    let mut proxy = EngineProxy::start();
    let fixture = proxy.fixture().await;
    fixture
        .with_sandbox("echo run >>/workspace/runs; : >/workspace/up; sleep 1000", async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("up").await;
            proxy.stall();
            // Until `resume`, no task but the deadlines can run, so they come at once.
            tokio::time::pause();
            for result in [
                fixture.pause(sandbox.spec.session).await,
                fixture.start(&sandbox.spec, &|_, _| ()).await,
                fixture.check().await,
                fixture.list().await.map(drop),
                fixture.logs(sandbox.spec.session, 100).await.map(drop),
                fixture.stats(sandbox.spec.session).await.map(drop),
            ] {
                assert!(matches!(result, Err(SandboxError::Deadline { .. })), "{result:?}");
            }
            tokio::time::resume();
            proxy.reconnect();
            sandbox.start().await;
            assert_eq!(sandbox.read("runs"), "run\n");
        })
        .await;
}
