//! Modes of a terminal that [`avt`] does not keep: mouse, bracketed paste, keypad, cursor shape,
//! and the title. Memory is bounded, whatever a program writes.

/// Longest parameters of a control sequence that are read, in bytes. Longer ones change no mode.
const PARAMETERS_LIMIT: usize = 64;

/// Longest operating system command that is read, in bytes. The rest of a longer one is dropped.
const COMMAND_LIMIT: usize = 512;

/// Longest title, in characters.
const TITLE_LIMIT: usize = 128;

const ESCAPE: u8 = 0x1b;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;
const BELL: u8 = 0x07;

/// Modes that a program has set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TerminalModes {
    /// Mouse events that the program gets: 9, 1000, 1002 or 1003.
    mouse: Option<u16>,
    /// Form of the mouse events: 1005, 1006, 1015 or 1016.
    mouse_form: Option<u16>,
    focus_events: bool,
    bracketed_paste: bool,
    alternate_scroll: bool,
    application_keypad: bool,
    /// Parameter of DECSCUSR, 0 to 6.
    cursor_shape: u8,
}

/// Reader of a terminal's output that keeps modes and title.
#[derive(Debug, Default)]
pub(super) struct ModeTracker {
    state: SequenceState,
    parameters: Vec<u8>,
    pub(super) modes: TerminalModes,
    pub(super) title: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum SequenceState {
    #[default]
    Ground,
    Escape,
    EscapeIntermediate,
    ControlSequence,
    Command,
    /// Device control string, or another string that sets no mode.
    IgnoredString,
}

impl ModeTracker {
    /// Reads output. A sequence may be cut anywhere.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.state == SequenceState::Ground {
                let Some(start) = bytes.iter().position(|byte| *byte == ESCAPE) else { return };
                self.state = SequenceState::Escape;
                bytes = &bytes[start + 1..];
                continue;
            }
            self.state = self.next(bytes[0]);
            bytes = &bytes[1..];
        }
    }

    fn next(&mut self, byte: u8) -> SequenceState {
        use SequenceState::{Command, ControlSequence, Escape, EscapeIntermediate, Ground, IgnoredString};
        match (self.state, byte) {
            (Command, ESCAPE | BELL) => {
                self.run_command();
                if byte == ESCAPE { Escape } else { Ground }
            }
            (_, ESCAPE) => Escape,
            (_, CANCEL | SUBSTITUTE) => Ground,
            (Escape, b'[') => self.begin(ControlSequence),
            (Escape, b']') => self.begin(Command),
            (Escape, b'P' | b'X' | b'^' | b'_') => IgnoredString,
            (Escape | EscapeIntermediate, b' '..=b'/') => EscapeIntermediate,
            (Escape, b'c') => {
                self.modes = TerminalModes::default();
                Ground
            }
            (Escape, b'=' | b'>') => {
                self.modes.application_keypad = byte == b'=';
                Ground
            }
            // Control characters act inside of sequences, and set no mode.
            (Escape | EscapeIntermediate | ControlSequence, 0..b' ') => self.state,
            (ControlSequence, b'@'..=b'~') => {
                self.run_sequence(byte);
                Ground
            }
            (ControlSequence, _) => {
                if self.parameters.len() <= PARAMETERS_LIMIT {
                    self.parameters.push(byte);
                }
                ControlSequence
            }
            (Command, _) => {
                if self.parameters.len() < COMMAND_LIMIT {
                    self.parameters.push(byte);
                }
                Command
            }
            (IgnoredString, _) => IgnoredString,
            (Ground | Escape | EscapeIntermediate, _) => Ground,
        }
    }

    fn begin(&mut self, state: SequenceState) -> SequenceState {
        self.parameters.clear();
        state
    }

    fn run_sequence(&mut self, last: u8) {
        if self.parameters.len() > PARAMETERS_LIMIT {
            return;
        }
        match (self.parameters.as_slice(), last) {
            ([b'?', numbers @ ..], b'h' | b'l') => {
                for number in numbers.split(|byte| *byte == b';').filter_map(number) {
                    self.modes.set(number, last == b'h');
                }
            }
            ([shape @ .., b' '], b'q') => {
                let shape = if shape.is_empty() { Some(0) } else { number(shape) };
                self.modes.cursor_shape =
                    shape.filter(|shape| *shape <= 6).map_or(self.modes.cursor_shape, |s| s as u8);
            }
            // Soft reset.
            (b"!", b'p') => self.modes.application_keypad = false,
            _ => {}
        }
    }

    fn run_command(&mut self) {
        let command = std::mem::take(&mut self.parameters);
        let Some(title) = command.strip_prefix(b"0;").or_else(|| command.strip_prefix(b"2;")) else { return };
        let title = String::from_utf8_lossy(title);
        let title: String = title.chars().filter(|c| !c.is_control()).take(TITLE_LIMIT).collect();
        self.title = (!title.trim().is_empty()).then_some(title);
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl TerminalModes {
    fn set(&mut self, mode: u16, on: bool) {
        let value = on.then_some(mode);
        match mode {
            9 | 1000 | 1002 | 1003 => self.mouse = value,
            1005 | 1006 | 1015 | 1016 => self.mouse_form = value,
            1004 => self.focus_events = on,
            1007 => self.alternate_scroll = on,
            2004 => self.bracketed_paste = on,
            66 => self.application_keypad = on,
            _ => {}
        }
    }

    /// Returns the sequences that set these modes in a terminal that was reset.
    pub(super) fn restoring(&self) -> String {
        let flags = [(self.focus_events, 1004), (self.alternate_scroll, 1007), (self.bracketed_paste, 2004)];
        let set = flags.into_iter().filter(|(on, _)| *on).map(|(_, mode)| mode);
        let mut text: String =
            self.mouse.into_iter().chain(self.mouse_form).chain(set).map(|mode| format!("\x1b[?{mode}h")).collect();
        if self.application_keypad {
            text.push_str("\x1b=");
        }
        if self.cursor_shape > 0 {
            text.push_str(&format!("\x1b[{} q", self.cursor_shape));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tracker(output: &str) -> ModeTracker {
        let mut tracker = ModeTracker::default();
        tracker.read(output.as_bytes());
        tracker
    }

    #[test]
    fn modes_are_kept_and_restored() {
        let check = |output: &str, expected: &str| {
            let restoring = tracker(output).modes.restoring();
            assert_eq!(restoring, expected, "{output:?}");
            assert_eq!(tracker(&restoring).modes, tracker(output).modes, "{output:?}");
            let mut bytewise = ModeTracker::default();
            output.bytes().for_each(|byte| bytewise.read(&[byte]));
            assert_eq!(bytewise.modes, tracker(output).modes, "{output:?}");
        };
        check("", "");
        check("\x1b[?2004h", "\x1b[?2004h");
        check("\x1b[?2004h\x1b[?2004l", "");
        check("\x1b[?1000;1006;1004h", "\x1b[?1000h\x1b[?1006h\x1b[?1004h");
        check("\x1b[?1000h\x1b[?1002h", "\x1b[?1002h");
        check("\x1b[?1002h\x1b[?1000l", "");
        check("\x1b=\x1b[5 q", "\x1b=\x1b[5 q");
        check("\x1b[5 q\x1b[ q", "");
        check("\x1b[?2004h\x1b[3 q\x1bc", "");
        check("\x1b[?20\x1804h", "");
        check("\x1b]0;\x1b[?2004h", "\x1b[?2004h");
        check("\x1bPq\x07[?2004h", "");
        check(&format!("\x1b[?{}2004h", "0".repeat(PARAMETERS_LIMIT)), "");
    }

    #[test]
    fn title_is_bounded_and_harmless() {
        assert_eq!(tracker("\x1b]0;make\x07").title.as_deref(), Some("make"));
        assert_eq!(tracker("\x1b]2;a\x1b\\").title.as_deref(), Some("a"));
        assert_eq!(tracker("\x1b]2;a\x07\x1b]2;\x07").title, None);
        assert_eq!(tracker("\x1b]52;c;aGk=\x07").title, None);
        let long = tracker(&format!("\x1b]0;{}\x07", "t".repeat(1 << 20)));
        assert_eq!(long.title.map(|title| title.len()), Some(TITLE_LIMIT));
        assert!(long.parameters.capacity() <= 2 * COMMAND_LIMIT);
    }
}
