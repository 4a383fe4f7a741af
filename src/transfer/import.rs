//! Taking an export in: compared with what is here first, and then written, as far as it is not here yet.
//!
//! What a session is comes with the last of its events. Until then its record says that it is not whole, and nobody can go on
//! with it: what it said by itself would be another story than the file's, which could not be imported again then.

use std::{
    io::{self, BufRead},
    sync::Arc,
};

use bytes::Bytes;
use futures::future::try_join_all;
use greenroom_protocol::observation::AgentState;
use serde_json::value::to_raw_value;

use super::{
    READ_CHUNK, TransferCounts, TransferError,
    compare::{compare, content_length},
    export_reader::{ExportReader, ExportedSession, SessionPart},
};
use crate::store::{AppendBatch, JournalEvent, Seq, SessionId, SessionRecord, SessionSnapshot, Store, StoreError};

/// How much is appended in one piece, bytes, unless a single event is larger: whoever reads an event later reads its whole piece.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Takes the sessions of a file in. `open` gives the file anew each time that it is called.
///
/// # Errors
/// What is wrong with the file, and at which line; then nothing was written.
pub async fn import<R: BufRead>(
    store: &Arc<dyn Store>,
    open: impl Fn() -> io::Result<R>,
) -> Result<TransferCounts, TransferError> {
    let mut lines = ExportReader::new(open()?)?;
    while let Some(session) = lines.session()? {
        compare(store.as_ref(), &mut lines, &session).await?;
    }
    let mut lines = ExportReader::new(open()?)?;
    let mut moved = TransferCounts::default();
    while let Some(session) = lines.session()? {
        let here = store.get(session.record.id).await?;
        let (before, is_whole) = here.as_ref().map_or((0, false), |here| (here.tail, !is_cut_short(&here.record)));
        let events = import_one(store.as_ref(), &mut lines, session, here).await?;
        let is_known = events < before || (events == before && is_whole);
        moved.already_present += u64::from(is_known);
        moved.sessions += u64::from(!is_known);
        moved.events += events.saturating_sub(before);
    }
    Ok(moved)
}

/// What a session is called, and has for its memory, until all of it is here.
const CUT_SHORT: &str = "its import was cut short; import the file again";

/// The record of a session of which not all is here yet. Its memory is one that no session can be started from.
fn cut_short_record(record: &SessionRecord) -> SessionRecord {
    // A text is JSON, so this cannot fail.
    let core = to_raw_value(CUT_SHORT).expect("a text is JSON").into();
    SessionRecord {
        state: AgentState::Stopped,
        reason: Some(CUT_SHORT.to_owned()),
        actor_state: core,
        ..record.clone()
    }
}

/// A session remembers nothing or an object, never a text.
fn is_cut_short(record: &SessionRecord) -> bool {
    record.actor_state.as_str().starts_with('"')
}

/// Writes what is not `here` yet of a session; returns how many events the file has.
async fn import_one<R: BufRead>(
    store: &dyn Store,
    lines: &mut ExportReader<R>,
    session: ExportedSession,
    here: Option<SessionSnapshot>,
) -> Result<u64, TransferError> {
    let id = session.record.id;
    let here = match here {
        Some(here) => here,
        None => store.create(cut_short_record(&session.record)).await?,
    };
    let mut is_whole = !is_cut_short(&here.record);
    let before = here.tail;
    let (epoch, _) = store.claim(id).await?;
    let (mut at, mut seq) = (before, 0);
    let (mut waiting, mut size) = (Vec::new(), 0);
    let mut content: Option<(String, String)> = None;
    loop {
        let part = lines.next_part(&session)?;
        if let Some(SessionPart::Content(name, text)) = &part {
            match &mut content {
                Some((known, whole)) if known == name => whole.push_str(text),
                _ => {
                    write_content(store, id, content.take()).await?;
                    content = Some((name.clone(), text.clone()));
                }
            }
            continue;
        }
        write_content(store, id, content.take()).await?;
        let over = part.is_none();
        if let Some(SessionPart::Event(event)) = part {
            seq += 1;
            if seq > before {
                size += event.json.len();
                waiting.push(event);
            }
        }
        if over || size > READ_CHUNK.bytes {
            // An event is written after the contents that it names: those stand behind it in the file.
            let last = if over { None } else { waiting.pop() };
            let count = waiting.len() as u64;
            if is_whole && count > 0 {
                let record = Some(Arc::new(cut_short_record(&here.record)));
                append(store, id, epoch, at, AppendBatch { record, ..AppendBatch::default() }).await?;
                is_whole = false;
            }
            // An older file of a session that is further here does not say what it is there.
            let finished = over && !is_whole && seq >= before;
            let batch = AppendBatch {
                events: std::mem::take(&mut waiting),
                mark: session.mark.clone().filter(|_| finished),
                record: finished.then(|| Arc::new(session.record.clone())),
            };
            if count > 0 || finished {
                at = append(store, id, epoch, at, batch).await?;
            }
            size = last.as_ref().map_or(0, |event: &JournalEvent| event.json.len());
            waiting.extend(last);
        }
        if over {
            return Ok(seq);
        }
    }
}

/// Writes a content where it is missing or damaged. Any other was found to be the same.
async fn write_content(store: &dyn Store, id: SessionId, content: Option<(String, String)>) -> Result<(), StoreError> {
    match content {
        Some((name, text)) if content_length(store, id, &name).await?.is_none() => {
            store.restore_content(id, &name, Bytes::from(text)).await
        }
        Some(_) | None => Ok(()),
    }
}

/// Appends in pieces, all of which are on their way at once; with the last one comes what the session is from then on.
async fn append(
    store: &dyn Store,
    id: SessionId,
    epoch: u64,
    at: Seq,
    batch: AppendBatch,
) -> Result<Seq, TransferError> {
    let AppendBatch { events, mark, record } = batch;
    let mut pieces = pieces(events);
    let last = pieces.pop().unwrap_or_default();
    let mut next = at;
    let mut append = |batch: AppendBatch| {
        let at = next;
        next += batch.events.len() as u64;
        store.append(id, epoch, at, batch)
    };
    let mut appended: Vec<_> =
        pieces.into_iter().map(|events| append(AppendBatch { events, mark: None, record: None })).collect();
    appended.push(append(AppendBatch { events: last, mark, record }));
    let tails = try_join_all(appended).await.map_err(|e| TransferError::Io(io::Error::other(e)))?;
    Ok(tails.last().copied().unwrap_or(at))
}

/// Cuts events into rows of up to [`PIECE`] bytes.
pub(super) fn pieces(events: Vec<JournalEvent>) -> Vec<Vec<JournalEvent>> {
    let mut pieces: Vec<Vec<JournalEvent>> = Vec::new();
    let mut size = 0;
    for event in events {
        size += event.json.len();
        match pieces.last_mut() {
            Some(piece) if size <= PIECE_BYTES => piece.push(event),
            _ => {
                size = event.json.len();
                pieces.push(vec![event]);
            }
        }
    }
    pieces
}
