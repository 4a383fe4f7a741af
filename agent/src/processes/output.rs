//! Output of a command: a terminal without input. A program that writes to a terminal sends each
//! line at once. Into a pipe it collects kilobytes, which a kill discards.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
};

use rustix::{
    fs::{Mode, OFlags, fchmod},
    pty::{OpenptFlags, openpt, ptsname, unlockpt},
    termios::{LocalModes, OptionalActions, OutputModes, Winsize, tcgetattr, tcsetattr, tcsetwinsize},
};
use tokio::io::{Interest, unix::AsyncFd};

/// Size that programs see. Wide, because some cut their lines at the edge. High, because a pager
/// stops after a screen.
const WINDOW: Winsize = Winsize { ws_row: 2000, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };

/// Access to the terminal by its path. Programs open `/dev/stdout` to write. A pager that opens its
/// terminal to read keys would block.
const WRITE_ONLY: u32 = 0o200;

/// Reading end of a command's output. Fails with `EIO` after the last writer has closed a terminal.
///
/// A terminal gives at most 4 KiB at a time. tokio's `pipe::Receiver` would take a short read for
/// the end of what is there.
#[derive(Debug)]
pub struct OutputReader(AsyncFd<File>);

impl OutputReader {
    /// Opens an output, and returns its two ends. Without a free terminal, the output is a pipe.
    pub(super) fn open() -> io::Result<(OutputReader, OwnedFd)> {
        let (reader, writer) = open_terminal().or_else(|error| {
            tracing::debug!("no terminal for a command's output: {error}");
            io::pipe().map(|(reader, writer)| (reader.into(), writer.into()))
        })?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        // SAFETY: the file owns its descriptor, and nothing else gets access to it.
        let reader = unsafe { AsyncFd::register_with_interest(File::from(reader), Interest::READABLE)? };
        Ok((OutputReader(reader), writer))
    }

    /// Reads when there is something. Cancel-safe: if dropped before completion, nothing was read.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.async_io(Interest::READABLE, |mut file| file.read(buffer)).await
    }

    /// Reads what is there now. Fails with [`io::ErrorKind::WouldBlock`] if there is nothing.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.get_ref().read(buffer)
    }
}

/// Opens a terminal. Its bytes arrive as written. The command cannot read from it, so a program
/// that asks a question there fails and does not hang.
fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    unlockpt(&reader)?;
    let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    let writer = rustix::fs::open(ptsname(&reader, Vec::new())?, flags, Mode::empty())?;
    fchmod(&writer, Mode::from_raw_mode(WRITE_ONLY))?;
    let mut modes = tcgetattr(&writer)?;
    modes.output_modes.remove(OutputModes::OPOST);
    modes.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&writer, OptionalActions::Now, &modes)?;
    tcsetwinsize(&writer, WINDOW)?;
    // A program that waits for a key sees one, and its read fails.
    rustix::io::write(&reader, b"\n")?;
    Ok((reader, writer))
}
