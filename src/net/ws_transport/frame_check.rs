//! Check of a client's frames against RFC 6455, as they arrive.
//!
//! The codec at the actor's end reports text that is not UTF-8, reserved bits and a broken
//! connection with one kind of error. So frames are checked before: each violation gets the close
//! code and the name that the RFC gives it.

use std::str::from_utf8;

/// Close codes (RFC 6455, section 7.4.1).
const PROTOCOL_ERROR: u16 = 1002;
const INVALID_UTF8: u16 = 1007;
/// First byte of a frame: bit for the last fragment of a message, bits without a meaning, bit for
/// control frames.
pub(super) const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
pub(super) const CONTROL: u8 = 0x08;
const OPCODE: u8 = 0x0f;
const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PONG: u8 = 0xa;
/// Largest content of a control frame, bytes.
const LARGEST_CONTROL: u64 = 125;

/// Frame that no client may send: the code and the reason of the close that answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FrameViolation {
    pub code: u16,
    pub reason: &'static str,
}

const fn protocol_error(reason: &'static str) -> FrameViolation {
    FrameViolation { code: PROTOCOL_ERROR, reason }
}

const NOT_UTF8: FrameViolation = FrameViolation { code: INVALID_UTF8, reason: "text is not valid UTF-8" };
const REASON_NOT_UTF8: FrameViolation =
    FrameViolation { code: INVALID_UTF8, reason: "the reason of a close is not valid UTF-8" };

/// Fields of a frame header.
#[derive(Debug)]
pub(super) struct WsFrameHeader {
    /// First byte.
    pub first: u8,
    pub length: u64,
    pub mask: Option<[u8; 4]>,
}

/// Position in the messages of a client.
#[derive(Debug, Default)]
pub(super) struct FrameCheck {
    message: PartialMessage,
    frame: FrameContent,
    is_last: bool,
    mask: [u8; 4],
    text: Utf8Check,
}

/// Message whose first fragments have arrived.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PartialMessage {
    #[default]
    None,
    Text,
    Binary,
}

/// Content of the current frame.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FrameContent {
    /// Any bytes.
    #[default]
    Binary,
    Text,
    /// Status code, of which this many bytes have arrived, and a reason.
    Close {
        received: u8,
        code: u16,
    },
}

impl FrameCheck {
    /// Checks the header of the next frame.
    pub(super) fn begin(&mut self, header: &WsFrameHeader) -> Result<(), FrameViolation> {
        if header.first & RESERVED != 0 {
            return Err(protocol_error("a reserved bit is set, and no extension was negotiated"));
        }
        let opcode = header.first & OPCODE;
        if !matches!(opcode, CONTINUATION..=BINARY | CLOSE..=PONG) {
            return Err(protocol_error("the opcode of a frame is reserved"));
        }
        let Some(mask) = header.mask else { return Err(protocol_error("a frame of a client must be masked")) };
        if header.length > i64::MAX as u64 {
            return Err(protocol_error("the length of a frame has more than 63 bits"));
        }
        self.is_last = header.first & FIN != 0;
        self.mask = mask;
        if opcode & CONTROL != 0 {
            if !self.is_last {
                return Err(protocol_error("a control frame must not be fragmented"));
            }
            if header.length > LARGEST_CONTROL {
                return Err(protocol_error("a control frame has more than 125 bytes"));
            }
            self.frame = FrameContent::Binary;
            if opcode == CLOSE {
                // No text follows a close.
                self.text = Utf8Check::default();
                self.frame = FrameContent::Close { received: 0, code: 0 };
            }
            return Ok(());
        }
        let message = match (opcode, self.message) {
            (CONTINUATION, PartialMessage::None) => {
                return Err(protocol_error("a continuation has no message to continue"));
            }
            (CONTINUATION, message) => message,
            (TEXT, PartialMessage::None) => PartialMessage::Text,
            (_, PartialMessage::None) => PartialMessage::Binary,
            (_, PartialMessage::Text | PartialMessage::Binary) => {
                return Err(protocol_error("a message begins before the last fragment of another"));
            }
        };
        self.frame = if message == PartialMessage::Text { FrameContent::Text } else { FrameContent::Binary };
        self.message = if self.is_last { PartialMessage::None } else { message };
        Ok(())
    }

