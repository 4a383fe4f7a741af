//! Corpus of answers: one file a quirk, with its source and its expected result.
//!
//! A file has four lines `# …` (quirk, source, format, result as JSON), an empty line, and the
//! body. Fields that the result leaves out are empty.

use std::{fs, path::Path};

use greenroom_provider::{AnswerPiece, AnswerReader, WireFormat, reader::OpaqueSlot};
use serde_json::{Map, Value, json};

/// Entry of the corpus.
struct CorpusFile {
    name: String,
    source: String,
    format: WireFormat,
    expected: Value,
    body: Vec<u8>,
}

fn corpus() -> Vec<CorpusFile> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let paths = fs::read_dir(directory).expect("the corpus").map(|entry| entry.expect("a file").path());
    let mut files: Vec<CorpusFile> = paths.map(|path| read_file(&path)).collect();
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

fn read_file(path: &Path) -> CorpusFile {
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let bytes = fs::read(path).expect("a readable file");
    let mut rest = &bytes[..];
    let mut line = || {
        let end = rest.iter().position(|byte| *byte == b'\n').expect("a header line");
        let (line, after) = rest.split_at(end);
        rest = &after[1..];
        String::from_utf8(line.to_vec()).expect("a header in UTF-8").trim_start_matches("# ").to_owned()
    };
    let (_quirk, source, format, expected) = (line(), line(), line(), line());
    assert_eq!(line(), "", "{name}: an empty line ends the header");
    let format = match format.as_str() {
        "messages" => WireFormat::Messages,
        "chat" => WireFormat::Chat,
        "responses" => WireFormat::Responses,
        "gemini" => WireFormat::Gemini,
        other => panic!("{name}: unknown format {other}"),
    };
    let expected = serde_json::from_str(&expected).unwrap_or_else(|error| panic!("{name}: {error}"));
    CorpusFile { name, source, format, expected, body: rest.to_vec() }
}

/// Reads a body in parts, and returns what was read as JSON, without empty fields.
fn read_answer(mut reader: AnswerReader, parts: &[&[u8]]) -> Value {
    let mut pieces = Vec::new();
    for part in parts {
        reader.read(part, &mut pieces);
    }
    reader.finish(false, &mut pieces);
    let (mut text, mut thinking, mut calls, mut opaque) = (String::new(), String::new(), Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            AnswerPiece::Text(more) => text += &more,
            AnswerPiece::Thinking(more) => thinking += &more,
            AnswerPiece::ToolCall(piece) => {
                if piece.call == calls.len() {
                    calls.push((String::new(), String::new(), String::new()));
                }
                let (id, name, arguments) = &mut calls[piece.call];
                (*id, *name) = (piece.id, piece.name);
                arguments.push_str(&piece.arguments);
            }
            AnswerPiece::Opaque(piece) => {
                let slot = match piece.slot {
                    OpaqueSlot::Block { before_call } => format!("block {before_call}"),
                    OpaqueSlot::MessageField(field) => format!("field {field}"),
                    OpaqueSlot::CallField { call, field } => format!("call {call} {field}"),
                    OpaqueSlot::Item => "item".to_owned(),
                };
                opaque.push(json!([slot, piece.value]));
            }
        }
    }
    let usage = reader.usage();
    let tools: Map<String, Value> =
        usage.server_tool_uses.iter().map(|(name, count)| (name.clone(), json!(count))).collect();
    let count = |count: u64| if count > 0 { json!(count) } else { Value::Null };
    let error = reader.error().map(|error| {
        let retry = error.retry_after.map(|wait| wait.as_millis() as u64);
        without_empty(json!({
            "status": error.status, "message": error.message, "class": format!("{:?}", error.class),
            "retry_ms": retry, "kind": error.kind,
        }))
    });
    without_empty(json!({
        "verdict": format!("{:?}", reader.verdict()),
        "text": text,
        "thinking": thinking,
        "calls": calls,
        "opaque": opaque,
        "model": reader.model(),
        "reason": reader.reason(),
        "error": error,
        "usage": without_empty(json!({
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cache_read": count(usage.cache_read_tokens),
            "cache_write": count(usage.cache_write_tokens),
            "cache_write_1h": count(usage.cache_write_1h_tokens),
            "unknown": count(usage.unknown_tokens),
            "tools": tools,
        })),
    }))
}

fn without_empty(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    Value::Object(fields.into_iter().filter(|(_, value)| !is_empty(value)).collect())
}

fn expected(file: &CorpusFile) -> Value {
    let mut expected = without_empty(file.expected.clone());
    if let Some(error) = expected.get_mut("error") {
        *error = without_empty(error.take());
    }
    expected
}

#[test]
fn each_answer_is_read_as_its_file_says() {
    let files = corpus();
    assert!(files.len() >= 40, "only {} files", files.len());
    let mut wrong = String::new();
    for file in &files {
        assert!(file.source.starts_with("source: https://"), "{}: the second line names the source", file.name);
        let (read, expected) = (read_answer(AnswerReader::new(file.format), &[&file.body]), expected(file));
        if read != expected {
            wrong += &format!("\n{}\n  read     {read}\n  expected {expected}", file.name);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn answers_cut_at_any_byte_are_read_alike() {
    for file in corpus() {
        let whole = read_answer(AnswerReader::new(file.format), &[&file.body]);
        for cut in 0..=file.body.len() {
            let parts = file.body.split_at(cut);
            let read = read_answer(AnswerReader::new(file.format), &[parts.0, parts.1]);
            assert_eq!(read, whole, "{}: cut at {cut}", file.name);
        }
        let bytes: Vec<&[u8]> = file.body.chunks(1).collect();
        assert_eq!(read_answer(AnswerReader::new(file.format), &bytes), whole, "{}: byte by byte", file.name);
    }
}

#[test]
fn metering_reads_the_same_usage_and_verdict() {
    for file in corpus() {
        let mut expected = expected(&file);
        let fields = expected.as_object_mut().expect("an object");
        for pieces in ["text", "thinking", "calls", "opaque"] {
            fields.remove(pieces);
        }
        let reader = AnswerReader::for_metering(file.format, 1 << 20);
        assert_eq!(read_answer(reader, &[&file.body]), expected, "{}", file.name);
    }
}

/// Events, chunks and fields that no format defines change nothing.
#[test]
fn unknown_events_and_fields_change_nothing() {
    let unknown = json!({ "type": "future.event", "index": 7, "delta": { "type": "future_delta", "text": "no" },
        "item": { "type": "future_item", "text": "no" }, "content_block": { "type": "future_block", "text": "no" } });
    for file in corpus() {
        let Ok(body) = String::from_utf8(file.body.clone()) else { continue };
        // A body of lines, each with its own event.
        if !body.contains("data: {") || body.contains("data: {\n") || !body.ends_with("\n\n") {
            continue;
        }
        let mut lines = String::new();
        for line in body.lines() {
            if line.is_empty() || line.starts_with("event:") {
                lines += "\n: comment\nevent: future\nid: 7\n";
                lines += &format!("data: {unknown}\n\n");
            }
            let line = line.replacen("data: {", r#"data: {"future":{"text":[1,{"usage":null}]},"futures":[[]],"#, 1);
            let line = line.replace(r#""delta":{""#, r#""delta":{"future_field":{"content":"no"},""#);
            lines += &line.replace(r#""delta":{}"#, r#""delta":{"future_field":{"content":"no"}}"#);
            lines.push('\n');
        }
        let read = read_answer(AnswerReader::new(file.format), &[lines.as_bytes()]);
        assert_eq!(read, expected(&file), "{}", file.name);
    }
}
