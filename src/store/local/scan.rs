//! Walks through one segment, frame by frame, past what is damaged, and finds where its sound part ends.
//!
//! A header that does not hold is read from the footer. A frame that does not hold is damaged if something was written once it
//! had been synced: a sound frame whose `back` does not reach to it. In the last commits, which were on their way to disk
//! together, nobody can tell. A power cut leaves any of their pages and not others, so frames that hold say nothing of the one
//! before them, and as none behind it was acknowledged, all from there on may go; were it kept, each power cut amid the work would
//! leave gaps that never were. It would be an acknowledged commit only if the disk had turned some of it over since, in a server
//! that did not end by itself: two faults, of which the cut is the price. So what is cut is named, and everything before it, and
//! after a clean end all of it, is never cut. Nor is what the disk does not give: no power cut leaves that behind, much of it may have
//! been acknowledged one after the other, and the disk may give it again when it is asked another time.

use std::{fs::File, io};

use super::{
    frame::{FOOTER_MAGIC, FRAME_HEADER_LEN, FrameHeader, FramePayload, HeaderError, MAGIC},
    segment::{self, ReadWindow},
};

/// One stretch of a segment.
#[derive(Debug)]
pub(super) enum ScanItem<'a> {
    Frame {
        offset: u64,
        header: FrameHeader,
        payload: FramePayload<'a>,
    },
    /// The header does not hold, but the footer and the payload do. The frame itself comes next.
    RecoveredHeader {
        offset: u64,
        header: FrameHeader,
    },
    /// The header or the footer holds, the payload does not.
    Damaged {
        offset: u64,
        header: FrameHeader,
    },
    /// Nothing in these bytes can be read.
    Unreadable {
        offset: u64,
        until: u64,
    },
    /// A frame of the last commits, all of it there, that goes because one before it does not hold.
    Cut {
        header: FrameHeader,
    },
}

/// How far to walk.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScanUntil {
    /// All up to here counts, and what the file lacks of it is lost.
    Offset(u64),
    /// All that is there counts: nobody says how much it was.
    FileEnd,
    /// The log ends in this segment. What looks torn from `synced` on was never acknowledged and does not count.
    TornTail { synced: u64 },
}

/// Why a walk ended early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScanError {
    #[error("a record at {offset} was written by a newer version")]
    Newer { offset: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Tells `visit` what stands from `from` on, in order; returns where the part that counts ends.
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
        let begun = walk.header(offset)?;
        let is_mended = begun.is_none();
        let (header, next) = match begun {
            Some(header) => (Some(header), None),
            None => match walk.next_valid_frame(offset)? {
                Some((at, header)) if at == offset => (Some(header), None),
                next => (None, next),
            },
        };
        if let Some(header) = &header
            && let Some(payload) = walk.window.payload(file, offset, header)?.and_then(FramePayload::parse)
        {
            if is_mended {
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

/// What the footer says of the frame at `offset`, where its header does not hold.
pub(super) fn header_by_footer(file: &File, offset: u64) -> io::Result<Option<FrameHeader>> {
    let mut walk = SegmentWalk { file, window: ReadWindow::default(), end: file.metadata()?.len() };
    match walk.next_valid_frame(offset) {
        Ok(found) => Ok(found.and_then(|(at, header)| (at == offset).then_some(header))),
        Err(ScanError::Newer { .. }) => Ok(None),
        Err(ScanError::Io(error)) => Err(error),
    }
}

struct SegmentWalk<'a> {
    file: &'a File,
    window: ReadWindow,
    end: u64,
}

impl SegmentWalk<'_> {
    /// The header at `offset`, if it is sound and its frame fits.
    fn header(&mut self, offset: u64) -> Result<Option<FrameHeader>, ScanError> {
        if offset + FRAME_HEADER_LEN as u64 > self.end {
            return Ok(None);
        }
        match self.window.header(self.file, offset)? {
            Some(Ok(header)) if offset + header.size() <= self.end => Ok(Some(header)),
            Some(Err(HeaderError::Newer)) => Err(ScanError::Newer { offset }),
            Some(Ok(_) | Err(HeaderError::Damaged)) | None => Ok(None),
        }
    }

    /// Whether something was written once `offset` had been synced. What follows at once may have been on its way with it and says
    /// nothing, so all of it is asked.
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

    /// The first frame from `from` on of which the header or the footer holds, and where it begins.
    ///
    /// Only at `from` itself something newer is believed, where a frame may begin. What stands anywhere else may be the words of
    /// an agent, which could say what looks like it.
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
                Err(ScanError::Newer { .. }) if offset != from => {}
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

    /// The frame whose footer stands at `at`, and where it begins.
    fn by_footer(&mut self, at: u64) -> Result<Option<(u64, FrameHeader)>, ScanError> {
        let bytes = self.window.bytes(self.file, at, FRAME_HEADER_LEN)?.and_then(<[u8]>::first_chunk);
        let header = bytes.and_then(|bytes| FrameHeader::decode_footer(bytes).ok());
        Ok(header.and_then(|header| Some((at.checked_sub(header.footer_at())?, header))))
    }
}
