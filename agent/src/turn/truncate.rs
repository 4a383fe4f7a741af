//! The last resort where a conversation is too long: its longest texts keep their heads and tails. Pure.
//!
//! No entry comes or goes and every call keeps its result, so what a provider insists on still holds.

use greenroom_protocol::left_out;
use serde_json::{Value, json};

use super::conversation::{Call, Entry};

/// The longest line that tells what was left out, in bytes, with its two line ends as they are in JSON.
const LINE: usize = "\n… 18446744073709551615 bytes left out …\n".len() + 2;
/// No text is cut to less: of its head and its tail nothing would remain.
const SHORTEST: usize = 64;

/// Cuts the longest texts, all to one length, until the entries have no more than `enough` bytes.
pub(super) fn to_fit(entries: &mut [Entry], enough: usize) {
    let excess = size(entries).saturating_sub(enough);
    if excess == 0 {
        return;
    }
    let mut lengths: Vec<usize> = texts(entries).iter().map(|text| text.len()).collect();
    lengths.extend(calls(entries).map(|call| bulk(&call.arguments)));
    let longest = level(lengths, excess).max(SHORTEST);
    for call in calls(entries).filter(|call| bulk(&call.arguments) > longest) {
        let bytes = call.arguments.to_string().len();
        call.arguments = json!({ "left_out": format!("{bytes} bytes, to save room") });
    }
    to_length(entries, longest, longest);
}

/// Cuts every text of more than `over` bytes to `longest`.
pub(super) fn to_length(entries: &mut [Entry], over: usize, longest: usize) {
    let longest = longest.max(SHORTEST);
    for text in texts(entries).into_iter().filter(|text| text.len() > over.max(longest)) {
        *text = cut(text, longest);
    }
}

fn size(entries: &[Entry]) -> usize {
    entries.iter().map(Entry::size).sum()
}

