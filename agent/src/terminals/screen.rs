//! Screen of a terminal: what its programs have printed, and the bytes that show it again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use avt::{
    Line, Observation, Observer, Operation, Terminal,
    parser::{EdScope, Function},
};

use super::{modes::ModeTracker, scrollback::Scrollback};
use crate::tools::incomplete_char_len;

/// Largest width, in columns.
const MAX_COLS: u16 = 500;
/// Largest height, in rows.
const MAX_ROWS: u16 = 300;
/// Largest number of cells. A cell takes 16 bytes, and a terminal has two screens.
const MAX_CELLS: u32 = 40_000;

/// Beginning of a snapshot: aborts an open sequence, and resets the client's terminal.
const RESET: &[u8] = b"\x18\x1bc";

/// Largest piece of a snapshot's screen, in bytes.
const PIECE_BYTES: usize = 16 * 1024;

/// Size of a terminal, in columns and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScreenSize {
    pub(super) cols: u16,
    pub(super) rows: u16,
}

impl ScreenSize {
    /// Returns the nearest size that a terminal may have.
    pub(super) fn clamped(cols: u16, rows: u16) -> ScreenSize {
        let cols = cols.clamp(2, MAX_COLS);
        let most_rows = (MAX_CELLS / u32::from(cols)).min(u32::from(MAX_ROWS)) as u16;
        ScreenSize { cols, rows: rows.clamp(1, most_rows) }
    }
}

/// Screen with its scrollback. Memory: at most 2 MiB, whatever a program prints.
pub(super) struct EmulatedScreen {
    terminal: Terminal,
    tracker: ModeTracker,
    scrollback: Scrollback,
    /// Beginning of a character whose end has not come yet.
    partial_char: Vec<u8>,
    size: ScreenSize,
    /// Number of times that the emulator failed.
    faults: u32,
}

impl EmulatedScreen {
    pub(super) fn new(size: ScreenSize) -> EmulatedScreen {
        EmulatedScreen {
            terminal: empty_terminal(size),
            tracker: ModeTracker::default(),
            scrollback: Scrollback::default(),
            partial_char: Vec::new(),
            size,
            faults: 0,
        }
    }

    pub(super) fn size(&self) -> ScreenSize {
        self.size
    }

    pub(super) fn title(&self) -> Option<&str> {
        self.tracker.title.as_deref()
    }

    /// Shows output of a program. A fault of the emulator clears the screen.
    pub(super) fn print(&mut self, output: &[u8]) {
        self.tracker.read(output);
        let mut bytes = std::mem::take(&mut self.partial_char);
        bytes.extend_from_slice(output);
        self.partial_char = bytes.split_off(bytes.len() - incomplete_char_len(&bytes));
        let text = String::from_utf8_lossy(&bytes);
        let EmulatedScreen { terminal, scrollback, .. } = self;
        let printed = catch_unwind(AssertUnwindSafe(|| terminal.feed_with(&*text, KeepLines(scrollback))));
        if printed.is_err() {
            self.recover();
        }
    }

    pub(super) fn resize(&mut self, size: ScreenSize) {
        self.size = size;
        let (cols, rows) = (size.cols.into(), size.rows.into());
        let EmulatedScreen { terminal, scrollback, .. } = self;
        let resized = catch_unwind(AssertUnwindSafe(|| terminal.resize_with(cols, rows, KeepLines(scrollback))));
        if resized.is_err() {
            self.recover();
        }
    }

    /// Returns the bytes that show this screen, with its scrollback, in any terminal of this size.
    pub(super) fn snapshot(&mut self) -> Vec<Arc<[u8]>> {
        let dump = match catch_unwind(AssertUnwindSafe(|| self.terminal.dump())) {
            Ok(dump) => dump,
            Err(_) => {
                self.recover();
                String::new()
            }
        };
        let lines = self.scrollback.text();
        let mut rest = self.scroll_out(&lines).into_bytes();
        rest.extend_from_slice(dump.as_bytes());
        rest.extend_from_slice(self.tracker.modes.restoring().as_bytes());
        rest.extend_from_slice(&self.partial_char);
        let mut snapshot = vec![Arc::from(RESET)];
        snapshot.extend(lines);
        snapshot.extend(rest.chunks(PIECE_BYTES).map(Arc::from));
        snapshot
    }

    /// Returns the sequence that moves the printed scrollback off the screen.
    fn scroll_out(&self, lines: &[Arc<[u8]>]) -> String {
        let rows = self.size.rows;
        let mut printed = usize::from(rows) - 1;
        // The rows may have had another width. Few lines are printed in a second terminal to see
        // how many rows they take.
        if self.scrollback.lines() < 4 * usize::from(rows) {
            let mut terminal = empty_terminal(self.size);
            lines.iter().for_each(|line| terminal.feed(&*String::from_utf8_lossy(line)));
            printed = terminal.cursor().row.min(usize::from(rows) - 1);
        }
        if printed == 0 { String::new() } else { format!("\x1b[{rows};1H{}\x1b[H", "\n".repeat(printed)) }
    }

    fn recover(&mut self) {
        self.faults += 1;
        tracing::error!(faults = self.faults, "the emulator of a terminal failed; its screen is cleared");
        self.terminal = empty_terminal(self.size);
        self.partial_char = Vec::new();
    }
}

fn empty_terminal(size: ScreenSize) -> Terminal {
    let size = (size.cols.max(1).into(), size.rows.max(1).into());
    Terminal::new(size.0, size.1).expect("both dimensions are above 0")
}

/// Observer that moves lines from the screen to the scrollback.
struct KeepLines<'a>(&'a mut Scrollback);

impl Observer for KeepLines<'_> {
    type Output = ();

    fn before(&mut self, _: &mut Observation<'_>, operation: &Operation) {
        if let Operation::Function(Function::Ed(EdScope::SavedLines) | Function::Ris) = operation {
            self.0.clear();
        }
    }

    fn evicted(&mut self, _: &mut Observation<'_>, line: &Line) {
        self.0.push(line);
    }

    fn end(&mut self, _: &mut Observation<'_>) {}
}

#[cfg(test)]
mod tests;
