//! `write`: a whole file.

use greenroom_protocol::{Observation, Seen};

use super::{Bench, Done, Fault, files};

pub(super) async fn write(path: &str, content: &str, bench: &Bench<'_>) -> Result<Done, Fault> {
    files::replace(&files::locate(&bench.directory, path)?, path, content)?;
    let bytes = content.len() as u64;
    let observation = Observation { seen: Seen::Write { path: path.to_owned(), bytes }, content: String::new() };
    Ok(Done { observation, told: format!("Wrote {bytes} bytes to {path}.") })
}
