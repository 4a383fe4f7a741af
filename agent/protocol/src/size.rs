//! Size of a JSON text: its bytes and its values. A short text can hold many values, and each value
//! takes much memory once read.

use std::io::{self, Write};

/// Writer that counts the bytes and the JSON values written to it.
///
/// Counts values by their separators, so the count holds for JSON only. It is at least half of the
/// values that a reader would create, and at most one more.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct JsonSize {
    pub bytes: usize,
    pub values: usize,
    state: JsonScanState,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum JsonScanState {
    #[default]
    Structure,
    Text,
    Escape,
}

impl JsonSize {
    /// Counts a complete JSON text.
    pub fn of(json: &[u8]) -> JsonSize {
        let mut size = JsonSize::default();
        size.add(json);
        size
    }

    /// Returns the bytes of a text within a JSON text, without the quotes.
    pub fn of_text(text: &str) -> usize {
        let mut size = JsonSize::default();
        // A text always serializes, and the counting writer never fails.
        serde_json::to_writer(&mut size, text).expect("a text is JSON");
        size.bytes - 2
    }

    fn add(&mut self, json: &[u8]) {
        self.bytes += json.len();
        for byte in json {
            self.state = match (self.state, byte) {
                (JsonScanState::Text, b'\\') => JsonScanState::Escape,
                (JsonScanState::Text, b'"') => JsonScanState::Structure,
                (JsonScanState::Text | JsonScanState::Escape, _) => JsonScanState::Text,
                (JsonScanState::Structure, b'"') => JsonScanState::Text,
                (JsonScanState::Structure, b'[' | b'{' | b',') => {
                    self.values += 1;
                    JsonScanState::Structure
                }
                (JsonScanState::Structure, _) => JsonScanState::Structure,
            };
        }
    }
}

impl Write for JsonSize {
    fn write(&mut self, json: &[u8]) -> io::Result<usize> {
        self.add(json);
        Ok(json.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(json: &str, values: usize) {
        let whole = JsonSize::of(json.as_bytes());
        assert_eq!((whole.bytes, whole.values), (json.len(), values), "{json}");
        let mut in_parts = JsonSize::default();
        json.as_bytes().chunks(1).for_each(|byte| in_parts.add(byte));
        assert_eq!(in_parts, whole, "the count does not depend on the pieces");
    }

    #[test]
    fn separators_count_outside_strings_only() {
        check("7", 0);
        check("[1,2,3]", 3);
        check(r#"{"a":[[0],[0]],"b":{}}"#, 7);
        check(r#"["[,{","\"[,",",\\","ü,"]"#, 4);
    }
}
