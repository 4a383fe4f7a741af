//! Client frames as they arrive: checked against RFC 6455, and split above the size limit.
//!
//! The codec at the actor's end collects a whole frame before it checks the size. A header can
//! announce 2⁶³ bytes. Split into fragments (RFC 6455, section 5.4), such a frame is a message like
//! any other. The actor keeps what is allowed and drops the rest. So the message is rejected with a
//! reason, and the connection continues.

use bytes::Bytes;
use greenroom_protocol::CLIENT_FRAME_LIMIT;

use super::frame_check::{CONTROL, FIN, FrameCheck, FrameViolation, WsFrameHeader};

/// Second byte of a frame: bit for a mask after the length, and the length or its encoding.
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const IN_TWO_BYTES: u8 = 126;
const IN_EIGHT_BYTES: u8 = 127;
/// Largest frame header, bytes.
const LARGEST_HEADER: usize = 14;

/// Frames of a client.
#[derive(Debug, Default)]
pub(super) struct OversizeSplitter {
    position: FramePosition,
    check: FrameCheck,
}

/// Position in the client's frames.
#[derive(Debug)]
enum FramePosition {
    /// Header bytes received so far. A header is passed on as a whole.
    Header([u8; LARGEST_HEADER], usize),
    /// Inside a frame that is passed on unchanged, with the number of missing bytes.
    PassThrough(u64),
    /// Inside a frame that is split.
    Splitting(SplitFrame),
    /// After a close or a violation: nothing more is passed on.
    Ended,
}

/// Remainder of a frame that is split: the header of its next fragment.
#[derive(Debug)]
struct SplitFrame {
    first: u8,
    left: u64,
    mask: [u8; 4],
}

impl Default for FramePosition {
    fn default() -> FramePosition {
        FramePosition::Header([0; LARGEST_HEADER], 0)
    }
}

impl OversizeSplitter {
    /// Returns the bytes to pass on: held back header bytes and those of `read`. Stops before a
    /// violation, and returns the violation with the bytes before it.
    pub(super) fn split(&mut self, read: &[u8]) -> (Bytes, Option<FrameViolation>) {
        let held_back = if let FramePosition::Header(_, known) = self.position { known } else { 0 };
        // Exact size, except when a frame is split or begins.
        let mut passed = Vec::with_capacity(read.len() + held_back);
        let mut read = read;
        let mut violation = None;
        while !read.is_empty() && violation.is_none() && !matches!(self.position, FramePosition::Ended) {
            violation = self.advance(&mut read, &mut passed).err();
        }
        if violation.is_some() {
            self.position = FramePosition::Ended;
        }
        (passed.into(), violation)
    }

    /// Takes a header byte, or the available part of a frame's content.
    fn advance(&mut self, read: &mut &[u8], passed: &mut Vec<u8>) -> Result<(), FrameViolation> {
        match &mut self.position {
            FramePosition::Header(header, known) => {
                header[*known] = read[0];
                *known += 1;
                *read = &read[1..];
                let header = &header[..*known];
                let Some(parsed) = parse(header) else { return Ok(()) };
                self.check.begin(&parsed)?;
                let WsFrameHeader { first, length, mask } = parsed;
                // A complete frame reaches the actor, so its end is checked before.
                let next = match mask {
                    Some(mask) if first & CONTROL == 0 && length > CLIENT_FRAME_LIMIT as u64 => {
                        FramePosition::Splitting(SplitFrame { first, left: length, mask })
                    }
                    Some(_) | None => {
                        let next = match length {
                            0 => after_frame(self.check.end()?),
                            length => FramePosition::PassThrough(length),
                        };
                        passed.extend_from_slice(header);
                        next
                    }
                };
                self.position = next;
            }
            FramePosition::PassThrough(left) => {
                let content = take(read, left);
                let is_whole = *left == 0;
                self.check.content(content)?;
                if is_whole {
                    self.position = after_frame(self.check.end()?);
                }
                passed.extend_from_slice(content);
            }
            FramePosition::Splitting(rest) => {
                let content = take(read, &mut rest.left);
                let is_whole = rest.left == 0;
                self.check.content(content)?;
                if is_whole {
                    self.check.end()?;
                }
                rest.write_fragment(content, passed);
                if is_whole {
                    self.position = FramePosition::default();
                }
            }
            FramePosition::Ended => {}
        }
        Ok(())
    }
}

fn after_frame(is_close: bool) -> FramePosition {
    if is_close { FramePosition::Ended } else { FramePosition::default() }
}

