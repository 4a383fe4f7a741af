//! nginx as a plain WebSocket proxy, measured beside the relay.

use std::{
    fs, io,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use greenroom_testkit::host;

/// Descriptors: two for each idle connection here and at the proxy, and some more.
pub(super) const DESCRIPTORS: u64 = 100_000;

/// nginx before the agent's socket.
pub(super) struct NginxProxy {
    child: Child,
    pub(super) port: u16,
}

impl NginxProxy {
    pub(super) fn start(home: &Path) -> io::Result<NginxProxy> {
        let port = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let at = |name: &str| home.join(name).display().to_string();
        let config = format!(
            "daemon off; worker_processes auto; worker_rlimit_nofile {DESCRIPTORS}; pid {pid}; error_log {log};\n\
             events {{ worker_connections {connections}; }}\n\
             http {{ access_log off; client_body_temp_path {tmp}; proxy_temp_path {tmp}; fastcgi_temp_path {tmp};\n\
             uwsgi_temp_path {tmp}; scgi_temp_path {tmp};\n\
             server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ proxy_pass http://unix:{agent};\n\
             proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;\n\
             proxy_set_header Host agent; proxy_read_timeout 1h; }} }} }}\n",
            pid = at("nginx.pid"),
            log = at("nginx.log"),
            tmp = at("tmp"),
            agent = at("agent.sock"),
            connections = DESCRIPTORS / 4,
        );
        fs::write(home.join("nginx.conf"), config)?;
        // The workers run as another user.
        fs::set_permissions(home, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let child = Command::new("nginx")
            .args(["-c", &at("nginx.conf"), "-e", &at("nginx.log")])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        for _ in 0..200 {
            if std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
                return Ok(NginxProxy { child, port });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let said = fs::read_to_string(home.join("nginx.log")).unwrap_or_default();
        Err(io::Error::other(format!("nginx does not listen: {}", said.trim())))
    }

    /// Returns the memory of all its processes, in KiB.
    pub(super) fn memory(&mut self) -> u64 {
        let master = self.child.id() as i32;
        host::children(master).into_iter().chain([master]).map(host::resident_kib).sum()
    }
}

impl Drop for NginxProxy {
    fn drop(&mut self) {
        host::kill(self.child.id() as i32, rustix::process::Signal::TERM);
        // nginx ends its workers first.
        let _ = self.child.wait();
    }
}

pub(super) fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    let wanted = Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    // Without root the limit is fixed, and may be too low for the idle connections.
    if setrlimit(Resource::Nofile, wanted).is_err() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    }
}
