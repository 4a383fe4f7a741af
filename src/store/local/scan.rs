//! Scan of one segment, frame by frame, past damage, up to the end of its sound part.
//!
//! - A damaged header is read from the footer.
//! - A damaged frame is damage, and no torn tail, if a sound frame was written after it was synced.
//!   The `back` of such a frame does not reach it.
//! - In the last commits, which were in flight together, damage and a torn tail look alike. A power
//!   cut keeps any of their pages and loses others. Sound frames prove nothing about a frame before
//!   them.
//! - No commit from that frame on was acknowledged, so the scan cuts there. Otherwise each power
//!   cut during work would leave gaps that never existed.
//! - The cut loses an acknowledged commit only after two faults: the disk changed it later, and the
//!   server was killed. The cut is the price for these.
//! - Cut frames are named. Frames before them are never cut. After a clean end, no frame is cut.
//! - Bytes that the disk does not return are never cut. No power cut leaves such bytes behind. They
//!   may hold many acknowledged commits, and a later read may return them.

use std::{fs::File, io};

use super::{
    frame::{FOOTER_MAGIC, FRAME_HEADER_LEN, FrameHeader, FramePayload, HeaderError, MAGIC},
    segment::{self, ReadWindow},
};

/// Part of a segment.
#[derive(Debug)]
pub(super) enum ScanItem<'a> {
    Frame {
        offset: u64,
        header: FrameHeader,
        payload: FramePayload<'a>,
    },
    /// The header is damaged, the footer and the payload are sound. The frame itself follows.
    RecoveredHeader {
        offset: u64,
        header: FrameHeader,
    },
    /// The header or the footer is sound, the payload is not.
    Damaged {
        offset: u64,
        header: FrameHeader,
    },
    /// No frame can be read from these bytes.
    Unreadable {
        offset: u64,
        until: u64,
    },
    /// Complete frame of the last commits. Dropped because a frame before it is damaged.
    Cut {
        header: FrameHeader,
    },
}

/// End of a scan.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScanUntil {
    /// Everything up to this offset counts. Bytes that the file lacks are lost.
    Offset(u64),
    /// Everything in the file counts. No other source states the segment's end.
    FileEnd,
    /// The log ends in this segment. What looks torn from `synced` on was never acknowledged and
    /// does not count.
    TornTail { synced: u64 },
}

/// Reason why a scan ended early. Callers turn it into an error that names the file.
#[derive(Debug)]
pub(super) enum ScanError {
    /// A newer version wrote the next frame.
    Newer,
    Io(io::Error),
}

impl From<io::Error> for ScanError {
    fn from(error: io::Error) -> ScanError {
        ScanError::Io(error)
    }
}

/// Passes the items from `from` on to `visit`, in order. Returns the end of the part that counts.
pub(super) fn scan(
    file: &File,
    from: u64,
    until: ScanUntil,
    visit: &mut dyn FnMut(ScanItem<'_>),
) -> Result<u64, ScanError> {
    let len = file.metadata()?.len();
    let end = match until {
        ScanUntil::Offset(end) => end.min(len),
        ScanUntil::FileEnd | ScanUntil::TornTail { .. } => len,
    };
    let mut walk = SegmentWalk { file, window: ReadWindow::default(), end };
    let mut offset = from;
    while offset < end {
        let at_offset = walk.header(offset)?;
        let is_recovered = at_offset.is_none();
        let (header, next) = match at_offset {
            Some(header) => (Some(header), None),
            None => match walk.next_valid_frame(offset)? {
                Some((at, header)) if at == offset => (Some(header), None),
                next => (None, next),
            },
        };
        if let Some(header) = &header
            && let Some(payload) = walk.window.payload(file, offset, header)?.and_then(FramePayload::parse)
        {
            if is_recovered {
                visit(ScanItem::RecoveredHeader { offset, header: header.clone() });
            }
            visit(ScanItem::Frame { offset, header: header.clone(), payload });
            offset += header.size();
            continue;
        }
        let next = match &header {
            Some(header) => walk.next_valid_frame(offset + header.size())?,
            None => next,
        };
        if let ScanUntil::TornTail { synced } = until
            && offset >= synced
            && !walk.synced_since(offset, next.as_ref())?
            && !segment::has_lost_bytes(file, offset)?
        {
            walk.visit_cut(header, next, visit)?;
            return Ok(offset);
        }
        match header {
            Some(header) => {
                visit(ScanItem::Damaged { offset, header: header.clone() });
                offset += header.size();
            }
            None => {
                let until = next.map_or(end, |(at, _)| at);
                visit(ScanItem::Unreadable { offset, until });
                offset = until;
            }
        }
    }
    match until {
        ScanUntil::Offset(until) if offset < until => {
            visit(ScanItem::Unreadable { offset, until });
            Ok(until)
        }
        ScanUntil::Offset(_) | ScanUntil::FileEnd | ScanUntil::TornTail { .. } => Ok(offset),
    }
}

/// Returns the header of the frame at `offset` as the footer repeats it.
pub(super) fn header_by_footer(file: &File, offset: u64) -> io::Result<Option<FrameHeader>> {
    let mut walk = SegmentWalk { file, window: ReadWindow::default(), end: file.metadata()?.len() };
    match walk.next_valid_frame(offset) {
        Ok(found) => Ok(found.and_then(|(at, header)| (at == offset).then_some(header))),
        Err(ScanError::Newer) => Ok(None),
        Err(ScanError::Io(error)) => Err(error),
    }
}

struct SegmentWalk<'a> {
    file: &'a File,
    window: ReadWindow,
    end: u64,
}

