//! Frame format: one record of the log, byte for byte. Everything is little-endian.
//!
//! ```text
//! header  0 "GR"  2 version  3 kind  4 payload length  8 payload CRC  12 back  16 session
//!         32 seq  40 epoch  48 count  52 CRC of bytes 0..52
//! payload flags (1: mark, 2: record) · [n u64, boot] · [record as JSON] · count × (kind, JSON)
//!         each text follows its length as u32
//! footer  the header again, with "RG" and a CRC of its own; a frame of version 1 has none
//! ```
//! - A damaged payload costs that payload only. The header has a CRC of its own, so length, session
//!   and numbers still hold.
//! - A damaged header costs nothing, because the footer repeats it. A number that was given is
//!   known even if no frame follows.
//! - `back` is the distance to the first byte that was not synced when the frame was written. That
//!   byte begins the frame's own commit or an earlier one in flight. A sound frame thus tells
//!   damage (synced before it) from a torn tail (not synced).

use crate::store::{Epoch, JournalEvent, ReportMark, Seq, SessionId, SessionRecord, session_change::SessionEntry};

pub(super) const FRAME_HEADER_LEN: usize = 56;
pub(super) const MAGIC: [u8; 2] = *b"GR";
pub(super) const FOOTER_MAGIC: [u8; 2] = *b"RG";
/// Frame versions without and with a footer.
const VERSION_WITHOUT_FOOTER: u8 = 1;
const VERSION: u8 = 2;
const HAS_MARK: u8 = 1;
const HAS_RECORD: u8 = 2;

/// Change that a frame makes to its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Create = 1,
    Put = 2,
    Claim = 3,
    Append = 4,
    Forget = 5,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<FrameKind> {
        [FrameKind::Create, FrameKind::Put, FrameKind::Claim, FrameKind::Append, FrameKind::Forget]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) kind: FrameKind,
    pub(super) session: SessionId,
    /// Number of the first of `count` events. Without events, the number that comes next.
    pub(super) seq: Seq,
    pub(super) epoch: Epoch,
    pub(super) count: u32,
    /// Length and CRC of the payload.
    pub(super) len: u32,
    pub(super) crc: u32,
    pub(super) back: u32,
    pub(super) has_footer: bool,
}

/// Reason why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeaderError {
    Damaged,
    /// The header is sound, but its version or kind is newer than this program.
    Newer,
}

impl FrameHeader {
    /// Returns the length of the whole frame in bytes.
    pub(super) fn size(&self) -> u64 {
        self.footer_at() + if self.has_footer { FRAME_HEADER_LEN as u64 } else { 0 }
    }

    /// Returns the distance from the start of the frame to the end of its payload.
    ///
    /// The footer, if any, begins there.
    pub(super) fn footer_at(&self) -> u64 {
        FRAME_HEADER_LEN as u64 + u64::from(self.len)
    }

    pub(super) fn holds(&self, session: SessionId, seq: Seq) -> bool {
        self.session == session && seq >= self.seq && seq - self.seq < u64::from(self.count)
    }

    pub(super) fn encode(&self) -> [u8; FRAME_HEADER_LEN] {
        self.encode_as(MAGIC)
    }

    /// Returns the footer, if the frame has one.
    pub(super) fn encode_footer(&self) -> Option<[u8; FRAME_HEADER_LEN]> {
        self.has_footer.then(|| self.encode_as(FOOTER_MAGIC))
    }

