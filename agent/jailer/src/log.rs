//! The keeper's pen: what the sandbox writes goes into two files that take turns, so that a talkative agent cannot fill
//! the disk.

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

/// When the newer file is this long, it becomes the older one.
const ROTATE_BYTES: u64 = 512 << 10;

/// Copies to the files in `place` until both streams have ended, that is until no process of the sandbox is left that could
/// write; meanwhile it sees to `kills`. Returns the last words on stderr.
pub fn copy(stdout: OwnedFd, stderr: OwnedFd, place: &Path, kills: &mut OomMonitor) -> io::Result<String> {
    let mut log = JailLog { sandbox_dir: place, file: None, bytes: 0 };
    let mut tail = VecDeque::with_capacity(STDERR_TAIL);
    let mut open = vec![(File::from(stdout), false), (File::from(stderr), true)];
    let mut buffer = [0; 8192];
    while !open.is_empty() {
        let mut ended = Vec::new();
        for (index, (stream, is_stderr)) in ready_streams(&mut open, kills)? {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                ended.push(index);
            }
            // A full disk, or a file in the way, costs the log, not the agent: it must not be held up, nor killed by a broken
            // pipe.
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

/// Waits until one of them can be read without blocking, or there is something to do about `kills`.
fn ready_streams<'a>(
    open: &'a mut [OutputStream],
    kills: &mut OomMonitor,
) -> io::Result<Vec<(usize, &'a mut OutputStream)>> {
    let mut asked: Vec<_> =
        open.iter().map(|(stream, _)| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)).collect();
    asked.extend(kills.poll_fd());
    let patience = kills.poll_timeout();
    loop {
        match poll(&mut asked, patience.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        break;
    }
    let is_ready: Vec<bool> = asked.iter().map(|fd| !fd.revents().is_empty()).collect();
    match is_ready.get(open.len()) {
        Some(true) => kills.event_received(),
        Some(false) | None => kills.check_if_due(),
    }
    Ok(open.iter_mut().enumerate().filter(|(index, _)| is_ready[*index]).collect())
}

struct JailLog<'a> {
    sandbox_dir: &'a Path,
    /// `None` before the first word, and where it could not be opened; that is tried again with the next one.
    file: Option<File>,
    bytes: u64,
}

impl JailLog<'_> {
    fn open(&self) -> io::Result<File> {
        let mut options = File::options();
        options.create(true).append(true);
        match options.open(self.sandbox_dir.join(LOG)) {
            // An earlier run was another user's. The directory is ours, and what that run wrote can still be read.
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

    /// One with an old log that its user may not write.
    struct LogTestDir(PathBuf);

    impl LogTestDir {
        fn make(name: &str) -> LogTestDir {
            let dir = std::env::temp_dir().join(format!("greenroom-jailer-{}-{name}", std::process::id()));
            fs::create_dir(&dir).expect("it is made");
            fs::write(dir.join(LOG), "old\n").expect("it is written");
            fs::set_permissions(dir.join(LOG), fs::Permissions::from_mode(0o444)).expect("it is ours");
            LogTestDir(dir)
        }

        /// Does it as an ordinary user, whose directory it is.
        fn as_its_user(&self, work: impl FnOnce(&Path) + Send) {
            const NOBODY: u32 = 65_534;
            thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    if rustix::process::geteuid().is_root() {
                        std::os::unix::fs::chown(&self.0, Some(NOBODY), None).expect("root may");
                        // SAFETY: it changes as whom this thread opens files, and the thread ends soon.
                        unsafe { libc::setfsuid(NOBODY) };
                    }
                    work(&self.0);
                });
                worker.join().expect("it works");
            });
        }
    }

    impl Drop for LogTestDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_log_of_another_user_becomes_the_older_one() {
        let place = LogTestDir::make("log");
        place.as_its_user(|dir| {
            JailLog { sandbox_dir: dir, file: None, bytes: 0 }.write(b"new\n").expect("it is written");
        });
        let read = |name| fs::read_to_string(place.0.join(name)).expect("it is there");
        assert_eq!((read(OLDER_LOG).as_str(), read(LOG).as_str()), ("old\n", "new\n"));
    }

    #[test]
    fn without_a_log_all_is_copied_and_it_is_begun_when_it_can_be() {
        let place = LogTestDir::make("in-the-way");
        fs::remove_file(place.0.join(LOG)).expect("it was there");
        fs::create_dir(place.0.join(LOG)).expect("it is made");
        let (mut log, text) = (JailLog { sandbox_dir: &place.0, file: None, bytes: 0 }, b"word\n");
        assert!(log.write(text).is_err());
        let (stdout, _) = io::pipe().expect("a pipe");
        let (stderr, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"last words").expect("there is room");
        drop(writer);
        let tail =
            copy(stdout.into(), stderr.into(), &place.0, &mut OomMonitor::of(None)).expect("nothing is in its way");
        assert_eq!(tail, "last words");
        fs::remove_dir(place.0.join(LOG)).expect("it is empty");
        log.write(text).expect("it is written");
        assert_eq!(fs::read(place.0.join(LOG)).expect("it is there"), text);
    }
}
