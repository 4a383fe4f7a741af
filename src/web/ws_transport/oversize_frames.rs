//! Frames that are larger than a client's may be, cut into pieces as they come.
//!
//! The codec at the actor's end puts a frame together before it judges its size, and one may say that it has 2⁶³ bytes. Cut into
//! pieces (RFC 6455, section 5.4) it is a message like any other, of which the actor keeps what is allowed and throws away the
//! rest; so it can be refused in words, and the connection goes on.

use std::io;

use bytes::Bytes;
use greenroom_protocol::CLIENT_FRAME_LIMIT;

/// The first byte of a frame: the last piece of a message, and what kind of frame it is.
const FIN: u8 = 0x80;
const CONTROL: u8 = 0x08;
/// The second byte: whether a mask follows the length, and the length, or how many bytes hold it.
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
const IN_TWO_BYTES: u8 = 126;
const IN_EIGHT_BYTES: u8 = 127;
/// The largest header that a frame can have, in bytes, and the largest content of one that is about the connection.
const LARGEST_HEADER: usize = 14;
const LARGEST_CONTROL: u64 = 125;

/// Where in its frames a client is.
#[derive(Debug)]
pub(super) enum OversizeSplitter {
    /// So many bytes of a header have come. They are passed on together.
    Header([u8; LARGEST_HEADER], usize),
    /// In a frame that is passed on as it comes; so many bytes of it are missing.
    PassThrough(u64),
    /// In one that is cut.
    Splitting(SplitFrame),
}

/// What is missing of a frame that is cut: a frame itself.
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
    /// What of `read` is passed on, after what was held back before.
    ///
    /// # Errors
    /// A frame that no client may send, and whose end nobody should wait for.
    pub(super) fn split(&mut self, read: &[u8]) -> io::Result<Bytes> {
        let held_back = if let OversizeSplitter::Header(_, known) = self { *known } else { 0 };
        // Exactly as much, but where a frame is cut or begins.
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
    /// Makes a frame of what there is; what follows continues it.
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
        // The mask goes on over the content where this piece ends.
        self.mask.rotate_left(content.len() % 4);
        self.first &= FIN;
    }
}

/// As much of a content as is here.
fn take<'a>(read: &mut &'a [u8], left: &mut u64) -> &'a [u8] {
    let here = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    let (content, behind) = read.split_at(here);
    *read = behind;
    *left -= here as u64;
    content
}

/// What a header says.
struct WsFrameHeader {
    first: u8,
    length: u64,
    mask: Option<[u8; 4]>,
}

/// Once all of it is there.
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
#[allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]
mod tests {
    use actix_codec::{Decoder, Encoder};
    use actix_http::ws::{Codec, Frame, Item, Message, ProtocolError};
    use bytes::BytesMut;

    use super::*;

    /// A frame as a client sends it.
    fn sent(message: Message) -> BytesMut {
        let mut bytes = BytesMut::new();
        Codec::new().client_mode().encode(message, &mut bytes).unwrap();
        bytes
    }

    fn text(len: usize) -> String {
        (0..len).map(|n| char::from(b'a' + (n % 26) as u8)).collect()
    }

    /// What the actor's end makes of it, where it comes in pieces of `size` bytes: each message whole, and the largest frame.
    fn heard(bytes: &[u8], size: usize) -> Result<(Vec<String>, usize), ProtocolError> {
        let (mut cutter, mut codec, mut buffer) =
            (OversizeSplitter::default(), Codec::new().max_size(CLIENT_FRAME_LIMIT), BytesMut::new());
        let (mut messages, mut begun, mut largest) = (Vec::new(), Vec::new(), 0);
        for read in bytes.chunks(size) {
            buffer.extend_from_slice(&cutter.split(read).unwrap());
            while let Some(frame) = codec.decode(&mut buffer)? {
                let (is_last, content) = match frame {
                    Frame::Text(content) | Frame::Ping(content) | Frame::Continuation(Item::Last(content)) => {
                        (true, content)
                    }
                    Frame::Continuation(Item::FirstText(content) | Item::Continue(content)) => (false, content),
                    other => panic!("{other:?}"),
                };
                largest = largest.max(content.len());
                begun.extend_from_slice(&content);
                if is_last {
                    messages.push(String::from_utf8(std::mem::take(&mut begun)).unwrap());
                }
            }
            assert!(buffer.len() <= CLIENT_FRAME_LIMIT + LARGEST_HEADER);
        }
        assert!(buffer.is_empty() && begun.is_empty());
        Ok((messages, largest))
    }

    fn check(lengths: &[usize], sizes: &[usize]) {
        let said: Vec<_> = lengths.iter().map(|length| text(*length)).collect();
        let mut bytes = BytesMut::new();
        for content in &said {
            bytes.extend_from_slice(&sent(Message::Text(content.clone().into())));
            bytes.extend_from_slice(&sent(Message::Ping(Bytes::from_static(b"ping"))));
        }
        let expected: Vec<_> = said.into_iter().flat_map(|content| [content, "ping".to_owned()]).collect();
        for size in sizes {
            let (messages, largest) = heard(&bytes, *size).unwrap();
            assert!(messages == expected, "{lengths:?} in pieces of {size}");
            assert!(largest <= CLIENT_FRAME_LIMIT);
        }
    }

    #[test]
    fn every_message_comes_whole_and_no_frame_of_it_is_too_large() {
        check(&[0, 1, 125, 126, 1000, 65_535, 65_536, 0], &[1, 2, 3, 1000]);
        let limit = CLIENT_FRAME_LIMIT;
        check(&[limit, limit + 1, 3 * limit + 7, 5], &[1001, 16 << 10, 100_000]);
    }

    #[test]
    fn a_piece_that_is_too_large_is_cut_as_well() {
        let large = text(CLIENT_FRAME_LIMIT + 10);
        let items = [Item::FirstText("a".into()), Item::Continue(large.clone().into()), Item::Last("b".into())];
        let mut codec = Codec::new().client_mode();
        let mut bytes = BytesMut::new();
        for item in items {
            codec.encode(Message::Continuation(item), &mut bytes).unwrap();
        }
        let (messages, _) = heard(&bytes, 16 << 10).unwrap();
        assert!(messages == [format!("a{large}b")]);
    }

    #[test]
    fn what_no_client_may_send_is_not_waited_for() {
        let ping = [FIN | 0x9, MASKED | IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
        assert!(OversizeSplitter::default().split(&ping).is_err());
        // Without a mask it is the codec that refuses it, and at once.
        let bare = [FIN | 0x1, IN_EIGHT_BYTES, 0x7f, 0, 0, 0, 0, 0, 0, 0];
        assert!(matches!(heard(&bare, 1), Err(ProtocolError::UnmaskedFrame)));
    }
}
