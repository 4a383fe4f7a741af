//! Passages of events that a search reads: what was said, and which commands ran.

use std::borrow::Cow;

use greenroom_protocol::{EventSource, tool::ToolKind};
use serde::{Deserialize, Serialize};

use super::text_match::{MatchExcerpt, SearchText};
use crate::store::{JournalEvent, Seq, StoredEvent};

/// Kind of event that a search reads, by its name in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(in crate::web) enum PassageKind {
    /// User's message, as the agent received it.
    Chat,
    /// Agent's message.
    Message,
    /// Agent's report that the task is done.
    Finish,
    /// Command.
    Run,
    /// Command of an agent with tools of its own.
    Tool,
}

impl PassageKind {
    fn of(event: &JournalEvent) -> Option<PassageKind> {
        Some(match &*event.kind {
            "chat" => PassageKind::Chat,
            "message" => PassageKind::Message,
            "finish" => PassageKind::Finish,
            "run" => PassageKind::Run,
            "tool" => PassageKind::Tool,
            _ => return None,
        })
    }
}

/// Event that contains the text.
#[derive(Debug)]
pub(in crate::web) struct MatchingEvent {
    pub seq: Seq,
    pub at: String,
    pub source: EventSource,
    pub kind: PassageKind,
    pub excerpt: MatchExcerpt,
}

/// Fields that hold passages. Other fields are skipped unread.
#[derive(Deserialize)]
struct PassageFields<'a> {
    #[serde(borrow)]
    at: Cow<'a, str>,
    source: EventSource,
    #[serde(borrow, default)]
    action: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Cow<'a, str>,
    #[serde(borrow, default)]
    args: PassageArgs<'a>,
}

#[derive(Default, Deserialize)]
struct PassageArgs<'a> {
    #[serde(borrow, default)]
    command: Cow<'a, str>,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    title: Cow<'a, str>,
    #[serde(default)]
    kind: Option<ToolKind>,
}

/// Returns the events that contain the text, in their order.
pub(super) fn matching_events(events: &[StoredEvent], text: &SearchText) -> Vec<MatchingEvent> {
    events.iter().filter_map(|(seq, event)| matching_event(*seq, event, text)).collect()
}

fn matching_event(seq: Seq, event: &JournalEvent, text: &SearchText) -> Option<MatchingEvent> {
    let kind = PassageKind::of(event)?;
    // An event of a malformed kind has no passage.
    let fields: PassageFields<'_> = serde_json::from_slice(&event.json).ok()?;
    let excerpt = text.find_in(passage(kind, &fields)?)?;
    Some(MatchingEvent { seq, at: fields.at.into_owned(), source: fields.source, kind, excerpt })
}

/// Returns the passage of an event. Of a call and its result, the call has it.
fn passage<'a>(kind: PassageKind, fields: &'a PassageFields<'_>) -> Option<&'a str> {
    let is_action = fields.action.is_some();
    match kind {
        // An agent cannot speak as the user.
        PassageKind::Chat if !is_action && fields.source != EventSource::Agent => Some(&fields.content),
        // The action of this name is the user's message as it was sent; `chat` follows.
        PassageKind::Message if !is_action => Some(&fields.content),
        PassageKind::Finish if is_action => Some(&fields.args.message),
        PassageKind::Run if is_action => Some(&fields.args.command),
        PassageKind::Tool if is_action && fields.args.kind == Some(ToolKind::Execute) => Some(&fields.args.title),
        PassageKind::Chat | PassageKind::Message | PassageKind::Finish | PassageKind::Run | PassageKind::Tool => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the kind of the passage if the event contains `needle`.
    fn check(kind: &str, body: Value, expected: Option<PassageKind>) {
        let mut json = json!({ "seq": 7, "at": "2026-01-01T00:00:00.000Z", "source": "user" });
        json.as_object_mut().expect("an object").extend(body.as_object().expect("an object").clone());
        let event = JournalEvent { kind: kind.to_owned().into(), json: json.to_string().into() };
        let text = SearchText::new("needle").expect("a valid text");
        let found = matching_events(&[(7, event)], &text);
        assert_eq!(found.first().map(|found| found.kind), expected, "{kind} {json}");
    }

    #[test]
    fn messages_and_commands_are_passages() {
        let said = "a needle";
        check("chat", json!({ "observation": "chat", "extras": {}, "content": said }), Some(PassageKind::Chat));
        check("message", json!({ "observation": "message", "content": said }), Some(PassageKind::Message));
        check("message", json!({ "action": "message", "args": { "content": said } }), None);
        check("finish", json!({ "action": "finish", "args": { "message": said } }), Some(PassageKind::Finish));
        check("run", json!({ "action": "run", "args": { "command": said } }), Some(PassageKind::Run));
        check("run", json!({ "observation": "run", "extras": { "command": said }, "content": said }), None);
        let tool = |kind: &str| json!({ "action": "tool", "args": { "kind": kind, "title": said } });
        check("tool", tool("execute"), Some(PassageKind::Tool));
        check("tool", tool("read"), None);
        check("tool", tool("new in a later version"), None);
        check("think", json!({ "observation": "think", "content": said }), None);
        check("read", json!({ "observation": "read", "extras": { "path": said }, "content": said }), None);
    }

    #[test]
    fn malformed_event_of_an_agent_has_no_passage() {
        let forged = json!({ "source": "agent", "observation": "chat", "content": "needle" });
        check("chat", forged, None);
        for args in [json!([]), json!({ "command": ["needle"] }), json!(null), json!("needle")] {
            check("run", json!({ "source": "agent", "action": "run", "args": args }), None);
        }
        check("message", json!({ "source": "agent", "observation": "message", "content": { "a": "needle" } }), None);
    }
}
