//! Files of the sessions' workspaces: lists, downloads, uploads, changes and archives.
//!
//! Content of a workspace is written by an agent and treated as hostile. Each path is resolved
//! beneath the workspace by the kernel, and no link is followed. A workspace is a directory of this
//! host, so the work needs no sandbox.
//!
//! | module | content |
//! |---|---|
//! | [`path`] · [`error`] | paths as bytes; failures |
//! | [`tree`] | open workspace: resolves paths |
//! | [`entry`] · [`content_type`] | entries for clients; types by content |
//! | [`walk`] · [`listing`] | ordered reads with bounded memory; pages |
//! | [`temporary`] · [`incoming_file`] | temporary names; uploads |
//! | [`changes`] | new directories, moves and removals |
//! | [`byte_pipe`] · [`archive`] | archives as streams |
//! | [`found_entry`] · [`writer`] | checked changes of single entries, for restores |
//!
//! See docs/internals/files.md.

use std::{fs::File, io, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    sandbox::{KeyedMutex, WorkspaceDirs},
    store::SessionId,
};

mod archive;
mod byte_pipe;
mod changes;
mod content_type;
mod entry;
mod error;
mod found_entry;
mod incoming_file;
mod listing;
mod path;
mod temporary;
mod tree;
mod walk;
mod writer;

pub use archive::{ArchiveFormat, MAX_ZIP_ENTRIES, top_name};
pub(crate) use byte_pipe::pipe;
pub use changes::{MoveTarget, RemovalScope};
pub use content_type::{DownloadType, HEAD_BYTES, TypeDenied, check_content, check_extension};
pub use entry::{FileEntry, FileKind};
pub use error::FileError;
pub use found_entry::FoundEntry;
pub use incoming_file::{IncomingFile, PlacedFile, WriteCondition};
pub use listing::{FilePage, FileQuery, InvalidPattern, NamePattern};
pub(crate) use path::WorkspacePathSchema;
pub use path::{InnerPath, InvalidInnerPath, PathForm, PathText};
use temporary::TemporaryNames;
pub use tree::WorkspaceTree;
pub use walk::IsCancelled;
pub(crate) use walk::{NameScan, ScannedName};
pub use writer::{EntryCheck, NewEntry, WorkspaceWriter};

/// Requests that work at the same time, each on a blocking thread.
const MAX_RUNNING: usize = 8;
/// Requests that wait for their turn.
const MAX_WAITING: usize = 64;
/// Archives in progress. Each has a blocking thread until its client has it.
const MAX_ARCHIVES: usize = 8;
/// Uploads of several files in progress. Each holds a descriptor for each file.
const MAX_UPLOADS: usize = 16;

/// Files of all sessions.
///
/// Bound: 8 requests work, 64 wait. When full: further requests get [`FileError::Busy`].
#[derive(Debug)]
pub struct WorkspaceFiles {
    dirs: WorkspaceDirs,
    names: TemporaryNames,
    /// Orders the uploads of a session that get their names.
    placements: Arc<KeyedMutex<Option<SessionId>>>,
    running: Arc<Semaphore>,
    /// Places of requests that work or wait.
    places: Arc<Semaphore>,
    archives: Arc<Semaphore>,
    uploads: Arc<Semaphore>,
}

/// Permit for an upload of several files.
#[derive(Debug)]
pub struct UploadPermit {
    _permit: OwnedSemaphorePermit,
}

/// Session and path of a request. Failures name the path.
#[derive(Debug, Clone)]
pub struct FileTarget {
    pub session: SessionId,
    pub path: InnerPath,
}

/// Treatment of a workspace that does not exist yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingWorkspace {
    Create,
    Fail,
}

/// Treatment of a request when all places are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Limited,
    /// The request has done most of its work already, and waits.
    Always,
}

impl WorkspaceFiles {
    /// Opens the workspaces. `uploads` is a directory of the server's own, for its records.
    ///
    /// Removes what unfinished requests of earlier servers have left, in the background.
    ///
    /// # Errors
    /// The directory of the records cannot be read.
    pub fn open(dirs: WorkspaceDirs, uploads: PathBuf) -> io::Result<WorkspaceFiles> {
        Ok(WorkspaceFiles {
            dirs,
            names: TemporaryNames::open(uploads)?,
            placements: Arc::default(),
            running: Arc::new(Semaphore::new(MAX_RUNNING)),
            places: Arc::new(Semaphore::new(MAX_RUNNING + MAX_WAITING)),
            archives: Arc::new(Semaphore::new(MAX_ARCHIVES)),
            uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
        })
    }

