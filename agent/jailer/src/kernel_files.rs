//! Files of the kernel inside a jail: what shows the machine is hidden, the rest is read-only.

use std::{fs, io};

use greenroom_jailer::confinement::MASKED_PATHS;
use rustix::{
    io::Errno,
    mount::{MountFlags, mount, mount_bind, mount_remount},
};

/// Options of the terminals' file system. All sandboxes and the host share the kernel's own limit
/// of 4096 terminals.
const TERMINALS: &std::ffi::CStr = c"newinstance,ptmxmode=0666,mode=620,max=128";

/// Mount point of the POSIX message queues, as in a container.
pub const MESSAGE_QUEUES: &str = "/dev/mqueue";

/// Share of the host's limit of inotify instances and watches that one sandbox may use.
const QUOTA_SHARE: u64 = 4;

/// Hides and protects the files. Requires the right to mount, and a `/proc` that is still writable.
pub fn protect() -> io::Result<()> {
    for path in MASKED_PATHS {
        mask(path).map_err(|e| io::Error::new(e.kind(), format!("mask `{path}`: {e}")))?;
    }
    mount("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, TERMINALS)?;
    // Landlock admits message queues only if it knows their file system.
    fs::create_dir(MESSAGE_QUEUES)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match mount("mqueue", MESSAGE_QUEUES, "mqueue", flags, c"") {
        // A kernel without message queues.
        Ok(()) | Err(Errno::NODEV) => {}
        Err(e) => return Err(e.into()),
    }
    // A writable directory would be a file system without a size limit.
    make_read_only("/dev", MountFlags::NOSUID)?;
    // A process could otherwise lower its `oom_score_adj`. Only a privileged host could forbid that
    // in another way.
    make_read_only("/proc", MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC)
}

fn mask(path: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(found) if found.is_dir() => {
            let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
            Ok(mount("tmpfs", path, "tmpfs", flags, c"size=4k,nr_inodes=1,mode=555")?)
        }
        Ok(_) => Ok(mount_bind("/dev/null", path)?),
        Err(e) => Err(e),
    }
}

/// Makes the mount read-only, and leaves mounts below it as they are. `flags` are its other flags.
fn make_read_only(path: &str, flags: MountFlags) -> io::Result<()> {
    Ok(mount_remount(path, MountFlags::BIND | MountFlags::RDONLY | flags, c"")?)
}

/// Lowers the limits of this user namespace for inotify instances and watches. The host counts them
/// per user, and sandboxes may share one user.
///
/// Must not be called in the host's own user namespace, whose limits are the host's.
pub fn lower_inotify_quotas() {
    for (name, host) in [("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches")] {
        let limit = fs::read_to_string(format!("/proc/sys/fs/inotify/{host}"));
        let limit = limit.ok().and_then(|limit| limit.trim().parse::<u64>().ok());
        if let Some(limit) = limit {
            // A kernel before 4.10 has no such limit.
            let _ = fs::write(format!("/proc/sys/user/{name}"), (limit / QUOTA_SHARE).max(1).to_string());
        }
    }
}
