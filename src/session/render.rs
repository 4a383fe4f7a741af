//! Renders the new events of a transition as clients see them: with number, time and cause.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use greenroom_protocol::{Event, EventBody, Observation, ObservationKind, excerpt, link::EVENT_LIMIT};

use super::{broadcast::ItemEnd, transition::NewEvent};
use crate::{
    clock,
    store::{JournalEvent, Seq},
};

/// Longest summary line of an event above the size limit, in bytes.
const LINE_LIMIT: usize = 1024;

/// Actions without a result that are tracked.
///
/// Bound: 1,024 actions per session. When full: the oldest is dropped, and its result names no
/// cause. An agent has a few such actions at a time.
const MAX_CAUSES: usize = 1024;

/// Rendered events of one transition. Their texts share one buffer, so a burst of reports costs no
/// allocation per event.
pub(super) struct RenderedEvents {
    /// Time of the decision, for all events.
    at: String,
    text: Vec<u8>,
    /// Kind of each event, and its length in `text`, in bytes.
    events: Vec<(Cow<'static, str>, usize)>,
}

impl RenderedEvents {
    pub(super) fn new() -> RenderedEvents {
        RenderedEvents { at: clock::now(), text: Vec::new(), events: Vec::new() }
    }

    /// Renders `new_event` under the number `seq`. Returns the item end that the event causes.
    pub(super) fn add(&mut self, new_event: NewEvent, seq: Seq, causes: &mut HashMap<String, Seq>) -> Option<ItemEnd> {
        let NewEvent { source, cause, item, risk, mut body } = new_event;
        let at = self.at.clone();
        if let EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged { since, .. }, .. }) =
            &mut body
        {
            since.clone_from(&at);
        }
        let cause = cause.or_else(|| item.as_ref().and_then(|item| causes.get(item).copied()));
        track_causes(causes, seq, item.as_deref(), &body);
        let message = body.summary_line();
        let mut event = Event { seq, at, source, cause, item, risk, body, message };
        let begin = self.text.len();
        let mut len = self.write(&event);
        if len > EVENT_LIMIT {
            event.body = event.body.fit(EVENT_LIMIT / 2);
            event.message = excerpt(&event.message, LINE_LIMIT).map_or(event.message, |cut| cut.text);
            len = self.rewrite(begin, &event);
        }
        if len > EVENT_LIMIT {
            let name = event.body.name();
            let detail = format!("event `{name}` of {len} bytes was left out; the limit is {EVENT_LIMIT} bytes");
            event.message.clone_from(&detail);
            event.body = Observation {
                kind: ObservationKind::Error { code: "too_large".to_owned(), detail },
                content: String::new(),
            }
            .into();
            len = self.rewrite(begin, &event);
        }
        let kind = match &event.body {
            EventBody::Action(action) => action.name().into(),
            EventBody::Observation(observation) => observation.name().into(),
            EventBody::Opaque(_) => event.body.name().to_owned().into(),
        };
        self.events.push((kind, len));
        let item = event.item?;
        match event.body {
            EventBody::Action(_) => Some(ItemEnd::ToolInput(item)),
            EventBody::Observation(observation) if is_about_approval(&observation) => None,
            EventBody::Observation(_) | EventBody::Opaque(_) => Some(ItemEnd::Item(item)),
        }
    }

    /// Appends an event to the text. Returns its length in bytes.
    fn write(&mut self, event: &Event) -> usize {
        let begin = self.text.len();
        // Invariant: all types of the protocol have string keys and an infallible `Serialize`.
        serde_json::to_writer(&mut self.text, event).expect("events serialize without errors");
        self.text.len() - begin
    }

    /// Replaces everything from `begin` with the event. Returns its length in bytes.
    fn rewrite(&mut self, begin: usize, event: &Event) -> usize {
        self.text.truncate(begin);
        self.write(event)
    }

    pub(super) fn finish(self) -> Vec<JournalEvent> {
        // No excess capacity: the text stays in memory among the recent events.
        let mut text = Bytes::from(self.text.into_boxed_slice());
        self.events.into_iter().map(|(kind, len)| JournalEvent { kind, json: text.split_to(len) }).collect()
    }
}

/// Tracks the actions that have no result yet.
pub(super) fn track_causes(causes: &mut HashMap<String, Seq>, seq: Seq, item: Option<&str>, body: &EventBody) {
    match (item, body) {
        (Some(item), EventBody::Action(_)) => {
            causes.insert(item.to_owned(), seq);
            if causes.len() > MAX_CAUSES
                && let Some(oldest) = causes.iter().min_by_key(|(_, seq)| **seq).map(|(item, _)| item.clone())
            {
                causes.remove(&oldest);
            }
        }
        (Some(item), EventBody::Observation(observation)) if !is_about_approval(observation) => {
            causes.remove(item);
        }
        // A truncated observation.
        (Some(item), EventBody::Opaque(fields)) if fields.contains_key("observation") => {
            causes.remove(item);
        }
        (Some(_), EventBody::Observation(_) | EventBody::Opaque(_)) | (None, _) => {}
    }
}

