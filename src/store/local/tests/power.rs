//! Tests of a power cut: acknowledged writes are on the disk itself, not only in flight to it.
//!
//! A kill keeps the kernel's cache. Here the file system is shut down under the writer, without a
//! flush of its log. Unsynced data is lost, as when the machine stops.

use std::{fs::File, os::fd::AsRawFd, process::Command};

use ulid::Ulid;

use super::{
    super::contents::ContentStore,
    crash::{check_acknowledged, killed_after},
};
use crate::store::SessionId;

/// `EXT4_IOC_SHUTDOWN` of the kernel's `ext4.h`: `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// `EXT4_GOING_FLAGS_NOLOGFLUSH`
const WITHOUT_A_FLUSH: u32 = 2;
/// Size of the disk in bytes. Large enough for the journal to preallocate.
const BYTES: u64 = 512 << 20;

/// Ext4 file system of its own; `None` without the right to mount one.
struct Ext4Disk {
    image: tempfile::NamedTempFile,
    at: tempfile::TempDir,
}

impl Ext4Disk {
    fn new() -> Option<Ext4Disk> {
        let disk = Ext4Disk { image: tempfile::NamedTempFile::new().unwrap(), at: tempfile::tempdir().unwrap() };
        disk.image.as_file().set_len(BYTES).unwrap();
        let formatted = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(disk.image.path()).status();
        (formatted.is_ok_and(|status| status.success()) && disk.mount()).then_some(disk)
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(self.image.path()).arg(self.at.path());
        mount.status().is_ok_and(|status| status.success())
    }

    fn cut_the_power(&self) {
        let root = File::open(self.at.path()).unwrap();
        // SAFETY: the descriptor is open, and the kernel reads four bytes at the given address.
        let cut = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN as _, &WITHOUT_A_FLUSH) };
        assert_eq!(cut, 0, "{}", std::io::Error::last_os_error());
    }

    /// Mounts a copy of the disk, as a restarted machine would mount the disk.
    ///
    /// Another mount namespace may still hold the file system that was shut down, and its cache.
    fn remount_copy(&mut self) {
        self.unmount();
        let copy = tempfile::NamedTempFile::new().unwrap();
        let copied = Command::new("cp").arg("--sparse=always").arg(self.image.path()).arg(copy.path()).status();
        assert!(copied.is_ok_and(|status| status.success()), "the disk is copied");
        self.image = copy;
        assert!(self.mount(), "the copy is mounted");
    }

    fn unmount(&self) {
        // A killed process may use the file system for a moment longer.
        let unmounted = (0..100).any(|_| {
            let done = Command::new("umount").arg(self.at.path()).output().is_ok_and(|it| it.status.success());
            if !done {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            done
        });
        assert!(unmounted || std::thread::panicking());
    }
}

impl Drop for Ext4Disk {
    fn drop(&mut self) {
        self.unmount();
    }
}

#[test]
fn acknowledged_writes_survive_power_cut() {
    let Some(mut disk) = Ext4Disk::new() else {
        eprintln!("skipped: only root can mount a file system to cut its power");
        return;
    };
    let dir = disk.at.path().join("journal");
    let mut contents = 0;
    for round in 0..20 {
        let acknowledged = killed_after(&dir, 30 + round * 17, || disk.cut_the_power());
        disk.remount_copy();
        contents += check_acknowledged(&dir, &acknowledged, &format!("power cut {round}"));
    }
    assert!(contents > 0, "no large content was written");
}

/// The process that finished the content was killed before the rename was on disk.
///
/// A repeated `finish` returns true only once it is.
#[test]
fn finished_content_survives_power_cut() {
    let Some(mut disk) = Ext4Disk::new() else {
        eprintln!("skipped: only root can mount a file system to cut its power");
        return;
    };
    let (dir, session, name) = (disk.at.path().join("contents"), SessionId::generate(), Ulid::generate());
    std::fs::create_dir(&dir).unwrap();
    File::open(disk.at.path()).unwrap().sync_all().unwrap();
    let contents = ContentStore::new(dir.clone());
    contents.extend(session, name, 0, b"text").unwrap();
    let content = dir.join(session.to_string()).join(name.to_string());
    std::fs::rename(content.with_extension("growing"), &content).unwrap();
    assert!(contents.finish(session, name).unwrap());
    disk.cut_the_power();
    disk.remount_copy();
    let kept = contents.get(session, &name.to_string(), 0, 9).unwrap().expect("the content exists");
    assert_eq!(&kept.bytes[..], b"text");
    assert!(content.with_extension("sums").exists(), "the content has checksums");
}
