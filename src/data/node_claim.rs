//! Claim of a node: one server per node. A copy of a data directory has the original's node id, and
//! so the same sandboxes. Beside the original, a server on the copy would remove those sandboxes as
//! unknown.

use std::{
    io::ErrorKind,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    thread,
    time::{Duration, Instant},
};

use super::{DataDir, DataError};

/// Longest wait for a server that is shutting down. A child process that was just forked holds the
/// name too, until it executes another program.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Claim of a node, held by its server while the server runs.
#[derive(Debug)]
pub struct NodeClaim {
    _name: UnixDatagram,
}

impl DataDir {
    /// Claims `node` on this machine. The claim is a name in the kernel's abstract socket
    /// namespace. The kernel frees the name when the process ends, in whatever way. A copy claims
    /// the same name, wherever it lies.
    ///
    /// # Errors
    /// [`DataError::Copy`] if another server holds the claim.
    pub fn claim_node(&self, node: &str) -> Result<NodeClaim, DataError> {
        let at = |source| DataError::Io { path: self.path.join("node"), source };
        let name = SocketAddr::from_abstract_name(format!("greenroom/{node}")).map_err(at)?;
        let start = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&name) {
                Ok(name) => return Ok(NodeClaim { _name: name }),
                Err(e) if e.kind() != ErrorKind::AddrInUse => return Err(at(e)),
                Err(_) if start.elapsed() < CLAIM_TIMEOUT => thread::sleep(CLAIM_RETRY_INTERVAL),
                Err(_) => return Err(DataError::Copy { path: self.path.clone() }),
            }
        }
    }
}
