//! From a decision's drafts to the events that clients see: numbers, times, causes.

use std::{borrow::Cow, collections::HashMap};

use bytes::Bytes;
use greenroom_protocol::{Event, EventBody, Observation, ObservationKind, excerpt, link::EVENT_LIMIT};

use super::{broadcast::ItemEnd, transition::NewEvent};
use crate::{
    clock,
    store::{JournalEvent, Seq},
};

/// The longest line for a person of an event that is too large, in bytes.
const LINE_LIMIT: usize = 1024;

/// How many actions are remembered whose result has not come. An agent has a few under way; of one that never ends any, the
/// results of the oldest name no cause.
const MAX_CAUSES: usize = 1024;

/// The events of one decision. Their texts stand in one buffer: an agent that says much at once costs no allocations for each.
pub(super) struct RenderedEvents {
    /// When all of it was decided.
    at: String,
    text: Vec<u8>,
    /// What each is called, and how many bytes of `text` it is.
    events: Vec<(Cow<'static, str>, usize)>,
}

impl RenderedEvents {
    pub(super) fn new() -> RenderedEvents {
        RenderedEvents { at: clock::now(), text: Vec::new(), events: Vec::new() }
    }

    /// Makes the event of `draft`, and says what it ends.
    pub(super) fn add(&mut self, draft: NewEvent, seq: Seq, causes: &mut HashMap<String, Seq>) -> Option<ItemEnd> {
        let NewEvent { source, cause, item, mut body } = draft;
        let at = self.at.clone();
        if let EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged { since, .. }, .. }) =
            &mut body
        {
            since.clone_from(&at);
        }
        let cause = cause.or_else(|| item.as_ref().and_then(|item| causes.get(item).copied()));
        track_causes(causes, seq, item.as_deref(), &body);
        let message = body.summary_line();
        let mut event = Event { seq, at, source, cause, item, body, message };
        let begin = self.text.len();
        let mut len = self.write(&event);
        if len > EVENT_LIMIT {
            event.body = event.body.fit(EVENT_LIMIT / 2);
            event.message = excerpt(&event.message, LINE_LIMIT).map_or(event.message, |cut| cut.text);
            len = self.rewrite(begin, &event);
        }
        if len > EVENT_LIMIT {
            let name = event.body.name();
            let detail = format!("an event `{name}` of {len} bytes was left out: the limit is {EVENT_LIMIT}");
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
        Some(match event.body {
            EventBody::Action(_) => ItemEnd::ToolInput(item),
            EventBody::Observation(_) | EventBody::Opaque(_) => ItemEnd::Item(item),
        })
    }

    /// Returns how many bytes it is.
    fn write(&mut self, event: &Event) -> usize {
        let begin = self.text.len();
        // Every type of the vocabulary has string keys and no fallible `Serialize`, so this cannot fail.
        serde_json::to_writer(&mut self.text, event).expect("an event is JSON");
        self.text.len() - begin
    }

    /// Writes it in the place of what was written from there on.
    fn rewrite(&mut self, begin: usize, event: &Event) -> usize {
        self.text.truncate(begin);
        self.write(event)
    }

    pub(super) fn finish(self) -> Vec<JournalEvent> {
        // Exactly as large as it is: it is kept in memory for those who follow.
        let mut text = Bytes::from(self.text.into_boxed_slice());
        self.events.into_iter().map(|(kind, len)| JournalEvent { kind, json: text.split_to(len) }).collect()
    }
}