    fn encode_as(&self, magic: [u8; 2]) -> [u8; FRAME_HEADER_LEN] {
        let mut bytes = [0; FRAME_HEADER_LEN];
        bytes[..2].copy_from_slice(&magic);
        bytes[2] = if self.has_footer { VERSION } else { VERSION_WITHOUT_FOOTER };
        bytes[3] = self.kind as u8;
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.back.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.session.to_bytes());
        bytes[32..40].copy_from_slice(&self.seq.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[48..52].copy_from_slice(&self.count.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..52]);
        bytes[52..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; FRAME_HEADER_LEN]) -> Result<FrameHeader, HeaderError> {
        FrameHeader::decode_as(MAGIC, bytes)
    }

    pub(super) fn decode_footer(bytes: &[u8; FRAME_HEADER_LEN]) -> Result<FrameHeader, HeaderError> {
        FrameHeader::decode_as(FOOTER_MAGIC, bytes)
    }

    fn decode_as(expected: [u8; 2], bytes: &[u8; FRAME_HEADER_LEN]) -> Result<FrameHeader, HeaderError> {
        let mut fields = FieldReader(bytes);
        let (magic, version, kind) = (fields.array::<2>(), fields.array::<1>(), fields.array::<1>());
        let (len, crc, back) = (fields.u32(), fields.u32(), fields.u32());
        let (session, seq, epoch, count) = (fields.array(), fields.u64(), fields.u64(), fields.u32());
        let sound = magic == Some(expected) && fields.u32() == Some(crc32fast::hash(&bytes[..52]));
        if !sound {
            return Err(HeaderError::Damaged);
        }
        let kind = kind.and_then(|[kind]| FrameKind::from_byte(kind));
        let has_footer = version.and_then(|[version]| match version {
            VERSION_WITHOUT_FOOTER => Some(false),
            VERSION => Some(true),
            _ => None,
        });
        (|| {
            Some(FrameHeader {
                kind: kind?,
                session: SessionId::from_bytes(session?),
                seq: seq?,
                epoch: epoch?,
                count: count?,
                len: len?,
                crc: crc?,
                back: back?,
                has_footer: has_footer?,
            })
        })()
        .ok_or(HeaderError::Newer)
    }

    /// Splits a whole frame into header and payload, if its header or its footer is sound.
    pub(super) fn split(frame: &[u8]) -> Option<(FrameHeader, &[u8])> {
        let begins = || FrameHeader::decode(frame.first_chunk()?).ok();
        let ends = || FrameHeader::decode_footer(frame.last_chunk()?).ok();
        let header = begins().or_else(ends).filter(|header| header.size() == frame.len() as u64)?;
        let payload = frame.get(FRAME_HEADER_LEN..header.footer_at() as usize)?;
        Some((header, payload))
    }
}

/// Appends a frame to a commit. `after` is the session after the frame and its `count` events.
///
/// `unsynced` is the number of bytes right before this commit that may not be on disk yet.
pub(super) fn put_frame(
    commit: &mut Vec<u8>,
    unsynced: u32,
    kind: FrameKind,
    session: SessionId,
    after: Option<&SessionEntry>,
    count: u32,
    payload: &[u8],
) {
    let header = FrameHeader {
        kind,
        session,
        seq: after.map_or(0, |entry| entry.tail + 1 - u64::from(count)),
        epoch: after.map_or(0, |entry| entry.epoch),
        count,
        len: payload.len() as u32,
        crc: crc32fast::hash(payload),
        back: unsynced + commit.len() as u32,
        has_footer: true,
    };
    commit.extend(header.encode());
    commit.extend(payload);
    commit.extend(header.encode_footer().into_iter().flatten());
}

/// Returns a payload as it goes into the log.
pub(super) fn encode_payload(
    mark: Option<&ReportMark>,
    record: Option<&SessionRecord>,
    events: &[JournalEvent],
) -> Vec<u8> {
    let events_len: usize = events.iter().map(|event| event.kind.len() + event.json.len() + 8).sum();
    let mut payload = Vec::with_capacity(events_len + 1 + if record.is_some() { 1024 } else { 64 });
    payload.push(mark.map_or(0, |_| HAS_MARK) | record.map_or(0, |_| HAS_RECORD));
    if let Some(mark) = mark {
        payload.extend(mark.n.to_le_bytes());
        put_text(&mut payload, mark.boot.as_bytes());
    }
    if let Some(record) = record {
        let json = serde_json::to_vec(record).expect("a record is valid JSON: string keys only, no unsupported type");
        put_text(&mut payload, &json);
    }
    for event in events {
        put_text(&mut payload, event.kind.as_bytes());
        put_text(&mut payload, &event.json);
    }
    payload
}

