//! Reading an export, sure of every line: it is in its place, and the digests are right.

use std::io::{self, BufRead};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    TransferError,
    format::{Digest, Head, Total, Totals, VERSION},
};
use crate::store::{Mark, NewEvent, Record, SessionId};

pub(super) struct Lines<R> {
    lines: io::Lines<R>,
    line: u64,
    digest: Digest,
    /// The content whose pieces are being read.
    content: Option<String>,
    events: u64,
    overall: Digest,
    totals: Totals,
}

/// A session that begins.
pub(super) struct Session {
    pub(super) record: Record,
    pub(super) mark: Option<Mark>,
}

/// What a session is made of.
pub(super) enum Part {
    Event(NewEvent),
    /// A piece of a large content: its name, and the text.
    Content(String, String),
}

/// Any line after the first. Which it is is told by the field that it has.
#[derive(Deserialize)]
struct Read<'a> {
    session: Option<Record>,
    mark: Option<Mark>,
    kind: Option<String>,
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    content: Option<String>,
    text: Option<String>,
    end: Option<SessionId>,
    events: Option<u64>,
    sha256: Option<String>,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(file: R) -> Result<Lines<R>, TransferError> {
        let mut lines = Lines {
            lines: file.lines(),
            line: 0,
            digest: Digest::default(),
            content: None,
            events: 0,
            overall: Digest::default(),
            totals: Totals { sessions: 0, events: 0 },
        };
        let first = lines.line()?;
        let head: Head =
            serde_json::from_str(&first).map_err(|e| lines.damaged(format!("no export begins so ({e})")))?;
        match head.greenroom_journal {
            VERSION => Ok(lines),
            found => Err(TransferError::Version { line: 1, found }),
        }
    }

    /// The next session, or `None` at the end of the file.
    pub(super) fn session(&mut self) -> Result<Option<Session>, TransferError> {
        let text = self.line()?;
        if let Ok(Total { total, sha256 }) = serde_json::from_str(&text) {
            let ours = std::mem::take(&mut self.overall).finish();
            if total != self.totals || sha256 != ours {
                return Err(self.damaged("the totals are not those of the sessions before"));
            }
            if let Some(more) = self.lines.next() {
                self.line += 1;
                return Err(self.damaged(format!("something follows the end: {}", shown(&more?))));
            }
            return Ok(None);
        }
        let read = self.read(&text)?;
        let record = read.session.ok_or_else(|| self.damaged("here a session should begin"))?;
        self.digest = Digest::default();
        self.content = None;
        self.events = 0;
        Ok(Some(Session { record, mark: read.mark }))
    }

    /// The next part of a session, or `None` at its end.
    pub(super) fn next_of(&mut self, session: &Session) -> Result<Option<Part>, TransferError> {
        let text = self.line()?;
        let read = self.read(&text)?;
        match read {
            Read { kind: Some(kind), event: Some(event), .. } => {
                let event = NewEvent { kind: kind.into(), json: Bytes::copy_from_slice(event.get().as_bytes()) };
                self.content = None;
                self.events += 1;
                self.digest.event(&event);
                Ok(Some(Part::Event(event)))
            }
            Read { content: Some(name), text: Some(text), .. } => {
                if self.content.as_ref() != Some(&name) {
                    self.digest.begin_content(&name);
                    self.content = Some(name.clone());
                }
                self.digest.more_content(text.as_bytes());
                Ok(Some(Part::Content(name, text)))
            }
            Read { end: Some(id), events: Some(events), sha256: Some(sha256), .. } => {
                let ours = std::mem::take(&mut self.digest).finish();
                if id != session.record.id || events != self.events || sha256 != ours {
                    let what = format!("session `{}` is not what its digest says", session.record.id);
                    return Err(self.damaged(what));
                }
                self.overall.add(&sha256);
                self.totals.sessions += 1;
                self.totals.events += events;
                Ok(None)
            }
            _ => Err(self.damaged("this line is none of a session")),
        }
    }

    fn read<'a>(&self, text: &'a str) -> Result<Read<'a>, TransferError> {
        serde_json::from_str(text).map_err(|e| self.damaged(format!("no line of an export ({e}): {}", shown(text))))
    }

    fn line(&mut self) -> Result<String, TransferError> {
        self.line += 1;
        match self.lines.next() {
            Some(Ok(line)) => Ok(line),
            Some(Err(e)) if e.kind() == io::ErrorKind::InvalidData => Err(self.damaged("it is not UTF-8")),
            Some(Err(e)) => Err(e.into()),
            None => Err(self.damaged("the file ends here, before its end")),
        }
    }

    fn damaged(&self, what: impl Into<String>) -> TransferError {
        TransferError::Damaged { line: self.line, what: what.into() }
    }
}

fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}
