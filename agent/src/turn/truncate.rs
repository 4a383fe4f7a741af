//! Last resort for a conversation that is too long: its longest texts keep their heads and tails.
//! Pure.
//!
//! No entry is added or removed, and every call keeps its result. So the order that providers
//! require still holds.

use greenroom_protocol::omission_marker;
use serde_json::{Value, json};

use super::conversation::{ConversationEntry, ToolCallRequest};

/// Longest line with a number of missing bytes, in bytes. Its two line breaks count as in JSON.
const OMISSION_LINE_BYTES: usize = "\n… 18446744073709551615 bytes left out …\n".len() + 2;
/// Shortest length of a truncated text, in bytes. Below it, no head or tail would remain.
const MIN_TEXT_BYTES: usize = 64;

/// Truncates the longest texts, all to one length, until the entries have at most `target` bytes.
pub(super) fn to_fit(entries: &mut [ConversationEntry], target: usize) {
    let excess = size(entries).saturating_sub(target);
    if excess == 0 {
        return;
    }
    let mut lengths: Vec<usize> = texts(entries).iter().map(|text| text.len()).collect();
    lengths.extend(calls(entries).map(|call| fixed_size(&call.arguments)));
    let longest = cut_length(lengths, excess).max(MIN_TEXT_BYTES);
    for call in calls(entries).filter(|call| fixed_size(&call.arguments) > longest) {
        let bytes = call.arguments.to_string().len();
        call.arguments = json!({ "left_out": format!("{bytes} bytes, to save room") });
    }
    to_length(entries, longest, longest);
}

/// Truncates every text of more than `over` bytes to `longest` bytes.
pub(super) fn to_length(entries: &mut [ConversationEntry], over: usize, longest: usize) {
    let longest = longest.max(MIN_TEXT_BYTES);
    for text in texts(entries).into_iter().filter(|text| text.len() > over.max(longest)) {
        *text = truncate_text(text, longest);
    }
}

fn size(entries: &[ConversationEntry]) -> usize {
    entries.iter().map(ConversationEntry::size).sum()
}

/// Returns the length to which longer texts must be cut to save `excess` bytes.
fn cut_length(mut lengths: Vec<usize>, excess: usize) -> usize {
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    let mut sum = 0;
    for (at, length) in lengths.iter().enumerate() {
        let count = at + 1;
        sum += length;
        let next = lengths.get(count).copied().unwrap_or_default();
        if sum - next * count >= excess {
            return (sum - excess) / count;
        }
    }
    0
}

/// Returns head and tail of `text` in at most `longest` bytes, with the omission line in between.
/// Its number includes the numbers of earlier omission lines that are removed.
pub(super) fn truncate_text(text: &str, longest: usize) -> String {
    let half = (longest - OMISSION_LINE_BYTES) / 2;
    let (head, rest) = text.split_at(text.floor_char_boundary(half));
    let (omitted, tail) = rest.split_at(rest.ceil_char_boundary(rest.len() - half));
    let earlier = earlier_omissions(omitted);
    let lines: usize = earlier.iter().map(|bytes| omission_marker(*bytes).len()).sum();
    let bytes = earlier.into_iter().fold(omitted.len() - lines, usize::saturating_add);
    format!("{head}{}{tail}", omission_marker(bytes))
}

/// Returns the numbers in the omission lines of a text.
fn earlier_omissions(text: &str) -> Vec<usize> {
    let line = omission_marker(0);
    let Some((before, after)) = line.split_once('0') else { return Vec::new() };
    let numbers = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
    // Only the agent's own notation counts: another notation of the number has another length.
    numbers.filter_map(|(number, _)| number.parse().ok().filter(|bytes: &usize| bytes.to_string() == number)).collect()
}

fn texts(entries: &mut [ConversationEntry]) -> Vec<&mut String> {
    let mut texts = Vec::new();
    for entry in entries {
        match entry {
            ConversationEntry::User(input) => texts.push(&mut input.text),
            ConversationEntry::Assistant(message) => {
                texts.push(&mut message.text);
                message.calls.iter_mut().for_each(|call| texts_in(&mut call.arguments, &mut texts));
            }
            ConversationEntry::Results { results, user } => {
                texts.push(&mut user.text);
                texts.extend(results.iter_mut().map(|result| &mut result.text));
            }
        }
    }
    texts
}

