//! Cuts a stream of chunks at the ends of lines, so that whatever breaks off breaks off between two lines.
//!
//! It costs no time: a line that is not whole is of no use to the reader yet.

use bytes::{Bytes, BytesMut};

/// A line longer than this is passed on in pieces, of which only the size is metered.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// The beginning of a line whose end has not come yet.
#[derive(Debug, Default)]
pub(super) struct LineBuffer {
    partial: BytesMut,
    /// Whether what was passed on last ended inside a line.
    mid_line: bool,
}

impl LineBuffer {
    /// What is whole now; may be empty.
    pub(super) fn push(&mut self, chunk: Bytes) -> Bytes {
        let Some(last) = chunk.iter().rposition(|byte| *byte == b'\n') else {
            self.partial.extend_from_slice(&chunk);
            if self.partial.len() <= MAX_LINE_BYTES {
                return Bytes::new();
            }
            self.mid_line = true;
            return self.partial.split().freeze();
        };
        self.mid_line = false;
        if self.partial.is_empty() && last + 1 == chunk.len() {
            return chunk;
        }
        self.partial.extend_from_slice(&chunk[..=last]);
        let whole = self.partial.split().freeze();
        self.partial.extend_from_slice(&chunk[last + 1..]);
        whole
    }

    /// What has no end of line, when the stream has ended as it should.
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
    fn whole_lines_pass_however_they_are_cut() {
        const TEXT: &[u8] = b"event: a\r\ndata: \xc3\xa4\n\nrest";
        for first in 0..=TEXT.len() {
            for second in first..=TEXT.len() {
                let mut lines = LineBuffer::default();
                let mut passed = Vec::new();
                for part in [&TEXT[..first], &TEXT[first..second], &TEXT[second..]] {
                    let whole = lines.push(Bytes::copy_from_slice(part));
                    assert!(whole.is_empty() || whole.ends_with(b"\n"));
                    passed.extend_from_slice(&whole);
                }
                assert_eq!(passed, b"event: a\r\ndata: \xc3\xa4\n\n");
                assert_eq!(lines.take_rest(), "rest");
            }
        }
    }

    #[test]
    fn a_line_without_end_is_not_held_for_ever() {
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