impl SegmentWalk<'_> {
    /// Returns the header at `offset`, if it is sound and its frame fits.
    fn header(&mut self, offset: u64) -> Result<Option<FrameHeader>, ScanError> {
        if offset + FRAME_HEADER_LEN as u64 > self.end {
            return Ok(None);
        }
        match self.window.header(self.file, offset)? {
            Some(Ok(header)) if offset + header.size() <= self.end => Ok(Some(header)),
            Some(Err(HeaderError::Newer)) => Err(ScanError::Newer),
            Some(Ok(_) | Err(HeaderError::Damaged)) | None => Ok(None),
        }
    }

    /// Reports if a frame was written after `offset` had been synced.
    ///
    /// The next frames may have been in flight together with `offset` and prove nothing. The scan
    /// therefore checks every later frame.
    fn synced_since(&mut self, offset: u64, next: Option<&(u64, FrameHeader)>) -> Result<bool, ScanError> {
        let mut next = next.cloned();
        while let Some((at, header)) = next {
            if at.saturating_sub(u64::from(header.back)) > offset {
                return Ok(true);
            }
            next = self.next_valid_frame(at + header.size())?;
        }
        Ok(false)
    }

    fn visit_cut(
        &mut self,
        first: Option<FrameHeader>,
        mut next: Option<(u64, FrameHeader)>,
        visit: &mut dyn FnMut(ScanItem<'_>),
    ) -> Result<(), ScanError> {
        if let Some(header) = first {
            visit(ScanItem::Cut { header });
        }
        while let Some((at, header)) = next {
            next = self.next_valid_frame(at + header.size())?;
            visit(ScanItem::Cut { header });
        }
        Ok(())
    }

    /// Returns the first frame from `from` on with a sound header or footer, and its offset.
    ///
    /// A newer version is reported only at `from`, where a frame may begin. Bytes anywhere else may
    /// be an agent's text that imitates a frame.
    fn next_valid_frame(&mut self, from: u64) -> Result<Option<(u64, FrameHeader)>, ScanError> {
        let mut offset = from;
        while offset + FRAME_HEADER_LEN as u64 <= self.end {
            let Some(bytes) = self.window.read_ahead(self.file, offset, FRAME_HEADER_LEN)? else { break };
            let is_magic = |bytes: &[u8]| bytes == MAGIC || bytes == FOOTER_MAGIC;
            let Some(at) = bytes.windows(MAGIC.len()).position(is_magic) else {
                offset += (bytes.len() - MAGIC.len() + 1) as u64;
                continue;
            };
            offset += at as u64;
            match self.header(offset) {
                Ok(Some(header)) => return Ok(Some((offset, header))),
                Err(ScanError::Newer) if offset != from => {}
                Err(error) => return Err(error),
                Ok(None) => {}
            }
            if let Some(found) = self.by_footer(offset)?.filter(|(begins, _)| *begins >= from) {
                return Ok(Some(found));
            }
            offset += 1;
        }
        Ok(None)
    }

    /// Returns the frame whose footer is at `at`, and the frame's offset.
    fn by_footer(&mut self, at: u64) -> Result<Option<(u64, FrameHeader)>, ScanError> {
        let bytes = self.window.bytes(self.file, at, FRAME_HEADER_LEN)?.and_then(<[u8]>::first_chunk);
        let header = bytes.and_then(|bytes| FrameHeader::decode_footer(bytes).ok());
        Ok(header.and_then(|header| Some((at.checked_sub(header.footer_at())?, header))))
    }
}
