//! What a file tells, against what is here: nothing of that may become another.

use std::{collections::HashMap, io::BufRead};

use sha2::{Digest, Sha256};

use super::{
    READ_CHUNK, TransferError,
    export_reader::{ExportReader, ExportedSession, SessionPart},
    format::MAX_TEXT_BYTES,
};
use crate::store::{SessionId, Store, StoreError, StoredEvent};

/// Reads a session to its end, and compares it with what is here under its name.
pub(super) async fn compare<R: BufRead>(
    store: &dyn Store,
    lines: &mut ExportReader<R>,
    session: &ExportedSession,
) -> Result<(), TransferError> {
    let id = session.record.id;
    let here = store.get(id).await?.map_or(0, |snapshot| snapshot.tail);
    let mut ours: std::vec::IntoIter<StoredEvent> = Vec::new().into_iter();
    let mut contents = ContentComparison { store, session: id, open: None, digests: HashMap::new() };
    let mut seq = 0;
    while let Some(part) = lines.next_part(session)? {
        let event = match part {
            SessionPart::Content(name, text) => {
                contents.piece(lines.line_number(), name, text.as_bytes()).await?;
                continue;
            }
            SessionPart::Event(event) => event,
        };
        contents.end()?;
        seq += 1;
        if seq > here {
            continue;
        }
        if ours.len() == 0 {
            let read = store.read(id, seq - 1, READ_CHUNK).await;
            ours = read.map_err(|source| unreadable_here(lines.line_number(), id, source))?.into_iter();
        }
        if ours.next().is_none_or(|(_, known)| known != event) {
            return Err(TransferError::Differs { line: lines.line_number(), session: id });
        }
    }
    contents.end()
}

/// The contents of one session, piece by piece: none of them is in memory as a whole.
struct ContentComparison<'a> {
    store: &'a dyn Store,
    session: SessionId,
    /// The one whose pieces are being read.
    open: Option<OpenContent>,
    /// The digests of those before. One that two events name stands in a file twice, and must be the same each time.
    digests: HashMap<String, [u8; 32]>,
}

struct OpenContent {
    name: String,
    /// Where it begins in the file.
    line: u64,
    bytes: u64,
    digest: Sha256,
    /// How long the one is that is here.
    here: Option<u64>,
}

impl ContentComparison<'_> {
    async fn piece(&mut self, line: u64, name: String, text: &[u8]) -> Result<(), TransferError> {
        let (store, session) = (self.store, self.session);
        self.end_unless(&name)?;
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let here = content_length(store, session, &name)
                    .await
                    .map_err(|source| unreadable_here(line, session, source))?;
                OpenContent { name, line, bytes: 0, digest: Sha256::new(), here }
            }
        };
        if open.here.is_some() {
            let ours = store.content(session, &open.name, open.bytes, text.len()).await;
            let ours = ours.map_err(|source| unreadable_here(line, session, source))?;
            if ours.is_none_or(|ours| ours.bytes != text) {
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
        let Some(OpenContent { name, line, bytes, digest, here }) = self.open.take() else { return Ok(()) };
        if here.is_some_and(|here| here != bytes) {
            return Err(TransferError::Differs { line, session: self.session });
        }
        let digest: [u8; 32] = digest.finalize().into();
        match self.digests.get(&name) {
            Some(told) if *told != digest => {
                let what = format!("content `{name}` is another here than before in the same session");
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

/// What is here and cannot be read is not changed either, so somebody has to decide what becomes of it.
fn unreadable_here(line: u64, session: SessionId, source: StoreError) -> TransferError {
    match source {
        StoreError::Damaged { .. } | StoreError::DamagedContent { .. } | StoreError::Io(_) => {
            TransferError::UnreadableHere { line, session, source }
        }
        StoreError::NoSession(_) | StoreError::Conflict { .. } | StoreError::BadCursor(_) => source.into(),
    }
}

/// How long a content is that is here and sound, bytes.
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
