//! Probes from inside: one list for every driver, of what a hostile agent attempts and what an
//! honest one needs.

use std::{
    net::TcpListener,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener, UnixStream},
    },
};

use tempfile::TempDir;

use crate::store::SessionId;

/// Fewest lines of a complete output.
const MIN_PROBES: usize = 90;

/// Targets of the probes on this host. They exist until this value is dropped.
pub(crate) struct ProbeTargets {
    /// Directory of a user, with a socket.
    host: TempDir,
    abstract_name: String,
    tcp: TcpListener,
    _unix: UnixListener,
    _abstract: UnixListener,
}

impl ProbeTargets {
    pub(crate) fn open() -> ProbeTargets {
        let host = tempfile::tempdir().expect("temporary directory is created");
        let socket = host.path().join("socket");
        let unix = UnixListener::bind(&socket).expect("socket binds");
        let abstract_name = format!("greenroom-{}", SessionId::generate());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name).expect("name is valid");
        let abstract_listener = UnixListener::bind_addr(&abstract_address).expect("socket binds");
        UnixStream::connect(&socket).expect("the host reaches the socket");
        UnixStream::connect_addr(&abstract_address).expect("the host reaches the socket");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("listener binds");
        ProbeTargets { host, abstract_name, tcp, _unix: unix, _abstract: abstract_listener }
    }

    /// Returns the agent's script. Its output is in the file `seen` of the workspace. `further`
    /// probes belong to one driver.
    pub(crate) fn script(&self, uid: u32, further: &str) -> String {
        let host = self.host.path().display().to_string();
        let probes = include_str!("probes.sh")
            .replace("@DATA@", &host)
            .replace("@SOCKET@", &format!("{host}/socket"))
            .replace("@ABSTRACT@", &self.abstract_name)
            .replace("@PORT@", &self.tcp.local_addr().expect("listener has a port").port().to_string())
            .replace("@PID@", &std::process::id().to_string())
            .replace("@UID@", &uid.to_string());
        format!("{{ {probes}\n{further}\necho 'done'\n}} >/workspace/seen 2>&1")
    }
}

/// Checks the output of the script.
///
/// # Panics
/// Panics if an attempt succeeded or a need is not met.
pub(crate) fn check_probes(seen: &str) {
    let bad: Vec<&str> =
        seen.lines().filter(|line| !line.starts_with("held: ") && !line.starts_with("works: ")).collect();
    assert_eq!(bad, ["done"], "{seen}");
    assert!(seen.lines().count() > MIN_PROBES, "{seen}");
}