    /// Returns a writer whose writes and the uploads of a session exclude each other.
    pub fn writer(&self) -> WorkspaceWriter {
        WorkspaceWriter::new(self.names.clone(), self.placements.clone())
    }

    /// Returns true if all sessions have the same workspace.
    pub fn is_shared(&self) -> bool {
        self.dirs.shared.is_some()
    }

    /// Returns a page of entries. A workspace that does not exist yet has none.
    ///
    /// # Errors
    /// As for [`FileQuery::run`].
    pub async fn list(&self, session: SessionId, query: FileQuery) -> Result<FilePage, FileError> {
        let target = FileTarget { session, path: query.directory.clone() };
        let is_root = target.path.is_root();
        match self.read(target, move |tree, is_cancelled| query.run(tree, is_cancelled)).await {
            Err(FileError::Missing(_)) if is_root => Ok(FilePage::default()),
            page => page,
        }
    }

    /// Opens a regular file, and returns it with its first bytes.
    ///
    /// # Errors
    /// [`FileError`]: the entry is missing, closed, or no regular file.
    pub async fn open_file(&self, target: FileTarget) -> Result<(File, Vec<u8>), FileError> {
        let path = target.path.clone();
        self.read(target, move |tree, _| {
            let file = tree.open_file(&path)?;
            let mut head = vec![0; HEAD_BYTES];
            let length = std::os::unix::fs::FileExt::read_at(&file, &mut head, 0);
            head.truncate(length.map_err(|e| FileError::of(&path, e))?);
            Ok((file, head))
        })
        .await
    }

    /// Admits an upload of several files.
    ///
    /// # Errors
    /// [`FileError::Busy`]: too many are in progress.
    pub fn admit_upload(&self) -> Result<UploadPermit, FileError> {
        let permit = self.uploads.clone().try_acquire_owned().map_err(|_| FileError::Busy(MAX_UPLOADS))?;
        Ok(UploadPermit { _permit: permit })
    }

    /// Begins an upload.
    ///
    /// # Errors
    /// [`FileError`]: a part on the way is no directory, or no file can be created.
    pub async fn receive(&self, target: FileTarget) -> Result<IncomingFile, FileError> {
        let (names, path) = (self.names.clone(), target.path.clone());
        self.write(target, Admission::Limited, move |tree| IncomingFile::create(tree, &names, &path)).await
    }

    /// Gives complete uploads their names: all, or none. At least one file.
    ///
    /// # Errors
    /// [`FileError`]: the condition does not hold, a name belongs to a directory, or the disk is
    /// full. The workspace is then as before.
    pub async fn place(
        &self,
        session: SessionId,
        files: Vec<IncomingFile>,
        condition: WriteCondition,
    ) -> Result<Vec<PlacedFile>, FileError> {
        let path = files.first().map(|file| file.path().clone()).unwrap_or_default();
        // In a shared workspace, uploads of all sessions meet.
        let key = (!self.is_shared()).then_some(session);
        let (names, placement) = (self.names.clone(), self.placements.of(key));
        self.write(FileTarget { session, path }, Admission::Always, move |tree| {
            incoming_file::place_all(tree, &names, files, (&condition, &*placement))
        })
        .await
    }

    /// Creates a directory and the missing ones on the way. Returns it, and true if it is new.
    ///
    /// # Errors
    /// [`FileError`]: the name belongs to a file, or the disk is full.
    pub async fn make_dir(&self, target: FileTarget) -> Result<(FileEntry, bool), FileError> {
        let path = target.path.clone();
        self.write(target, Admission::Limited, move |tree| tree.make_dir(&path)).await
    }

