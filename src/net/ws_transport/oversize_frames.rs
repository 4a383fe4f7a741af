//! Splitting of client frames above the size limit, as they arrive.
//!
//! The codec at the actor's end collects a whole frame before it checks the size. A header can
//! announce 2⁶³ bytes. Split into fragments (RFC 6455, section 5.4), such a frame is a message like
//! any other. The actor keeps what is allowed and drops the rest. So the message is rejected with a
//! reason, and the connection continues.

use std::io;

use bytes::Bytes;
use greenroom_protocol::CLIENT_FRAME_LIMIT;

/// First byte of a frame: bit for the last fragment of a message, bit for control frames.
const FIN: u8 = 0x80;
const CONTROL: u8 = 0x08;
/// Second byte of a frame: bit for a mask after the length, and the length or its encoding.
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const IN_TWO_BYTES: u8 = 126;
const IN_EIGHT_BYTES: u8 = 127;
/// Largest frame header and largest content of a control frame, bytes.
const LARGEST_HEADER: usize = 14;
const LARGEST_CONTROL: u64 = 125;

/// Position in the client's frames.
#[derive(Debug)]
pub(super) enum OversizeSplitter {
    /// Header bytes received so far. A header is passed on as a whole.
    Header([u8; LARGEST_HEADER], usize),
    /// Inside a frame that is passed on unchanged, with the number of missing bytes.
    PassThrough(u64),
    /// Inside a frame that is split.
    Splitting(SplitFrame),
}

/// Remainder of a frame that is split: the header of its next fragment.
#[derive(Debug)]
pub(super) struct SplitFrame {
    first: u8,
    left: u64,
    mask: [u8; 4],
}

impl Default for OversizeSplitter {
    fn default() -> OversizeSplitter {
        OversizeSplitter::Header([0; LARGEST_HEADER], 0)
    }
}

impl OversizeSplitter {
    /// Returns the bytes to pass on: held back header bytes and those of `read`.
    ///
    /// # Errors
    /// No client may send such a frame. The error comes before the frame's content arrives.
    pub(super) fn split(&mut self, read: &[u8]) -> io::Result<Bytes> {
        let held_back = if let OversizeSplitter::Header(_, known) = self { *known } else { 0 };
        // Exact size, except when a frame is split or begins.
        let mut passed = Vec::with_capacity(read.len() + held_back);
        let mut read = read;
        while !read.is_empty() {
            match self {
                OversizeSplitter::Header(header, known) => {
                    header[*known] = read[0];
                    *known += 1;
                    read = &read[1..];
                    if let Some(WsFrameHeader { first, length, mask }) = parse(&header[..*known])? {
                        match mask {
                            Some(mask) if first & CONTROL == 0 && length > CLIENT_FRAME_LIMIT as u64 => {
                                *self = OversizeSplitter::Splitting(SplitFrame { first, left: length, mask });
                            }
                            Some(_) | None => {
                                passed.extend_from_slice(&header[..*known]);
                                *self = OversizeSplitter::PassThrough(length).or_next_header();
                            }
                        }
                    }
                }
                OversizeSplitter::PassThrough(left) => {
                    let content = take(&mut read, left);
                    passed.extend_from_slice(content);
                    *self = OversizeSplitter::PassThrough(*left).or_next_header();
                }
                OversizeSplitter::Splitting(rest) => {
                    rest.write_fragment(&mut read, &mut passed);
                    if rest.left == 0 {
                        *self = OversizeSplitter::default();
                    }
                }
            }
        }
        Ok(passed.into())
    }

    fn or_next_header(self) -> OversizeSplitter {
        if matches!(self, OversizeSplitter::PassThrough(0)) { OversizeSplitter::default() } else { self }
    }
}

impl SplitFrame {
    /// Writes the available content as a frame. The next fragment continues it.
    fn write_fragment(&mut self, read: &mut &[u8], passed: &mut Vec<u8>) {
        let content = take(read, &mut self.left);
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

/// Fields of a frame header.
struct WsFrameHeader {
    first: u8,
    length: u64,
    mask: Option<[u8; 4]>,
}

/// Parses a header. Returns `None` if the header is incomplete.
///
/// # Errors
/// The frame is a control frame with more content than RFC 6455, section 5.5, allows.
fn parse(header: &[u8]) -> io::Result<Option<WsFrameHeader>> {
    let [first, second, rest @ ..] = header else { return Ok(None) };
    let bytes = match second & LENGTH {
        IN_TWO_BYTES => 2,
        IN_EIGHT_BYTES => 8,
        _ => 0,
    };
    let is_masked = second & MASKED != 0;
    if rest.len() < bytes + if is_masked { 4 } else { 0 } {
        return Ok(None);
    }
    let length = match bytes {
        0 => u64::from(second & LENGTH),
        bytes => rest[..bytes].iter().fold(0, |length, byte| (length << 8) | u64::from(*byte)),
    };
    if first & CONTROL != 0 && length > LARGEST_CONTROL {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a control frame of {length} bytes")));
    }
    Ok(Some(WsFrameHeader { first: *first, length, mask: rest[bytes..].try_into().ok() }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test panics on unexpected results")]
mod tests {
    use actix_codec::{Decoder, Encoder};
    use actix_http::ws::{Codec, Frame, Item, Message, ProtocolError};
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
            buffer.extend_from_slice(&splitter.split(read).unwrap());
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

    #[test]
    fn invalid_frame_is_rejected_before_its_content() {
        let ping = [FIN | 0x9, MASKED | IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        assert!(OversizeSplitter::default().split(&ping).is_err());
        // The codec rejects an unmasked frame at once.
        let bare = [FIN | 0x1, IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0];
        assert!(matches!(decoded(&bare, 1), Err(ProtocolError::UnmaskedFrame)));
    }
}
