//! Text for a terminal: error messages and reports, with foreign text made harmless.
//!
//! Titles, file names and lines of a file may come from anybody. A control character in them could
//! move the cursor, set the clipboard or hide text. All output of the command line passes
//! [`escape`].

use std::{
    borrow::Cow,
    fmt::Display,
    io::{self, Write},
};

/// Returns `text` with each character that controls a terminal replaced by its escape, such as
/// `\u{1b}`.
///
/// Line breaks are escaped too, so that foreign text cannot imitate a line of its own. So are the
/// characters that reorder the text around them.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_control(c) {
            true => escaped.extend(c.escape_default()),
            false => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Returns true for control characters, line separators and marks of the text direction.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Prints a line to stdout. A reader that has gone is no error.
///
/// # Errors
/// Returns the reason if stdout accepts no data.
pub fn print_line(line: impl Display) -> Result<(), String> {
    match writeln!(io::stdout(), "{}", escape(&line.to_string())) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write to stdout: {e}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Prints a line to stderr. Ignores a closed stderr.
pub fn print_note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", escape(&line.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_cannot_control_a_terminal() {
        let check = |text: &str, expected: &str| assert_eq!(escape(text), expected);
        check("\u{1b}]52;c;cm0gLXJm\u{7}", r"\u{1b}]52;c;cm0gLXJm\u{7}");
        check("\u{9b}2J\u{9d}0;x\u{9c}", r"\u{9b}2J\u{9d}0;x\u{9c}");
        check("a\rb\nc\td\u{8}\0\u{7f}", r"a\rb\nc\td\u{8}\u{0}\u{7f}");
        check("gpj.\u{202e}exe\u{2066}x\u{2069}", r"gpj.\u{202e}exe\u{2066}x\u{2069}");
        check("a\u{2028}b", r"a\u{2028}b");
        // Text of any script stays as it is.
        for text in ["", "plain `text` \"quoted\" 'too' \\n", "हिन्दी עברית 日本語 é e\u{301} 👩\u{200d}💻\u{a0}x"]
        {
            check(text, text);
        }
    }
}
