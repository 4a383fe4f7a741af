//! `read`: a text file, whole for the journal and with line numbers for the model.

use greenroom_protocol::{Observation, Seen};

use super::{Bench, Done, Fault, files, for_model, whole::Whole};
use crate::threads::off_thread;

pub(super) async fn read(path: &str, bench: &Bench<'_>) -> Result<Done, Fault> {
    let (file, named) = (files::locate(&bench.directory, path)?, path.to_owned());
    let (text, told) = off_thread(move || {
        let text = files::read_text(&file, &named)?;
        let told = if text.is_empty() { "(the file is empty)".to_owned() } else { for_model(&numbered(&text)) };
        Ok((text, told))
    })
    .await?;
    let mut whole = Whole::new();
    whole.push(&text);
    let kept = whole.finish(bench).await;
    let seen = Seen::Read { path: path.to_owned(), truncated: kept.truncated() };
    Ok(Done { observation: Observation { seen, content: kept.content() }, told })
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(index, line)| format!("{:>6}\t{line}\n", index + 1)).collect()
}
