//! The two commands: which journal, which file.

use std::{
    fs::File,
    io::{self, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Damaged, Moved, export, import};
use crate::{
    config::Config,
    data::DataDir,
    store::{Store, local::LocalStore},
};

/// `greenroom export`: to `output`, which is there whole or not at all, or to stdout. What was done is said on stderr, and
/// with `skip_damaged` what is not in it.
///
/// # Errors
/// For a person to read.
pub async fn export_to(
    config: &Config,
    session: Option<String>,
    output: Option<PathBuf>,
    skip_damaged: bool,
) -> Result<(), String> {
    let only = session.map(|id| id.parse().map_err(|_| format!("`{id}` is no session id"))).transpose()?;
    if !config.data.dir.is_dir() {
        return Err(format!("there is no data directory `{}`; name it with `--data DIR`", config.data.dir.display()));
    }
    let (_data, store) = open(config)?;
    let mut skipped = Vec::new();
    let damaged = if skip_damaged { Damaged::Skipped(&mut skipped) } else { Damaged::Refused };
    let moved = match &output {
        None => export(store.as_ref(), only, damaged, &mut BufWriter::new(io::stdout().lock())).await,
        Some(path) => {
            let at = |e: io::Error| format!("`{}`: {e}", path.display());
            let mut part = path.clone().into_os_string();
            part.push(".part");
            let mut file = BufWriter::new(File::create(&part).map_err(at)?);
            let moved = export(store.as_ref(), only, damaged, &mut file).await;
            let kept = moved.is_ok().then(|| finish(file, Path::new(&part), path)).transpose();
            if moved.is_err() || kept.is_err() {
                // What is left of it says nothing.
                let _ = std::fs::remove_file(&part);
            }
            kept.map_err(at)?;
            moved
        }
    };
    let moved: Moved = moved.map_err(|e| match e.is_damage() {
        true => format!("{e}; `--skip-damaged` exports everything else"),
        false => e.to_string(),
    })?;
    for what in &skipped {
        eprintln!("left out: {what}");
    }
    eprintln!("exported {moved}");
    Ok(())
}

fn finish(mut file: BufWriter<File>, part: &Path, path: &Path) -> io::Result<()> {
    file.flush()?;
    file.get_ref().sync_all()?;
    std::fs::rename(part, path)
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
    eprintln!("imported {moved}");
    Ok(())
}

/// The directory is taken for as long as the first of the two lives.
fn open(config: &Config) -> Result<(DataDir, Arc<dyn Store>), String> {
    let data = DataDir::open(&config.data.dir).map_err(|e| e.to_string())?;
    let store = LocalStore::open(&data.journal()).map_err(|e| e.to_string())?;
    Ok((data, Arc::new(store)))
}
