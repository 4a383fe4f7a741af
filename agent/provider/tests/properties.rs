//! Properties of the reader: any cut reads alike, and no body breaks it.

use greenroom_provider::{AnswerPiece, AnswerReader, AnswerVerdict, ProviderError, WireFormat};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

const FORMATS: [WireFormat; 4] = [WireFormat::Messages, WireFormat::Chat, WireFormat::Responses, WireFormat::Gemini];

/// Result of an answer, with its pieces joined.
#[derive(Debug, PartialEq)]
struct ReadAnswer {
    text: String,
    thinking: String,
    arguments: Vec<String>,
    opaque: Vec<Value>,
    verdict: AnswerVerdict,
    error: Option<ProviderError>,
    output_tokens: Option<u64>,
}

fn read(format: WireFormat, body: &[u8], cuts: &[usize]) -> ReadAnswer {
    let (mut reader, mut pieces) = (AnswerReader::new(format), Vec::new());
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.extend([0, body.len()]);
    cuts.sort_unstable();
    for part in cuts.windows(2) {
        reader.read(&body[part[0]..part[1]], &mut pieces);
    }
    reader.finish(false, &mut pieces);
    let mut answer = ReadAnswer {
        text: String::new(),
        thinking: String::new(),
        arguments: Vec::new(),
        opaque: Vec::new(),
        verdict: reader.verdict(),
        error: reader.error().cloned(),
        output_tokens: reader.usage().output_tokens,
    };
    for piece in pieces {
        match piece {
            AnswerPiece::Text(more) => answer.text += &more,
            AnswerPiece::Thinking(more) => answer.thinking += &more,
            AnswerPiece::ToolCall(piece) => {
                assert!(piece.call <= answer.arguments.len(), "calls are numbered without gaps");
                if piece.call == answer.arguments.len() {
                    answer.arguments.push(String::new());
                }
                answer.arguments[piece.call] += &piece.arguments;
            }
            AnswerPiece::Opaque(piece) => answer.opaque.push(piece.value),
        }
    }
    answer
}

/// Content of an answer, independent of its format.
#[derive(Debug, Clone)]
struct AnswerContent {
    texts: Vec<String>,
    thoughts: Vec<String>,
    calls: Vec<String>,
    is_ended: bool,
}

fn any_content() -> impl Strategy<Value = AnswerContent> {
    let text = || vec(".{0,12}", 0..4);
    (text(), text(), vec("[a-z🎉\"\\\\]{0,12}", 0..3), any::<bool>()).prop_map(|(texts, thoughts, calls, is_ended)| {
        AnswerContent {
            texts,
            thoughts,
            calls: calls.iter().map(|text| json!({ "a": text }).to_string()).collect(),
            is_ended,
        }
    })
}

/// Writes the events of a content in a format.
fn events(format: WireFormat, content: &AnswerContent) -> Vec<Value> {
    let AnswerContent { texts, thoughts, calls, is_ended } = content;
    let mut events = Vec::new();
    match format {
        WireFormat::Chat => {
            let chunk = |delta: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] });
            events.extend(thoughts.iter().map(|text| chunk(json!({ "reasoning_content": text }))));
            events.extend(texts.iter().map(|text| chunk(json!({ "content": text }))));
            for (index, arguments) in calls.iter().enumerate() {
                let function = json!({ "name": "run", "arguments": "" });
                events.push(chunk(json!({ "tool_calls": [{ "index": index, "id": "a", "function": function }] })));
                let function = json!({ "arguments": arguments });
                events.push(chunk(json!({ "tool_calls": [{ "index": index, "function": function }] })));
            }
            events
                .extend(is_ended.then(|| json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] })));
        }
        WireFormat::Messages => {
            let delta =
                |index: usize, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
            let start = |index: usize, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
            let stop = |index: usize| json!({ "type": "content_block_stop", "index": index });
            events.push(start(0, json!({ "type": "thinking", "thinking": "" })));
            events.extend(thoughts.iter().map(|text| delta(0, json!({ "type": "thinking_delta", "thinking": text }))));
            events.extend([stop(0), start(1, json!({ "type": "text", "text": "" }))]);
            events.extend(texts.iter().map(|text| delta(1, json!({ "type": "text_delta", "text": text }))));
            events.push(stop(1));
            for (index, arguments) in calls.iter().enumerate() {
                let block = json!({ "type": "tool_use", "id": "a", "name": "run", "input": {} });
                let input = json!({ "type": "input_json_delta", "partial_json": arguments });
                events.extend([start(index + 2, block), delta(index + 2, input), stop(index + 2)]);
            }
            events.extend(is_ended.then(|| json!({ "type": "message_stop" })));
        }
        WireFormat::Responses => {
            let thought = |text| json!({ "type": "response.reasoning_text.delta", "output_index": 0, "delta": text });
            events.extend(thoughts.iter().map(thought));
            let text = |text| json!({ "type": "response.output_text.delta", "output_index": 1, "delta": text });
            events.extend(texts.iter().map(text));
            for (index, arguments) in calls.iter().enumerate() {
                let item = json!({ "type": "function_call", "call_id": "a", "name": "run", "arguments": arguments });
                events.push(json!({ "type": "response.output_item.done", "output_index": index + 2, "item": item }));
            }
            events.extend(is_ended.then(|| json!({ "type": "response.completed", "response": {} })));
        }
        WireFormat::Gemini => {
            let chunk = |part: Value| json!({ "candidates": [{ "content": { "parts": [part] } }] });
            events.extend(thoughts.iter().map(|text| chunk(json!({ "text": text, "thought": true }))));
            events.extend(texts.iter().map(|text| chunk(json!({ "text": text }))));
            for arguments in calls {
                let args: Value = serde_json::from_str(arguments).expect("an object");
                events.push(chunk(json!({ "functionCall": { "name": "run", "args": args } })));
            }
            events.extend(is_ended.then(|| json!({ "candidates": [{ "finishReason": "STOP" }] })));
        }
    }
    events
}

