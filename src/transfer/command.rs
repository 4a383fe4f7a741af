//! Commands `greenroom export` and `greenroom import`.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::NamedTempFile;

use super::{DamagePolicy, TransferCounts, TransferError, export, import};
use crate::{
    config::Config,
    data::DataDir,
    store::{self, SessionId, Store},
    terminal::print_note,
};

/// Request to export.
#[derive(Debug, Default)]
pub struct ExportRequest {
    /// Session to export; all sessions if absent.
    pub session: Option<SessionId>,
    /// File to write. Absent or `-`: stdout.
    pub output: Option<PathBuf>,
    /// True if an existing file may be replaced.
    pub force: bool,
    pub skip_damaged: bool,
}

/// Runs `greenroom export`. Writes the file atomically, or writes to stdout until the reader closes
/// it. Reports on stderr what was exported and, with `skip_damaged`, what was left out.
///
/// # Errors
/// A text for the user.
pub async fn export_to(config: &Config, request: ExportRequest) -> Result<(), String> {
    let output = match request.output.filter(|path| path != Path::new("-")) {
        Some(path) => Some(OutputFile::check(path, request.force)?),
        None => None,
    };
    if !config.data.dir.is_dir() {
        return Err(format!("no data directory `{}`; name one with `--data DIR`", config.data.dir.display()));
    }
    let (_data, store) = open_to_read(config)?;
    let mut skipped = Vec::new();
    let policy = if request.skip_damaged { DamagePolicy::Skip(&mut skipped) } else { DamagePolicy::Fail };
    let counts = match output {
        None => {
            let mut stdout = BufWriter::new(io::stdout().lock());
            let counts = export(store.as_ref(), request.session, policy, &mut stdout).await;
            if counts.as_ref().is_err_and(is_broken_pipe) {
                return Ok(());
            }
            counts
        }
        Some(output) => {
            let mut file = BufWriter::new(output.create()?);
            let counts = export(store.as_ref(), request.session, policy, &mut file).await;
            if counts.is_ok() {
                output.finish(file)?;
            }
            counts
        }
    };
    let counts: TransferCounts = counts.map_err(|e| match e.is_damage() {
        true => format!("{e}; `--skip-damaged` exports everything else"),
        false => e.to_string(),
    })?;
    for error in &skipped {
        print_note(format_args!("left out: {error}"));
    }
    match skipped.len() {
        0 => print_note(format_args!("exported {counts}")),
        count => print_note(format_args!("exported {counts}; left out, as listed above: {count}")),
    }
    Ok(())
}

