//! The lines of an export, and the digest over them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};
use ulid::Ulid;

use super::TransferError;
use crate::store::{JournalEvent, ReportMark, SessionId, SessionRecord};

/// Of the format. A newer one is refused by name.
pub(super) const VERSION: u64 = 1;
/// The most of a large content on one line, bytes.
pub(super) const MAX_TEXT_BYTES: usize = 512 * 1024;

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum ExportLine<'a> {
    Head(ExportHead),
    Session { session: &'a SessionRecord, mark: Option<&'a ReportMark> },
    Event { kind: &'a str, event: &'a RawValue },
    Content { content: &'a str, text: &'a str },
    End { end: SessionId, events: u64, sha256: &'a str },
    Total(ExportTotal),
}

#[derive(Serialize, Deserialize)]
pub(super) struct ExportHead {
    pub(super) greenroom_journal: u64,
    /// Of the program that wrote it.
    pub(super) version: String,
    pub(super) at: String,
}

#[derive(Serialize, Deserialize)]
pub(super) struct ExportTotal {
    pub(super) total: ExportTotals,
    pub(super) sha256: String,
}

#[derive(Serialize, Deserialize, PartialEq)]
pub(super) struct ExportTotals {
    pub(super) sessions: u64,
    pub(super) events: u64,
}

impl<'a> ExportLine<'a> {
    pub(super) fn session(session: &'a SessionRecord, mark: Option<&'a ReportMark>) -> ExportLine<'a> {
        ExportLine::Session { session, mark }
    }

    pub(super) fn event(event: &'a JournalEvent) -> Result<ExportLine<'a>, TransferError> {
        let json = serde_json::from_slice(&event.json).map_err(std::io::Error::from)?;
        Ok(ExportLine::Event { kind: &event.kind, event: json })
    }

    pub(super) fn content(name: &'a str, text: &'a str) -> ExportLine<'a> {
        ExportLine::Content { content: name, text }
    }

    pub(super) fn end(end: SessionId, events: u64, sha256: &'a str) -> ExportLine<'a> {
        ExportLine::End { end, events, sha256 }
    }
}

/// Over what is moved, in its order.
#[derive(Default)]
pub(super) struct ExportDigest(Sha256);

impl ExportDigest {
    pub(super) fn event(&mut self, event: &JournalEvent) {
        self.0.update(event.kind.as_bytes());
        self.0.update(b"\0");
        self.0.update(&event.json);
        self.0.update(b"\n");
    }

    pub(super) fn begin_content(&mut self, name: &str) {
        self.0.update(name.as_bytes());
        self.0.update(b"\x01");
    }

    pub(super) fn more_content(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    pub(super) fn add(&mut self, digest: &str) {
        self.0.update(digest.as_bytes());
        self.0.update(b"\n");
    }

    pub(super) fn finish(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The name of a content. Written otherwise than a store writes it, it would be another name of the same one.
pub(super) fn content_name(text: &str) -> Option<Ulid> {
    text.parse().ok().filter(|name: &Ulid| name.to_string() == text)
}

/// The large content that an event refers to.
pub(super) fn referenced_content(event: &[u8]) -> Option<Ulid> {
    #[derive(Deserialize)]
    struct EventExtras<'a> {
        #[serde(borrow)]
        extras: Option<&'a RawValue>,
    }
    let event: EventExtras = serde_json::from_slice(event).ok()?;
    // No types of ours, which would be made of lists, too: of those an agent may have said what it likes.
    let extras: Value = serde_json::from_str(event.extras?.get()).ok()?;
    content_name(extras.pointer("/truncated/href")?.as_str()?.rsplit('/').next()?)
}