fn put_text(payload: &mut Vec<u8>, text: &[u8]) {
    // A text is far shorter than 4 GiB: a batch has at most
    // [`MAX_BATCH_BYTES`](super::MAX_BATCH_BYTES).
    payload.extend((text.len() as u32).to_le_bytes());
    payload.extend(text);
}

/// Parsed payload. Events are parsed on demand.
#[derive(Debug)]
pub(super) struct FramePayload<'a> {
    pub(super) mark: Option<ReportMark>,
    /// JSON of a [`SessionRecord`].
    pub(super) record: Option<&'a [u8]>,
    events: FieldReader<'a>,
}

impl<'a> FramePayload<'a> {
    pub(super) const EMPTY: FramePayload<'static> = FramePayload { mark: None, record: None, events: FieldReader(&[]) };

    /// Parses a payload. Returns `None` if the bytes violate the format.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<FramePayload<'a>> {
        let mut fields = FieldReader(bytes);
        let [flags] = fields.array()?;
        let mark = match flags & HAS_MARK {
            0 => None,
            _ => Some(ReportMark { n: fields.u64()?, boot: String::from_utf8(fields.text()?.to_vec()).ok()? }),
        };
        let record = match flags & HAS_RECORD {
            0 => None,
            _ => Some(fields.text()?),
        };
        Some(FramePayload { mark, record, events: fields })
    }

    /// Returns the kind and the JSON of the next event, or `None` if there is none.
    pub(super) fn next_event(&mut self) -> Option<(&'a str, &'a [u8])> {
        Some((str::from_utf8(self.events.text()?).ok()?, self.events.text()?))
    }
}

/// Reads fields from the front of a byte slice.
#[derive(Debug)]
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        let session = SessionId::from_bytes([9; 16]);
        FrameHeader {
            kind: FrameKind::Append,
            session,
            seq: 7,
            epoch: 3,
            count: 2,
            len: 40,
            crc: 5,
            back: 11,
            has_footer: true,
        }
    }

    #[test]
    fn header_round_trips_and_detects_flipped_bits() {
        let bytes = header().encode();
        assert_eq!(FrameHeader::decode(&bytes), Ok(header()));
        for bit in 0..FRAME_HEADER_LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&flipped), Err(HeaderError::Damaged), "bit {bit}");
        }
    }

    #[test]
    fn frame_splits_by_header_or_footer() {
        let header = header();
        let whole = [&header.encode()[..], &[7; 40], &header.encode_footer().unwrap()].concat();
        let flipped = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            bytes
        };
        for bytes in [whole.clone(), flipped(20), flipped(whole.len() - 1)] {
            assert_eq!(FrameHeader::split(&bytes), Some((header.clone(), &[7; 40][..])));
        }
        assert_eq!(FrameHeader::split(&whole[..whole.len() - 1]), None);
        let bare = FrameHeader { has_footer: false, ..header };
        assert_eq!((bare.encode()[2], bare.encode_footer()), (1, None));
        let bytes = [&bare.encode()[..], &[7; 40]].concat();
        assert_eq!(FrameHeader::split(&bytes), Some((bare, &[7; 40][..])));
    }

    #[test]
    fn newer_version_is_not_reported_as_damage() {
        for at in [2, 3] {
            let mut bytes = header().encode();
            bytes[at] = 77;
            let crc = crc32fast::hash(&bytes[..52]);
            bytes[52..].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(FrameHeader::decode(&bytes), Err(HeaderError::Newer));
        }
    }

    #[test]
    fn payload_round_trips() {
        let events = [("run", "{}"), ("", r#"{"a":1}"#)]
            .map(|(kind, json)| JournalEvent { kind: kind.into(), json: json.into() });
        let mark = ReportMark { boot: "b".into(), n: 4 };
        let bytes = encode_payload(Some(&mark), None, &events);
        let mut payload = FramePayload::parse(&bytes).unwrap();
        assert_eq!((&payload.mark, payload.record), (&Some(mark), None));
        let event =
            |(kind, json): (&str, &[u8])| JournalEvent { kind: kind.to_owned().into(), json: json.to_vec().into() };
        let back: Vec<JournalEvent> = std::iter::from_fn(|| payload.next_event().map(event)).collect();
        assert_eq!(back, events);
    }
}
