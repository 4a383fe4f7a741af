//! Output of a program as a terminal shows it at the end. Of a line that is redrawn, the last state
//! stays. Colours and other escape sequences take effect, or are dropped.

use std::collections::VecDeque;

use vte::{Params, Parser, Perform};

use crate::headtail::HeadTail;

/// Lines that a program can still redraw, as on a screen of this height.
const HEIGHT: usize = 50;

/// Furthest column to which a sequence moves the cursor beyond the end of a line.
const WIDTH: usize = 200;

/// Longest line that can be redrawn, in characters.
const LINE_LIMIT: usize = 16 * 1024;

/// Longest escape sequence, in bytes. A longer one is shown as text from there on.
const SEQUENCE_LIMIT: usize = 64 * 1024;

/// Control character that aborts an escape sequence, and shows nothing.
const CANCEL: &[u8] = b"\x18";

/// Growing output. Memory: twice its limit, and the lines on the screen.
pub struct TerminalText {
    parser: Parser,
    screen: TerminalScreen,
    limit: usize,
    /// True after a control character, until sequences are aborted: one may be open.
    in_sequence: bool,
    /// Bytes that the parser received since then.
    unbroken: usize,
}

struct TerminalScreen {
    /// Text above the screen, which cannot change any more.
    above: HeadTail,
    lines: VecDeque<Vec<char>>,
    row: usize,
    column: usize,
    /// Set by a carriage return: the next character begins the line anew. So a shorter state leaves
    /// no rest of a longer one.
    restarts_line: bool,
}

/// Returns `text` as a terminal shows it: all of it, or head and tail in about `limit` bytes.
pub fn shown(text: &str, limit: usize) -> String {
    let mut terminal = TerminalText::new(limit);
    terminal.push(text);
    terminal.finish()
}

impl TerminalText {
    /// Returns an empty output that shows about `limit` bytes.
    pub fn new(limit: usize) -> TerminalText {
        let lines = VecDeque::from([Vec::new()]);
        let screen = TerminalScreen { above: HeadTail::new(limit), lines, row: 0, column: 0, restarts_line: false };
        TerminalText { parser: Parser::new(), screen, limit, in_sequence: false, unbroken: 0 }
    }

    /// Appends output.
    pub fn push(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            let (rest, end) = line.split_at(line.len() - usize::from(line.ends_with('\n')));
            if self.in_sequence || rest.bytes().any(|byte| byte < b' ' && byte != b'\t') {
                self.parser.advance(&mut self.screen, rest.as_bytes());
                self.in_sequence = true;
                self.unbroken += rest.len();
            } else {
                self.screen.append(rest);
            }
            // An incomplete sequence must not hide the lines after it.
            if self.in_sequence && (!end.is_empty() || self.unbroken > SEQUENCE_LIMIT) {
                self.parser.advance(&mut self.screen, CANCEL);
                (self.in_sequence, self.unbroken) = (false, 0);
            }
            if !end.is_empty() {
                self.screen.next_line();
            }
        }
    }

    /// Returns all of the output, or its head and tail with the number of missing bytes.
    pub fn finish(mut self) -> String {
        self.screen.scroll_all();
        let text = self.screen.above;
        if text.total() > self.limit as u64 { text.excerpt(self.limit) } else { text.text() }
    }
}

impl TerminalScreen {
    fn line(&mut self) -> &mut Vec<char> {
        &mut self.lines[self.row]
    }

    /// Moves the whole screen up, without a line break after its last line.
    fn scroll_all(&mut self) {
        let lines: Vec<String> = self.lines.drain(..).map(|line| line.into_iter().collect()).collect();
        self.above.push(&lines.join("\n"));
        self.lines.push_back(Vec::new());
        (self.row, self.column) = (0, 0);
    }

    fn next_line(&mut self) {
        (self.column, self.restarts_line) = (0, false);
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push_back(Vec::new());
        }
        if self.lines.len() > HEIGHT {
            let mut first: String = self.lines.pop_front().into_iter().flatten().collect();
            first.push('\n');
            self.above.push(&first);
            self.row -= 1;
        }
    }

    /// Appends text without control characters, mostly at the end of the line.
    fn append(&mut self, text: &str) {
        if self.restarts_line || self.column < self.line().len() {
            return text.chars().for_each(|character| self.print(character));
        }
        self.line().extend(text.chars().filter(|character| !character.is_control() || *character == '\t'));
        self.column = self.line().len();
        if self.column >= LINE_LIMIT {
            self.scroll_all();
        }
    }

    fn move_to_column(&mut self, column: usize) {
        self.restarts_line = false;
        self.column = column.min(self.line().len().max(WIDTH));
    }

    fn move_to_row(&mut self, row: usize) {
        self.row = row.min(self.lines.len() - 1);
    }
}

impl Perform for TerminalScreen {
    fn print(&mut self, character: char) {
        if character.is_control() && character != '\t' {
            return;
        }
        let column = self.column;
        let restarts_line = std::mem::take(&mut self.restarts_line);
        let line = self.line();
        if restarts_line {
            line.clear();
        }
        if line.len() < column {
            line.resize(column, ' ');
        }
        match line.get_mut(column) {
            Some(old) => *old = character,
            None => line.push(character),
        }
        self.column += 1;
        if self.column >= LINE_LIMIT {
            self.scroll_all();
        }
    }

