//! What only root has to do, and only when the server is root: bring the session's directories, which nobody else may
//! reach, to where an ordinary user can mount them, and then become that user.

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

/// Every host has it. It is covered in the keeper's own view of the file system only.
const STAGING_DIR: &str = "/tmp";

/// Mounts every source of the order again on a stage of the keeper's own, and makes the order point there.
///
/// The data directory is closed to everybody (mode 0700), the sandbox's user too, and stays so.
pub fn prepare(order: &mut JailRequest) -> io::Result<()> {
    // SAFETY: the keeper has one thread, and holds no descriptor that a view of its own could surprise.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // What the host unmounts later is to vanish here too, and nothing from here may appear on the host.
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let sources = &mut order.sources;
    let mut staged: Vec<&mut PathBuf> =
        vec![&mut sources.agent, &mut sources.workspace, &mut sources.home, &mut sources.run, &mut sources.run_agent];
    staged.extend(order.volumes.iter_mut().map(|volume| &mut volume.host));
    // All are opened before the stage covers what may be some of them.
    let opened: Vec<OwnedFd> = staged.iter().map(|path| open(path)).collect::<io::Result<_>>()?;
    let options = CString::new("mode=755,size=64k,nr_inodes=1k")?;
    mount("greenroom", STAGING_DIR, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())?;
    for (index, (path, source)) in staged.into_iter().zip(opened).enumerate() {
        *path = bind_into(&source, &Path::new(STAGING_DIR).join(index.to_string()))?;
    }
    sources.root = Path::new(STAGING_DIR).join("root");
    fs::create_dir(&sources.root)?;
    chown(&sources.root, Some(order.uid), Some(order.gid))
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    let opened = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    opened.map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("mount `{}`: {e}", path.display())))
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

/// Root becomes the sandbox's user, for good. One capability is kept until the walls stand: a distribution that forbids
/// ordinary users to make user namespaces allows it with this one. The namespace itself takes it away from the sandbox.
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    privileges::become_user(uid, gid)?;
    privileges::retain_capabilities(CapabilitySet::SYS_ADMIN)?;
    // The change of user made `/proc/self` root's, and the map of users is written there.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

pub fn drop_last_capability() -> io::Result<()> {
    Ok(privileges::retain_capabilities(CapabilitySet::empty())?)
}
