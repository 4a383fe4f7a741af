//! Reading an export, sure of every line: it is in its place, a store takes what it holds, and the digests are right.

use std::{
    collections::HashMap,
    io::{BufRead, Read as _},
};

use bytes::Bytes;
use greenroom_protocol::{WHOLE_LIMIT, link::EVENT_LIMIT};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    TransferError,
    format::{Digest, Head, Total, Totals, VERSION, content_name},
};
use crate::store::{Mark, NewEvent, Record, SessionId};

/// Of a line, bytes. The largest begins a session with much in its memory; with an event it still fits into one batch.
const LONGEST: usize = 128 << 20;

pub(super) struct Lines<R> {
    file: R,
    line: u64,
    digest: Digest,
    /// The content whose pieces are being read, and how many bytes of it there were.
    content: Option<(String, u64)>,
    events: u64,
    overall: Digest,
    totals: Totals,
    /// At which line each session began.
    begun: HashMap<SessionId, u64>,
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
            file,
            line: 0,
            digest: Digest::default(),
            content: None,
            events: 0,
            overall: Digest::default(),
            totals: Totals { sessions: 0, events: 0 },
            begun: HashMap::new(),
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
            return match self.more()? {
                Some(more) => Err(self.damaged(format!("something follows the end: {}", shown(&more)))),
                None => Ok(None),
            };
        }
        let read = self.read(&text)?;
        let record = read.session.ok_or_else(|| self.damaged("here a session should begin"))?;
        if let Some(before) = self.begun.insert(record.id, self.line) {
            return Err(self.damaged(format!("session `{}` begins here, and at line {before} already", record.id)));
        }
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
                self.check_event(&event)?;
                self.digest.event(&event);
                Ok(Some(Part::Event(event)))
            }
            Read { content: Some(name), text: Some(text), .. } => {
                if content_name(&name).is_none() {
                    return Err(self.damaged(format!("`{}` is no name of a content", shown(&name))));
                }
                let before = match self.content.take() {
                    Some((known, bytes)) if known == name => bytes,
                    Some(_) | None => {
                        self.digest.begin_content(&name);
                        0
                    }
                };
                let bytes = before + text.len() as u64;
                if bytes > WHOLE_LIMIT {
                    return Err(self.damaged(format!("content `{name}` is larger than {WHOLE_LIMIT} bytes")));
                }
                self.digest.more_content(text.as_bytes());
                self.content = Some((name.clone(), bytes));
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

    /// It is in its place, and no larger than a session writes one.
    fn check_event(&self, event: &NewEvent) -> Result<(), TransferError> {
        #[derive(Deserialize)]
        struct Numbered {
            seq: u64,
        }
        if event.json.len().max(event.kind.len()) > EVENT_LIMIT {
            return Err(self.damaged(format!("an event is larger than {EVENT_LIMIT} bytes")));
        }
        // A list with a number in it would be taken for one, too.
        let numbered = event.json.starts_with(b"{").then(|| serde_json::from_slice(&event.json));
        match numbered {
            Some(Ok(Numbered { seq })) if seq == self.events => Ok(()),
            Some(Ok(Numbered { seq })) => {
                Err(self.damaged(format!("event {} should stand here, not {seq}", self.events)))
            }
            Some(Err(_)) | None => {
                Err(self.damaged("an event is an object with its number as `seq`, and this is none"))
            }
        }
    }

    fn line(&mut self) -> Result<String, TransferError> {
        let more = self.more()?;
        more.ok_or_else(|| self.damaged("the file ends here, before its end"))
    }

    /// The next line, or `None` at the end of the file.
    fn more(&mut self) -> Result<Option<String>, TransferError> {
        self.line += 1;
        let mut line = Vec::new();
        self.file.by_ref().take(LONGEST as u64 + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.pop_if(|last| *last == b'\n').is_some() {
            line.pop_if(|last| *last == b'\r');
        }
        if line.len() > LONGEST {
            return Err(self.damaged(format!("it is longer than {LONGEST} bytes")));
        }
        String::from_utf8(line).map(Some).map_err(|_| self.damaged("it is not UTF-8"))
    }

    /// The number of the line that was read last.
    pub(super) fn at(&self) -> u64 {
        self.line
    }

    fn damaged(&self, what: impl Into<String>) -> TransferError {
        TransferError::Damaged { line: self.line, what: what.into() }
    }
}

fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}
