//! One server a node. A copy of a data directory has its node's name too, and so its sandboxes: beside the original it would take
//! them away, as those of sessions that it does not know.

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

/// How long the name may be taken by one who is just going: a child that was forked has it, too, until it becomes another program.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// Held by the server of a node for as long as it runs.
#[derive(Debug)]
pub struct NodeClaim {
    _name: UnixDatagram,
}

impl DataDir {
    /// Claims `node` on this machine. The name is one of the kernel's own: it goes with the process, however that ends, and is
    /// the same wherever a copy lies.
    ///
    /// # Errors
    /// [`DataError::Copy`] where another server has it.
    pub fn claim_node(&self, node: &str) -> Result<NodeClaim, DataError> {
        let at = |source| DataError::Io { path: self.path.join("node"), source };
        let name = SocketAddr::from_abstract_name(format!("greenroom/{node}")).map_err(at)?;
        let began = Instant::now();
        loop {
            match UnixDatagram::bind_addr(&name) {
                Ok(name) => return Ok(NodeClaim { _name: name }),
                Err(e) if e.kind() != ErrorKind::AddrInUse => return Err(at(e)),
                Err(_) if began.elapsed() < CLAIM_TIMEOUT => thread::sleep(CLAIM_RETRY_INTERVAL),
                Err(_) => return Err(DataError::Copy { path: self.path.clone() }),
            }
        }
    }
}