/// Writes events as a body: LF, CRLF, CR, and for Gemini also as a list.
fn body(events: &[Value], framing: u8) -> String {
    let line_end = ["\n", "\r\n", "\r"][usize::from(framing % 3)];
    if framing >= 3 {
        let values: Vec<String> = events.iter().map(Value::to_string).collect();
        return format!("[{}]", values.join(",\r\n"));
    }
    events.iter().map(|event| format!("data: {event}{line_end}{line_end}")).collect()
}

/// Any JSON, for fields of unexpected types.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        let names = select(vec!["type", "text", "delta", "index", "content", "usage", "id", "parts", "function"]);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            vec((names, inner), 0..4)
                .prop_map(|fields| fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

/// Replaces the value at a position, counted through the whole tree.
fn replace_at(value: &mut Value, at: &mut usize, with: &Value) {
    if *at == 0 {
        *value = with.clone();
    }
    *at = at.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace_at(item, at, with)),
        Value::Object(fields) => fields.values_mut().for_each(|field| replace_at(field, at, with)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_answer_is_read_at_any_cut(
        format in select(&FORMATS[..]), content in any_content(), framing in 0..4_u8, cuts in vec(any::<usize>(), 0..8),
    ) {
        let framing = if format == WireFormat::Gemini { framing } else { framing % 3 };
        let body = body(&events(format, &content), framing);
        let answer = read(format, body.as_bytes(), &cuts);
        prop_assert_eq!(&answer.text, &content.texts.concat());
        prop_assert_eq!(&answer.thinking, &content.thoughts.concat());
        prop_assert_eq!(&answer.arguments, &content.calls);
        let holds_answer = !content.texts.concat().trim().is_empty() || !content.calls.is_empty();
        let expected = match (content.is_ended, holds_answer) {
            (false, _) => AnswerVerdict::Cut,
            (true, false) => AnswerVerdict::Empty,
            (true, true) => AnswerVerdict::Complete,
        };
        prop_assert_eq!(answer.verdict, expected);
    }

    #[test]
    fn surrogate_pairs_may_be_cut_in_two(text in "[a🎉é]{0,8}", at in any::<usize>()) {
        let units: Vec<u16> = text.encode_utf16().collect();
        let (first, second) = units.split_at(at % (units.len() + 1));
        let escaped = |units: &[u16]| units.iter().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
        let chunk = |units| format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", escaped(units));
        let answer = read(WireFormat::Chat, (chunk(first) + &chunk(second)).as_bytes(), &[]);
        prop_assert_eq!(answer.text, text);
    }

    #[test]
    fn garbage_never_panics(format in select(&FORMATS[..]), garbage in vec(any::<u8>(), 0..200), cuts in vec(any::<usize>(), 0..4)) {
        prop_assert_eq!(read(format, &garbage, &cuts), read(format, &garbage, &[]));
    }

    #[test]
    fn garbage_inside_a_stream_never_panics(
        format in select(&FORMATS[..]), content in any_content(), garbage in vec(any::<u8>(), 1..40), at in any::<usize>(),
        cuts in vec(any::<usize>(), 0..4),
    ) {
        let mut body = body(&events(format, &content), 0).into_bytes();
        let at = at % (body.len() + 1);
        body.splice(at..at, garbage);
        prop_assert_eq!(read(format, &body, &cuts), read(format, &body, &[]));
    }

    #[test]
    fn field_of_an_unexpected_type_costs_only_its_event(
        texts in vec("[a-z🎉]{0,6}", 1..6), value in any_json(), damaged in any::<usize>(), at in 1..8_usize,
    ) {
        // A number is a valid index.
        prop_assume!(!value.is_number());
        let damaged = damaged % texts.len();
        let content = AnswerContent { texts, thoughts: Vec::new(), calls: Vec::new(), is_ended: true };
        let mut events = events(WireFormat::Chat, &content);
        replace_at(&mut events[damaged], &mut { at }, &value);
        let answer = read(WireFormat::Chat, body(&events, 0).as_bytes(), &[]);
        let (before, after) = (content.texts[..damaged].concat(), content.texts[damaged + 1..].concat());
        prop_assert!(answer.text.starts_with(&before) && answer.text.ends_with(&after), "{}", answer.text);
        prop_assert!(answer.error.is_none() && answer.verdict != AnswerVerdict::Cut);
    }

    #[test]
    fn unknown_events_change_nothing(
        format in select(&FORMATS[..]), content in any_content(), value in any_json(), at in vec(any::<usize>(), 1..4),
    ) {
        let mut with_unknown = events(format, &content);
        let expected = read(format, body(&with_unknown, 0).as_bytes(), &[]);
        for event in &mut with_unknown {
            if let Some(fields) = event.as_object_mut() {
                fields.insert("future".to_owned(), value.clone());
            }
        }
        for at in at {
            let at = at % (with_unknown.len() + 1);
            with_unknown.insert(at, json!({ "type": "future", "future": value }));
        }
        prop_assert_eq!(read(format, body(&with_unknown, 0).as_bytes(), &[]), expected);
    }
}
