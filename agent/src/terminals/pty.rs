//! Pseudo-terminal: its two ends, its size, and the command in its foreground.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, openpt, ptsname, unlockpt},
    termios::{InputModes, OptionalActions, Winsize, tcgetattr, tcgetpgrp, tcsetattr, tcsetwinsize},
};
use tokio::io::{Interest, unix::AsyncFd};

use super::screen::ScreenSize;

/// Longest command line that is shown, in characters.
const COMMAND_LIMIT: usize = 200;

/// Agent's end of a pseudo-terminal. Closing it hangs up the programs at the other end.
#[derive(Debug)]
pub(super) struct Pty(AsyncFd<File>);

impl Pty {
    /// Opens a pseudo-terminal, and returns also the end for the shell.
    ///
    /// # Errors
    /// Fails if no terminal is free.
    pub(super) fn open(size: ScreenSize) -> io::Result<(Pty, OwnedFd)> {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&controller)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let shell_end = rustix::fs::open(ptsname(&controller, Vec::new())?, flags, Mode::empty())?;
        let mut modes = tcgetattr(&shell_end)?;
        // Erasing a character takes all of its bytes.
        modes.input_modes.insert(InputModes::IUTF8);
        tcsetattr(&shell_end, OptionalActions::Now, &modes)?;
        rustix::io::ioctl_fionbio(&controller, true)?;
        // SAFETY: the file owns its descriptor, and nothing else gets access to it.
        let controller = unsafe {
            AsyncFd::register_with_interest(File::from(controller), Interest::READABLE | Interest::WRITABLE)?
        };
        let pty = Pty(controller);
        pty.resize(size)?;
        Ok((pty, shell_end))
    }

    /// Sets the size. The programs in the foreground get SIGWINCH if it differs.
    pub(super) fn resize(&self, size: ScreenSize) -> io::Result<()> {
        let size = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }

    /// Reads output when there is some. Cancel-safe: if dropped before completion, nothing was
    /// read. Fails with `EIO` when no program has the terminal open.
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.async_io(Interest::READABLE, |mut file| file.read(buffer)).await
    }

    /// Reads what is there now. Fails with [`io::ErrorKind::WouldBlock`] if there is nothing.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.get_ref().read(buffer)
    }

    /// Writes input when there is room. Cancel-safe: if dropped before completion, nothing was
    /// written.
    pub(super) async fn write(&self, input: &[u8]) -> io::Result<usize> {
        self.0.async_io(Interest::WRITABLE, |mut file| file.write(input)).await
    }

    /// Returns the process group in the foreground.
    pub(super) fn foreground(&self) -> Option<i32> {
        tcgetpgrp(self.0.get_ref()).ok().map(|group| group.as_raw_nonzero().get())
    }
}

/// Returns the command line of a process, for a person. May block: a command line is memory of its
/// process.
pub(super) fn command_line(pid: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    let line: String = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(COMMAND_LIMIT).collect();
    (!line.is_empty()).then_some(line)
}
