//! The two commands: which journal, which file.

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
    store::{SessionId, Store, local::LocalStore},
};

/// `greenroom export`: to `output`, which is there whole or not at all, or to stdout, as far as somebody reads it. What was done
/// is said on stderr, and with `skip_damaged` what is not in it.
///
/// # Errors
/// For a person to read.
pub async fn export_to(
    config: &Config,
    session: Option<SessionId>,
    output: Option<PathBuf>,
    skip_damaged: bool,
) -> Result<(), String> {
    if !config.data.dir.is_dir() {
        return Err(format!("there is no data directory `{}`; name it with `--data DIR`", config.data.dir.display()));
    }
    let (_data, store) = open_to_read(config)?;
    let mut skipped = Vec::new();
    let damaged = if skip_damaged { DamagePolicy::Skip(&mut skipped) } else { DamagePolicy::Fail };
    let moved = match &output {
        None => {
            let moved = export(store.as_ref(), session, damaged, &mut BufWriter::new(io::stdout().lock())).await;
            if moved.as_ref().is_err_and(is_broken_pipe) {
                return Ok(());
            }
            moved
        }
        Some(path) => {
            let at = |e: io::Error| format!("`{}`: {e}", path.display());
            let mut part = path.clone().into_os_string();
            part.push(".part");
            let mut file = BufWriter::new(create_private(Path::new(&part)).map_err(at)?);
            let moved = export(store.as_ref(), session, damaged, &mut file).await;
            let kept = moved.is_ok().then(|| finish(file, Path::new(&part), path)).transpose();
            if moved.is_err() || kept.is_err() {
                // What is left of it says nothing.
                let _ = std::fs::remove_file(&part);
            }
            kept.map_err(at)?;
            moved
        }
    };
    let moved: TransferCounts = moved.map_err(|e| match e.is_damage() {
        true => format!("{e}; `--skip-damaged` exports everything else"),
        false => e.to_string(),
    })?;
    for what in &skipped {
        print_line(format_args!("left out: {what}"));
    }
    match skipped.len() {
        0 => print_line(format_args!("exported {moved}")),
        left_out => print_line(format_args!("exported {moved}; left out as told above: {left_out}")),
    }
    Ok(())
}

/// Whoever read what is written has gone, as `head` does when it has enough.
fn is_broken_pipe(error: &TransferError) -> bool {
    matches!(error, TransferError::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
}

/// On stderr, where somebody reads it.
fn print_line(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{what}");
}

/// A new file that nobody else can read: no more than the journal itself, all of which it may hold.
fn create_private(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// Puts what was written in its place, for good.
fn finish(mut file: BufWriter<File>, part: &Path, path: &Path) -> io::Result<()> {
    file.flush()?;
    file.get_ref().sync_all()?;
    std::fs::rename(part, path)?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

/// `greenroom import`
///
/// # Errors
/// For a person to read.
pub async fn import_from(config: &Config, file: &Path) -> Result<(), String> {
    let again = || File::open(file).map(BufReader::new);
    // Before the data directory: the likelier mistake is told first.
    again().map_err(|e| format!("`{}`: {e}", file.display()))?;
    let (_data, store) = open(config)?;
    let moved = import(&store, again).await.map_err(|e| format!("`{}`: {e}", file.display()))?;
    print_line(format_args!("imported {moved}"));
    Ok(())
}

/// The directory is taken for as long as the first of the two lives.
fn open(config: &Config) -> Result<(DataDir, Arc<dyn Store>), String> {
    let data = DataDir::open(&config.data.dir).map_err(|e| e.to_string())?;
    let store = LocalStore::open(&data.journal()).map_err(|e| e.to_string())?;
    Ok((data, Arc::new(store)))
}

/// Where the disk takes no writes any more, as the kernel has it of one that fails, what is on it is read as it stands.
fn open_to_read(config: &Config) -> Result<(DataDir, Arc<dyn Store>), String> {
    let data = match DataDir::open(&config.data.dir) {
        Err(error) if error.is_read_only() => DataDir::open_to_read(&config.data.dir),
        opened => opened,
    };
    let data = data.map_err(|e| e.to_string())?;
    let store = match LocalStore::open(&data.journal()) {
        Err(error) if error.is_read_only() => LocalStore::open_to_read(&data.journal()),
        opened => opened,
    };
    Ok((data, Arc::new(store.map_err(|e| e.to_string())?)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::store::in_memory::MemoryStore;

    /// A reader that has gone.
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
    async fn a_reader_that_goes_ends_an_export_and_is_no_failure_of_it() {
        let store = MemoryStore::new();
        let gone = export(&store, None, DamagePolicy::Fail, &mut BufWriter::new(ClosedReader))
            .await
            .expect_err("nobody reads it");
        assert!(is_broken_pipe(&gone), "{gone}");
    }

    #[test]
    fn nobody_else_can_read_an_export() {
        let dir = tempfile::tempdir().expect("a directory");
        let (part, path) = (dir.path().join("all.jsonl.part"), dir.path().join("all.jsonl"));
        // Left by one that was broken off, with another's rights.
        std::fs::write(&part, "old").expect("it is written");
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
        let mut file = BufWriter::new(create_private(&part).expect("it is made"));
        file.write_all(b"new").expect("there is room");
        finish(file, &part, &path).expect("it is put in its place");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "new");
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    }
}
