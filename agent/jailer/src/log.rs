//! Log of a sandbox: the jailer copies stdout and stderr into two rotating files, so that a verbose
//! agent cannot fill the disk.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use greenroom_jailer::sandbox_dir::{LOG, OLDER_LOG, STDERR_TAIL, last_chars};
use rustix::event::{PollFd, PollFlags, poll};

use crate::oom::OomMonitor;

/// Size at which the newer file becomes the older file, in bytes.
const ROTATE_BYTES: u64 = 512 << 10;

/// Copies both streams to the log files until they end, which is when the sandbox's last process
/// has ended.
///
/// Meanwhile `oom_monitor` is served. Returns the last part of stderr.
pub fn copy(stdout: OwnedFd, stderr: OwnedFd, sandbox_dir: &Path, oom_monitor: &mut OomMonitor) -> io::Result<String> {
    let mut log = JailLog { sandbox_dir, file: None, bytes: 0 };
    let mut tail = VecDeque::with_capacity(STDERR_TAIL);
    let mut open = vec![(File::from(stdout), false), (File::from(stderr), true)];
    let mut buffer = [0; 8192];
    while !open.is_empty() {
        let mut ended = Vec::new();
        for (index, (stream, is_stderr)) in ready_streams(&mut open, oom_monitor)? {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                ended.push(index);
            }
            // A full disk, or a directory in place of the log, costs the log only. The agent must
            // neither block nor die of a broken pipe.
            let _ = log.write(&buffer[..read]);
            if *is_stderr {
                tail.extend(&buffer[..read]);
                tail.drain(..tail.len().saturating_sub(STDERR_TAIL));
            }
        }
        for index in ended.into_iter().rev() {
            open.remove(index);
        }
    }
    let tail: Vec<u8> = tail.into();
    Ok(last_chars(&String::from_utf8_lossy(&tail), STDERR_TAIL).to_owned())
}

type OutputStream = (File, bool);

/// Waits until a stream is readable without blocking, or the monitor has an event or a due check.
fn ready_streams<'a>(
    open: &'a mut [OutputStream],
    oom_monitor: &mut OomMonitor,
) -> io::Result<Vec<(usize, &'a mut OutputStream)>> {
    let mut fds: Vec<_> =
        open.iter().map(|(stream, _)| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)).collect();
    fds.extend(oom_monitor.poll_fd());
    let timeout = oom_monitor.poll_timeout();
    loop {
        match poll(&mut fds, timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        break;
    }
    let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
    match is_ready.get(open.len()) {
        Some(true) => oom_monitor.event_received(),
        Some(false) | None => oom_monitor.check_if_due(),
    }
    Ok(open.iter_mut().enumerate().filter(|(index, _)| is_ready[*index]).collect())
}

struct JailLog<'a> {
    sandbox_dir: &'a Path,
    /// `None` before the first write, and if the file could not be opened. The next write tries
    /// again.
    file: Option<File>,
    bytes: u64,
}

impl JailLog<'_> {
    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        options.create(true).append(true);
        match options.open(self.sandbox_dir.join(LOG)) {
            // The log belongs to the user of an earlier run. The directory is ours, and the old log
            // stays readable.
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                self.rotate()?;
                options.open(self.sandbox_dir.join(LOG))
            }
            other => other,
        }
    }

    fn rotate(&self) -> io::Result<()> {
        fs::rename(self.sandbox_dir.join(LOG), self.sandbox_dir.join(OLDER_LOG))
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes >= ROTATE_BYTES {
            self.rotate()?;
            (self.file, self.bytes) = (None, 0);
        }
        if self.file.is_none() {
            let file = self.open()?;
            self.bytes = file.metadata()?.len();
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(text)?;
            self.bytes += text.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::PathBuf, thread};

    use super::*;

    /// Directory with an old log that its user may not write.
    struct LogTestDir(PathBuf);

    impl LogTestDir {
        fn make(name: &str) -> LogTestDir {
            let dir = std::env::temp_dir().join(format!("greenroom-jailer-{}-{name}", std::process::id()));
            fs::create_dir(&dir).expect("the temporary directory is writable");
            fs::write(dir.join(LOG), "old\n").expect("the directory is writable");
            fs::set_permissions(dir.join(LOG), fs::Permissions::from_mode(0o444))
                .expect("the log belongs to this test");
            LogTestDir(dir)
        }

        /// Runs the work as an ordinary user who owns the directory.
        fn as_its_user(&self, work: impl FnOnce(&Path) + Send) {
            const NOBODY: u32 = 65_534;
            thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    if rustix::process::geteuid().is_root() {
                        std::os::unix::fs::chown(&self.0, Some(NOBODY), None).expect("root may change owners");
                        // SAFETY: the call changes the user of this thread's file accesses, and the
                        // thread ends soon.
                        unsafe { libc::setfsuid(NOBODY) };
                    }
                    work(&self.0);
                });
                worker.join().expect("the work passes");
            });
        }
    }

    impl Drop for LogTestDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn log_of_another_user_becomes_the_older_log() {
        let test_dir = LogTestDir::make("log");
        test_dir.as_its_user(|dir| {
            JailLog { sandbox_dir: dir, file: None, bytes: 0 }.write(b"new\n").expect("the directory is writable");
        });
        let read = |name| fs::read_to_string(test_dir.0.join(name)).expect("the log exists");
        assert_eq!((read(OLDER_LOG).as_str(), read(LOG).as_str()), ("old\n", "new\n"));
    }

    #[test]
    fn log_that_cannot_be_opened_is_retried_and_blocks_no_copy() {
        let test_dir = LogTestDir::make("in-the-way");
        fs::remove_file(test_dir.0.join(LOG)).expect("the log exists");
        fs::create_dir(test_dir.0.join(LOG)).expect("the directory is writable");
        let (mut log, text) = (JailLog { sandbox_dir: &test_dir.0, file: None, bytes: 0 }, b"word\n");
        assert!(log.write(text).is_err());
        let (stdout, _) = io::pipe().expect("descriptors are left");
        let (stderr, mut writer) = io::pipe().expect("descriptors are left");
        writer.write_all(b"last words").expect("the pipe has space");
        drop(writer);
        let tail = copy(stdout.into(), stderr.into(), &test_dir.0, &mut OomMonitor::of(None))
            .expect("a missing log is no error");
        assert_eq!(tail, "last words");
        fs::remove_dir(test_dir.0.join(LOG)).expect("the directory is empty");
        log.write(text).expect("the directory is writable");
        assert_eq!(fs::read(test_dir.0.join(LOG)).expect("the log exists"), text);
    }
}
