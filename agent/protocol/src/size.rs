//! How much there is to a JSON text beside its bytes: a short one can hold many values, and each is large in memory.

use std::io::{self, Write};

/// Counts what is written to it: bytes, and values.
///
/// Values are counted by what divides them, so only of JSON it is right: at least half of those that a reader would make, at
/// most one more.
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
    pub fn of(json: &[u8]) -> JsonSize {
        let mut size = JsonSize::default();
        size.add(json);
        size
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
        assert_eq!(in_parts, whole, "it does not matter how it comes");
    }

    #[test]
    fn what_divides_values_counts_and_not_what_stands_in_texts() {
        check("7", 0);
        check("[1,2,3]", 3);
        check(r#"{"a":[[0],[0]],"b":{}}"#, 7);
        check(r#"["[,{","\"[,",",\\","ü,"]"#, 4);
    }
}
