//! Beginning of a forked session: the state in its record, and the events after the copied ones.

use std::collections::HashMap;

use greenroom_protocol::{
    Event, EventSource, Observation, ObservationKind, action::MessageMode, repository::ForkOrigin,
};

use super::{
    effect::InFlightStops,
    latest::latest_line,
    render::RenderedEvents,
    request_error::RequestError,
    restart::state_of,
    transition::{DecisionContext, NewEvent, Transition},
    turn::SessionInput,
};
use crate::{
    clock,
    store::{JournalEvent, LatestActivity, SessionRecord, StoredEvent},
};

/// First state and first own events of a fork.
#[derive(Debug)]
pub struct ForkBeginning {
    /// Follow the copied events.
    pub events: Vec<JournalEvent>,
    /// Record of the source with the state of the fork. All else is the source's.
    pub record: SessionRecord,
}

/// Decides about the beginning of a fork of the session `source`.
///
/// With a `message`, the fork starts its sandbox and works on the message. `has_queue` is true if
/// messages are queued in the copied events. They stay with the source.
///
/// # Errors
/// Returns [`RequestError::Unreadable`] if the source's state cannot be read. Returns
/// [`RequestError::BadArgs`] for a message that is too large.
pub fn begin_fork(
    source: &SessionRecord,
    origin: ForkOrigin,
    has_queue: bool,
    message: Option<String>,
) -> Result<ForkBeginning, RequestError> {
    let at = origin.at;
    let mut state = state_of(source)?.of_fork();
    let mut transition = Transition::after(at);
    let mut push = |kind| {
        let observation = Observation { kind, content: String::new() };
        transition.push_event(EventSource::Server, None, None, observation)
    };
    let mut tail = push(ObservationKind::Forked(origin));
    if has_queue {
        tail = push(ObservationKind::Queue { items: Vec::new() });
    }
    if let Some(content) = message {
        let input = SessionInput::Message { content, mode: MessageMode::Queue, attachments: Vec::new() };
        let in_flight_stops = InFlightStops::default();
        let now_ms = clock::now_ms();
        let context =
            DecisionContext { tail, now_ms, open: &[], captures_turns: false, in_flight_stops: &in_flight_stops };
        // The actor starts the sandbox, as after every restart from the journal.
        let decided = state.decide(input, context)?;
        transition.append(decided);
    } else {
        push(ObservationKind::AgentStateChanged {
            agent_state: state.visible_state(),
            reason: state.reason(),
            since: String::new(),
            turn_over: false,
        });
    }
    let (mut rendered, mut causes) = (RenderedEvents::new(), HashMap::new());
    for (seq, new_event) in (at + 1..).zip(transition.new_events) {
        rendered.add(new_event, seq, &mut causes);
    }
    let record = SessionRecord {
        state: state.visible_state(),
        reason: state.reason(),
        actor_state: state.to_opaque_state(),
        ..source.clone()
    };
    Ok(ForkBeginning { events: rendered.finish(), record })
}

/// Returns true if the session with this record has begun a capture and not reported its end.
pub fn is_capturing(record: &SessionRecord, checkpoint: &str) -> bool {
    state_of(record).is_ok_and(|state| state.is_capturing(checkpoint))
}

/// Returns the newest of these events that lists show.
pub fn latest_of(events: &[StoredEvent]) -> Option<LatestActivity> {
    events.iter().rev().find_map(|(seq, event)| {
        let Event { source, body, .. } = serde_json::from_slice(&event.json).ok()?;
        let text = latest_line(&NewEvent { source, cause: None, item: None, risk: None, body })?;
        Some(LatestActivity { seq: *seq, text })
    })
}

#[cfg(test)]
mod tests {
    use greenroom_protocol::observation::AgentState;
    use serde_json::{Value, json, value::to_raw_value};

    use super::*;
    use crate::{
        session::turn::SessionState,
        store::{OpaqueState, contract::record},
    };

    /// Decides about the beginning of a fork at event 4.
    fn begin(state: &Value, has_queue: bool, message: Option<&str>) -> Result<ForkBeginning, RequestError> {
        let actor_state = OpaqueState::from(to_raw_value(state).expect("a value serializes"));
        let source = SessionRecord { actor_state, ..record("") };
        let origin = ForkOrigin { from: source.id.to_string(), at: 4, checkpoint: None };
        begin_fork(&source, origin, has_queue, message.map(str::to_owned))
    }

    /// Returns the state of a session with work, a queue and keys.
    fn working() -> Value {
        let mut state = serde_json::to_value(SessionState::default()).expect("a state serializes");
        state["life"] = json!("Up");
        state["turn"] = json!({ "id": "turn-8", "chat": 9 });
        state["queue"] =
            json!([{ "item": { "item": "message-9", "content": "later", "attachments": [] }, "cause": 10 }]);
        (state["boot"], state["named"], state["remembered"]) = (json!("b"), json!(11), json!([["k", 3]]));
        state
    }

    fn events(beginning: &ForkBeginning) -> Vec<Value> {
        beginning.events.iter().map(|event| serde_json::from_slice(&event.json).expect("an event")).collect()
    }

    fn kinds(beginning: &ForkBeginning) -> Vec<&str> {
        beginning.events.iter().map(|event| &*event.kind).collect()
    }

    #[test]
    fn fork_begins_stopped_without_work_of_its_source() {
        let beginning = begin(&working(), true, None).expect("the state is readable");
        let events = events(&beginning);
        assert_eq!(kinds(&beginning), ["forked", "queue", "agent_state_changed"]);
        assert_eq!(events.iter().map(|event| event["seq"].clone()).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(
            (&events[1]["extras"]["items"], &events[2]["extras"]["agent_state"]),
            (&json!([]), &json!("stopped"))
        );
        assert_eq!(beginning.record.state, AgentState::Stopped);
        let state: Value = serde_json::from_str(beginning.record.actor_state.as_str()).expect("a state");
        assert_eq!((&state["turn"], &state["queue"], &state["boot"]), (&Value::Null, &json!([]), &Value::Null));
        assert_eq!((&state["named"], &state["remembered"]), (&json!(11), &json!([])));
    }

    #[test]
    fn message_of_a_fork_is_queued_under_a_new_name() {
        let beginning = begin(&working(), false, Some("again")).expect("the state is readable");
        let events = events(&beginning);
        assert_eq!(kinds(&beginning), ["forked", "message", "queue", "agent_state_changed"]);
        assert_eq!((&events[1]["item"], &events[1]["args"]["content"]), (&json!("message-12"), &json!("again")));
        assert_eq!(events[2]["extras"]["items"][0]["item"], "message-12");
        assert_eq!(beginning.record.state, AgentState::Starting);
    }

    #[test]
    fn unreadable_source_is_rejected() {
        for state in [json!("its import was cut short"), json!({ "life": "Elsewhere" })] {
            let error = begin(&state, false, None).expect_err("no such state");
            assert!(matches!(error, RequestError::Unreadable(_)), "{error}");
        }
    }
}
