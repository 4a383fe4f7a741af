//! Exports sessions of a journal as JSON lines and imports them into another: `greenroom export`
//! and `greenroom import`.
//!
//! ```text
//! {"greenroom_journal":1,"version":"0.1.0","at":"…"}
//! {"session":{…the record…},"mark":…}              one per session,
//! {"kind":"run","event":{…as clients see it…}}     its events in order, byte for byte,
//! {"content":"NAME","text":"…"}                    its large contents, once each, in chunks,
//! {"end":"ID","events":41,"sha256":"…"}            and the digest of events and contents
//! {"total":{"sessions":1,"events":41},"sha256":"…"}
//! ```
//!
//! [`import()`] reads a file twice: first to check all lines, then to write. Existing data is
//! compared and never changed, so an import that was cut short is simply repeated. Workspaces are
//! not exported.
//!
//! On request, [`export`] takes the sound part of a damaged journal. An event that states the
//! damage replaces each damaged event. A damaged content is left out. A session ends before an
//! event that the disk cannot read.

pub mod command;
mod compare;
mod export_reader;
mod format;
mod import;
#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    fmt,
    io::{self, Write},
};

use self::format::{ExportDigest, ExportHead, ExportLine, ExportTotal, ExportTotals, MAX_TEXT_BYTES};
pub use self::import::import;
use crate::{
    clock,
    store::{
        ArchiveFilter, ContentSlice, ReadLimit, Seq, SessionId, SessionQuery, SessionSnapshot, Store, StoreError,
        StoredEvent, damage, journal_copy::referenced_content,
    },
};

/// Part of a journal held in memory at a time: 512 events or 1 MiB.
const READ_CHUNK: ReadLimit = ReadLimit { events: 512, bytes: 1 << 20 };

/// Reason for a failed export or import. The text names the line and the way out.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("the journal: {0}")]
    Store(#[from] StoreError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error(
        "line {line}: {what}; the file is damaged, was cut short or was changed, so nothing of it was imported; export it anew"
    )]
    Damaged { line: u64, what: String },
    #[error(
        "line {line}: version {found} of the format is not supported (supported: {}); import the file with the version that \
         exported it",
        format::VERSION
    )]
    Version { line: u64, found: u64 },
    #[error(
        "line {line}: session `{session}` is already present and differs from the file; purge it first, or import \
         into another data directory; nothing was imported"
    )]
    Differs { line: u64, session: SessionId },
    #[error(
        "line {line}: session `{session}` cannot be compared with the session present here: {source}; purge it first, or \
         import into another data directory; nothing was imported"
    )]
    UnreadableHere { line: u64, session: SessionId, source: StoreError },
    #[error("content `{name}` of session `{session}` is not UTF-8 text and cannot be exported")]
    NotText { session: SessionId, name: String },
    #[error("{what} cannot be read: {source}")]
    Unreadable { what: String, source: StoreError },
}

impl TransferError {
    /// Returns true for data that the disk changed or cannot read. All other data can still be
    /// exported.
    fn is_damage(&self) -> bool {
        use StoreError::{Damaged, DamagedContent};
        matches!(
            self,
            Self::Store(Damaged { .. } | DamagedContent { .. }) | Self::NotText { .. } | Self::Unreadable { .. }
        )
    }
}

/// Counts of an export or import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferCounts {
    pub sessions: u64,
    pub events: u64,
    /// Sessions that were already present, at least as far as the file goes.
    pub already_present: u64,
}

impl fmt::Display for TransferCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sessions, {} events", self.sessions, self.events)?;
        if self.already_present > 0 {
            write!(f, "; {} sessions were already present", self.already_present)
        } else {
            Ok(())
        }
    }
}

/// Handling of events and contents that the disk changed or cannot read.
pub enum DamagePolicy<'a> {
    /// Fails the export at the first damage.
    Fail,
    /// Leaves the damaged data out and collects the errors.
    Skip(&'a mut Vec<TransferError>),
}

impl DamagePolicy<'_> {
    fn handle(&mut self, error: TransferError) -> Result<(), TransferError> {
        match self {
            DamagePolicy::Skip(skipped) if error.is_damage() => {
                skipped.push(error);
                Ok(())
            }
            DamagePolicy::Skip(_) | DamagePolicy::Fail => Err(error),
        }
    }
}

/// Writes the sessions of `store` to `out`: the session `only`, or all sessions.
///
/// # Errors
/// The first failed read or write. The output so far is useless then.
pub async fn export(
    store: &dyn Store,
    only: Option<SessionId>,
    mut policy: DamagePolicy<'_>,
    out: &mut dyn Write,
) -> Result<TransferCounts, TransferError> {
    let sessions = match only {
        Some(id) => vec![store.get(id).await?.ok_or(StoreError::NoSession(id))?],
        None => all_sessions(store).await?,
    };
    let head = ExportHead {
        greenroom_journal: format::VERSION,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at: clock::now(),
    };
    write_line(out, &ExportLine::Head(head))?;
    let (mut counts, mut overall) = (TransferCounts::default(), ExportDigest::default());
    for snapshot in sessions {
        let (events, digest) = export_one(store, &snapshot, &mut policy, out).await?;
        overall.add(&digest);
        counts.sessions += 1;
        counts.events += events;
    }
    let totals = ExportTotals { sessions: counts.sessions, events: counts.events };
    write_line(out, &ExportLine::Total(ExportTotal { total: totals, sha256: overall.finish() }))?;
    out.flush()?;
    Ok(counts)
}

