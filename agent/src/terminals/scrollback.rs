//! Lines that have left the screen, as the bytes that print them again.
//!
//! A line of a program takes about as many bytes as it printed. Cells of an emulator would take 16
//! bytes for each column, blank ones included.

use std::{collections::VecDeque, sync::Arc};

use avt::{Color, Line, Pen};

/// Largest number of lines.
pub(super) const LINES_LIMIT: usize = 5_000;

/// Largest size of the lines of one terminal, in bytes.
pub(super) const BYTES_LIMIT: usize = 640 * 1024;

/// Lines of one block. The oldest block is dropped as a whole.
const BLOCK_LINES: usize = 50;

/// Size at which a block is full, in bytes.
const BLOCK_BYTES: usize = 16 * 1024;

/// Scrollback of one terminal. Bound: [`LINES_LIMIT`] and [`BYTES_LIMIT`]. When full: the oldest
/// block is dropped.
#[derive(Debug, Default)]
pub(super) struct Scrollback {
    blocks: VecDeque<ScrollbackBlock>,
    /// Newest lines, which are no block yet.
    newest: Vec<u8>,
    newest_lines: usize,
    lines: usize,
    bytes: usize,
    ends_wrapped: bool,
}

#[derive(Debug)]
struct ScrollbackBlock {
    text: Arc<[u8]>,
    lines: usize,
}

impl Scrollback {
    /// Appends a line of the screen.
    pub(super) fn push(&mut self, line: &Line) {
        let before = self.newest.len();
        encode_line(line, &mut self.newest);
        self.ends_wrapped = line.is_wrapped();
        self.bytes += self.newest.len() - before;
        self.newest_lines += 1;
        self.lines += 1;
        if self.newest_lines == BLOCK_LINES || self.newest.len() >= BLOCK_BYTES {
            let text = std::mem::take(&mut self.newest).into();
            self.blocks.push_back(ScrollbackBlock { text, lines: std::mem::take(&mut self.newest_lines) });
        }
        while self.lines > LINES_LIMIT || self.bytes > BYTES_LIMIT {
            let Some(oldest) = self.blocks.pop_front() else { return };
            self.lines -= oldest.lines;
            self.bytes -= oldest.text.len();
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Scrollback::default();
    }

    /// Number of rows that the lines had on the screen.
    pub(super) fn lines(&self) -> usize {
        self.lines
    }

    /// Size of the lines.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the text of all lines, without a copy of the older ones. Ends at the begin of a row.
    pub(super) fn text(&self) -> Vec<Arc<[u8]>> {
        let mut newest = self.newest.clone();
        if self.ends_wrapped {
            newest.extend_from_slice(b"\r\n");
        }
        let blocks = self.blocks.iter().map(|block| block.text.clone());
        blocks.chain((!newest.is_empty()).then(|| newest.into())).collect()
    }
}

/// Appends the bytes that print `line` in a terminal with default attributes, and move to the next.
fn encode_line(line: &Line, out: &mut Vec<u8>) {
    let is_blank = |cell: &avt::Cell| cell.char() == ' ' && cell.pen().is_default();
    let cells = line.cells();
    let length = match line.is_wrapped() {
        true => cells.len(),
        false => cells.len() - cells.iter().rev().take_while(|cell| is_blank(cell)).count(),
    };
    let mut pen = Pen::default();
    for cell in cells[..length].iter().filter(|cell| cell.width() > 0) {
        if *cell.pen() != pen {
            pen = *cell.pen();
            encode_pen(&pen, out);
        }
        out.extend_from_slice(cell.char().encode_utf8(&mut [0; 4]).as_bytes());
    }
    if !pen.is_default() {
        out.extend_from_slice(b"\x1b[m");
    }
    if !line.is_wrapped() {
        out.extend_from_slice(b"\r\n");
    }
}

fn encode_pen(pen: &Pen, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\x1b[0");
    let attributes = [
        (pen.is_bold(), ";1"),
        (pen.is_faint(), ";2"),
        (pen.is_italic(), ";3"),
        (pen.is_underline(), ";4"),
        (pen.is_blink(), ";5"),
        (pen.is_inverse(), ";7"),
        (pen.is_strikethrough(), ";9"),
    ];
    for (_, code) in attributes.into_iter().filter(|(on, _)| *on) {
        out.extend_from_slice(code.as_bytes());
    }
    for (color, base) in [(pen.foreground(), 30u8), (pen.background(), 40)] {
        let code = match color {
            None => continue,
            Some(Color::Indexed(index @ ..8)) => format!(";{}", base + index),
            Some(Color::Indexed(index @ 8..16)) => format!(";{}", base + 60 + index - 8),
            Some(Color::Indexed(index)) => format!(";{};5;{index}", base + 8),
            Some(Color::RGB(rgb)) => format!(";{};2;{};{};{}", base + 8, rgb.r, rgb.g, rgb.b),
        };
        out.extend_from_slice(code.as_bytes());
    }
    out.push(b'm');
}
