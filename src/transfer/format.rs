//! Lines of an export, and the digest over them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::TransferError;
use crate::store::{JournalEvent, ReportMark, SessionId, SessionRecord};

/// Version of the format. Other versions are rejected.
pub(super) const VERSION: u64 = 1;
/// Largest text of a content line, in bytes.
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
    /// Version of the program that wrote the export.
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

/// Digest over the events and contents of a session, in order.
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
