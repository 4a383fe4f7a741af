//! Opens the configured driver. Only this file and tests name a driver's type.

use std::{io, path::PathBuf, sync::Arc};

use super::{Store, cached::CachedStore, in_memory::MemoryStore, local::LocalStore};
use crate::{
    config::{DataConfig, JournalBackend},
    data::DataDir,
};

/// Reason why a journal cannot be opened. The text names the way out.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the journal `{path}` is in use by another server; stop that server, or choose another data directory with \
         `--data DIR`"
    )]
    InUse { path: PathBuf },
    #[error(
        "`{path}` was written by a newer version; start that version, or choose another data directory with `--data DIR`"
    )]
    Newer { path: PathBuf },
    #[error("cannot use `{path}`: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OpenError {
    /// Reports if the disk is read-only.
    fn is_read_only(&self) -> bool {
        matches!(self, OpenError::Io { source, .. } if source.kind() == io::ErrorKind::ReadOnlyFilesystem)
    }
}

/// Opens the configured journal.
///
/// Blocks while the driver reads back what its index lacks.
///
/// # Errors
/// [`OpenError`] names the file and the way out.
pub fn open(config: &DataConfig, data: &DataDir) -> Result<Arc<dyn Store>, OpenError> {
    match config.journal {
        JournalBackend::Local => Ok(Arc::new(CachedStore::new(LocalStore::open(&data.journal())?))),
        // Holds all events in memory anyway.
        JournalBackend::Memory => Ok(Arc::new(MemoryStore::new())),
    }
}

/// Opens the configured journal for a command that ends before a server uses the journal.
///
/// With `memory`, opens the journal on disk: a journal in memory would end with the command.
///
/// # Errors
/// As for [`open`].
pub fn open_durable(config: &DataConfig, data: &DataDir) -> Result<Arc<dyn Store>, OpenError> {
    match config.journal {
        JournalBackend::Local | JournalBackend::Memory => Ok(Arc::new(LocalStore::open(&data.journal())?)),
    }
}

/// Opens the same journal as [`open_durable`], to read. On a read-only disk, opens the journal as
/// it is. A kernel makes a failing disk read-only.
///
/// # Errors
/// As for [`open`].
pub fn open_to_read(config: &DataConfig, data: &DataDir) -> Result<Arc<dyn Store>, OpenError> {
    match open_durable(config, data) {
        Err(error) if error.is_read_only() => match config.journal {
            JournalBackend::Local | JournalBackend::Memory => Ok(Arc::new(LocalStore::open_to_read(&data.journal())?)),
        },
        opened => opened,
    }
}
