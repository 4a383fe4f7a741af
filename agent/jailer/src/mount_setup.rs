//! Setup that requires root, used if the server runs as root.
//!
//! The session's directories are closed to other users. Root mounts them where an ordinary user can
//! mount them again, and then becomes that user.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::chown,
    },
    path::{Path, PathBuf},
};

use greenroom_jailer::request::JailRequest;
use rustix::{
    fs::{Mode, OFlags},
    mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change},
    process::{DumpableBehavior, set_dumpable_behavior},
    thread::{CapabilitySet, UnshareFlags},
};

use crate::privileges;

/// Mount point that every host has. Covered only in the jailer's own mount namespace.
const STAGING_DIR: &str = "/tmp";

/// Mounts every source of the request below [`STAGING_DIR`], in the jailer's own mount namespace,
/// and updates the request's paths.
///
/// The data directory is closed to everybody (mode 0700), including the sandbox's user, and stays
/// closed.
pub fn prepare(request: &mut JailRequest) -> io::Result<()> {
    // SAFETY: the jailer has one thread, and holds no descriptor that a new mount namespace
    // affects.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // An unmount on the host propagates to this namespace. No mount of this namespace appears on
    // the host.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let sources = &mut request.sources;
    let mut staged: Vec<&mut PathBuf> =
        vec![&mut sources.agent, &mut sources.workspace, &mut sources.home, &mut sources.run, &mut sources.run_agent];
    staged.extend(request.volumes.iter_mut().map(|volume| &mut volume.host));
    // Sources are opened first: the mount on the staging directory may cover some of them.
    let opened: Vec<OwnedFd> = staged.iter().map(|path| open(path)).collect::<io::Result<_>>()?;
    let options = CString::new("mode=755,size=64k,nr_inodes=1k")?;
    mount("greenroom", STAGING_DIR, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
    for (index, (path, source)) in staged.into_iter().zip(opened).enumerate() {
        *path = bind_into(&source, &Path::new(STAGING_DIR).join(index.to_string()))?;
    }
    sources.root = Path::new(STAGING_DIR).join("root");
    fs::create_dir(&sources.root)?;
    chown(&sources.root, Some(request.uid), Some(request.gid))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("`{}`: {e}", path.display())))
}

fn bind_into(source: &OwnedFd, target: &Path) -> io::Result<PathBuf> {
    let from = format!("/proc/self/fd/{}", source.as_raw_fd());
    match fs::metadata(&from)?.is_dir() {
        true => fs::create_dir(target)?,
        false => fs::write(target, "")?,
    }
    mount_bind_recursive(from, target)?;
    Ok(target.to_owned())
}

/// Changes from root to the sandbox's user permanently.
///
/// One capability, `CAP_SYS_ADMIN`, stays until the jail is built. With it, a distribution that
/// forbids user namespaces to ordinary users permits them. The user namespace removes the
/// capability from the sandbox.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    privileges::become_user(uid, gid)?;
    privileges::retain_capabilities(CapabilitySet::SYS_ADMIN)?;
    // The change of user gave `/proc/self` to root. The jailer must write its user map there.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Drops the capability that [`become_user`] kept.
pub fn drop_last_capability() -> io::Result<()> {
    Ok(privileges::retain_capabilities(CapabilitySet::empty())?)
}
