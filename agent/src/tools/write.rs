//! `write`: a whole file.

use greenroom_protocol::{Observation, Seen};

use super::{
    Bench, Done, Fault,
    files::{self, Replacement},
};
use crate::threads::off_thread;

pub(super) async fn write(path: &str, content: &str, bench: &Bench<'_>) -> Result<Done, Fault> {
    let bytes = content.len() as u64;
    let (file, stop) = (files::locate(&bench.directory, path)?, bench.stop.clone());
    let (named, content) = (path.to_owned(), content.to_owned());
    off_thread(move || Replacement { file: &file, path: &named, content: &content, before: None }.put(&stop)).await?;
    let observation = Observation { seen: Seen::Write { path: path.to_owned(), bytes }, content: String::new() };
    Ok(Done { observation, told: format!("Wrote {bytes} bytes to {path}.") })
}
