//! Run directory: two sockets that a server and a sandbox share, each in a directory of its own.
//!
//! ```text
//! <run>/<session>/agent/    the sandbox writes here (agent.sock, terminal.sock); hostile
//! <run>/<session>/gateway/  the server writes here (gateway.sock); read-only inside
//! ```
//!
//! The run directory is mounted as a whole. A socket that a restarted server binds again appears
//! inside.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use greenroom_protocol::sandbox_paths::TERMINAL_SOCKET_NAME;
use rustix::fs::{Mode, OFlags, openat};
use tokio::net::{UnixListener, UnixStream};

use super::{remove_tree, workspace::create_owned_dir};
use crate::store::SessionId;

/// Run directory of one session.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

impl RunDir {
    /// Returns the run directory of `session` below `runs`. Touches no files.
    pub fn of(runs: &Path, session: SessionId) -> RunDir {
        RunDir { root: runs.join(session.to_string()) }
    }

    /// Creates the directories if they are missing. A running sandbox may be using them.
    ///
    /// The agent's part belongs to `uid` and `gid` if it is new, and keeps its owner otherwise. Its
    /// permissions are reset, so an agent that removed its own permissions gets in again.
    pub fn prepare(&self, uid: u32, gid: u32) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o711).create(self.gateway())?;
        create_owned_dir(&self.agent(), 0o711, uid, gid)
    }

    /// Returns the directory that is mounted into the sandbox, read-only.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the part that the sandbox may write.
    pub fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }

    /// Returns the part that only the server writes.
    pub fn gateway(&self) -> PathBuf {
        self.root.join("gateway")
    }

    /// Connects to the agent's socket.
    ///
    /// # Errors
    /// Fails if the socket is missing, is not a socket, or refuses the connection.
    pub async fn dial_agent(&self) -> io::Result<UnixStream> {
        self.dial("agent.sock").await
    }

    /// Connects to the socket of the agent's terminals.
    ///
    /// # Errors
    /// Fails as [`dial_agent`](Self::dial_agent) does.
    pub async fn dial_terminals(&self) -> io::Result<UnixStream> {
        self.dial(TERMINAL_SOCKET_NAME).await
    }

    /// Connects to a socket that the sandbox has made.
    ///
    /// A symbolic link in place of the socket is not followed. So a sandbox cannot make the server
    /// connect to another socket of the host.
    async fn dial(&self, name: &str) -> io::Result<UnixStream> {
        let dir = open_dir(&self.agent())?;
        let socket = openat(&dir, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let through = by_descriptor(&socket);
        if !fs::metadata(&through)?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("`{name}` is not a socket")));
        }
        UnixStream::connect(through).await
    }

    /// Listens for the sandbox's calls of the model gateway. Replaces a socket that a dead server
    /// left.
    pub fn bind_gateway(&self) -> io::Result<UnixListener> {
        let dir = open_dir(&self.gateway())?;
        // A socket's path has at most 107 bytes, and a data directory may be deeper. The path
        // through the descriptor is short.
        let path = by_descriptor(&dir).join("gateway.sock");
        remove_if_there(&path)?;
        let listener = UnixListener::bind(&path)?;
        // The sandbox runs as another user. Only its own sandbox has this directory mounted.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
        Ok(listener)
    }

    /// Removes the directory with its content. A missing directory is no error.
    pub async fn remove(&self) -> io::Result<()> {
        remove_tree::remove_trees(vec![self.root.clone()]).await
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_dir() -> (tempfile::TempDir, RunDir) {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let deep = temp.path().join("a".repeat(120));
        let run = RunDir::of(&deep, SessionId::generate());
        run.prepare(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
            .expect("run directory is created");
        (temp, run)
    }

    #[tokio::test]
    async fn dial_follows_no_link_in_place_of_socket() {
        let (_temp, run) = run_dir();
        let _gateway = run.bind_gateway().expect("socket binds below a path of more than 107 bytes");
        for name in ["agent.sock", TERMINAL_SOCKET_NAME] {
            std::os::unix::fs::symlink(run.gateway().join("gateway.sock"), run.agent().join(name)).expect("a link");
        }
        assert!(run.dial_agent().await.is_err());
        assert!(run.dial_terminals().await.is_err());
    }

    #[tokio::test]
    async fn dial_connects_and_bind_replaces_stale_socket() {
        let (_temp, run) = run_dir();
        drop(run.bind_gateway().expect("socket binds"));
        let _gateway = run.bind_gateway().expect("second bind replaces the socket");
        fs::rename(run.gateway().join("gateway.sock"), run.agent().join("agent.sock")).expect("socket is moved");
        run.dial_agent().await.expect("agent's socket accepts the connection");
    }
}
