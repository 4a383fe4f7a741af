//! Reverse proxies before a server: nginx and Caddy, with the lines of
//! docs/how-to/behind-a-proxy.md.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    net::TcpStream,
    process::{Child, Command},
};

use super::{WORKSPACE, rest::RestClient, tls::TestCertificate, within};

/// Name of the server in the documentation, which browsers and `allowed_hosts` use too.
pub const NAME: &str = "greenroom.example";
/// Address of the server in the documentation.
const DOCUMENTED_SERVER: &str = "127.0.0.1:3000";
/// Makes a test fail if the program of a proxy is missing. Unset, the test is left out.
const REQUIRED: &str = "GREENROOM_TEST_PROXIES";
/// Attempts to start a proxy: another process may take the free port before the proxy does.
const ATTEMPTS: usize = 5;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyKind {
    Nginx,
    Caddy,
}

/// Way in which a proxy offers a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyRoute {
    /// The documented lines, with TLS.
    Documented,
    /// Plain HTTP below this path. The proxy keeps the path.
    Keep(&'static str),
    /// Plain HTTP below this path. The proxy removes the path.
    Remove(&'static str),
}

/// Running proxy. Ends when dropped.
pub struct TestProxy {
    _child: Child,
    pub rest: RestClient,
    _dir: TempDir,
}

impl TestProxy {
    /// Starts a proxy before the server of `rest`. `None` if the program is missing.
    ///
    /// # Panics
    /// If the program is missing and `GREENROOM_TEST_PROXIES` is `required`, or if it does not
    /// start.
    pub async fn start(kind: ProxyKind, rest: &RestClient, route: ProxyRoute) -> Option<TestProxy> {
        let Some(program) = kind.program() else {
            let reason = format!("`{}` is not installed (Debian: `apt install {0}`)", kind.name());
            assert!(std::env::var(REQUIRED).as_deref() != Ok("required"), "{reason}");
            eprintln!("left out: {reason}");
            return None;
        };
        for _ in 0..ATTEMPTS {
            if let Some(proxy) = TestProxy::attempt(kind, &program, rest, route).await {
                return Some(proxy);
            }
        }
        panic!("`{}` did not start in {ATTEMPTS} attempts", kind.name());
    }

    async fn attempt(kind: ProxyKind, program: &Path, rest: &RestClient, route: ProxyRoute) -> Option<TestProxy> {
        let dir = tempfile::Builder::new().prefix("greenroom-proxy-").tempdir().expect("a temporary directory");
        let certificate = TestCertificate::new();
        let (cert, key) = certificate.write(dir.path());
        let port = free_port();
        let parts = ProxyParts { dir: dir.path(), port, server: &rest.authority, cert: &cert, key: &key };
        let (file, text) = match kind {
            ProxyKind::Nginx => ("nginx.conf", parts.nginx(route)),
            ProxyKind::Caddy => ("Caddyfile", parts.caddy(route)),
        };
        let (file, log) = (dir.path().join(file), dir.path().join("proxy.log"));
        fs::write(&file, text).expect("the configuration is written");
        let output = File::create(&log).expect("the log is created");
        let errors = output.try_clone().expect("a descriptor is free");
        let mut command = Command::new(program);
        match kind {
            ProxyKind::Nginx => command.arg("-p").arg(dir.path()).arg("-e").arg("stderr").arg("-c").arg(&file),
            ProxyKind::Caddy => command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&file),
        };
        command.env("HOME", dir.path()).env("XDG_DATA_HOME", dir.path()).env("XDG_CONFIG_HOME", dir.path());
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .expect("the program starts");
        let listens = within("the proxy to listen", async {
            loop {
                if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                    return true;
                }
                if child.try_wait().is_ok_and(|status| status.is_some()) {
                    return false;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        if !listens.await {
            eprintln!("{} ended: {}", kind.name(), fs::read_to_string(&log).unwrap_or_default());
            return None;
        }
        let authority = format!("127.0.0.1:{port}");
        let rest = match route {
            ProxyRoute::Documented => rest.at(&authority, "").trusting(&certificate),
            ProxyRoute::Keep(path) | ProxyRoute::Remove(path) => rest.at(&authority, path),
        };
        Some(TestProxy { _child: child, rest, _dir: dir })
    }
}

impl ProxyKind {
    fn name(self) -> &'static str {
        match self {
            ProxyKind::Nginx => "nginx",
            ProxyKind::Caddy => "caddy",
        }
    }

    /// Returns the path of the program. The `PATH` of a user may lack `/usr/sbin`.
    fn program(self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
        dirs.map(|dir| dir.join(self.name())).find(|program| program.is_file())
    }
}

/// Values of one proxy that replace those of the documentation.
struct ProxyParts<'a> {
    dir: &'a Path,
    port: u16,
    server: &'a str,
    cert: &'a Path,
    key: &'a Path,
}

impl ProxyParts<'_> {
    /// Returns the documented lines for nginx in a frame that needs no rights and no fixed path.
    fn nginx(&self, route: ProxyRoute) -> String {
        let ProxyParts { dir, port, server, cert, key } = self;
        let documented = documented_block("nginx").replace(DOCUMENTED_SERVER, server);
        let site = match route {
            ProxyRoute::Documented => documented
                .replace("listen 443 ssl", &format!("listen 127.0.0.1:{port} ssl"))
                .replace("/etc/ssl/greenroom.example.pem", &cert.display().to_string())
                .replace("/etc/ssl/greenroom.example.key", &key.display().to_string()),
            ProxyRoute::Keep(path) | ProxyRoute::Remove(path) => {
                let plain = documented.replace("listen 443 ssl", &format!("listen 127.0.0.1:{port}"));
                let without_tls = plain.lines().filter(|line| !line.contains("ssl_certificate"));
                let below =
                    without_tls.collect::<Vec<_>>().join("\n").replace("location /", &format!("location {path}/"));
                match route {
                    // With a path, nginx replaces the one of the location.
                    ProxyRoute::Remove(_) => below.replace(&format!("http://{server};"), &format!("http://{server}/;")),
                    ProxyRoute::Documented | ProxyRoute::Keep(_) => below,
                }
            }
        };
        let dir = dir.display();
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|kind| format!("{kind}_temp_path {dir}/{kind};"))
            .join("\n");
        format!(
            "daemon off;\nmaster_process off;\npid {dir}/nginx.pid;\nevents {{}}\n\
             http {{\naccess_log off;\n{paths}\n{site}\n}}\n"
        )
    }

    fn caddy(&self, route: ProxyRoute) -> String {
        let ProxyParts { port, server, cert, key, .. } = self;
        let documented = documented_block("caddy").replace(DOCUMENTED_SERVER, server);
        // The port for the administration is the same for each Caddy of a machine.
        let options = "{\n    admin off\n    auto_https disable_redirects\n}\n";
        let site = match route {
            ProxyRoute::Documented => {
                let tls = format!("{{\n    bind 127.0.0.1\n    tls {} {}\n", cert.display(), key.display());
                // Clients of the test ask for the address. A site without a name answers for all.
                documented.replacen('{', &tls, 1).replace(&format!("{NAME} "), &format!("https://127.0.0.1:{port} "))
            }
            ProxyRoute::Keep(path) => plain_caddy(*port, &format!("handle {path}*"), server),
            ProxyRoute::Remove(path) => plain_caddy(*port, &format!("handle_path {path}*"), server),
        };
        format!("{options}{site}\n")
    }
}

fn plain_caddy(port: u16, handle: &str, server: &str) -> String {
    format!(
        "http://127.0.0.1:{port} {{\n    bind 127.0.0.1\n    {handle} {{\n        reverse_proxy {server}\n    }}\n}}\n"
    )
}

/// Returns the first code block of a language in the documentation about proxies.
fn documented_block(language: &str) -> String {
    let path = format!("{WORKSPACE}/docs/how-to/behind-a-proxy.md");
    let text = fs::read_to_string(&path).expect("the documentation exists");
    let (_, rest) = text.split_once(&format!("```{language}\n")).expect("the documentation has such a block");
    rest.split_once("```").expect("the block ends").0.to_owned()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.local_addr().expect("the listener is bound").port()
}