/// Keeps track of the actions whose result is still to come.
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
        (Some(item), EventBody::Observation(_)) => {
            causes.remove(item);
        }
        // One that is marked as a part of a whole.
        (Some(item), EventBody::Opaque(fields)) if fields.contains_key("observation") => {
            causes.remove(item);
        }
        (Some(_), EventBody::Opaque(_)) | (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::{Action, EventSource, observation::TruncationMark};

    use super::*;

    #[test]
    fn a_result_names_the_action_with_its_item() {
        let mut causes = HashMap::new();
        let draft =
            |body: EventBody| NewEvent { source: EventSource::Agent, cause: None, item: Some("i".into()), body };
        let mut rendered = RenderedEvents::new();
        let ended = rendered.add(draft(Action::Run { command: "ls".into() }.into()), 7, &mut causes);
        assert_eq!(ended, Some(ItemEnd::ToolInput("i".into())));
        let seen = ObservationKind::Write { path: "a".into(), bytes: 1 };
        let ended = rendered.add(draft(Observation { kind: seen, content: String::new() }.into()), 8, &mut causes);
        assert_eq!(ended, Some(ItemEnd::Item("i".into())));
        let events = rendered.finish();
        let read = |n: usize| serde_json::from_slice::<Event>(&events[n].json).expect("an event");
        assert_eq!((read(0).seq, read(0).cause), (7, None));
        assert_eq!((read(1).seq, read(1).cause), (8, Some(7)));
        assert!(causes.is_empty());
    }

    fn written(body: impl Into<EventBody>) -> JournalEvent {
        let mut rendered = RenderedEvents::new();
        let draft = |body| NewEvent { source: EventSource::Agent, cause: None, item: None, body };
        rendered.add(draft(body.into()), 1, &mut HashMap::new());
        rendered.add(draft(Action::Run { command: "ls".into() }.into()), 2, &mut HashMap::new());
        let [event, next] = <[JournalEvent; 2]>::try_from(rendered.finish()).expect("two events");
        assert_eq!((&*next.kind, serde_json::from_slice::<Event>(&next.json).expect("an event").seq), ("run", 2));
        assert!(event.json.len() <= EVENT_LIMIT, "{} bytes", event.json.len());
        event
    }

    #[test]
    fn an_event_that_is_too_large_keeps_heads_and_tails_and_says_so() {
        let content = format!("BEGIN{}END", "x".repeat(EVENT_LIMIT));
        let event = written(Action::Write { path: "a".into(), content });
        assert_eq!(&*event.kind, "write");
        let EventBody::Action(Action::Write { path, content }) =
            serde_json::from_slice::<Event>(&event.json).expect("an event").body
        else {
            panic!("it is no `write` any more")
        };
        assert!(path == "a" && content.starts_with("BEGIN") && content.ends_with("END"));
        assert!(content.contains("bytes left out"), "{}", content.len());
    }

    /// Its line for a person says the same again.
    #[test]
    fn a_long_line_does_not_make_an_event_too_large() {
        let event = written(Action::Run { command: "x".repeat(EVENT_LIMIT * 2 / 3) });
        let read: Event = serde_json::from_slice(&event.json).expect("an event");
        assert!(read.body.name() == "run" && read.message.starts_with("Running command: xxx"));
    }

    #[test]
    fn what_cannot_be_cut_says_that_it_was_left_out() {
        let extras: serde_json::Map<_, _> = (0..EVENT_LIMIT / 14).map(|n| (format!("k{n}"), n.into())).collect();
        let smell = serde_json::json!({ "observation": "smell", "extras": extras });
        let event = written(serde_json::from_value::<EventBody>(smell).expect("a body"));
        assert!(event.json.len() < 1024 && &*event.kind == "error");
    }

    #[test]
    fn a_part_of_a_whole_is_a_result_like_any_other() {
        let mut causes = HashMap::from([("i".to_owned(), 7)]);
        let whole = TruncationMark { bytes: 9, href: Some("/api/x".into()) };
        let plan = Observation {
            kind: ObservationKind::Plan { path: "p".into(), items: Vec::new() },
            content: "# Plan".into(),
        };
        let mut rendered = RenderedEvents::new();
        let draft = NewEvent {
            source: EventSource::Agent,
            cause: None,
            item: Some("i".into()),
            body: plan.with_truncation(whole),
        };
        assert_eq!(rendered.add(draft, 8, &mut causes), Some(ItemEnd::Item("i".into())));
        assert!(causes.is_empty());
        let events = rendered.finish();
        let event: serde_json::Value = serde_json::from_slice(&events[0].json).expect("an event");
        assert_eq!((&*events[0].kind, &event["cause"]), ("plan", &7.into()));
        assert_eq!(
            (&event["message"], &event["extras"]["truncated"]["href"]),
            (&"The plan is updated.".into(), &"/api/x".into())
        );
    }
}