    /// Moves an entry to another path of the same workspace.
    ///
    /// # Errors
    /// [`FileError`]: the entry or the new parent is missing, or the name is taken.
    pub async fn move_entry(
        &self,
        from: FileTarget,
        to: InnerPath,
        target: MoveTarget,
    ) -> Result<FileEntry, FileError> {
        let path = from.path.clone();
        self.write(from, Admission::Limited, move |tree| tree.move_entry(&path, &to, target)).await
    }

    /// Removes an entry.
    ///
    /// # Errors
    /// [`FileError`]: the entry is missing, or is a directory with content and `scope` excludes
    /// such.
    pub async fn remove(&self, target: FileTarget, scope: RemovalScope) -> Result<(), FileError> {
        let (names, path) = (self.names.clone(), target.path.clone());
        self.write(target, Admission::Limited, move |tree| tree.remove(&names, &path, scope)).await
    }

    /// Begins an archive. The stream fails if a file of more than 1 MiB shrinks meanwhile.
    ///
    /// # Errors
    /// [`FileError`]: the entry is missing, or has too many entries for a zip archive.
    pub async fn archive(
        &self,
        target: FileTarget,
        format: ArchiveFormat,
    ) -> Result<BoxStream<'static, io::Result<Bytes>>, FileError> {
        let permit = self.archives.clone().try_acquire_owned().map_err(|_| FileError::Busy(MAX_ARCHIVES))?;
        let path = target.path.clone();
        let tree = self.read(target.clone(), move |tree, is_cancelled| {
            tree.locate(&path)?;
            match format == ArchiveFormat::TarGz || archive::fits_into_zip(tree, &path, is_cancelled)? {
                true => tree.reopened().map_err(|e| FileError::of(&path, e)),
                false => Err(FileError::TooManyForZip(path)),
            }
        });
        let tree = tree.await?;
        let (writer, stream) = byte_pipe::pipe();
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            archive::write_archive(&tree, &target.path, format, writer);
        });
        Ok(stream.boxed())
    }

    async fn read<T: Send + 'static>(
        &self,
        target: FileTarget,
        work: impl FnOnce(&WorkspaceTree, IsCancelled<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        self.run(target, (MissingWorkspace::Fail, Admission::Limited), work).await
    }

    async fn write<T: Send + 'static>(
        &self,
        target: FileTarget,
        admission: Admission,
        work: impl FnOnce(&WorkspaceTree) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        self.run(target, (MissingWorkspace::Create, admission), move |tree, _| work(tree)).await
    }

    /// Does work on a blocking thread. A client that is gone cancels reads; a change is completed.
    async fn run<T: Send + 'static>(
        &self,
        FileTarget { session, path }: FileTarget,
        (missing, admission): (MissingWorkspace, Admission),
        work: impl FnOnce(&WorkspaceTree, IsCancelled<'_>) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let place = match admission {
            Admission::Always => None,
            Admission::Limited => match self.places.clone().try_acquire_owned() {
                Ok(place) => Some(place),
                Err(_) => return Err(FileError::Busy(MAX_RUNNING + MAX_WAITING)),
            },
        };
        let turn = self.running.clone().acquire_owned().await;
        let dirs = self.dirs.clone();
        let cancelled = CancellationToken::new();
        let cancels_when_dropped = cancelled.clone().drop_guard();
        let job_path = path.clone();
        let job = tokio::task::spawn_blocking(move || {
            let _until_done = (place, turn);
            let tree = open_tree(&dirs, session, missing).map_err(|e| FileError::of(&job_path, e))?;
            work(&tree, &|| cancelled.is_cancelled())
        });
        let done = job.await;
        drop(cancels_when_dropped);
        done.unwrap_or_else(|e| Err(FileError::Io { path, source: io::Error::other(e) }))
    }
}

fn open_tree(dirs: &WorkspaceDirs, session: SessionId, missing: MissingWorkspace) -> io::Result<WorkspaceTree> {
    let path = match missing {
        MissingWorkspace::Create => dirs.dir_of(session)?,
        MissingWorkspace::Fail => dirs.shared.clone().unwrap_or_else(|| dirs.root.join(session.to_string())),
    };
    // The files of a shared workspace belong to the configured user, whoever has the directory.
    WorkspaceTree::open(&path, dirs.shared.as_ref().map(|_| (dirs.uid, dirs.gid)))
}

#[cfg(test)]
mod tests;
