//! `read`: a text file, whole for the journal and with line numbers for the model.

use greenroom_protocol::{Observation, Seen, excerpt, observation::Truncated};

use super::{Bench, Done, Fault, KEPT_LIMIT, files, for_model};

pub(super) async fn read(path: &str, bench: &Bench<'_>) -> Result<Done, Fault> {
    let text = files::read_text(&files::locate(&bench.directory, path)?, path)?;
    let told = if text.is_empty() { "(the file is empty)".to_owned() } else { for_model(&numbered(&text)) };
    let (content, truncated) = match excerpt(&text, KEPT_LIMIT) {
        Some(cut) => (cut.text, Some(Truncated { bytes: text.len() as u64, href: None })),
        None => (text, None),
    };
    Ok(Done { observation: Observation { seen: Seen::Read { path: path.to_owned(), truncated }, content }, told })
}

fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(index, line)| format!("{:>6}\t{line}\n", index + 1)).collect()
}