/// Returns true for a request or a decision about a tool call. The call's result follows.
fn is_about_approval(observation: &Observation) -> bool {
    matches!(observation.kind, ObservationKind::Confirm { .. } | ObservationKind::Confirmed { .. })
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::{Action, EventSource, observation::TruncationMark};

    use super::*;

    #[test]
    fn result_names_the_action_with_its_item() {
        let mut causes = HashMap::new();
        let new_event = |body: EventBody| NewEvent {
            source: EventSource::Agent,
            cause: None,
            item: Some("i".into()),
            risk: None,
            body,
        };
        let mut rendered = RenderedEvents::new();
        let item_end = rendered.add(new_event(Action::Run { command: "ls".into() }.into()), 7, &mut causes);
        assert_eq!(item_end, Some(ItemEnd::ToolInput("i".into())));
        let kind = ObservationKind::Write { path: "a".into(), bytes: 1 };
        let item_end = rendered.add(new_event(Observation { kind, content: String::new() }.into()), 8, &mut causes);
        assert_eq!(item_end, Some(ItemEnd::Item("i".into())));
        let events = rendered.finish();
        let read = |n: usize| serde_json::from_slice::<Event>(&events[n].json).expect("valid event");
        assert_eq!((read(0).seq, read(0).cause), (7, None));
        assert_eq!((read(1).seq, read(1).cause), (8, Some(7)));
        assert!(causes.is_empty());
    }

    fn written(body: impl Into<EventBody>) -> JournalEvent {
        let mut rendered = RenderedEvents::new();
        let new_event = |body| NewEvent { source: EventSource::Agent, cause: None, item: None, risk: None, body };
        rendered.add(new_event(body.into()), 1, &mut HashMap::new());
        rendered.add(new_event(Action::Run { command: "ls".into() }.into()), 2, &mut HashMap::new());
        let [event, next] = <[JournalEvent; 2]>::try_from(rendered.finish()).expect("two events");
        assert_eq!((&*next.kind, serde_json::from_slice::<Event>(&next.json).expect("valid event").seq), ("run", 2));
        assert!(event.json.len() <= EVENT_LIMIT, "{} bytes", event.json.len());
        event
    }

    #[test]
    fn oversize_event_keeps_heads_and_tails_with_a_note() {
        let content = format!("BEGIN{}END", "x".repeat(EVENT_LIMIT));
        let event = written(Action::Write { path: "a".into(), content });
        assert_eq!(&*event.kind, "write");
        let EventBody::Action(Action::Write { path, content }) =
            serde_json::from_slice::<Event>(&event.json).expect("valid event").body
        else {
            panic!("the event is still a `write`")
        };
        assert!(path == "a" && content.starts_with("BEGIN") && content.ends_with("END"));
        assert!(content.contains("bytes left out"), "{}", content.len());
    }

    /// The summary line repeats the command, so both together exceed the limit.
    #[test]
    fn long_summary_line_is_truncated_first() {
        let event = written(Action::Run { command: "x".repeat(EVENT_LIMIT * 2 / 3) });
        let read: Event = serde_json::from_slice(&event.json).expect("valid event");
        assert!(read.body.name() == "run" && read.message.starts_with("Running command: xxx"));
    }

    #[test]
    fn event_that_cannot_be_truncated_becomes_an_error() {
        let extras: serde_json::Map<_, _> = (0..EVENT_LIMIT / 14).map(|n| (format!("k{n}"), n.into())).collect();
        let smell = serde_json::json!({ "observation": "smell", "extras": extras });
        let event = written(serde_json::from_value::<EventBody>(smell).expect("valid event body"));
        assert!(event.json.len() < 1024 && &*event.kind == "error");
    }

    #[test]
    fn truncated_observation_is_a_result() {
        let mut causes = HashMap::from([("i".to_owned(), 7)]);
        let whole = TruncationMark { bytes: 9, href: Some("/api/x".into()) };
        let plan = Observation {
            kind: ObservationKind::Plan { path: "p".into(), items: Vec::new() },
            content: "# Plan".into(),
        };
        let mut rendered = RenderedEvents::new();
        let new_event = NewEvent {
            source: EventSource::Agent,
            cause: None,
            item: Some("i".into()),
            risk: None,
            body: plan.with_truncation(whole),
        };
        assert_eq!(rendered.add(new_event, 8, &mut causes), Some(ItemEnd::Item("i".into())));
        assert!(causes.is_empty());
        let events = rendered.finish();
        let event: serde_json::Value = serde_json::from_slice(&events[0].json).expect("valid event");
        assert_eq!((&*events[0].kind, &event["cause"]), ("plan", &7.into()));
        assert_eq!(
            (&event["message"], &event["extras"]["truncated"]["href"]),
            (&"The plan is updated.".into(), &"/api/x".into())
        );
    }
}
