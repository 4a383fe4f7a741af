//! Commands `greenroom export` and `greenroom import`.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{DamagePolicy, TransferCounts, TransferError, export, import};
use crate::{
    config::Config,
    data::DataDir,
    store::{self, SessionId, Store},
};

/// Runs `greenroom export`. Writes `output` atomically, or writes to stdout until the reader closes
/// it. Reports on stderr what was exported and, with `skip_damaged`, what was left out.
///
/// # Errors
/// A text for the user.
pub async fn export_to(
    config: &Config,
    session: Option<SessionId>,
    output: Option<PathBuf>,
    skip_damaged: bool,
) -> Result<(), String> {
    if !config.data.dir.is_dir() {
        return Err(format!("no data directory `{}`; name one with `--data DIR`", config.data.dir.display()));
    }
    let (_data, store) = open_to_read(config)?;
    let mut skipped = Vec::new();
    let policy = if skip_damaged { DamagePolicy::Skip(&mut skipped) } else { DamagePolicy::Fail };
    let counts = match &output {
        None => {
            let counts = export(store.as_ref(), session, policy, &mut BufWriter::new(io::stdout().lock())).await;
            if counts.as_ref().is_err_and(is_broken_pipe) {
                return Ok(());
            }
            counts
        }
        Some(path) => {
            let at = |e: io::Error| format!("`{}`: {e}", path.display());
            let mut part = path.clone().into_os_string();
            part.push(".part");
            let mut file = BufWriter::new(create_private(Path::new(&part)).map_err(at)?);
            let counts = export(store.as_ref(), session, policy, &mut file).await;
            let finished = counts.is_ok().then(|| finish(file, Path::new(&part), path)).transpose();
            if counts.is_err() || finished.is_err() {
                // A partial export is useless.
                let _ = std::fs::remove_file(&part);
            }
            finished.map_err(at)?;
            counts
        }
    };
    let counts: TransferCounts = counts.map_err(|e| match e.is_damage() {
        true => format!("{e}; `--skip-damaged` exports everything else"),
        false => e.to_string(),
    })?;
    for error in &skipped {
        print_line(format_args!("left out: {error}"));
    }
    match skipped.len() {
        0 => print_line(format_args!("exported {counts}")),
        count => print_line(format_args!("exported {counts}; left out, as listed above: {count}")),
    }
    Ok(())
}

/// Returns true if the reader closed stdout, as `head` does.
fn is_broken_pipe(error: &TransferError) -> bool {
    matches!(error, TransferError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line to stderr. Ignores a closed stderr.
fn print_line(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Creates a file with mode 0600. An export may hold the whole journal, which has the same mode.
fn create_private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Syncs the file and moves it to its final path.
fn finish(mut file: BufWriter<File>, part: &Path, path: &Path) -> io::Result<()> {
    file.flush()?;
    file.get_ref().sync_all()?;
    std::fs::rename(part, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
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
    print_line(format_args!("imported {counts}"));
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
    use std::os::unix::fs::PermissionsExt;

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

    #[test]
    fn export_file_is_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let (part, path) = (dir.path().join("all.jsonl.part"), dir.path().join("all.jsonl"));
        // A file with a wider mode, left by an interrupted export.
        std::fs::write(&part, "old").expect("the file is written");
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o644)).expect("the file belongs to this user");
        let mut file = BufWriter::new(create_private(&part).expect("the file is created"));
        file.write_all(b"new").expect("the buffer has room");
        finish(file, &part, &path).expect("the file is moved");
        assert_eq!(std::fs::read_to_string(&path).expect("the file exists"), "new");
        assert_eq!(std::fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777, 0o600);
    }
}