async fn export_one(
    store: &dyn Store,
    snapshot: &SessionSnapshot,
    policy: &mut DamagePolicy<'_>,
    out: &mut dyn Write,
) -> Result<(u64, String), TransferError> {
    let SessionSnapshot { record, tail, mark, .. } = snapshot;
    let id = record.id;
    write_line(out, &ExportLine::session(record, mark.as_ref()))?;
    let (mut digest, mut after) = (ExportDigest::default(), 0);
    // Two events may name the same content. In an old journal, an agent could cause any number of
    // such events.
    let mut exported = HashSet::new();
    while after < *tail {
        let events = read_next(store, id, after, policy).await?;
        if events.is_empty() {
            break;
        }
        for (seq, event) in events {
            after = seq;
            digest.event(&event);
            write_line(out, &ExportLine::event(&event)?)?;
            let Some(ulid) = referenced_content(&event.json).filter(|name| exported.insert(*name)) else { continue };
            let name = ulid.to_string();
            // A first pass that only reads: an import would take a partial content for the whole.
            match each_chunk(store, id, &name, |_| Ok(())).await {
                Ok(()) => export_content(store, id, &name, &mut digest, out).await?,
                Err(error) => policy.handle(error)?,
            }
        }
    }
    let sha256 = digest.finish();
    write_line(out, &ExportLine::end(id, after, &sha256))?;
    Ok((after, sha256))
}

/// Reads the next events. Returns no events if the disk cannot read the next event. An event that
/// states the damage replaces a damaged event, so the numbers have no gap.
async fn read_next(
    store: &dyn Store,
    id: SessionId,
    after: Seq,
    policy: &mut DamagePolicy<'_>,
) -> Result<Vec<StoredEvent>, TransferError> {
    let mut limit = READ_CHUNK;
    loop {
        match store.read(id, after, limit).await {
            Ok(events) => return Ok(events),
            Err(StoreError::Damaged { session, seq, detail }) => {
                let event = damage::damaged_event(session, seq, &detail);
                policy.handle(StoreError::Damaged { session, seq, detail }.into())?;
                return Ok(vec![(seq, event)]);
            }
            // A read fails for the whole page, even if only its last event is unreadable.
            Err(StoreError::Io(_)) if limit.events > 1 => limit.events /= 2,
            Err(source @ StoreError::Io(_)) => {
                policy.handle(TransferError::Unreadable {
                    what: format!("session `{id}` from event {} on", after + 1),
                    source,
                })?;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes a content line by line. A content that was lost to a damaged disk is missing in the
/// export too.
async fn export_content(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    digest: &mut ExportDigest,
    out: &mut dyn Write,
) -> Result<(), TransferError> {
    let mut has_begun = false;
    each_chunk(store, id, name, |text| {
        if !std::mem::replace(&mut has_begun, true) {
            digest.begin_content(name);
        }
        digest.more_content(text.as_bytes());
        write_line(out, &ExportLine::content(name, text))
    })
    .await
}

async fn each_chunk(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    mut handle: impl FnMut(&str) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    let mut from = 0;
    while let Some((text, total)) = read_chunk(store, id, name, from).await? {
        handle(&text)?;
        from += text.len() as u64;
        if from >= total {
            break;
        }
    }
    Ok(())
}

/// Reads one line's worth of a content, from byte `from`. Returns the text and the content's total
/// length in bytes.
async fn read_chunk(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    from: u64,
) -> Result<Option<(String, u64)>, TransferError> {
    let part = store.content(id, name, from, MAX_TEXT_BYTES).await.map_err(|error| match error {
        source @ StoreError::Io(_) => {
            TransferError::Unreadable { what: format!("content `{name}` of session `{id}`"), source }
        }
        error => error.into(),
    })?;
    let Some(ContentSlice { bytes, total }) = part else { return Ok(None) };
    // A character cut at the end is read again with the next chunk.
    let end = match std::str::from_utf8(&bytes) {
        Err(cut) if cut.error_len().is_none() && cut.valid_up_to() > 0 => cut.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    match String::from_utf8(bytes[..end].to_vec()) {
        Ok(text) => Ok(Some((text, total))),
        Err(_) => Err(TransferError::NotText { session: id, name: name.to_owned() }),
    }
}

/// Returns all sessions, oldest first, archived or not.
async fn all_sessions(store: &dyn Store) -> Result<Vec<SessionSnapshot>, StoreError> {
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let query = SessionQuery { archived: ArchiveFilter::Any, limit: 500, cursor, ..SessionQuery::default() };
        let page = store.list(query).await?;
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    found.sort_by_key(|snapshot| snapshot.record.id);
    Ok(found)
}

fn write_line(out: &mut dyn Write, line: &ExportLine<'_>) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
