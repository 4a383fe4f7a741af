//! Sessions out of a journal and into another, as lines of JSON: `greenroom export` and `greenroom import`.
//!
//! ```text
//! {"greenroom_journal":1,"version":"0.1.0","at":"…"}
//! {"session":{…the record…},"mark":…}              one of these for each session,
//! {"kind":"run","event":{…as clients see it…}}     its events in their order, byte for byte,
//! {"content":"NAME","text":"…"}                    its large contents, each once, a piece a line,
//! {"end":"ID","events":41,"sha256":"…"}            and the digest of both
//! {"total":{"sessions":1,"events":41},"sha256":"…"}
//! ```
//!
//! [`import()`] reads a file twice: once to be sure of every line of it, and only then to write. What is there already is
//! compared and never changed, so an import that was cut short is simply repeated. Workspaces are no part of it.
//!
//! Of a journal that the disk has changed, [`export`] takes what is sound if it is asked to: an event that says so stands for
//! one that was damaged, and a damaged content is left out. A session ends before an event that the disk does not give.

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

use self::format::{
    ExportDigest, ExportHead, ExportLine, ExportTotal, ExportTotals, MAX_TEXT_BYTES, referenced_content,
};
pub use self::import::import;
use crate::{
    clock,
    store::{
        ContentSlice, ReadLimit, Seq, SessionId, SessionQuery, SessionSnapshot, Store, StoreError, StoredEvent, damage,
    },
};

/// How much of a journal is in memory at once.
const READ_CHUNK: ReadLimit = ReadLimit { events: 512, bytes: 1 << 20 };

/// Why nothing came of it. The text says where, and what to do.
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
    #[error("line {line}: version {found} of the format is not known here (known: {})", format::VERSION)]
    Version { line: u64, found: u64 },
    #[error(
        "line {line}: session `{session}` is here already and tells another story than the file; purge it first, or import \
         into another data directory; nothing was imported"
    )]
    Differs { line: u64, session: SessionId },
    #[error(
        "line {line}: session `{session}` cannot be compared with what is here of it: {source}; purge it first, or import \
         into another data directory; nothing was imported"
    )]
    UnreadableHere { line: u64, session: SessionId, source: StoreError },
    #[error("content `{name}` of session `{session}` is no text and cannot be exported")]
    NotText { session: SessionId, name: String },
    #[error("{what} cannot be read: {source}")]
    Unreadable { what: String, source: StoreError },
}

impl TransferError {
    /// Whether the disk has changed what was written, or does not give it: all else can still be exported.
    fn is_damage(&self) -> bool {
        use StoreError::{Damaged, DamagedContent};
        matches!(
            self,
            Self::Store(Damaged { .. } | DamagedContent { .. }) | Self::NotText { .. } | Self::Unreadable { .. }
        )
    }
}

/// What was moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransferCounts {
    pub sessions: u64,
    pub events: u64,
    /// Sessions that were there already, as far as the file tells them.
    pub already_present: u64,
}

impl fmt::Display for TransferCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sessions, {} events", self.sessions, self.events)?;
        if self.already_present > 0 {
            write!(f, "; {} sessions were there already", self.already_present)
        } else {
            Ok(())
        }
    }
}

/// What becomes of events and contents that the disk has changed or does not give.
pub enum DamagePolicy<'a> {
    /// The first one ends the export.
    Fail,
    /// They are left out, and told here.
    Skip(&'a mut Vec<TransferError>),
}

impl DamagePolicy<'_> {
    fn handle(&mut self, error: TransferError) -> Result<(), TransferError> {
        match self {
            DamagePolicy::Skip(told) if error.is_damage() => {
                told.push(error);
                Ok(())
            }
            DamagePolicy::Skip(_) | DamagePolicy::Fail => Err(error),
        }
    }
}

/// Writes the sessions of `store` to `out`: `only` that one, or all of them.
///
/// # Errors
/// The first thing that could not be read or written; what was written until then is of no use.
pub async fn export(
    store: &dyn Store,
    only: Option<SessionId>,
    mut damaged: DamagePolicy<'_>,
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
    let (mut moved, mut overall) = (TransferCounts::default(), ExportDigest::default());
    for snapshot in sessions {
        let (events, digest) = export_one(store, &snapshot, &mut damaged, out).await?;
        overall.add(&digest);
        moved.sessions += 1;
        moved.events += events;
    }
    let totals = ExportTotals { sessions: moved.sessions, events: moved.events };
    write_line(out, &ExportLine::Total(ExportTotal { total: totals, sha256: overall.finish() }))?;
    out.flush()?;
    Ok(moved)
}

