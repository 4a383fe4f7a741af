//! A disk of a test's own that can hang and fail: an ext4 in a file. Root alone can mount one.

use std::{
    fs::{self, File},
    io::Write,
    os::{fd::AsRawFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::NamedTempFile;

/// `FIFREEZE` and `FITHAW` of the kernel's `fs.h`: `_IOWR('X', 119 and 120, int)`.
const FREEZE: libc::c_ulong = 0xc004_5877;
const UNFREEZE: libc::c_ulong = 0xc004_5878;
const BYTES: u64 = 128 << 20;

pub(crate) struct TestDisk {
    image: NamedTempFile,
    at: PathBuf,
}

impl TestDisk {
    /// `None` where nobody may mount one. An error of it makes it read-only, as most systems have it for their own.
    pub(crate) fn mount(at: &Path) -> Option<TestDisk> {
        let disk = TestDisk { image: NamedTempFile::new().expect("a temporary file"), at: at.to_owned() };
        disk.image.as_file().set_len(BYTES).expect("it may be large");
        fs::create_dir_all(at).expect("a place to mount it");
        let made = ran("mkfs.ext4", &["-q", "-F", "-e", "remount-ro", &disk.file()]) && disk.mounted();
        // As the server wants its data directory.
        (made && fs::set_permissions(at, fs::Permissions::from_mode(0o700)).is_ok()).then_some(disk)
    }

    /// From now on, whoever writes waits.
    pub(crate) fn freeze(&self) {
        self.control(FREEZE).expect("it can be frozen");
    }

    pub(crate) fn unfreeze(&self) {
        self.control(UNFREEZE).expect("it was frozen");
    }

    /// Takes all the room that there is.
    pub(crate) fn fill(&self) {
        let mut ballast = File::create(self.ballast()).expect("there is room for a name");
        // No block of ext4 is smaller than the last. Twice, because what is reserved for data on their way to the disk is more
        // than they take there.
        for size in [64 << 10, 64 << 10, 1 << 10, 1 << 10] {
            let block = vec![0; size];
            while ballast.write_all(&block).is_ok() {}
            ballast.sync_data().expect("what found room finds its place");
        }
    }

    pub(crate) fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// As where a block of it cannot be read any more: it is read-only from now on.
    pub(crate) fn fail(&self) {
        let mounts = fs::read_to_string("/proc/mounts").expect("this is Linux");
        let at = self.at.to_string_lossy();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&*at)).expect("it is mounted");
        let device = line.split(' ').next().and_then(|device| device.strip_prefix("/dev/")).expect("a device");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "as a test wishes").expect("ext4 takes wishes");
    }

    /// As its administrator would: unmounted, looked through, and mounted again. On a copy of what it holds: somebody who made
    /// a mount namespace meanwhile may hold on to the file system that failed.
    pub(crate) fn repair(&mut self) {
        self.unmount();
        let copy = NamedTempFile::new().expect("a temporary file");
        assert!(ran("cp", &["--sparse=always", &self.file(), &copy.path().to_string_lossy()]), "the disk is copied");
        self.image = copy;
        // 1: errors were found and mended.
        let looked = Command::new("e2fsck").args(["-p", "-f"]).arg(self.image.path()).output().expect("e2fsck runs");
        assert!(matches!(looked.status.code(), Some(0 | 1)), "{looked:?}");
        assert!(self.mounted(), "it is mounted again");
    }

    fn control(&self, what: libc::c_ulong) -> std::io::Result<()> {
        let root = File::open(&self.at)?;
        let nothing = 0;
        // SAFETY: the descriptor is open, and the kernel takes nothing from where it is told.
        let told = unsafe { libc::ioctl(root.as_raw_fd(), what as _, &nothing) };
        if told == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    fn mounted(&self) -> bool {
        ran("mount", &["-o", "loop", &self.file(), &self.at.to_string_lossy()])
    }

    fn unmount(&self) {
        // The one that was killed may hold it for a moment longer.
        let unmounted = (0..200).any(|_| {
            ran("umount", &[&self.at.to_string_lossy()]) || {
                std::thread::sleep(Duration::from_millis(20));
                false
            }
        });
        assert!(unmounted || std::thread::panicking(), "nobody holds {}", self.at.display());
    }

    fn file(&self) -> String {
        self.image.path().to_string_lossy().into_owned()
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        // Where a test failed in between, nobody who writes to it could even be killed.
        let _was_not_frozen = self.control(UNFREEZE);
        self.unmount();
    }
}

fn ran(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}
