//! Text of JSON strings, with surrogate pairs that a provider cut in two.

use std::borrow::Cow;

/// Decoded string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JsonText<'a> {
    Whole(Cow<'a, str>),
    /// Text with surrogate halves that stand alone, each encoded in three bytes as in WTF-8.
    WithHalves(Vec<u8>),
}

impl<'a> JsonText<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            JsonText::Whole(text) => text.len(),
            JsonText::WithHalves(bytes) => bytes.len(),
        }
    }

    /// Replaces each half by U+FFFD.
    pub(crate) fn into_lossy(self) -> Cow<'a, str> {
        let mut joiner = TextJoiner::default();
        let text = joiner.join(self);
        match joiner.flush() {
            Some(rest) => Cow::Owned(text.into_owned() + rest),
            None => text,
        }
    }
}

impl<'a> From<&'a str> for JsonText<'a> {
    fn from(text: &'a str) -> JsonText<'a> {
        JsonText::Whole(Cow::Borrowed(text))
    }
}

/// Joins the halves of surrogate pairs across the pieces of one text.
#[derive(Debug, Default)]
pub(crate) struct TextJoiner {
    /// First half at the end of the last piece.
    high: Option<u16>,
}

impl TextJoiner {
    /// Returns the text of the next piece. A first half at its end is kept for the piece after it.
    /// A half that stays alone becomes U+FFFD.
    pub(crate) fn join<'a>(&mut self, piece: JsonText<'a>) -> Cow<'a, str> {
        let bytes = match piece {
            JsonText::Whole(text) if self.high.is_none() || text.is_empty() => return text,
            JsonText::Whole(text) => text.into_owned().into_bytes(),
            JsonText::WithHalves(bytes) => bytes,
        };
        let mut units: Vec<u16> = self.high.take().into_iter().collect();
        let mut rest = &bytes[..];
        while let Some(at) = rest.windows(3).position(|window| half(window).is_some()) {
            units.extend(String::from_utf8_lossy(&rest[..at]).encode_utf16());
            units.extend(half(&rest[at..at + 3]));
            rest = &rest[at + 3..];
        }
        units.extend(String::from_utf8_lossy(rest).encode_utf16());
        if units.last().is_some_and(|unit| (0xD800..0xDC00).contains(unit)) {
            self.high = units.pop();
        }
        Cow::Owned(String::from_utf16_lossy(&units))
    }

    /// Ends the text. Returns U+FFFD for a first half that is left.
    pub(crate) fn flush(&mut self) -> Option<&'static str> {
        self.high.take().map(|_| "\u{FFFD}")
    }
}

/// Decodes a surrogate half from its three bytes.
fn half(bytes: &[u8]) -> Option<u16> {
    match bytes {
        [0xED, second @ 0xA0..=0xBF, third @ 0x80..=0xBF] => {
            Some(0xD000 | u16::from(second & 0x3F) << 6 | u16::from(third & 0x3F))
        }
        _ => None,
    }
}

/// Replaces the escapes of surrogate halves that stand alone, in a JSON text.
pub(crate) fn replace_lone_surrogates(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (escaped_unit(rest), escaped_unit(rest.get(6..).unwrap_or_default())) {
            (Some(0xD800..0xDC00), Some(0xDC00..0xE000)) => 12,
            (Some(0xD800..0xE000), _) => {
                clean.push_str("\\ufffd");
                rest = &rest[6..];
                continue;
            }
            // The escaped character may be longer than a byte in invalid JSON only.
            _ => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        clean.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    clean + rest
}

/// Escapes the control characters inside the strings of a JSON text.
pub(crate) fn escape_control_characters(json: &str) -> String {
    let (mut clean, mut in_string, mut escaped) = (String::with_capacity(json.len() + 16), false, false);
    for c in json.chars() {
        match c {
            '"' if !escaped => in_string = !in_string,
            c if in_string && c < ' ' => {
                clean += &format!("\\u{:04x}", u32::from(c));
                escaped = false;
                continue;
            }
            _ => {}
        }
        escaped = c == '\\' && !escaped;
        clean.push(c);
    }
    clean
}

/// Reads the escape `\uXXXX` at the start of `json`.
fn escaped_unit(json: &str) -> Option<u16> {
    u16::from_str_radix(json.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{RawJson, parse_json};

    fn joined(pieces: &[&str]) -> String {
        let mut joiner = TextJoiner::default();
        let mut text = String::new();
        for piece in pieces {
            let json = format!("\"{piece}\"");
            let raw: RawJson = parse_json(&json).expect("a string");
            text += &joiner.join(raw.json_text().expect("a string"));
        }
        text + joiner.flush().unwrap_or_default()
    }

    #[test]
    fn halves_are_joined_across_pieces() {
        assert_eq!(joined(&["Party ", "\\ud83c", "\\udf89", " time"]), "Party 🎉 time");
        assert_eq!(joined(&["a\\ud83c", "", "\\udf89\\ud83c", "\\udf89"]), "a🎉🎉");
        assert_eq!(joined(&["\\ud83c\\udf89 \\u00e4ä\\n"]), "🎉 ää\n");
    }

    #[test]
    fn half_that_stays_alone_is_replaced() {
        assert_eq!(joined(&["a\\ud83c", "b"]), "a\u{FFFD}b");
        assert_eq!(joined(&["\\udf89a", "\\ud83c"]), "\u{FFFD}a\u{FFFD}");
        assert_eq!(joined(&["\\ud83c\\ud83c", "\\udf89"]), "\u{FFFD}🎉");
    }

    #[test]
    fn control_characters_are_escaped_inside_strings() {
        assert_eq!(escape_control_characters("{\t\"a\\\"\tb\":\n\"\\\\\"}"), "{\t\"a\\\"\\u0009b\":\n\"\\\\\"}");
    }

    #[test]
    fn lone_escapes_are_replaced_in_json() {
        let check = |json: &str, expected: &str| assert_eq!(replace_lone_surrogates(json), expected);
        check(
            r#"["\ud83c\udf89","\ud83c","\udf89x","\\ud83c","\n"]"#,
            r#"["\ud83c\udf89","\ufffd","\ufffdx","\\ud83c","\n"]"#,
        );
        check("\\", "\\");
        check("\\ä\\ud83", "\\ä\\ud83");
    }
}