impl SplitFrame {
    /// Writes content, which is already taken off `left`, as a frame. The next fragment continues
    /// it.
    fn write_fragment(&mut self, content: &[u8], passed: &mut Vec<u8>) {
        let is_last = self.left == 0;
        passed.push(if is_last { self.first } else { self.first & !FIN });
        match content.len() {
            length @ 0..126 => passed.push(MASKED | length as u8),
            length @ 126..=0xffff => {
                passed.push(MASKED | IN_TWO_BYTES);
                passed.extend_from_slice(&(length as u16).to_be_bytes());
            }
            length => {
                passed.push(MASKED | IN_EIGHT_BYTES);
                passed.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        passed.extend_from_slice(&self.mask);
        passed.extend_from_slice(content);
        // The mask continues over the content at the end of this fragment.
        self.mask.rotate_left(content.len() % 4);
        self.first &= FIN;
    }
}

/// Takes the available part of a frame's content.
fn take<'a>(read: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let available = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    let (content, rest) = read.split_at(available);
    *read = rest;
    *left -= available as u64;
    content
}

/// Parses a header. Returns `None` if the header is incomplete.
fn parse(header: &[u8]) -> Option<WsFrameHeader> {
    let [first, second, rest @ ..] = header else { return None };
    let bytes = match second & LENGTH {
        IN_TWO_BYTES => 2,
        IN_EIGHT_BYTES => 8,
        _ => 0,
    };
    let is_masked = second & MASKED != 0;
    if rest.len() < bytes + if is_masked { 4 } else { 0 } {
        return None;
    }
    let length = match bytes {
        0 => u64::from(second & LENGTH),
        bytes => rest[..bytes].iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
    };
    Some(WsFrameHeader { first: *first, length, mask: rest[bytes..].try_into().ok() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics on unexpected results")]
mod tests {
    use actix_codec::{Decoder, Encoder};
    use actix_http::ws::{CloseCode, CloseReason, Codec, Frame, Item, Message, ProtocolError};
    use bytes::BytesMut;

    use super::*;

    /// Encodes a frame as a client does.
    fn encoded(message: Message) -> BytesMut {
        let mut bytes = BytesMut::new();
        Codec::new().client_mode().encode(message, &mut bytes).unwrap();
        bytes
    }

    fn text(len: usize) -> String {
        (0..len).map(|n| char::from(b'a' + (n % 26) as u8)).collect()
    }

    /// Decodes `bytes`, split into reads of `size` bytes, as the actor's end does. Returns the
    /// messages and the largest frame's size.
    fn decoded(bytes: &[u8], size: usize) -> Result<(Vec<String>, usize), ProtocolError> {
        let (mut splitter, mut codec, mut buffer) =
            (OversizeSplitter::default(), Codec::new().max_size(CLIENT_FRAME_LIMIT), BytesMut::new());
        let (mut messages, mut partial, mut largest) = (Vec::new(), Vec::new(), 0);
        for read in bytes.chunks(size) {
            let (passed, violation) = splitter.split(read);
            assert_eq!(violation, None);
            buffer.extend_from_slice(&passed);
            while let Some(frame) = codec.decode(&mut buffer)? {
                let (is_last, content) = match frame {
                    Frame::Text(content) | Frame::Ping(content) | Frame::Continuation(Item::Last(content)) => {
                        (true, content)
                    }
                    Frame::Continuation(Item::FirstText(content) | Item::Continue(content)) => (false, content),
                    other => panic!("{other:?}"),
                };
                largest = largest.max(content.len());
                partial.extend_from_slice(&content);
                if is_last {
                    messages.push(String::from_utf8(std::mem::take(&mut partial)).unwrap());
                }
            }
            assert!(buffer.len() <= CLIENT_FRAME_LIMIT + LARGEST_HEADER);
        }
        assert!(buffer.is_empty() && partial.is_empty());
        Ok((messages, largest))
    }

    fn check(lengths: &[usize], sizes: &[usize]) {
        let texts: Vec<_> = lengths.iter().map(|length| text(*length)).collect();
        let mut bytes = BytesMut::new();
        for content in &texts {
            bytes.extend_from_slice(&encoded(Message::Text(content.clone().into())));
            bytes.extend_from_slice(&encoded(Message::Ping(Bytes::from_static(b"ping"))));
        }
        let expected: Vec<_> = texts.into_iter().flat_map(|content| [content, "ping".to_owned()]).collect();
        for size in sizes {
            let (messages, largest) = decoded(&bytes, *size).unwrap();
            assert!(messages == expected, "{lengths:?} in reads of {size}");
            assert!(largest <= CLIENT_FRAME_LIMIT);
        }
    }

    #[test]
    fn messages_arrive_whole_in_frames_below_the_limit() {
        check(&[0, 1, 125, 126, 1000, 65_535, 65_536, 0], &[1, 2, 3, 1000]);
        let limit = CLIENT_FRAME_LIMIT;
        check(&[limit, limit + 1, 3 * limit + 7, 5], &[1001, 16 << 10, 100_000]);
    }

    #[test]
    fn oversize_fragment_is_split_too() {
        let large = text(CLIENT_FRAME_LIMIT + 10);
        let items = [Item::FirstText("a".into()), Item::Continue(large.clone().into()), Item::Last("b".into())];
        let mut codec = Codec::new().client_mode();
        let mut bytes = BytesMut::new();
        for item in items {
            codec.encode(Message::Continuation(item), &mut bytes).unwrap();
        }
        let (messages, _) = decoded(&bytes, 16 << 10).unwrap();
        assert!(messages == [format!("a{large}b")]);
    }

    /// Checks the violation that frames cause in reads of any size, and what was passed on before.
    fn check_violation(frames: &[u8], expected: Option<(u16, &str)>, passed_on: usize) {
        for size in 1..=frames.len() {
            let (mut splitter, mut passed, mut violation) = (OversizeSplitter::default(), Vec::new(), None);
            for read in frames.chunks(size) {
                let (bytes, found) = splitter.split(read);
                assert!(violation.is_none() || (bytes.is_empty() && found.is_none()), "nothing follows a violation");
                passed.extend_from_slice(&bytes);
                violation = violation.or(found);
            }
            assert_eq!(violation.map(|violation| violation.code), expected.map(|(code, _)| code), "{frames:x?}");
            let part = expected.map_or("", |(_, part)| part);
            assert!(violation.is_none_or(|violation| violation.reason.contains(part)), "{violation:?}");
            assert_eq!(passed, frames[..passed.len()]);
            // Content of the violating frame may be passed on, but never all of it.
            assert!(
                (passed_on..frames.len()).contains(&passed.len()) || expected.is_none(),
                "{frames:x?}: {passed:x?}"
            );
        }
    }

    #[test]
    fn violation_ends_the_input_before_its_frame_is_complete() {
        let ping = encoded(Message::Ping(Bytes::from_static(b"x")));
        let after_ping = |bytes: &[u8], expected: (u16, &str)| {
            check_violation(&[&ping[..], bytes].concat(), Some(expected), ping.len());
        };
        let header = |first: u8, length: u8| [first, MASKED | length, 0, 0, 0, 0];
        after_ping(&[FIN | 0x9, MASKED | IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], (1002, "125 bytes"));
        after_ping(&[FIN | 0x1, IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0], (1002, "masked"));
        after_ping(&[FIN | 0x1, MASKED | IN_EIGHT_BYTES, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (1002, "63 bits"));
        after_ping(&header(FIN | 0x41, 0), (1002, "reserved bit"));
        after_ping(&header(FIN | 0x3, 0), (1002, "opcode"));
        after_ping(&header(0x9, 0), (1002, "fragmented"));
        after_ping(&header(FIN, 0), (1002, "no message to continue"));
        after_ping(&[header(0x1, 0), header(FIN | 0x2, 0)].concat(), (1002, "before the last fragment"));
        after_ping(&[&header(FIN | 0x1, 2)[..], b"\xc3\x28"].concat(), (1007, "UTF-8"));
        after_ping(&[&header(FIN | 0x8, 1)[..], &[3]].concat(), (1002, "half a status code"));
        after_ping(&[&header(FIN | 0x8, 2)[..], &1005_u16.to_be_bytes()].concat(), (1002, "not allowed"));
        after_ping(&[&header(FIN | 0x8, 3)[..], &[3, 0xe8, 0xff]].concat(), (1007, "reason"));
        after_ping(&[&header(0x1, 1)[..], b"\xe2", &header(FIN, 1), b"\x82"].concat(), (1007, "UTF-8"));
    }

    #[test]
    fn character_may_be_divided_between_fragments_and_a_ping() {
        let parts = [Item::FirstText(Bytes::from_static(b"\xf0\x9f")), Item::Last(Bytes::from_static(b"\x92\xbb"))];
        let mut codec = Codec::new().client_mode();
        let mut frames = BytesMut::new();
        for part in parts {
            codec.encode(Message::Continuation(part), &mut frames).unwrap();
            codec.encode(Message::Ping(Bytes::from_static(b"\xff")), &mut frames).unwrap();
        }
        check_violation(&frames, None, frames.len());
    }

    #[test]
    fn nothing_is_passed_on_after_a_close() {
        let close =
            encoded(Message::Close(Some(CloseReason { code: CloseCode::Away, description: Some("ä".into()) })));
        for after in [&encoded(Message::Text("x".into()))[..], b"\xff\xff\xff"] {
            let (passed, violation) = OversizeSplitter::default().split(&[&close, after].concat());
            assert!(passed == close && violation.is_none());
        }
    }
}