    fn execute(&mut self, control: u8) {
        match control {
            // A terminal takes a vertical tab and a form feed for line breaks.
            0x0b | 0x0c => self.next_line(),
            b'\t' => self.print('\t'),
            b'\r' => (self.column, self.restarts_line) = (0, true),
            0x08 => self.move_to_column(self.column.saturating_sub(1)),
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _ignore: bool, action: char) {
        if !intermediates.is_empty() {
            return;
        }
        let mut params = params.iter().map(|param| usize::from(param[0]));
        let (mode, second) = (params.next().unwrap_or_default(), params.next().unwrap_or_default());
        // A count or a position that is absent, or 0, means 1.
        let (count, column) = (mode.max(1), second.max(1) - 1);
        match action {
            'A' => self.move_to_row(self.row.saturating_sub(count)),
            'B' => self.move_to_row(self.row + count),
            'C' => self.move_to_column(self.column + count),
            'D' => self.move_to_column(self.column.saturating_sub(count)),
            'E' | 'F' => {
                self.move_to_row(if action == 'E' { self.row + count } else { self.row.saturating_sub(count) });
                (self.column, self.restarts_line) = (0, true);
            }
            'G' => self.move_to_column(count - 1),
            'H' | 'f' => {
                self.move_to_row(count - 1);
                self.move_to_column(column);
            }
            // Erases from the cursor, or everything.
            'J' if mode == 0 => {
                let (row, column) = (self.row, self.column);
                self.lines.truncate(row + 1);
                self.line().truncate(column);
            }
            'J' if mode > 1 => {
                self.lines.truncate(1);
                self.lines[0].clear();
                (self.row, self.column) = (0, 0);
            }
            'K' if mode == 0 => {
                let column = self.column;
                self.line().truncate(column);
            }
            'K' if mode == 1 => {
                let column = self.column;
                self.line().iter_mut().take(column + 1).for_each(|character| *character = ' ');
            }
            'K' => self.line().clear(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(text, 10_000), expected, "{text:?}");
        let mut in_parts = TerminalText::new(10_000);
        text.chars().for_each(|part| in_parts.push(part.encode_utf8(&mut [0; 4])));
        assert_eq!(in_parts.finish(), expected, "{text:?} in parts");
    }

    proptest! {
        #[test]
        fn plain_text_stays(lines in proptest::collection::vec("[ -~\tä…]{0,30}", 0..200)) {
            let text = lines.join("\n");
            prop_assert_eq!(shown(&text, 1 << 20), text);
        }

        /// Any output, of any length, is shown within the limit and without control characters.
        #[test]
        fn any_output_is_shown_within_limit(parts in proptest::collection::vec("(\x1b\\[[0-9;?]{0,4}[A-Za-z]|\\PC|[\r\n\x08\x1b\x00-\x1f]|a{90}){0,20}", 0..40)) {
            let text = shown(&parts.concat(), 500);
            prop_assert!(text.len() < 600, "{} bytes", text.len());
            prop_assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
        }
    }

    #[test]
    fn redrawn_line_has_its_last_state() {
        check("\rstep 1\rstep 2\rstep 3\nend\n", "step 3\nend\n");
        check("100 %\r99 %\r9 %", "9 %");
        check("done: 3\r\nnext\r\n", "done: 3\nnext\n");
        check("half\r", "half");
        check("busy |\x08/\x08-\x08", "busy -");
        check("N\x08NA\x08A", "NA");
        check("loading\r\x1b[Kready\n", "ready\n");
        check("loading\x1b[2K\x1b[1Gready", "ready");
        check("12345\x1b[3D\x1b[Kx", "12x");
        check("a\x1b[3Cb", "a   b");
    }

    #[test]
    fn redrawn_lines_have_their_last_state() {
        check("log\na 1\nb 1\n\x1b[2Aa 2\nb 2\n\x1b[2Fa 3\nb 3\n", "log\na 3\nb 3\n");
        check("a\nb\nc\n\x1b[2A\x1b[Jx\n", "a\nx\n");
        check("one\x1b[H\x1b[2Jtwo\x1b[2J\x1b[Hthree", "three");
        // Nothing above the screen changes.
        let many = "line\n".repeat(2 * HEIGHT);
        check(
            &format!("{many}\x1b[500Ax\n"),
            &format!("{}x{}", &many[..5 * (HEIGHT + 1)], &many[5 * (HEIGHT + 1) + 1..]),
        );
    }

    #[test]
    fn escape_sequences_are_dropped() {
        check("\x1b[1;31mred\x1b[0m \x1b[38;2;1;2;3mx\x1b[m", "red x");
        check("\x1b]0;title\x07a\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\", "alink");
        check("\x1b]52;c;aGk=\x07x\x1bPq#0\x1b\\y\x1b(B\x1b[?25lz\x07", "xyz");
        check("an open string \x1b]0;title\nhides no line", "an open string \nhides no line");
    }

    #[test]
    fn progress_is_no_flood() {
        let progress: String = (1..=100_000).map(|n| format!("\rstep {n}")).collect();
        check(&format!("begin\n{progress}\nend\n"), "begin\nstep 100000\nend\n");
        let text = shown(&"x".repeat(1 << 20), 1000);
        assert!(text.starts_with("xxx") && text.ends_with("xxx") && text.len() < 1100, "{} bytes", text.len());
    }
}
