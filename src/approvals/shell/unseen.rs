//! Characters that make a command look different from what it is.

/// Returns the reason in words if the text has characters that hide its meaning from a person.
pub(super) fn hidden_text(text: &str) -> Option<String> {
    if text.is_ascii() {
        let control = text.bytes().find(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t'));
        return control.map(|byte| character("a control character", char::from(byte)));
    }
    let mut before = '\0';
    let mut run = ScriptRun::default();
    for c in text.chars() {
        let what = match c {
            '\n' | '\t' => None,
            c if c.is_control() => Some("a control character"),
            // Joins emoji.
            '\u{200d}' | '\u{fe0f}' if before >= '\u{2190}' => None,
            c if is_invisible(c) => Some("an invisible character"),
            c if c.is_whitespace() && c != ' ' => Some("an unusual space"),
            c if run.mixes_with(c) => Some("a look-alike of a Latin letter"),
            _ => None,
        };
        if let Some(what) = what {
            return Some(character(what, c));
        }
        before = c;
    }
    None
}

fn character(what: &str, c: char) -> String {
    format!("the command contains {what} (U+{:04X})", u32::from(c))
}

/// Returns true for characters without a width, for marks of the text's direction, and for tags.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Letters of one run, by their look.
#[derive(Default)]
struct ScriptRun {
    has_ascii: bool,
    has_look_alike: bool,
}

impl ScriptRun {
    /// Adds a character. Returns true if the run has both ASCII letters and letters that look like
    /// them.
    fn mixes_with(&mut self, c: char) -> bool {
        match c {
            c if c.is_ascii_alphabetic() => self.has_ascii = true,
            // Greek, Cyrillic, Armenian, Cherokee, letter-like signs, full width, mathematics.
            '\u{370}'..='\u{58f}'
            | '\u{13a0}'..='\u{13ff}'
            | '\u{1d00}'..='\u{1dbf}'
            | '\u{2100}'..='\u{214f}'
            | '\u{ab70}'..='\u{abbf}'
            | '\u{ff01}'..='\u{ff5e}'
            | '\u{1d400}'..='\u{1d7ff}' => self.has_look_alike = true,
            c if c.is_alphanumeric() => {}
            _ => *self = ScriptRun::default(),
        }
        self.has_ascii && self.has_look_alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_hides_its_meaning_is_found() {
        let check = |text: &str, expected: Option<&str>| {
            let found = hidden_text(text);
            match expected {
                None => assert_eq!(found, None, "{text:?}"),
                Some(part) => assert!(found.as_deref().is_some_and(|f| f.contains(part)), "{text:?}: {found:?}"),
            }
        };
        check("git push\n\tls", None);
        check("git commit -m 'Füge größe hinzu'", None);
        check("git commit -m 'привет, мир'", None);
        check("echo 'λ → μ' 日本語", None);
        check("git commit -m '👩\u{200d}💻 ❤\u{fe0f}'", None);
        check("ls\rrm -rf /", Some("control character (U+000D)"));
        check("echo \u{1b}[2K", Some("control character (U+001B)"));
        check("echo ü\u{9b}2K", Some("control character (U+009B)"));
        check("gi\u{200b}t push", Some("invisible character (U+200B)"));
        check("echo \u{202e}hsup tig", Some("invisible character (U+202E)"));
        check("a\u{200d}b", Some("invisible character (U+200D)"));
        check("git\u{a0}push", Some("unusual space (U+00A0)"));
        check("gіt push", Some("look-alike of a Latin letter (U+0456)"));
        check("ｇit push", Some("look-alike of a Latin letter"));
    }
}
