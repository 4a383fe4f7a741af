//! The keeper's pen: what the sandbox writes goes into two files that take turns, so that a talkative agent cannot fill
//! the disk.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
};

use greenroom_keeper::place::{LOG, OLDER_LOG, STDERR_TAIL, last_chars};
use rustix::event::{PollFd, PollFlags, poll};

use crate::kills::Kills;

/// When the newer file is this long, it becomes the older one.
const TURN_BYTES: u64 = 512 << 10;

/// Copies until both streams have ended, that is until no process of the sandbox is left that could write; meanwhile it sees
/// to `kills`. Returns the last words on stderr.
pub fn copy(stdout: OwnedFd, stderr: OwnedFd, kills: &mut Kills) -> io::Result<String> {
    let mut log = Log::open()?;
    let mut tail = VecDeque::with_capacity(STDERR_TAIL);
    let mut open = vec![(File::from(stdout), false), (File::from(stderr), true)];
    let mut buffer = [0; 8192];
    while !open.is_empty() {
        let mut ended = Vec::new();
        for (index, (stream, is_stderr)) in ready(&mut open, kills)? {
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                ended.push(index);
            }
            // A full disk costs the log, not the agent: it must not be held up, nor killed by a broken pipe.
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

type Stream = (File, bool);

/// Waits until one of them can be read without blocking, or there is something to do about `kills`.
fn ready<'a>(open: &'a mut [Stream], kills: &mut Kills) -> io::Result<Vec<(usize, &'a mut Stream)>> {
    let mut asked: Vec<_> =
        open.iter().map(|(stream, _)| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN)).collect();
    asked.extend(kills.notices());
    let patience = kills.patience();
    loop {
        match poll(&mut asked, patience.as_ref()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        break;
    }
    let is_ready: Vec<bool> = asked.iter().map(|fd| !fd.revents().is_empty()).collect();
    match is_ready.get(open.len()) {
        Some(true) => kills.noticed(),
        Some(false) | None => kills.look_if_due(),
    }
    Ok(open.iter_mut().enumerate().filter(|(index, _)| is_ready[*index]).collect())
}

struct Log {
    file: File,
    bytes: u64,
}

impl Log {
    fn open() -> io::Result<Log> {
        let file = File::options().create(true).append(true).open(LOG)?;
        let bytes = file.metadata()?.len();
        Ok(Log { file, bytes })
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if self.bytes >= TURN_BYTES {
            fs::rename(LOG, OLDER_LOG)?;
            *self = Log::open()?;
        }
        self.file.write_all(text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}