/// Returns true if the reader closed stdout, as `head` does.
fn is_broken_pipe(error: &TransferError) -> bool {
    matches!(error, TransferError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
}

/// File that an export creates or replaces.
#[derive(Debug)]
struct OutputFile {
    path: PathBuf,
    force: bool,
}

impl OutputFile {
    /// Checks the file before the work begins.
    fn check(path: PathBuf, force: bool) -> Result<OutputFile, String> {
        match std::fs::metadata(&path) {
            Ok(found) if !found.is_file() => {
                Err(format!("`{}` is not a regular file; `-o -` writes to stdout", path.display()))
            }
            Ok(_) if !force => Err(exists(&path)),
            // A link keeps its place: the file that it names is replaced.
            Ok(_) => Ok(OutputFile { path: path.canonicalize().unwrap_or(path), force }),
            Err(_) => Ok(OutputFile { path, force }),
        }
    }

    /// Creates a file with mode 0600 beside the final path, which disappears if the export fails.
    /// An export may hold the whole journal, which has the same mode.
    fn create(&self) -> Result<NamedTempFile, String> {
        tempfile::Builder::new().prefix("greenroom-export-").suffix(".part").tempfile_in(self.dir()).map_err(self.at())
    }

    /// Syncs the file and moves it to its final path.
    fn finish(&self, file: BufWriter<NamedTempFile>) -> Result<(), String> {
        let file = file.into_inner().map_err(|e| self.at()(e.into_error()))?;
        file.as_file().sync_all().map_err(self.at())?;
        let moved = match self.force {
            true => file.persist(&self.path),
            false => file.persist_noclobber(&self.path),
        };
        moved.map_err(|e| match e.error.kind() {
            io::ErrorKind::AlreadyExists => exists(&self.path),
            _ => self.at()(e.error),
        })?;
        File::open(self.dir()).and_then(|dir| dir.sync_all()).map_err(self.at())
    }

    fn dir(&self) -> &Path {
        self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn at(&self) -> impl Fn(io::Error) -> String {
        move |e| format!("`{}`: {e}", self.path.display())
    }
}

fn exists(path: &Path) -> String {
    format!("`{}` exists; `--force` replaces it", path.display())
}

/// Runs `greenroom import`.
///
/// # Errors
/// A text for the user.
pub async fn import_from(config: &Config, file: &Path) -> Result<(), String> {
    let open_file = || File::open(file).map(BufReader::new);
    // Checked before the data directory, because a wrong file name is the likelier mistake.
    open_file().map_err(|e| format!("`{}`: {e}", file.display()))?;
    let (_data, store) = open(config)?;
    let counts = import(&store, open_file).await.map_err(|e| format!("`{}`: {e}", file.display()))?;
    print_note(format_args!("imported {counts}"));
    Ok(())
}

/// Opens the data directory and its journal. The directory stays locked while the returned
/// [`DataDir`] exists.
fn open(config: &Config) -> Result<(DataDir, Arc<dyn Store>), String> {
    let data = DataDir::open(&config.data.dir).map_err(|e| e.to_string())?;
    let store = store::open_durable(&config.data, &data).map_err(|e| e.to_string())?;
    Ok((data, store))
}

/// Opens the data directory and its journal to read. On a read-only disk, opens both as they are.
fn open_to_read(config: &Config) -> Result<(DataDir, Arc<dyn Store>), String> {
    let data = match DataDir::open(&config.data.dir) {
        Err(error) if error.is_read_only() => DataDir::open_to_read(&config.data.dir),
        opened => opened,
    };
    let data = data.map_err(|e| e.to_string())?;
    let store = store::open_to_read(&config.data, &data).map_err(|e| e.to_string())?;
    Ok((data, store))
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::store::in_memory::MemoryStore;

    /// Writer whose reader has closed the pipe.
    struct ClosedReader;

    impl Write for ClosedReader {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn closed_reader_ends_export_without_failure() {
        let store = MemoryStore::new();
        let error = export(&store, None, DamagePolicy::Fail, &mut BufWriter::new(ClosedReader))
            .await
            .expect_err("the reader is gone");
        assert!(is_broken_pipe(&error), "{error}");
    }

    fn write(output: &OutputFile, text: &str) -> Result<(), String> {
        let mut file = BufWriter::new(output.create()?);
        file.write_all(text.as_bytes()).expect("the buffer has room");
        output.finish(file)
    }

    #[test]
    fn export_file_is_private_and_replaces_only_by_force() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("all.jsonl");
        let read = || std::fs::read_to_string(&path).expect("the file exists");
        let unforced = OutputFile::check(path.clone(), false).expect("the name is free");
        write(&unforced, "first").expect("the file is written");
        assert_eq!(std::fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
        // The second of two exports that began while the name was free.
        let error = write(&unforced, "second").expect_err("the name is taken");
        assert!(error.contains("exists; `--force` replaces it"), "{error}");
        assert_eq!(OutputFile::check(path.clone(), false).err(), Some(error));
        assert_eq!(read(), "first");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("the link is created");
        write(&OutputFile::check(link.clone(), true).expect("a file may be replaced"), "third").expect("it is written");
        assert!(read() == "third" && link.is_symlink());
        for other in [dir.path().to_owned(), "/dev/null".into()] {
            let error = OutputFile::check(other, true).expect_err("no regular file");
            assert!(error.contains("`-o -`"), "{error}");
        }
        // An export that fails leaves nothing behind.
        drop(unforced.create().expect("the file is created"));
        assert_eq!(dir.path().read_dir().expect("a directory").count(), 2);
    }
}