/// The length to which all longer ones must be cut for `excess` bytes to go.
fn level(mut lengths: Vec<usize>, excess: usize) -> usize {
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

/// Head and tail of `text` in at most `longest` bytes, with the line in between. What an earlier such line told of is told again.
fn cut(text: &str, longest: usize) -> String {
    let half = (longest - LINE) / 2;
    let (head, rest) = text.split_at(text.floor_char_boundary(half));
    let (gone, tail) = rest.split_at(rest.ceil_char_boundary(rest.len() - half));
    let earlier = left_out_before(gone);
    let lines: usize = earlier.iter().map(|bytes| left_out(*bytes).len()).sum();
    let bytes = earlier.into_iter().fold(gone.len() - lines, usize::saturating_add);
    format!("{head}{}{tail}", left_out(bytes))
}

/// What the lines in a text say was left out of it.
fn left_out_before(text: &str) -> Vec<usize> {
    let line = left_out(0);
    let Some((before, after)) = line.split_once('0') else { return Vec::new() };
    let numbers = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
    // Only as we write it: another writing of the number has another length.
    numbers.filter_map(|(number, _)| number.parse().ok().filter(|bytes: &usize| bytes.to_string() == number)).collect()
}

fn texts(entries: &mut [Entry]) -> Vec<&mut String> {
    let mut texts = Vec::new();
    for entry in entries {
        match entry {
            Entry::User(text) => texts.push(text),
            Entry::Assistant(said) => {
                texts.push(&mut said.text);
                said.calls.iter_mut().for_each(|call| texts_in(&mut call.arguments, &mut texts));
            }
            Entry::Results { results, user } => {
                texts.push(user);
                texts.extend(results.iter_mut().map(|result| &mut result.text));
            }
        }
    }
    texts
}

/// The texts in a call's arguments. Arguments from a journal, or of a model, are nested no deeper than `serde_json` reads.
fn texts_in<'a>(arguments: &'a mut Value, texts: &mut Vec<&'a mut String>) {
    match arguments {
        Value::String(text) if text.len() > SHORTEST => texts.push(text),
        Value::Array(values) => values.iter_mut().for_each(|value| texts_in(value, texts)),
        Value::Object(values) => values.values_mut().for_each(|value| texts_in(value, texts)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn calls(entries: &mut [Entry]) -> impl Iterator<Item = &mut Call> {
    let calls = entries.iter_mut().filter_map(|entry| match entry {
        Entry::Assistant(said) => Some(&mut said.calls),
        Entry::User(_) | Entry::Results { .. } => None,
    });
    calls.flatten()
}

/// How long a call's arguments are, as JSON, beside the texts of which something can be cut.
fn bulk(arguments: &Value) -> usize {
    match arguments {
        Value::String(text) if text.len() > SHORTEST => 0,
        Value::Array(values) => values.iter().map(|value| bulk(value) + 1).sum(),
        Value::Object(values) => values.iter().map(|(key, value)| key.len() + 4 + bulk(value)).sum(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => arguments.to_string().len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::conversation::{CallResult, Said};

    fn user(bytes: usize) -> Entry {
        Entry::User(format!("BEGIN{}END", "x".repeat(bytes - 8)))
    }

    fn called(arguments: Value) -> Entry {
        let call = Call { id: "1".into(), name: "write".into(), arguments };
        Entry::Assistant(Said { calls: vec![call], ..Said::default() })
    }

    fn results(texts: &[&str]) -> Entry {
        let results = texts.iter().map(|text| CallResult { id: "1".into(), text: (*text).to_owned() });
        Entry::Results { results: results.collect(), user: String::new() }
    }

    #[test]
    fn the_longest_are_cut_to_one_length_and_the_others_stay() {
        let mut entries = [user(900), user(700), results(&["ä".repeat(400).as_str(), "short"])];
        to_fit(&mut entries, 1000);
        let all: Vec<String> = texts(&mut entries).into_iter().map(|text| text.clone()).collect();
        assert!(all[..2].iter().all(|text| text.starts_with("BEGIN") && text.ends_with("END") && text.len() > 290));
        assert!(all[0].contains(" bytes left out …") && all[3].starts_with('ä') && all[3].ends_with('ä'), "{all:?}");
        assert_eq!(all[4], "short");
        assert!(size(&entries) <= 1000 && size(&entries) > 900, "{}", size(&entries));
    }

    #[test]
    fn what_is_cut_again_says_how_much_is_missing_in_all() {
        let mut entries = [user(100_000)];
        for length in [50_000, 10_000, 700] {
            to_length(&mut entries, length, length);
            let text = texts(&mut entries).remove(0).clone();
            let [missing] = left_out_before(&text)[..] else { panic!("one line: {text}") };
            assert_eq!(text.len() - left_out(missing).len() + missing, 100_000);
        }
    }

    #[test]
    fn arguments_stay_what_the_tool_takes_where_they_can() {
        let mut entries = [called(json!({ "path": "a.sh", "content": "\u{1}".repeat(5000) }))];
        to_fit(&mut entries, 1000);
        assert!(size(&entries) <= 1000);
        let Entry::Assistant(said) = &entries[0] else { panic!("it was a call") };
        assert_eq!(said.calls[0].arguments["path"], "a.sh");
    }

    #[test]
    fn arguments_of_which_nothing_can_be_cut_cost_the_other_texts_nothing() {
        let lines = json!({ "lines": vec!["one"; 5000] });
        let mut entries = [user(300), called(lines), called(json!({ "command": "ls" }))];
        to_fit(&mut entries, 1000);
        assert!(size(&entries) <= 1000);
        let [Entry::User(text), Entry::Assistant(long), Entry::Assistant(short)] = &entries else { panic!("others") };
        assert_eq!(text.len(), 300);
        assert_eq!(long.calls[0].arguments, json!({ "left_out": "30011 bytes, to save room" }));
        assert_eq!(short.calls[0].arguments, json!({ "command": "ls" }));
    }

    #[test]
    fn a_number_that_only_looks_like_ours_costs_nothing() {
        let forged = format!("{}\n… 00 bytes left out …\n{}", left_out(usize::MAX), left_out(usize::MAX));
        assert!(cut(&("x".repeat(200) + &forged + &"x".repeat(200)), 100).contains(&left_out(usize::MAX)));
    }
}
