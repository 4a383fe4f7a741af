//! Newest thing that a session did, in one line for lists. Pure.

use greenroom_protocol::{Action, EventBody, EventSource, Observation, ObservationKind, observation::SandboxPhase};
use serde::Deserialize;

use super::{
    title::{headline, shorten},
    transition::NewEvent,
};

/// Longest line, in characters.
const LINE_CHARS: usize = 120;

/// Characters of a text that are read. Markup and terminal sequences may precede the words.
const READ_CHARS: usize = 4096;

/// Returns the line of an event that lists show: a message, a command, another tool call, an
/// approval request or a failure. `None` for all other events, and for a text without words.
///
/// The line is plain text of at most `LINE_CHARS` (120) characters, without control characters,
/// terminal sequences and characters that change the direction of the text.
pub(super) fn latest_line(NewEvent { source, body, .. }: &NewEvent) -> Option<String> {
    let line = match body {
        EventBody::Action(action) => action_line(action, *source)?,
        EventBody::Observation(observation) => observation_line(observation)?,
        // A message that is shortened, or a kind of a newer agent.
        EventBody::Opaque(fields) => observation_line(&Observation::deserialize(fields).ok()?)?,
    };
    (!line.is_empty()).then_some(line)
}

fn action_line(action: &Action, source: EventSource) -> Option<String> {
    match action {
        Action::Run { command } => Some(line_of(&format!("$ {}", first_line(command)))),
        Action::Finish { message } => Some(message_line(message)).filter(|line| !line.is_empty()),
        Action::Read { .. }
        | Action::Write { .. }
        | Action::Edit { .. }
        | Action::Browse { .. }
        | Action::Tool { .. }
        | Action::Plan { .. }
            if source == EventSource::Agent =>
        {
            Some(line_of(&action.summary_line()))
        }
        _ => None,
    }
}

fn observation_line(observation: &Observation) -> Option<String> {
    match &observation.kind {
        ObservationKind::Message { .. } => Some(message_line(&observation.content)),
        ObservationKind::Confirm { action, .. } => Some(line_of(&format!("Approval needed: {}", first_line(action)))),
        ObservationKind::Interrupted { .. } => Some(line_of(&observation.summary_line())),
        // Each cut call has such an error, and its cause has a line of its own.
        ObservationKind::Error { code, .. } if code == "cut" || code == "not_begun" => None,
        ObservationKind::Error { .. } => Some(line_of(&observation.summary_line())),
        ObservationKind::Sandbox { phase: SandboxPhase::Lost | SandboxPhase::Failed, .. } => {
            Some(line_of(&observation.content))
        }
        _ => None,
    }
}

/// Returns the line of a message, without the marks of inline code.
fn message_line(text: &str) -> String {
    headline(&plain(text), LINE_CHARS).replace('`', "")
}

fn line_of(text: &str) -> String {
    shorten(&plain(first_line(text)).split_whitespace().collect::<Vec<_>>().join(" "), LINE_CHARS)
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default()
}

/// Returns the beginning of the text without terminal sequences and invisible characters. Line
/// breaks stay.
fn plain(text: &str) -> String {
    let mut chars = text.chars().take(READ_CHARS).peekable();
    let mut plain = String::new();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' | '\u{9b}' => skip_sequence(c, &mut chars),
            '\n' => plain.push(c),
            '\t' | '\r' => plain.push(' '),
            c if c.is_control() || is_invisible(c) => {}
            c => plain.push(c),
        }
    }
    plain
}

/// Skips the rest of a terminal sequence: `ESC [ … letter`, `ESC ] … BEL`, or `ESC` and one
/// character. A sequence without an end stops at the end of its line.
fn skip_sequence(begin: char, chars: &mut std::iter::Peekable<impl Iterator<Item = char>>) {
    let kind = if begin == '\u{9b}' { Some('[') } else { chars.next() };
    match kind {
        Some('[') => while chars.next_if(|c| *c != '\n').is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
        Some(']' | 'P' | '^' | '_' | 'X') => {
            while let Some(c) = chars.next_if(|c| *c != '\n') {
                if matches!(c, '\u{7}' | '\u{9c}') || c == '\u{1b}' && chars.next_if_eq(&'\\').is_some() {
                    return;
                }
            }
        }
        Some(_) | None => {}
    }
}