async fn export_one(
    store: &dyn Store,
    snapshot: &SessionSnapshot,
    damaged: &mut DamagePolicy<'_>,
    out: &mut dyn Write,
) -> Result<(u64, String), TransferError> {
    let SessionSnapshot { record, tail, mark, .. } = snapshot;
    let id = record.id;
    write_line(out, &ExportLine::session(record, mark.as_ref()))?;
    let (mut digest, mut after) = (ExportDigest::default(), 0);
    // Two events may name the same content, and of an old journal as many as an agent liked.
    let mut told = HashSet::new();
    while after < *tail {
        let events = read_next(store, id, after, damaged).await?;
        if events.is_empty() {
            break;
        }
        for (seq, event) in events {
            after = seq;
            digest.event(&event);
            write_line(out, &ExportLine::event(&event)?)?;
            let Some(ulid) = referenced_content(&event.json).filter(|name| told.insert(*name)) else { continue };
            let name = ulid.to_string();
            // Read once for nothing: half of one would be taken for the whole where it is imported.
            match each_piece(store, id, &name, |_| Ok(())).await {
                Ok(()) => export_content(store, id, &name, &mut digest, out).await?,
                Err(error) => damaged.handle(error)?,
            }
        }
    }
    let sha256 = digest.finish();
    write_line(out, &ExportLine::end(id, after, &sha256))?;
    Ok((after, sha256))
}

/// The next events, or none where the disk does not give the next. In the place of a damaged one stands one that says so, so
/// numbers have no gap.
async fn read_next(
    store: &dyn Store,
    id: SessionId,
    after: Seq,
    damaged: &mut DamagePolicy<'_>,
) -> Result<Vec<StoredEvent>, TransferError> {
    let mut limit = READ_CHUNK;
    loop {
        match store.read(id, after, limit).await {
            Ok(events) => return Ok(events),
            Err(StoreError::Damaged { session, seq, detail }) => {
                let event = damage::damaged_event(session, seq, &detail);
                damaged.handle(StoreError::Damaged { session, seq, detail }.into())?;
                return Ok(vec![(seq, event)]);
            }
            // It fails for all that are asked for, also those before the one that the disk does not give.
            Err(StoreError::Io(_)) if limit.events > 1 => limit.events /= 2,
            Err(source @ StoreError::Io(_)) => {
                damaged.handle(TransferError::Unreadable {
                    what: format!("session `{id}` from event {} on", after + 1),
                    source,
                })?;
                return Ok(Vec::new());
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// One that was lost to a damaged disk is missing here as it is there.
async fn export_content(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    digest: &mut ExportDigest,
    out: &mut dyn Write,
) -> Result<(), TransferError> {
    let mut begun = false;
    each_piece(store, id, name, |text| {
        if !std::mem::replace(&mut begun, true) {
            digest.begin_content(name);
        }
        digest.more_content(text.as_bytes());
        write_line(out, &ExportLine::content(name, text))
    })
    .await
}

async fn each_piece(
    store: &dyn Store,
    id: SessionId,
    name: &str,
    mut take: impl FnMut(&str) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    let mut from = 0;
    while let Some((text, total)) = read_piece(store, id, name, from).await? {
        take(&text)?;
        from += text.len() as u64;
        if from >= total {
            break;
        }
    }
    Ok(())
}

/// A line's worth of a content from byte `from` on, and how long the whole is.
async fn read_piece(
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
    // A character that is cut in two is read again with what follows.
    let end = match std::str::from_utf8(&bytes) {
        Err(cut) if cut.error_len().is_none() && cut.valid_up_to() > 0 => cut.valid_up_to(),
        Ok(_) | Err(_) => bytes.len(),
    };
    match String::from_utf8(bytes[..end].to_vec()) {
        Ok(text) => Ok(Some((text, total))),
        Err(_) => Err(TransferError::NotText { session: id, name: name.to_owned() }),
    }
}

/// Every session, oldest first, archived or not.
async fn all_sessions(store: &dyn Store) -> Result<Vec<SessionSnapshot>, StoreError> {
    let mut found = Vec::new();
    for archived in [false, true] {
        let mut cursor = None;
        loop {
            let query = SessionQuery { archived: Some(archived), limit: 500, cursor, ..SessionQuery::default() };
            let page = store.list(query).await?;
            found.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
    }
    found.sort_by_key(|snapshot| snapshot.record.id);
    Ok(found)
}

fn write_line(out: &mut dyn Write, line: &ExportLine<'_>) -> Result<(), TransferError> {
    serde_json::to_writer(&mut *out, line).map_err(io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}
