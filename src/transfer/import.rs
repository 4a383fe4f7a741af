//! Imports a file: first compares all sessions with the present ones, then writes the missing
//! parts.
//!
//! A session's record is written with its last event. Until then, a cut-short record keeps the
//! session from being resumed. New events of a resumed session would differ from the file, so the
//! file could not be imported again.

use std::{
    io::{self, BufRead},
    sync::Arc,
};

use bytes::Bytes;
use greenroom_protocol::observation::AgentState;
use serde_json::value::to_raw_value;

use super::{
    READ_CHUNK, TransferCounts, TransferError,
    compare::{compare, content_length},
    export_reader::{ExportReader, ExportedSession, SessionPart},
};
use crate::store::{
    AppendBatch, Epoch, JournalEvent, Seq, SessionId, SessionRecord, SessionSnapshot, Store, StoreError,
    journal_copy::CopyTarget,
};

/// Imports the sessions of a file. `open` reopens the file at each call.
///
/// # Errors
/// [`TransferError`] names the file's fault and its line. Nothing was written then.
pub async fn import<R: BufRead>(
    store: &Arc<dyn Store>,
    open: impl Fn() -> io::Result<R>,
) -> Result<TransferCounts, TransferError> {
    let mut lines = ExportReader::new(open()?)?;
    while let Some(session) = lines.session()? {
        compare(store.as_ref(), &mut lines, &session).await?;
    }
    let mut lines = ExportReader::new(open()?)?;
    let mut counts = TransferCounts::default();
    while let Some(session) = lines.session()? {
        let present = store.create(cut_short_record(&session.record)).await?.into_snapshot();
        let (before, is_whole) = (present.tail, !is_cut_short(&present.record));
        let events = import_one(store.as_ref(), &mut lines, session, present).await?;
        let is_present = events < before || (events == before && is_whole);
        counts.already_present += u64::from(is_present);
        counts.sessions += u64::from(!is_present);
        counts.events += events.saturating_sub(before);
    }
    Ok(counts)
}

/// Reason and opaque state of a session whose import is not complete.
const CUT_SHORT: &str = "its import was cut short; import the file again";

/// Returns the record of a session whose import is not complete. No session starts from its opaque
/// state.
fn cut_short_record(record: &SessionRecord) -> SessionRecord {
    // A string always serializes, so this cannot fail.
    let actor_state = to_raw_value(CUT_SHORT).expect("a string always serializes").into();
    SessionRecord { state: AgentState::Stopped, reason: Some(CUT_SHORT.to_owned()), actor_state, ..record.clone() }
}

/// Returns true for a cut-short record. The opaque state of a session is empty or an object, never
/// a string.
fn is_cut_short(record: &SessionRecord) -> bool {
    record.actor_state.as_str().starts_with('"')
}

/// Writes the missing part of a session, which exists. Returns the number of events in the file.
async fn import_one<R: BufRead>(
    store: &dyn Store,
    lines: &mut ExportReader<R>,
    session: ExportedSession,
    present: SessionSnapshot,
) -> Result<u64, TransferError> {
    let id = session.record.id;
    let mut is_whole = !is_cut_short(&present.record);
    let before = present.tail;
    let (epoch, _) = store.claim(id).await?;
    let target = CopyTarget { store, session: id, epoch };
    let (mut at, mut seq) = (before, 0);
    let (mut pending, mut size) = (Vec::new(), 0);
    let mut content: Option<(String, String)> = None;
    loop {
        let part = lines.next_part(&session)?;
        if let Some(SessionPart::Content(name, text)) = &part {
            match &mut content {
                Some((current, full)) if current == name => full.push_str(text),
                _ => {
                    write_content(store, (id, epoch), content.take()).await?;
                    content = Some((name.clone(), text.clone()));
                }
            }
            continue;
        }
        write_content(store, (id, epoch), content.take()).await?;
        let is_end = part.is_none();
        if let Some(SessionPart::Event(event)) = part {
            seq += 1;
            if seq > before {
                size += event.json.len();
                pending.push(event);
            }
        }
        if is_end || size > READ_CHUNK.bytes {
            // An event is written after the contents that it names, and those follow the event in
            // the file. So the last event is held back.
            let last = if is_end { None } else { pending.pop() };
            let count = pending.len() as u64;
            if is_whole && count > 0 {
                let record = Some(Arc::new(cut_short_record(&present.record)));
                append(target, at, AppendBatch { record, ..AppendBatch::default() }).await?;
                is_whole = false;
            }
            // An older file does not have the record of a session that is further here.
            let finished = is_end && !is_whole && seq >= before;
            let batch = AppendBatch {
                events: std::mem::take(&mut pending),
                mark: session.mark.clone().filter(|_| finished),
                record: finished.then(|| Arc::new(session.record.clone())),
            };
            if count > 0 || finished {
                at = append(target, at, batch).await?;
            }
            size = last.as_ref().map_or(0, |event: &JournalEvent| event.json.len());
            pending.extend(last);
        }
        if is_end {
            return Ok(seq);
        }
    }
}

/// Writes a content if the present one is missing or damaged. A sound content was already compared.
async fn write_content(
    store: &dyn Store,
    (id, epoch): (SessionId, Epoch),
    content: Option<(String, String)>,
) -> Result<(), StoreError> {
    match content {
        Some((name, text)) if content_length(store, id, &name).await?.is_none() => {
            store.restore_content(id, epoch, &name, Bytes::from(text)).await
        }
        Some(_) | None => Ok(()),
    }
}

async fn append(target: CopyTarget<'_>, at: Seq, batch: AppendBatch) -> Result<Seq, TransferError> {
    target.append(at, batch).await.map_err(|e| TransferError::Io(io::Error::other(e)))
}
