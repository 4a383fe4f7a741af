//! From a decision's drafts to the events that clients see: numbers, times, causes.

use std::collections::HashMap;

use bytes::Bytes;
use greenroom_protocol::{Body, Event, Observation, Seen};

use super::{audience::Ended, decision::Draft};
use crate::{
    clock,
    store::{NewEvent, Seq},
};

/// The largest event, in bytes. One that is larger says so instead of what it said.
const EVENT_LIMIT: usize = 2 * 1024 * 1024;

/// Makes the event of `draft`, and says what it ends.
pub(super) fn event(draft: Draft, seq: Seq, causes: &mut HashMap<String, Seq>) -> (NewEvent, Option<Ended>) {
    let Draft { source, cause, item, mut body } = draft;
    let at = clock::now();
    if let Body::Observation(Observation { seen: Seen::AgentStateChanged { since, .. }, .. }) = &mut body {
        since.clone_from(&at);
    }
    let cause = cause.or_else(|| item.as_ref().and_then(|item| causes.get(item).copied()));
    follow(causes, seq, item.as_deref(), &body);
    let message = match &body {
        Body::Action(action) => action.line(),
        Body::Observation(observation) => observation.line(),
        Body::Opaque(_) => String::new(),
    };
    let mut event = Event { seq, at, source, cause, item, body, message };
    let mut json = to_json(&event);
    if json.len() > EVENT_LIMIT {
        let detail = format!(
            "an event `{}` of {} bytes was left out: the limit is {EVENT_LIMIT}",
            event.body.name(),
            json.len()
        );
        event.message.clone_from(&detail);
        event.body =
            Observation { seen: Seen::Error { code: "too_large".to_owned(), detail }, content: String::new() }.into();
        json = to_json(&event);
    }
    let ended = event.item.as_ref().map(|item| match &event.body {
        Body::Action(_) => Ended::Input(item.clone()),
        Body::Observation(_) | Body::Opaque(_) => Ended::Whole(item.clone()),
    });
    (NewEvent { kind: event.body.name().to_owned(), json }, ended)
}

/// Keeps track of the actions whose result is still to come.
pub(super) fn follow(causes: &mut HashMap<String, Seq>, seq: Seq, item: Option<&str>, body: &Body) {
    match (item, body) {
        (Some(item), Body::Action(_)) => {
            causes.insert(item.to_owned(), seq);
        }
        (Some(item), Body::Observation(_)) => {
            causes.remove(item);
        }
        (Some(_), Body::Opaque(_)) | (None, _) => {}
    }
}

fn to_json(event: &Event) -> Bytes {
    // Every type of the vocabulary has string keys and no fallible `Serialize`, so this cannot fail.
    let json = serde_json::to_vec(event).expect("an event is JSON");
    // Exactly as large as it is: it is kept in memory for those who follow.
    json.into_boxed_slice().into()
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::{Action, Source};

    use super::*;

    #[test]
    fn a_result_names_the_action_with_its_item() {
        let mut causes = HashMap::new();
        let draft = |body: Body| Draft { source: Source::Agent, cause: None, item: Some("i".into()), body };
        let (_, ended) = event(draft(Action::Run { command: "ls".into() }.into()), 7, &mut causes);
        assert_eq!(ended, Some(Ended::Input("i".into())));
        let seen = Seen::Write { path: "a".into(), bytes: 1 };
        let (result, ended) = event(draft(Observation { seen, content: String::new() }.into()), 8, &mut causes);
        assert_eq!(ended, Some(Ended::Whole("i".into())));
        let event: Event = serde_json::from_slice(&result.json).expect("an event");
        assert_eq!((event.seq, event.cause), (8, Some(7)));
        assert!(causes.is_empty());
    }

    #[test]
    fn an_event_that_is_too_large_says_so() {
        let body = Action::Write { path: "a".into(), content: "x".repeat(EVENT_LIMIT) }.into();
        let draft = Draft { source: Source::Agent, cause: None, item: None, body };
        let (left, _) = event(draft, 1, &mut HashMap::new());
        assert!(left.json.len() < 1024);
        assert_eq!(left.kind, "error");
    }
}
