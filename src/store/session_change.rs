//! What a change does to a session: pure, without clock or disk, and the same for every driver that knows its sessions
//! by heart.

use std::{io, sync::Arc};

use super::{AppendError, Epoch, Mark, Record, Seq, SessionId, Snapshot, StoreError};

/// A session between two changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Shared, because lists, drafts and readers hold it for a moment each.
    pub(super) record: Arc<Record>,
    pub(super) revision: u64,
    /// 0 until somebody claims the session; nobody can append with that.
    pub(super) epoch: Epoch,
    pub(super) tail: Seq,
    pub(super) mark: Option<Mark>,
}

impl Entry {
    pub(super) fn new(record: Record) -> Entry {
        Entry { record: Arc::new(record), revision: 1, epoch: 0, tail: 0, mark: None }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            record: Record::clone(&self.record),
            revision: self.revision,
            tail: self.tail,
            mark: self.mark.clone(),
        }
    }

    fn with_record(self, record: Arc<Record>) -> Entry {
        Entry { record, revision: self.revision + 1, ..self }
    }
}

/// What somebody wants done to a session.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Create(Record),
    Put {
        record: Record,
        revision: u64,
    },
    Claim,
    Append {
        epoch: Epoch,
        at: Seq,
        /// How many events follow `at`.
        events: u64,
        mark: Option<Mark>,
        record: Option<Arc<Record>>,
    },
    Forget,
}

/// Why a change makes no sense here and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejection {
    NoSession,
    /// The record is at another revision than the caller thought, or is there already.
    Changed {
        found: u64,
    },
    /// The journal ends elsewhere.
    Behind {
        tail: Seq,
    },
    Fenced,
}

/// The session after `change`; `None` where there is none any more.
pub(super) fn decide(entry: Option<&Entry>, change: Change) -> Result<Option<Entry>, Rejection> {
    match (entry, change) {
        (None, Change::Create(record)) => Ok(Some(Entry::new(record))),
        (Some(entry), Change::Create(_)) => Err(Rejection::Changed { found: entry.revision }),
        (_, Change::Forget) => Ok(None),
        (None, Change::Put { .. } | Change::Claim | Change::Append { .. }) => Err(Rejection::NoSession),
        (Some(entry), Change::Put { record, revision }) if entry.revision == revision => {
            Ok(Some(entry.clone().with_record(Arc::new(record))))
        }
        (Some(entry), Change::Put { .. }) => Err(Rejection::Changed { found: entry.revision }),
        (Some(entry), Change::Claim) => Ok(Some(Entry { epoch: entry.epoch + 1, ..entry.clone() })),
        (Some(entry), Change::Append { epoch, .. }) if epoch == 0 || epoch != entry.epoch => Err(Rejection::Fenced),
        (Some(entry), Change::Append { at, .. }) if at != entry.tail => Err(Rejection::Behind { tail: entry.tail }),
        (Some(entry), Change::Append { at, events, mark, record, .. }) => {
            let mut after = Entry { tail: at + events, mark: mark.or(entry.mark.clone()), ..entry.clone() };
            if let Some(record) = record {
                after = after.with_record(record);
            }
            Ok(Some(after))
        }
    }
}

/// Why a change was not made, or why that is not known.
#[derive(Debug, Clone)]
pub(super) enum Failure {
    Rejected(Rejection),
    /// Nothing of it was written.
    Refused(Arc<io::Error>),
    /// It may or may not have been written.
    Unknown(Arc<io::Error>),
}

impl Failure {
    pub(super) fn for_append(self, session: SessionId) -> AppendError {
        match self {
            Failure::Rejected(Rejection::NoSession) => AppendError::NoSession(session),
            Failure::Rejected(Rejection::Behind { tail }) => AppendError::Conflict { tail },
            Failure::Rejected(Rejection::Fenced) => AppendError::Fenced,
            Failure::Rejected(Rejection::Changed { found }) => {
                AppendError::Refused(Arc::new(io::Error::other(format!("the record is at revision {found}"))))
            }
            Failure::Refused(error) => AppendError::Refused(error),
            Failure::Unknown(error) => AppendError::Unknown(error),
        }
    }

    pub(super) fn for_record(self, session: SessionId) -> StoreError {
        match self {
            Failure::Rejected(Rejection::NoSession) => StoreError::NoSession(session),
            Failure::Rejected(Rejection::Changed { found }) => StoreError::Conflict { session, found },
            Failure::Rejected(Rejection::Behind { .. } | Rejection::Fenced) => {
                StoreError::from(io::Error::other(format!("session `{session}` has another owner")))
            }
            Failure::Refused(error) | Failure::Unknown(error) => StoreError::Io(error),
        }
    }
}

/// A record filed under another session would come back as that other session after a restart.
pub(super) fn misfiled(session: SessionId, record: Option<&Record>) -> Option<Failure> {
    let other = record.map(|record| record.id).filter(|id| *id != session)?;
    let text = format!("the record of session `{other}` cannot be kept under session `{session}`; give it its own id");
    Some(Failure::Refused(Arc::new(io::Error::new(io::ErrorKind::InvalidInput, text))))
}
