//! Warnings about mounted directories that are of less use to agents than they look: agents cannot
//! write to them, or git rejects the repository in them.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use rustix::fs::{Mode, OFlags};

use crate::config::{SandboxVolume, VolumeAccess};

/// Warning about one mounted directory, with the way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeWarning {
    /// Stable code, as in the wire's notices.
    pub code: &'static str,
    pub text: String,
}

/// Returns the warnings for agents that run as this user.
///
/// Blocks on the file systems of the volumes.
pub fn volume_warnings(volumes: &[SandboxVolume], uid: u32, gid: u32) -> Vec<VolumeWarning> {
    volumes
        .iter()
        .flat_map(|volume| [not_writable(volume, uid, gid), foreign_repository(volume, uid)])
        .flatten()
        .collect()
}

fn not_writable(volume: &SandboxVolume, uid: u32, gid: u32) -> Option<VolumeWarning> {
    let SandboxVolume { host, inside, access: VolumeAccess::ReadWrite } = volume else { return None };
    let (host, inside) = (host.display(), inside.display());
    let error = may_write(&volume.host, uid, gid).err()?;
    let owner = fs::metadata(&volume.host).map(|found| (found.uid(), found.gid(), found.mode() & 0o7777));
    let text = match (error.raw_os_error(), owner) {
        (Some(libc::EACCES), Ok((owner, group, mode))) => format!(
            "agents cannot write to the volume `{host}` at `{inside}`: they run as user {uid} and group {gid}, and it \
             belongs to user {owner} and group {group} with mode {mode:o}; {way_out}, change its permissions, or mount \
             it with `:ro`",
            way_out = run_as(owner)
        ),
        (_, _) => format!(
            "agents cannot write to the volume `{host}` at `{inside}`: {error}; fix that, or mount it with `:ro`"
        ),
    };
    Some(VolumeWarning { code: "volume_not_writable", text })
}

/// Git works in a repository only if it belongs to the user who runs git.
fn foreign_repository(volume: &SandboxVolume, uid: u32) -> Option<VolumeWarning> {
    let repository = fs::symlink_metadata(volume.host.join(".git")).ok()?;
    let directory = fs::metadata(&volume.host).ok()?;
    let owner = [directory.uid(), repository.uid()].into_iter().find(|owner| *owner != uid)?;
    let (host, inside) = (volume.host.display(), volume.inside.display());
    let text = format!(
        "git rejects the repository `{host}` at `{inside}` because of \"dubious ownership\": it belongs to user {owner}, \
         and agents run as user {uid}; {way_out}, change its owner, or let agents run \
         `git config --global --add safe.directory {inside}`",
        way_out = run_as(owner)
    );
    Some(VolumeWarning { code: "git_dubious_ownership", text })
}

/// Returns the setting with which agents run as the owner. Agents never run as root.
fn run_as(owner: u32) -> String {
    match owner {
        0 => "give it to another user than root and set `sandbox.uid` to that user".to_owned(),
        owner => format!("set `sandbox.uid = {owner}`"),
    }
}

/// Checks that a process of this user may write to the file or directory.
///
/// The directories above do not matter, because a mount leads around them.
fn may_write(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let opened: OwnedFd = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    if !rustix::process::geteuid().is_root() {
        return access(&opened);
    }
    // A thread of its own, whose user for file systems is another one until it ends.
    let checked = std::thread::spawn(move || {
        // SAFETY: the calls get no memory but an empty list, and change this thread only.
        unsafe {
            libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>());
            libc::syscall(libc::SYS_setfsgid, gid);
            libc::syscall(libc::SYS_setfsuid, uid);
        }
        access(&opened)
    });
    checked.join().unwrap_or_else(|_| Err(io::Error::other("the check panicked")))
}

/// Checks write access with the user for file systems of this thread.
fn access(opened: &OwnedFd) -> io::Result<()> {
    let flags = libc::AT_EACCESS | libc::AT_EMPTY_PATH;
    let path = c"".as_ptr();
    // SAFETY: the path is a constant, and the descriptor stays open during the call.
    match unsafe { libc::syscall(libc::SYS_faccessat2, opened.as_raw_fd(), path, libc::W_OK, flags) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // A kernel before 5.8 cannot tell.
            e if e.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    fn codes(host: &Path, access: VolumeAccess, uid: u32) -> Vec<&'static str> {
        let volume = SandboxVolume { host: host.to_owned(), inside: "/data".into(), access };
        volume_warnings(&[volume], uid, uid).into_iter().map(|warning| warning.code).collect()
    }

    #[test]
    fn volume_of_another_user_is_reported() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root can change owners");
        }
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let (closed, host) = (temp.path().join("closed"), temp.path().join("closed/host"));
        fs::create_dir_all(&host).expect("directories are created");
        chown(&host, Some(10_001), Some(10_001)).expect("owner is changed");
        let check = |mode: u32, access, uid, expected: &[&str]| {
            fs::set_permissions(&host, fs::Permissions::from_mode(mode)).expect("mode is set");
            assert_eq!(codes(&host, access, uid), expected, "{mode:o} {access:?} {uid}");
        };
        // A mount leads around the directory above.
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("mode is set");
        check(0o755, VolumeAccess::ReadWrite, 10_001, &[]);
        check(0o555, VolumeAccess::ReadWrite, 10_001, &["volume_not_writable"]);
        check(0o755, VolumeAccess::ReadWrite, 10_002, &["volume_not_writable"]);
        check(0o755, VolumeAccess::ReadOnly, 10_002, &[]);
        check(0o777, VolumeAccess::ReadWrite, 10_002, &[]);
        fs::create_dir(host.join(".git")).expect("directory is created");
        chown(host.join(".git"), Some(10_001), Some(10_001)).expect("owner is changed");
        check(0o777, VolumeAccess::ReadWrite, 10_001, &[]);
        check(0o777, VolumeAccess::ReadWrite, 10_002, &["git_dubious_ownership"]);
        check(0o755, VolumeAccess::ReadOnly, 10_002, &["git_dubious_ownership"]);
        check(0o755, VolumeAccess::ReadWrite, 10_002, &["volume_not_writable", "git_dubious_ownership"]);
    }

    #[test]
    fn warning_names_the_way_out() {
        let temp = tempfile::tempdir().expect("temporary directory is created");
        let missing = temp.path().join("none");
        let volume = SandboxVolume { host: missing.clone(), inside: "/data".into(), access: VolumeAccess::ReadWrite };
        let warnings = volume_warnings(&[volume], 1000, 1000);
        let [VolumeWarning { code: "volume_not_writable", text }] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(text.contains(&missing.display().to_string()) && text.contains("`:ro`"), "{text}");
        assert!(run_as(1000).contains("sandbox.uid = 1000") && run_as(0).contains("another user than root"));
    }
}