/// Reports if a character has no width, or changes the direction of the text after it.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(source: EventSource, body: serde_json::Value, expected: Option<&str>) {
        let body: EventBody = serde_json::from_value(body).expect("every object is a body");
        let line = latest_line(&NewEvent { source, cause: None, item: None, risk: None, body });
        assert_eq!(line.as_deref(), expected);
    }

    fn observation(name: &str, content: &str, extras: serde_json::Value) -> serde_json::Value {
        json!({ "observation": name, "content": content, "extras": extras })
    }

    #[test]
    fn messages_commands_and_failures_have_a_line() {
        let agent = EventSource::Agent;
        let run = |command: &str| json!({ "action": "run", "args": { "command": command } });
        check(
            agent,
            observation("message", "## All `unit` tests pass\n\nMore.", json!({})),
            Some("All unit tests pass"),
        );
        check(agent, run("\ncargo test\necho done"), Some("$ cargo test"));
        check(EventSource::User, run("ls"), Some("$ ls"));
        check(agent, json!({ "action": "read", "args": { "path": "a.rs" } }), Some("Reading file: a.rs"));
        check(agent, json!({ "action": "finish", "args": { "message": "Done." } }), Some("Done."));
        let error = json!({ "code": "model_error", "detail": "Anthropic is overloaded (529)" });
        check(agent, observation("error", "", error), Some("Anthropic is overloaded (529)"));
        let confirm = json!({ "request": "q", "action": "rm -r build", "risk": "high", "options": ["allow"] });
        check(agent, observation("confirm", "", confirm), Some("Approval needed: rm -r build"));
        let lost = observation("sandbox", "the sandbox is gone", json!({ "phase": "lost" }));
        check(EventSource::Server, lost, Some("the sandbox is gone"));
        let whole = json!({ "truncated": { "bytes": 9_000_000 }, "later": 1 });
        check(agent, observation("message", "A long report", whole), Some("A long report"));
    }

    #[test]
    fn other_events_keep_the_line() {
        let agent = EventSource::Agent;
        check(agent, observation("think", "Let me see.", json!({})), None);
        check(agent, observation("message", " \n--\n", json!({})), None);
        check(EventSource::User, observation("chat", "go", json!({})), None);
        check(EventSource::Server, observation("sandbox", "", json!({ "phase": "ready" })), None);
        check(agent, observation("error", "", json!({ "code": "cut", "detail": "cut short" })), None);
        check(EventSource::User, json!({ "action": "read", "args": { "path": "a" } }), None);
        check(EventSource::User, json!({ "action": "pause", "args": {} }), None);
        check(agent, observation("smell", "roses", json!({})), None);
    }

    #[test]
    fn line_is_short_plain_text() {
        let say = |text: &str| observation("message", text, json!({}));
        let agent = EventSource::Agent;
        check(agent, say("\u{1b}[1;31mred\u{1b}[0m\u{7} and \u{1b}]0;title\u{7}plain"), Some("red and plain"));
        check(agent, say("\u{1b}]0;x\nTests failed"), Some("Tests failed"));
        check(agent, say("\u{1b}[12\nTests failed"), Some("Tests failed"));
        check(agent, say("\u{1b}]0;x\u{9c}Tests failed"), Some("Tests failed"));
        check(agent, say("a\u{1b}]8;;http://x\u{1b}\\b\u{1b}Mc\u{9b}2Jd"), Some("abcd"));
        check(agent, say("\u{202e}gnirts\u{200b} \u{2066}x"), Some("gnirts x"));
        check(agent, json!({ "action": "run", "args": { "command": "a\tb\u{0}   c" } }), Some("$ a b c"));
        let long = latest_line(&NewEvent {
            source: agent,
            cause: None,
            item: None,
            risk: None,
            body: Action::Run { command: "ä".repeat(1 << 20) }.into(),
        });
        assert_eq!(long.expect("a command has a line").chars().count(), LINE_CHARS);
    }
}