/// Collects the texts in a call's arguments. Arguments from a journal or a model are nested no
/// deeper than `serde_json` reads.
fn texts_in<'a>(arguments: &'a mut Value, texts: &mut Vec<&'a mut String>) {
    match arguments {
        Value::String(text) if text.len() > MIN_TEXT_BYTES => texts.push(text),
        Value::Array(values) => values.iter_mut().for_each(|value| texts_in(value, texts)),
        Value::Object(values) => values.values_mut().for_each(|value| texts_in(value, texts)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn calls(entries: &mut [ConversationEntry]) -> impl Iterator<Item = &mut ToolCallRequest> {
    let calls = entries.iter_mut().filter_map(|entry| match entry {
        ConversationEntry::Assistant(message) => Some(&mut message.calls),
        ConversationEntry::User(_) | ConversationEntry::Results { .. } => None,
    });
    calls.flatten()
}

/// Returns the JSON size of a call's arguments without the texts that can be truncated, in bytes.
fn fixed_size(arguments: &Value) -> usize {
    match arguments {
        Value::String(text) if text.len() > MIN_TEXT_BYTES => 0,
        Value::Array(values) => values.iter().map(|value| fixed_size(value) + 1).sum(),
        Value::Object(values) => values.iter().map(|(key, value)| key.len() + 4 + fixed_size(value)).sum(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => arguments.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::conversation::{AssistantMessage, ToolCallResult, UserInput};

    fn user(bytes: usize) -> ConversationEntry {
        ConversationEntry::User(UserInput { text: format!("BEGIN{}END", "x".repeat(bytes - 8)), files: Vec::new() })
    }

    fn call_entry(arguments: Value) -> ConversationEntry {
        let call = ToolCallRequest { id: "1".into(), name: "write".into(), arguments, ..ToolCallRequest::default() };
        ConversationEntry::Assistant(AssistantMessage { calls: vec![call], ..AssistantMessage::default() })
    }

    fn results(texts: &[&str]) -> ConversationEntry {
        let results = texts.iter().map(|text| ToolCallResult { id: "1".into(), text: (*text).to_owned() });
        ConversationEntry::Results { results: results.collect(), user: UserInput::default() }
    }

    #[test]
    fn longest_texts_are_cut_to_one_length() {
        let mut entries = [user(900), user(700), results(&["ä".repeat(400).as_str(), "short"])];
        to_fit(&mut entries, 1000);
        let all: Vec<String> = texts(&mut entries).into_iter().map(|text| text.clone()).collect();
        assert!(all[..2].iter().all(|text| text.starts_with("BEGIN") && text.ends_with("END") && text.len() > 290));
        assert!(all[0].contains(" bytes left out …") && all[3].starts_with('ä') && all[3].ends_with('ä'), "{all:?}");
        assert_eq!(all[4], "short");
        assert!(size(&entries) <= 1000 && size(&entries) > 900, "{}", size(&entries));
    }

    #[test]
    fn repeated_truncation_counts_all_missing_bytes() {
        let mut entries = [user(100_000)];
        for length in [50_000, 10_000, 700] {
            to_length(&mut entries, length, length);
            let text = texts(&mut entries).remove(0).clone();
            let [missing] = earlier_omissions(&text)[..] else { panic!("not one omission line: {text}") };
            assert_eq!(text.len() - omission_marker(missing).len() + missing, 100_000);
        }
    }

    #[test]
    fn truncated_arguments_keep_their_structure() {
        let mut entries = [call_entry(json!({ "path": "a.sh", "content": "\u{1}".repeat(5000) }))];
        to_fit(&mut entries, 1000);
        assert!(size(&entries) <= 1000);
        let ConversationEntry::Assistant(message) = &entries[0] else { panic!("the entry is not a call") };
        assert_eq!(message.calls[0].arguments["path"], "a.sh");
    }

    #[test]
    fn arguments_without_long_texts_are_replaced_whole() {
        let lines = json!({ "lines": vec!["one"; 5000] });
        let mut entries = [user(300), call_entry(lines), call_entry(json!({ "command": "ls" }))];
        to_fit(&mut entries, 1000);
        assert!(size(&entries) <= 1000);
        let [
            ConversationEntry::User(UserInput { text, .. }),
            ConversationEntry::Assistant(long),
            ConversationEntry::Assistant(short),
        ] = &entries
        else {
            panic!("unexpected entries")
        };
        assert_eq!(text.len(), 300);
        assert_eq!(long.calls[0].arguments, json!({ "left_out": "30011 bytes, to save room" }));
        assert_eq!(short.calls[0].arguments, json!({ "command": "ls" }));
    }

    #[test]
    fn forged_omission_line_is_not_counted() {
        let forged = format!("{}\n… 00 bytes left out …\n{}", omission_marker(usize::MAX), omission_marker(usize::MAX));
        assert!(
            truncate_text(&("x".repeat(200) + &forged + &"x".repeat(200)), 100).contains(&omission_marker(usize::MAX))
        );
    }
}
