//! Reads an export and checks each line: its place, its content's fitness for a store, and the
//! digests.

use std::{
    collections::HashMap,
    io::{BufRead, Read as _},
};

use bytes::Bytes;
use greenroom_protocol::{FULL_TEXT_LIMIT, link::EVENT_LIMIT};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    TransferError,
    format::{ExportDigest, ExportHead, ExportTotal, ExportTotals, VERSION},
};
use crate::store::{JournalEvent, ReportMark, SessionId, SessionRecord, journal_copy::content_name};

/// Longest line, in bytes. The longest begins a session with a large state. With an event, a
/// session record of this size still fits into one batch.
const MAX_LINE_BYTES: usize = 128 << 20;

pub(super) struct ExportReader<R> {
    file: R,
    line: u64,
    digest: ExportDigest,
    /// Content whose chunks are being read, with its bytes so far.
    content: Option<(String, u64)>,
    events: u64,
    overall: ExportDigest,
    totals: ExportTotals,
    /// Line at which each session began.
    began_at: HashMap<SessionId, u64>,
}

/// Session at its first line.
pub(super) struct ExportedSession {
    pub(super) record: SessionRecord,
    pub(super) mark: Option<ReportMark>,
}

/// Part of a session.
pub(super) enum SessionPart {
    Event(JournalEvent),
    /// Chunk of a large content: the content's name, and the text.
    Content(String, String),
}

/// Any line after the first. The fields that are present tell its kind.
#[derive(Deserialize)]
struct ParsedLine<'a> {
    session: Option<SessionRecord>,
    mark: Option<ReportMark>,
    kind: Option<String>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    content: Option<String>,
    text: Option<String>,
    end: Option<SessionId>,
    events: Option<u64>,
    sha256: Option<String>,
}

impl<R: BufRead> ExportReader<R> {
    pub(super) fn new(file: R) -> Result<ExportReader<R>, TransferError> {
        let mut lines = ExportReader {
            file,
            line: 0,
            digest: ExportDigest::default(),
            content: None,
            events: 0,
            overall: ExportDigest::default(),
            totals: ExportTotals { sessions: 0, events: 0 },
            began_at: HashMap::new(),
        };
        let first = lines.required_line()?;
        let head: ExportHead = serde_json::from_str(&first)
            .map_err(|e| lines.damaged(format!("not the first line of an export ({e})")))?;
        match head.greenroom_journal {
            VERSION => Ok(lines),
            found => Err(TransferError::Version { line: 1, found }),
        }
    }

    /// Returns the next session, or `None` at the end of the file.
    pub(super) fn session(&mut self) -> Result<Option<ExportedSession>, TransferError> {
        let text = self.required_line()?;
        if let Ok(ExportTotal { total, sha256 }) = serde_json::from_str(&text) {
            let digest = std::mem::take(&mut self.overall).finish();
            if total != self.totals || sha256 != digest {
                return Err(self.damaged("the totals do not match the sessions"));
            }
            return match self.next_line()? {
                Some(more) => Err(self.damaged(format!("data after the end: {}", excerpt(&more)))),
                None => Ok(None),
            };
        }
        let read = self.read(&text)?;
        let record = read.session.ok_or_else(|| self.damaged("expected a session here"))?;
        if let Some(before) = self.began_at.insert(record.id, self.line) {
            return Err(self.damaged(format!("session `{}` begins here and already began at line {before}", record.id)));
        }
        self.digest = ExportDigest::default();
        self.content = None;
        self.events = 0;
        Ok(Some(ExportedSession { record, mark: read.mark }))
    }

    /// Returns the next part of a session, or `None` at its end.
    pub(super) fn next_part(&mut self, session: &ExportedSession) -> Result<Option<SessionPart>, TransferError> {
        let text = self.required_line()?;
        let read = self.read(&text)?;
        match read {
            ParsedLine { kind: Some(kind), event: Some(event), .. } => {
                let event = JournalEvent { kind: kind.into(), json: Bytes::copy_from_slice(event.get().as_bytes()) };
                self.content = None;
                self.events += 1;
                self.check_event(&event)?;
                self.digest.event(&event);
                Ok(Some(SessionPart::Event(event)))
            }
            ParsedLine { content: Some(name), text: Some(text), .. } => {
                if content_name(&name).is_none() {
                    return Err(self.damaged(format!("`{}` is not the name of a content", excerpt(&name))));
                }
                let before = match self.content.take() {
                    Some((current, bytes)) if current == name => bytes,
                    Some(_) | None => {
                        self.digest.begin_content(&name);
                        0
                    }
                };
                let bytes = before + text.len() as u64;
                if bytes > FULL_TEXT_LIMIT {
                    return Err(self.damaged(format!("content `{name}` is larger than {FULL_TEXT_LIMIT} bytes")));
                }
                self.digest.more_content(text.as_bytes());
                self.content = Some((name.clone(), bytes));
                Ok(Some(SessionPart::Content(name, text)))
            }
            ParsedLine { end: Some(id), events: Some(events), sha256: Some(sha256), .. } => {
                let digest = std::mem::take(&mut self.digest).finish();
                if id != session.record.id || events != self.events || sha256 != digest {
                    let what = format!("session `{}` does not match its digest", session.record.id);
                    return Err(self.damaged(what));
                }
                self.overall.add(&sha256);
                self.totals.sessions += 1;
                self.totals.events += events;
                Ok(None)
            }
            _ => Err(self.damaged("this is not a line of a session")),
        }
    }

    fn read<'a>(&self, text: &'a str) -> Result<ParsedLine<'a>, TransferError> {
        serde_json::from_str(text)
            .map_err(|e| self.damaged(format!("not a line of an export ({e}): {}", excerpt(text))))
    }

    /// Checks an event's number and size.
    fn check_event(&self, event: &JournalEvent) -> Result<(), TransferError> {
        #[derive(Deserialize)]
        struct EventNumber {
            seq: u64,
        }
        if event.json.len().max(event.kind.len()) > EVENT_LIMIT {
            return Err(self.damaged(format!("an event is larger than {EVENT_LIMIT} bytes")));
        }
        // Serde would also accept an array for a struct.
        let numbered = event.json.starts_with(b"{").then(|| serde_json::from_slice(&event.json));
        match numbered {
            Some(Ok(EventNumber { seq })) if seq == self.events => Ok(()),
            Some(Ok(EventNumber { seq })) => {
                Err(self.damaged(format!("expected event {}, found event {seq}", self.events)))
            }
            Some(Err(_)) | None => Err(self.damaged("an event must be an object with its number as `seq`")),
        }
    }

    fn required_line(&mut self) -> Result<String, TransferError> {
        let line = self.next_line()?;
        line.ok_or_else(|| self.damaged("the file ends before its last line"))
    }

    /// Reads the next line. Returns `None` at the end of the file.
    fn next_line(&mut self) -> Result<Option<String>, TransferError> {
        self.line += 1;
        let mut line = Vec::new();
        self.file.by_ref().take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(self.damaged(format!("the line is longer than {MAX_LINE_BYTES} bytes")));
        }
        String::from_utf8(line).map(Some).map_err(|_| self.damaged("the line is not UTF-8"))
    }

    /// Returns the number of the line that was read last.
    pub(super) fn line_number(&self) -> u64 {
        self.line
    }

    fn damaged(&self, what: impl Into<String>) -> TransferError {
        TransferError::Damaged { line: self.line, what: what.into() }
    }
}

fn excerpt(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}
