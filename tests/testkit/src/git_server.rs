//! Git server on loopback: `git http-backend` behind a small HTTP server, with a password.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, service::service_fn};
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, net::TcpListener, process::Command, sync::oneshot};

/// User and password that the server accepts.
pub const USERNAME: &str = "me";
pub const PASSWORD: &str = "clone-secret-1";
/// The same as a header. RFC 7617.
const AUTHORIZATION: &str = "Basic bWU6Y2xvbmUtc2VjcmV0LTE=";

/// Running git server with one repository, `project.git`, whose branch `main` has a file `readme`.
pub struct TestGitServer {
    address: SocketAddr,
    dir: TempDir,
    state: Arc<GitServerState>,
    _stop: oneshot::Sender<()>,
}

#[derive(Default)]
struct GitServerState {
    root: PathBuf,
    /// End of the addresses whose requests are not answered.
    held: Mutex<Option<&'static str>>,
    /// Addresses of the requests so far.
    requests: Mutex<Vec<String>>,
}

/// Runs git in a directory, with an identity and without the configuration of this host.
///
/// # Panics
/// If git fails.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let settings = ["user.name=Test", "user.email=test@localhost", "init.defaultBranch=main", "safe.directory=*"];
    let mut command = std::process::Command::new("git");
    command.current_dir(dir).args(settings.iter().flat_map(|setting| ["-c", setting])).args(args);
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let output = command.output().expect("`git` is installed");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

impl TestGitServer {
    #[expect(clippy::new_without_default, reason = "starting a server is no default")]
    pub fn new() -> TestGitServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let source = dir.path().join("source");
        fs::create_dir(&source).expect("a directory");
        git(&source, &["init", "--quiet"]);
        fs::write(source.join("readme"), "one\n").expect("a file");
        git(&source, &["add", "."]);
        git(&source, &["commit", "--quiet", "-m", "first"]);
        git(dir.path(), &["clone", "--quiet", "--bare", "source", "project.git"]);
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let address = listener.local_addr().expect("it is bound");
        let state = Arc::new(GitServerState { root: dir.path().to_owned(), ..GitServerState::default() });
        let (stop, stopped) = oneshot::channel::<()>();
        let served = state.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener).expect("it is a listener");
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        TestGitServer { address, dir, state, _stop: stop }
    }

    /// Returns host and port.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// Returns the address of the repository.
    pub fn url(&self) -> String {
        format!("http://{}/project.git", self.address)
    }

    /// Returns the bare repository on disk.
    pub fn repository(&self) -> PathBuf {
        self.dir.path().join("project.git")
    }

    /// Leaves requests unanswered whose path ends like this. `None`: answers all.
    pub fn hold(&self, end: Option<&'static str>) {
        *self.state.held.lock().expect("lock is never poisoned: no holder panics") = end;
    }

    /// Returns the number of requests so far whose path ends like this.
    pub fn requests(&self, end: &str) -> usize {
        let requests = self.state.requests.lock().expect("lock is never poisoned: no holder panics");
        requests.iter().filter(|path| path.ends_with(end)).count()
    }
}

async fn serve(listener: TcpListener, state: Arc<GitServerState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(request, state.clone()));
            let _left =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<hyper::body::Incoming>,
    state: Arc<GitServerState>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("authorization") != AUTHORIZATION {
        let refused = Response::builder().status(401).header("www-authenticate", "Basic realm=\"git\"");
        return Ok(refused.body(Full::default()).expect("status and header are fitting"));
    }
    let Ok(body) = body.collect().await else { return Ok(Response::new(Full::default())) };
    state.requests.lock().expect("lock is never poisoned: no holder panics").push(path.clone());
    let held = *state.held.lock().expect("lock is never poisoned: no holder panics");
    if held.is_some_and(|end| path.ends_with(end)) {
        std::future::pending::<()>().await;
    }
    let variables = BTreeMap::from([
        ("REQUEST_METHOD", parts.method.as_str()),
        ("PATH_INFO", path.as_str()),
        ("QUERY_STRING", parts.uri.query().unwrap_or_default()),
        ("CONTENT_TYPE", header("content-type")),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
        ("HTTP_GIT_PROTOCOL", header("git-protocol")),
        ("GIT_PROTOCOL", header("git-protocol")),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("REMOTE_USER", USERNAME),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_COUNT", "1"),
        ("GIT_CONFIG_KEY_0", "safe.directory"),
        ("GIT_CONFIG_VALUE_0", "*"),
    ]);
    Ok(backend(&state.root, &variables, &body.to_bytes()).await)
}

/// Runs `git http-backend` for one request. RFC 3875.
async fn backend(root: &Path, variables: &BTreeMap<&str, &str>, body: &[u8]) -> Response<Full<Bytes>> {
    let mut command = Command::new("git");
    command.arg("http-backend").envs(variables).env("GIT_PROJECT_ROOT", root).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("`git` is installed");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let (_may_end_early, output) = tokio::join!(
        async move {
            let written = stdin.write_all(body).await;
            drop(stdin);
            written
        },
        child.wait_with_output()
    );
    let output = output.expect("the program ends").stdout;
    let split = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or(output.len());
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..split]).lines() {
        response = match line.split_once(": ") {
            Some(("Status", status)) => response.status(status.split(' ').next().unwrap_or("500")),
            Some((name, value)) => response.header(name, value),
            None => response,
        };
    }
    let body = Bytes::copy_from_slice(output.get(split + 4..).unwrap_or_default());
    response.body(Full::new(body)).expect("the headers are fitting")
}