    /// Checks the next bytes of the current frame's content.
    pub(super) fn content(&mut self, masked: &[u8]) -> Result<(), FrameViolation> {
        match self.frame {
            FrameContent::Binary => Ok(()),
            FrameContent::Text => {
                let text = self.unmask(masked);
                self.text.push(&text).ok_or(NOT_UTF8)
            }
            FrameContent::Close { mut received, mut code } => {
                let content = self.unmask(masked);
                let (first, reason) = content.split_at(content.len().min(usize::from(2 - received)));
                for byte in first {
                    (received, code) = (received + 1, (code << 8) | u16::from(*byte));
                }
                self.frame = FrameContent::Close { received, code };
                self.text.push(reason).ok_or(REASON_NOT_UTF8)
            }
        }
    }

    /// Checks the end of the current frame. Returns true after a close: no later frame counts.
    pub(super) fn end(&mut self) -> Result<bool, FrameViolation> {
        match self.frame {
            FrameContent::Text if self.is_last && !self.text.is_complete() => Err(NOT_UTF8),
            FrameContent::Text | FrameContent::Binary => Ok(false),
            FrameContent::Close { received: 1, .. } => Err(protocol_error("a close has half a status code")),
            // The codes that a frame may carry (RFC 6455, section 7.4, and IANA's registry).
            FrameContent::Close { received: 2, code } if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) => {
                Err(protocol_error("the status code of a close is not allowed"))
            }
            FrameContent::Close { .. } if !self.text.is_complete() => Err(REASON_NOT_UTF8),
            FrameContent::Close { .. } => Ok(true),
        }
    }

    fn unmask(&mut self, masked: &[u8]) -> Vec<u8> {
        let content = masked.iter().zip(self.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        self.mask.rotate_left(masked.len() % 4);
        content
    }
}

/// Check of a text that arrives in parts, which may divide a character.
#[derive(Debug, Default)]
struct Utf8Check {
    /// Bytes of a character whose rest has not arrived.
    partial: [u8; 4],
    length: usize,
}

impl Utf8Check {
    /// Returns `None` if the text so far cannot begin any UTF-8 text.
    fn push(&mut self, mut bytes: &[u8]) -> Option<()> {
        while self.length > 0 && !bytes.is_empty() {
            self.partial[self.length] = bytes[0];
            self.length += 1;
            bytes = &bytes[1..];
            match from_utf8(&self.partial[..self.length]) {
                Ok(_) => self.length = 0,
                Err(e) if e.error_len().is_none() => {}
                Err(_) => return None,
            }
        }
        let Err(error) = from_utf8(bytes) else { return Some(()) };
        if error.error_len().is_some() {
            return None;
        }
        let rest = &bytes[error.valid_up_to()..];
        self.partial[..rest.len()].copy_from_slice(rest);
        self.length = rest.len();
        Some(())
    }

    fn is_complete(&self) -> bool {
        self.length == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_checked_at_any_division() {
        let check = |bytes: &[u8], expected: bool| {
            for size in 1..=bytes.len() {
                let mut text = Utf8Check::default();
                let is_valid = bytes.chunks(size).all(|part| text.push(part).is_some()) && text.is_complete();
                assert_eq!(is_valid, expected, "{bytes:x?} in parts of {size}");
            }
        };
        check("κόσμε €𐍈 \u{10ffff}\u{feff}\0".as_bytes(), true);
        let invalid: [&[u8]; 9] = [
            b"\x80",
            b"\xc0\xaf",
            b"\xe0\x80\xaf",
            b"\xed\xa0\x80",
            b"\xf4\x90\x80\x80",
            b"\xf8\x88",
            b"ab\xff",
            b"\xe2\x82",
            b"\xf0\x9f\x92",
        ];
        for bytes in invalid {
            check(bytes, false);
            check(&[b"text ", bytes].concat(), false);
        }
    }

    #[test]
    fn invalid_text_is_rejected_before_its_end() {
        let mut text = Utf8Check::default();
        assert!(text.push(b"\xf4").is_some());
        assert!(text.push(b"\x90").is_none(), "no character begins with these bytes");
    }
}
