//! Rules of a change to a session. Pure: no clock, no disk. Shared by the drivers that hold all
//! sessions in memory.

use std::{io, sync::Arc};

use super::{
    AppendError, CreateOutcome, Epoch, ReportMark, Seq, SessionId, SessionRecord, SessionSnapshot, StoreError,
};

/// State of a session between two changes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SessionEntry {
    /// Shared, because lists, pending commits and readers hold the record for a moment each.
    pub(super) record: Arc<SessionRecord>,
    /// Grows with each change of the record.
    pub(super) revision: u64,
    /// 0 until the first claim. No change succeeds with epoch 0.
    pub(super) epoch: Epoch,
    pub(super) tail: Seq,
    pub(super) mark: Option<ReportMark>,
}

impl SessionEntry {
    pub(super) fn new(record: Arc<SessionRecord>) -> SessionEntry {
        SessionEntry { record, revision: 1, epoch: 0, tail: 0, mark: None }
    }

    pub(super) fn snapshot(&self) -> SessionSnapshot {
        SessionSnapshot { record: SessionRecord::clone(&self.record), tail: self.tail, mark: self.mark.clone() }
    }

    fn is_owned_at(&self, epoch: Epoch) -> bool {
        epoch != 0 && epoch == self.epoch
    }

    fn with_record(self, record: Arc<SessionRecord>) -> SessionEntry {
        SessionEntry { record, revision: self.revision + 1, ..self }
    }
}

/// Requested change of a session.
#[derive(Debug, Clone)]
pub(super) enum SessionChange {
    Create(Arc<SessionRecord>),
    Claim,
    Append {
        epoch: Epoch,
        at: Seq,
        /// Number of events that follow `at`.
        events: u64,
        mark: Option<ReportMark>,
        record: Option<Arc<SessionRecord>>,
    },
    Forget {
        epoch: Epoch,
    },
}

/// Reason why the state of the session does not admit a change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ChangeRejection {
    NoSession,
    /// The id of the new session belongs to this session.
    Exists(SessionEntry),
    /// The journal ends elsewhere.
    TailMismatch {
        tail: Seq,
    },
    Fenced,
}

/// Returns the session after `change`; `None` if the change removes the session.
pub(super) fn decide(
    entry: Option<&SessionEntry>,
    change: SessionChange,
) -> Result<Option<SessionEntry>, ChangeRejection> {
    match (entry, change) {
        (None, SessionChange::Create(record)) => Ok(Some(SessionEntry::new(record))),
        (Some(entry), SessionChange::Create(_)) => Err(ChangeRejection::Exists(entry.clone())),
        (None, SessionChange::Forget { .. }) => Ok(None),
        (None, SessionChange::Claim | SessionChange::Append { .. }) => Err(ChangeRejection::NoSession),
        (Some(entry), SessionChange::Claim) => Ok(Some(SessionEntry { epoch: entry.epoch + 1, ..entry.clone() })),
        (Some(entry), SessionChange::Append { epoch, .. } | SessionChange::Forget { epoch })
            if !entry.is_owned_at(epoch) =>
        {
            Err(ChangeRejection::Fenced)
        }
        (Some(_), SessionChange::Forget { .. }) => Ok(None),
        (Some(entry), SessionChange::Append { at, .. }) if at != entry.tail => {
            Err(ChangeRejection::TailMismatch { tail: entry.tail })
        }
        (Some(entry), SessionChange::Append { at, events, mark, record, .. }) => {
            let mut after = SessionEntry { tail: at + events, mark: mark.or(entry.mark.clone()), ..entry.clone() };
            if let Some(record) = record {
                after = after.with_record(record);
            }
            Ok(Some(after))
        }
    }
}

/// Reason why a change failed, or why its result is unknown.
#[derive(Debug, Clone)]
pub(super) enum ChangeFailure {
    Rejected(ChangeRejection),
    /// No part of the change was written.
    NotWritten(Arc<io::Error>),
    /// The change may or may not have been written.
    Unknown(Arc<io::Error>),
}

impl ChangeFailure {
    pub(super) fn into_append_error(self, session: SessionId) -> AppendError {
        match self {
            ChangeFailure::Rejected(ChangeRejection::NoSession) => AppendError::NoSession(session),
            ChangeFailure::Rejected(ChangeRejection::TailMismatch { tail }) => AppendError::Conflict { tail },
            ChangeFailure::Rejected(ChangeRejection::Fenced) => AppendError::Fenced,
            ChangeFailure::Rejected(ChangeRejection::Exists(_)) => {
                AppendError::NotWritten(Arc::new(exists_error(session)))
            }
            ChangeFailure::NotWritten(error) => AppendError::NotWritten(error),
            ChangeFailure::Unknown(error) => AppendError::Unknown(error),
        }
    }

    pub(super) fn into_store_error(self, session: SessionId) -> StoreError {
        match self {
            ChangeFailure::Rejected(ChangeRejection::NoSession) => StoreError::NoSession(session),
            ChangeFailure::Rejected(ChangeRejection::Exists(_)) => exists_error(session).into(),
            // The tail moved under another owner.
            ChangeFailure::Rejected(ChangeRejection::TailMismatch { .. } | ChangeRejection::Fenced) => {
                StoreError::Fenced
            }
            ChangeFailure::NotWritten(error) | ChangeFailure::Unknown(error) => StoreError::Io(error),
        }
    }
}

/// Checks that `epoch` belongs to the newest claim of the session.
pub(super) fn check_owner(entry: Option<&SessionEntry>, session: SessionId, epoch: Epoch) -> Result<(), StoreError> {
    match entry {
        Some(entry) if entry.is_owned_at(epoch) => Ok(()),
        Some(_) => Err(StoreError::Fenced),
        None => Err(StoreError::NoSession(session)),
    }
}

fn exists_error(session: SessionId) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("session `{session}` exists already; purge it first"))
}

/// Returns the result of a [`SessionChange::Create`].
pub(super) fn create_outcome(
    session: SessionId,
    created: Result<Option<SessionEntry>, ChangeFailure>,
) -> Result<CreateOutcome, StoreError> {
    match created {
        Ok(Some(entry)) => Ok(CreateOutcome::Created(entry.snapshot())),
        Ok(None) => Err(StoreError::NoSession(session)),
        Err(ChangeFailure::Rejected(ChangeRejection::Exists(entry))) => Ok(CreateOutcome::Exists(entry.snapshot())),
        Err(failure) => Err(failure.into_store_error(session)),
    }
}

/// Rejects a record that carries the id of another session.
///
/// After a restart, such a record would come back as that other session.
pub(super) fn reject_foreign_record(session: SessionId, record: Option<&SessionRecord>) -> Option<ChangeFailure> {
    let other = record.map(|record| record.id).filter(|id| *id != session)?;
    let text = format!(
        "the record of session `{other}` cannot be stored under session `{session}`; store it under its own id"
    );
    Some(ChangeFailure::NotWritten(Arc::new(io::Error::new(io::ErrorKind::InvalidInput, text))))
}
