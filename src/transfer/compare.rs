//! Compares a file with the sessions that are present. An import never changes existing data.

use std::{collections::HashMap, io::BufRead};

use sha2::{Digest, Sha256};

use super::{
    READ_CHUNK, TransferError,
    export_reader::{ExportReader, ExportedSession, SessionPart},
    format::MAX_TEXT_BYTES,
};
use crate::store::{SessionId, Store, StoreError, StoredEvent};

/// Reads a session to its end and compares it with the present session of the same id.
///
/// # Errors
/// `Differs` if the two differ. `UnreadableHere` if the present session cannot be read. `Damaged`
/// if the file is damaged.
pub(super) async fn compare<R: BufRead>(
    store: &dyn Store,
    lines: &mut ExportReader<R>,
    session: &ExportedSession,
) -> Result<(), TransferError> {
    let id = session.record.id;
    let present_tail = store.get(id).await?.map_or(0, |snapshot| snapshot.tail);
    let mut present_events: std::vec::IntoIter<StoredEvent> = Vec::new().into_iter();
    let mut contents = ContentComparison { store, session: id, open: None, digests: HashMap::new() };
    let mut seq = 0;
    while let Some(part) = lines.next_part(session)? {
        let event = match part {
            SessionPart::Content(name, text) => {
                contents.compare_chunk(lines.line_number(), name, text.as_bytes()).await?;
                continue;
            }
            SessionPart::Event(event) => event,
        };
        contents.end()?;
        seq += 1;
        if seq > present_tail {
            continue;
        }
        if present_events.len() == 0 {
            let read = store.read(id, seq - 1, READ_CHUNK).await;
            present_events = read.map_err(|source| unreadable_here(lines.line_number(), id, source))?.into_iter();
        }
        if present_events.next().is_none_or(|(_, present)| present != event) {
            return Err(TransferError::Differs { line: lines.line_number(), session: id });
        }
    }
    contents.end()
}

/// Compares the contents of one session chunk by chunk, so none of them is in memory as a whole.
struct ContentComparison<'a> {
    store: &'a dyn Store,
    session: SessionId,
    /// Content whose chunks are being read.
    open: Option<OpenContent>,
    /// Digests of the earlier contents. A content named by two events may occur twice in a file,
    /// with the same text.
    digests: HashMap<String, [u8; 32]>,
}

struct OpenContent {
    name: String,
    /// Line of the file at which the content begins.
    line: u64,
    bytes: u64,
    digest: Sha256,
    /// Length of the present content, in bytes.
    present_bytes: Option<u64>,
}

impl ContentComparison<'_> {
    async fn compare_chunk(&mut self, line: u64, name: String, text: &[u8]) -> Result<(), TransferError> {
        let (store, session) = (self.store, self.session);
        self.end_unless(&name)?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let present_bytes = content_length(store, session, &name)
                    .await
                    .map_err(|source| unreadable_here(line, session, source))?;
                OpenContent { name, line, bytes: 0, digest: Sha256::new(), present_bytes }
            }
        };
        if open.present_bytes.is_some() {
            let present = store.content(session, &open.name, open.bytes, text.len()).await;
            let present = present.map_err(|source| unreadable_here(line, session, source))?;
            if present.is_none_or(|present| present.bytes != text) {
                return Err(TransferError::Differs { line, session });
            }
        }
        open.bytes += text.len() as u64;
        open.digest.update(text);
        self.open = Some(open);
        Ok(())
    }

    fn end_unless(&mut self, name: &str) -> Result<(), TransferError> {
        match &self.open {
            Some(open) if open.name == name => Ok(()),
            Some(_) | None => self.end(),
        }
    }

    fn end(&mut self) -> Result<(), TransferError> {
        let Some(OpenContent { name, line, bytes, digest, present_bytes }) = self.open.take() else { return Ok(()) };
        if present_bytes.is_some_and(|present| present != bytes) {
            return Err(TransferError::Differs { line, session: self.session });
        }
        let digest: [u8; 32] = digest.finalize().into();
        match self.digests.get(&name) {
            Some(earlier) if *earlier != digest => {
                let what = format!("content `{name}` differs from an earlier copy in the same session");
                Err(TransferError::Damaged { line, what })
            }
            Some(_) => Ok(()),
            None => {
                self.digests.insert(name, digest);
                Ok(())
            }
        }
    }
}

/// Wraps an error of the present session. Unreadable data is not changed either, so a person must
/// decide.
fn unreadable_here(line: u64, session: SessionId, source: StoreError) -> TransferError {
    match source {
        StoreError::Damaged { .. } | StoreError::DamagedContent { .. } | StoreError::Io(_) => {
            TransferError::UnreadableHere { line, session, source }
        }
        StoreError::NoSession(_) | StoreError::Fenced | StoreError::BadCursor(_) => source.into(),
    }
}

/// Returns the length in bytes of a present and sound content.
pub(super) async fn content_length(
    store: &dyn Store,
    session: SessionId,
    name: &str,
) -> Result<Option<u64>, StoreError> {
    let mut read = 0;
    loop {
        match store.content(session, name, read, MAX_TEXT_BYTES).await {
            Ok(Some(part)) => {
                read += part.bytes.len() as u64;
                if read >= part.total {
                    return Ok(Some(part.total));
                }
            }
            Ok(None) | Err(StoreError::DamagedContent { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
