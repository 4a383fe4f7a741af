//! Disk of a test's own that can hang and fail: an ext4 in a file. Mounting takes root.

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

pub struct TestDisk {
    image: NamedTempFile,
    at: PathBuf,
}

impl TestDisk {
    /// Mounts a new disk at `at`. Returns `None` without the right to mount.
    ///
    /// An error of the file system makes the disk read-only, as most systems configure their own
    /// disks.
    pub fn mount(at: &Path) -> Option<TestDisk> {
        let disk = TestDisk { image: NamedTempFile::new().expect("a temporary file"), at: at.to_owned() };
        disk.image.as_file().set_len(BYTES).expect("the image can be enlarged");
        fs::create_dir_all(at).expect("the mount point can be created");
        let made = ran("mkfs.ext4", &["-q", "-F", "-e", "remount-ro", &disk.file()]) && disk.mounted();
        // The server requires these permissions of its data directory.
        (made && fs::set_permissions(at, fs::Permissions::from_mode(0o700)).is_ok()).then_some(disk)
    }

    /// Freezes the disk: from now on, every writer blocks.
    pub fn freeze(&self) {
        self.control(FREEZE).expect("the disk can be frozen");
    }

    pub fn unfreeze(&self) {
        self.control(UNFREEZE).expect("the disk was frozen");
    }

    /// Fills all free space.
    pub fn fill(&self) {
        let mut ballast = File::create(self.ballast()).expect("there is room for a name");
        // The last size is the smallest block of ext4. Two passes: the file system reserves more
        // for data that is not yet written than the data finally takes.
        for size in [64 << 10, 64 << 10, 1 << 10, 1 << 10] {
            let block = vec![0; size];
            while ballast.write_all(&block).is_ok() {}
            ballast.sync_data().expect("the write reaches the disk");
        }
    }

    pub fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("the disk was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Injects a file-system error, as after an unreadable block: the disk is read-only from now
    /// on.
    pub fn fail(&self) {
        let mounts = fs::read_to_string("/proc/mounts").expect("this is Linux");
        let at = self.at.to_string_lossy();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == Some(&*at)).expect("the disk is mounted");
        let device = line.split(' ').next().and_then(|device| device.strip_prefix("/dev/")).expect("a device");
        fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "injected by a test")
            .expect("ext4 injects errors on request");
    }

    /// Repairs the disk as an administrator would: unmounts, checks and mounts it again.
    ///
    /// The repair works on a copy: a mount namespace made meanwhile may hold the failed file
    /// system.
    pub fn repair(&mut self) {
        self.unmount();
        let copy = NamedTempFile::new().expect("a temporary file");
        assert!(ran("cp", &["--sparse=always", &self.file(), &copy.path().to_string_lossy()]), "the disk is copied");
        self.image = copy;
        // Exit code 1: errors were found and repaired.
        let looked = Command::new("e2fsck").args(["-p", "-f"]).arg(self.image.path()).output().expect("e2fsck runs");
        assert!(matches!(looked.status.code(), Some(0 | 1)), "{looked:?}");
        assert!(self.mounted(), "the disk is mounted again");
    }

    fn control(&self, what: libc::c_ulong) -> std::io::Result<()> {
        let root = File::open(&self.at)?;
        let nothing = 0;
        // SAFETY: the descriptor is open, and the kernel writes nothing through the pointer.
        let result = unsafe { libc::ioctl(root.as_raw_fd(), what as _, &nothing) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    fn mounted(&self) -> bool {
        ran("mount", &["-o", "loop", &self.file(), &self.at.to_string_lossy()])
    }

    fn unmount(&self) {
        // A killed process may hold the disk for a moment longer.
        let unmounted = (0..200).any(|_| {
            ran("umount", &[&self.at.to_string_lossy()]) || {
                std::thread::sleep(Duration::from_millis(20));
                false
            }
        });
        assert!(unmounted || std::thread::panicking(), "{} cannot be unmounted", self.at.display());
    }

    fn file(&self) -> String {
        self.image.path().to_string_lossy().into_owned()
    }
}

impl Drop for TestDisk {
    fn drop(&mut self) {
        // If a test failed while the disk was frozen, its writers could not even be killed.
        let _was_not_frozen = self.control(UNFREEZE);
        self.unmount();
    }
}

fn ran(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}
