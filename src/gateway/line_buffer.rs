//! Line buffer: cuts a stream of chunks at line ends, so that a broken stream breaks between two
//! lines.
//!
//! Buffering adds no delay: a reader cannot use an incomplete line.

use bytes::{Bytes, BytesMut};

/// Longest buffered line, bytes. Longer lines pass in pieces, and only their size is metered.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Start of a line whose end has not arrived.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    partial: BytesMut,
    /// True if the data passed on last ended inside a line.
    mid_line: bool,
}

impl LineBuffer {
    /// Adds `chunk` and returns the complete lines, if any.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        let Some(last_newline) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(&chunk);
            if self.partial.len() <= MAX_LINE_BYTES {
                return Bytes::new();
            }
            self.mid_line = true;
            return self.partial.split().freeze();
        };
        self.mid_line = false;
        if self.partial.is_empty() && last_newline + 1 == chunk.len() {
            return chunk;
        }
        self.partial.extend_from_slice(&chunk[..=last_newline]);
        let lines = self.partial.split().freeze();
        self.partial.extend_from_slice(&chunk[last_newline + 1..]);
        lines
    }

    /// Returns the data after the last line end. For a stream that ended regularly.
    pub(super) fn take_rest(&mut self) -> Bytes {
        self.partial.split().freeze()
    }

    pub(super) fn is_mid_line(&self) -> bool {
        self.mid_line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_whole_at_any_split() {
        const TEXT: &[u8] = b"event: a\r\ndata: \xc3\xa4\n\nrest";
        for first in 0..=TEXT.len() {
            for second in first..=TEXT.len() {
                let mut lines = LineBuffer::default();
                let mut passed = Vec::new();
                for part in [&TEXT[..first], &TEXT[first..second], &TEXT[second..]] {
                    let complete = lines.push(Bytes::copy_from_slice(part));
                    assert!(complete.is_empty() || complete.ends_with(b"\n"));
                    passed.extend_from_slice(&complete);
                }
                assert_eq!(passed, b"event: a\r\ndata: \xc3\xa4\n\n");
                assert_eq!(lines.take_rest(), "rest");
            }
        }
    }

    #[test]
    fn endless_line_is_passed_on_in_pieces() {
        let mut lines = LineBuffer::default();
        let mut passed = 0;
        for _ in 0..20 {
            passed += lines.push(Bytes::from(vec![b'x'; 1024 * 1024])).len();
        }
        assert_eq!(passed, 18 * 1024 * 1024);
        assert!(lines.is_mid_line());
        assert_eq!(lines.push(Bytes::from_static(b"\n")).len(), 2 * 1024 * 1024 + 1);
        assert!(!lines.is_mid_line());
    }
}
