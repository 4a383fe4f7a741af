//! The directory in which a server and a sandbox meet: two sockets, each in a directory of its own.
//!
//! ```text
//! <run>/<session>/agent/    the sandbox writes here (agent.sock); what lies here is hostile
//! <run>/<session>/gateway/  the server writes here (gateway.sock); read-only inside
//! ```
//!
//! The whole is mounted as a directory, so a socket that a restarted server binds anew appears inside.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, openat};
use tokio::net::{UnixListener, UnixStream};

use super::remove_tree;
use crate::store::SessionId;

/// The run directory of one session.
#[derive(Debug, Clone)]
pub struct RunDir {
    root: PathBuf,
}

impl RunDir {
    /// The run directory of `session` below `runs`. Nothing is touched yet.
    pub fn of(runs: &Path, session: SessionId) -> RunDir {
        RunDir { root: runs.join(session.to_string()) }
    }

    /// Makes it, or leaves it as it is: a sandbox that runs may be using it. The sandbox's half belongs to `uid`, who can get in
    /// also where it had taken away its own right to.
    pub fn prepare(&self, uid: u32, gid: u32) -> io::Result<()> {
        let mut dirs = fs::DirBuilder::new();
        dirs.recursive(true).mode(0o711);
        dirs.create(self.gateway())?;
        dirs.create(self.agent())?;
        fs::set_permissions(self.agent(), PermissionsExt::from_mode(0o711))?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(self.agent(), Some(uid), Some(gid))?;
        }
        Ok(())
    }

    /// What is mounted into the sandbox, read-only.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The part that the sandbox may write.
    pub fn agent(&self) -> PathBuf {
        self.root.join("agent")
    }

    /// The part that only the server writes.
    pub fn gateway(&self) -> PathBuf {
        self.root.join("gateway")
    }

    /// Connects to the agent, and to nothing else: a link that the sandbox laid in place of its socket is not followed, so
    /// it cannot make this server talk to another socket of the host.
    pub async fn dial_agent(&self) -> io::Result<UnixStream> {
        let dir = open_dir(&self.agent())?;
        let socket = openat(&dir, "agent.sock", OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let through = by_descriptor(&socket);
        if !fs::metadata(&through)?.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "agent.sock is no socket"));
        }
        UnixStream::connect(through).await
    }

    /// Listens for the sandbox's calls of the model gateway; a socket that a dead server left is replaced.
    pub fn bind_gateway(&self) -> io::Result<UnixListener> {
        let dir = open_dir(&self.gateway())?;
        // Through the descriptor: a socket's path may be 107 bytes at most, and a data directory may be deeper than that.
        let path = by_descriptor(&dir).join("gateway.sock");
        remove_if_there(&path)?;
        let listener = UnixListener::bind(&path)?;
        // The sandbox runs as another user, and only its own sandbox has this directory mounted.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o666))?;
        Ok(listener)
    }

    /// Removes all of it. One that is not there is no error.
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

    fn rundir() -> (tempfile::TempDir, RunDir) {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let deep = temp.path().join("a".repeat(120));
        let run = RunDir::of(&deep, SessionId::generate());
        run.prepare(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()).expect("it is made");
        (temp, run)
    }

    #[tokio::test]
    async fn a_link_in_place_of_the_socket_is_not_followed() {
        let (_temp, run) = rundir();
        let _elsewhere = run.bind_gateway().expect("it binds, however long the path");
        std::os::unix::fs::symlink(run.gateway().join("gateway.sock"), run.agent().join("agent.sock")).expect("a link");
        assert!(run.dial_agent().await.is_err());
    }

    #[tokio::test]
    async fn a_socket_is_dialled_and_a_left_over_one_is_replaced() {
        let (_temp, run) = rundir();
        drop(run.bind_gateway().expect("it binds"));
        let _gateway = run.bind_gateway().expect("it binds again");
        fs::rename(run.gateway().join("gateway.sock"), run.agent().join("agent.sock")).expect("a socket can be moved");
        run.dial_agent().await.expect("it is dialled");
    }
}
