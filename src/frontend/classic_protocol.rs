//! Classic view of the session socket: the first public API of this kind, as a projection of a
//! session's events and of its clients' requests. Pure.
//!
//! The view has the kinds of events that [`KindDeclaration::is_classic`] marks, and two kinds of
//! frames beside them: the answer to `initialize`, and errors.

use greenroom_protocol::{
    EventBody,
    client::{BadFrame, ClientFrame, ClientRequest},
    declarations::{ACTIONS, KindDeclaration, OBSERVATIONS},
    observation::AgentState,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::store::Seq;

/// Kind of the event that begins a turn.
pub(super) const TURN_START: &str = "chat";

/// Frame to a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum ClassicFrame {
    Action { action: String, args: Map<String, Value>, message: String },
    Observation { observation: String, content: String, extras: Map<String, Value>, message: String },
    Error { error: bool, message: String },
}

/// Event, as far as the view shows it.
#[derive(Deserialize)]
struct ShownEvent {
    seq: Seq,
    #[serde(default)]
    message: String,
    #[serde(flatten)]
    body: Map<String, Value>,
}

/// State of one client.
#[derive(Debug, Default)]
pub(super) struct ClassicProjection {
    /// Event that began the first turn.
    first_turn: Option<Seq>,
}

impl ClassicProjection {
    /// Begins the replay of a session whose first turn began with event `first_turn`.
    pub(super) fn begin(&mut self, first_turn: Option<Seq>) {
        self.first_turn = self.first_turn.or(first_turn);
    }

    /// Returns the frame for an event, or `None` if the view does not have its kind.
    pub(super) fn event(&mut self, json: &[u8]) -> Option<ClassicFrame> {
        // Every event is a JSON object with a number.
        let ShownEvent { seq, mut message, mut body } = serde_json::from_slice(json).ok()?;
        if message.is_empty() {
            message = EventBody::deserialize(Value::Object(body.clone())).ok()?.summary_line();
        }
        if let Some(Value::String(action)) = body.remove("action") {
            let args = object(body.remove("args"));
            return is_classic(&ACTIONS, &action).then_some(ClassicFrame::Action { action, args, message });
        }
        let Some(Value::String(observation)) = body.remove("observation") else { return None };
        if observation == TURN_START {
            self.first_turn.get_or_insert(seq);
        }
        let content =
            body.remove("content").and_then(|content| content.as_str().map(str::to_owned)).unwrap_or_default();
        let mut extras = object(body.remove("extras"));
        if let Some(state) = extras.get_mut("agent_state").filter(|_| observation == "agent_state_changed")
            // A newer version may have further states.
            && let Ok(known) = AgentState::deserialize(&*state)
        {
            *state = classic_state(known, self.first_turn.is_some_and(|first| first < seq)).into();
        }
        is_classic(&OBSERVATIONS, &observation).then_some(ClassicFrame::Observation {
            observation,
            content,
            extras,
            message,
        })
    }

    /// Returns the answer to `initialize` of session `id`, which is in `state` now.
    pub(super) fn initialized(&self, id: &str, state: AgentState) -> [ClassicFrame; 2] {
        let name = classic_state(state, self.first_turn.is_some());
        [
            ClassicFrame::Action {
                action: "initialize".to_owned(),
                args: Map::new(),
                message: format!("Initialized session {id}."),
            },
            ClassicFrame::Observation {
                observation: "agent_state_changed".to_owned(),
                content: String::new(),
                extras: Map::from_iter([("agent_state".to_owned(), name.into())]),
                message: format!("Now {}.", state.name()),
            },
        ]
    }
}

/// Returns the frame for an error.
pub(super) fn error(message: String) -> ClassicFrame {
    ClassicFrame::Error { error: true, message }
}

/// Reads a text frame of a client.
///
/// # Errors
/// The same as [`ClientFrame::parse`], and `invalid_args` for a state that nobody can request.
pub(super) fn parse(text: &str) -> Result<ClientFrame, BadFrame> {
    match ClientFrame::parse(text) {
        Err(unknown) if unknown.code == "unknown_action" => parse_classic(text).unwrap_or(Err(unknown)),
        Ok(ClientFrame { id, request: ClientRequest::Ping {} }) => {
            let message = "the classic view has no `ping`; send a WebSocket Ping".to_owned();
            Err(BadFrame { code: "unknown_action", message, id })
        }
        parsed => parsed,
    }
}

/// Reads the action that only the classic view has, as the request that it stands for.
fn parse_classic(text: &str) -> Option<Result<ClientFrame, BadFrame>> {
    let frame: Value = serde_json::from_str(text).ok()?;
    if frame["action"] != "change_agent_state" {
        return None;
    }
    let action = match frame["args"]["agent_state"].as_str() {
        Some("paused") => "pause",
        Some("running") => "resume",
        Some("stopped") => "stop",
        Some(_) | None => {
            let message = "`agent_state` must be `paused`, `running` or `stopped`".to_owned();
            let id = frame["id"].as_str().map(str::to_owned);
            return Some(Err(BadFrame { code: "invalid_args", message, id }));
        }
    };
    Some(ClientFrame::parse(&json!({ "action": action, "id": frame["id"] }).to_string()))
}

/// Returns the name of a state in the view.
fn classic_state(state: AgentState, had_turn: bool) -> &'static str {
    match state {
        AgentState::Starting => "loading",
        AgentState::Idle if had_turn => "awaiting_user_input",
        AgentState::Idle => "init",
        AgentState::Running | AgentState::Interrupting => "running",
        AgentState::AwaitingConfirmation => "awaiting_user_confirmation",
        AgentState::Paused => "paused",
        AgentState::Stopped => "stopped",
        AgentState::Failed => "error",
        AgentState::Ended => "finished",
    }
}

fn is_classic(declarations: &[KindDeclaration], name: &str) -> bool {
    KindDeclaration::find(declarations, name).is_some_and(|kind| kind.is_classic)
}

fn object(value: Option<Value>) -> Map<String, Value> {
    match value {
        Some(Value::Object(fields)) => fields,
        Some(_) | None => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the frames of these events, numbered from 1.
    fn frames(mut projection: ClassicProjection, events: &[Value]) -> Vec<Value> {
        let numbered = events.iter().zip(1..).map(|(event, seq)| {
            let mut event = event.clone();
            event["seq"] = json!(seq);
            event["at"] = json!("2026-01-01T00:00:00.000Z");
            event
        });
        let shown = numbered.filter_map(|event| projection.event(event.to_string().as_bytes()));
        shown.map(|frame| serde_json::to_value(frame).expect("a frame is JSON")).collect()
    }

    fn state(name: &str) -> Value {
        json!({ "source": "server", "observation": "agent_state_changed", "content": "", "message": "m",
            "extras": { "agent_state": name, "since": "" } })
    }

    fn chat() -> Value {
        json!({ "source": "user", "observation": "chat", "content": "go", "extras": { "turn": "turn-1" }, "message": "go" })
    }

    fn states(projection: ClassicProjection, events: &[Value]) -> Vec<String> {
        let states = frames(projection, events).into_iter().map(|frame| frame["extras"]["agent_state"].clone());
        states.filter_map(|state| state.as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn event_has_the_fields_of_the_view_alone() {
        let run = json!({ "source": "agent", "item": "i", "action": "run", "args": { "command": "ls" },
            "message": "Running command: ls" });
        let result = json!({ "source": "agent", "cause": 1, "item": "i", "observation": "run", "content": "LICENSE",
            "extras": { "command": "ls", "exit_code": 0, "duration_ms": 12 }, "message": "Got output." });
        // An event of an earlier version has no line.
        let old = json!({ "source": "agent", "observation": "message", "content": "Hi.", "extras": {} });
        assert_eq!(
            frames(ClassicProjection::default(), &[run, result, old]),
            [
                json!({ "action": "run", "args": { "command": "ls" }, "message": "Running command: ls" }),
                json!({ "observation": "run", "content": "LICENSE", "message": "Got output.",
                    "extras": { "command": "ls", "exit_code": 0, "duration_ms": 12 } }),
                json!({ "observation": "message", "content": "Hi.", "extras": {}, "message": "Hi." }),
            ]
        );
    }

    /// Docs/protocol.md lists the kinds of the view.
    #[test]
    fn other_kinds_are_not_sent() {
        let action =
            |kind: &KindDeclaration| json!({ "source": "user", "action": kind.name, "args": {}, "message": "m" });
        let observation = |kind: &KindDeclaration| json!({ "source": "server", "observation": kind.name, "content": "", "extras": {}, "message": "m" });
        let events: Vec<_> = ACTIONS.iter().map(action).chain(OBSERVATIONS.iter().map(observation)).collect();
        let names = |key: &str| -> Vec<String> {
            let frames = frames(ClassicProjection::default(), &events);
            frames.iter().filter_map(|frame| frame[key].as_str().map(str::to_owned)).collect()
        };
        let actions = "start message run read write edit browse think plan finish interrupt pause resume stop end \
            confirm set_model";
        assert_eq!(names("action").join(" "), actions);
        let observations = "run read write edit browse chat message think plan confirm confirmed agent_state_changed \
            interrupted error";
        assert_eq!(names("observation").join(" "), observations);
        let unknown = [json!({ "observation": "smell", "message": "m" }), json!({ "action": "dance", "message": "m" })];
        assert_eq!(frames(ClassicProjection::default(), &unknown), [] as [Value; 0]);
    }

    #[test]
    fn states_have_their_classic_names() {
        let names = ["starting", "idle", "running", "interrupting", "awaiting_confirmation", "paused", "stopped"];
        let events: Vec<_> = names.into_iter().chain(["failed", "ended", "new"]).map(state).collect();
        let expected = [
            "loading",
            "init",
            "running",
            "running",
            "awaiting_user_confirmation",
            "paused",
            "stopped",
            "error",
            "finished",
            "new",
        ];
        assert_eq!(states(ClassicProjection::default(), &events), expected);
        let turn = [state("idle"), chat(), state("running"), state("idle")];
        assert_eq!(states(ClassicProjection::default(), &turn), ["init", "running", "awaiting_user_input"]);
        // The first turn is known before its event is replayed.
        assert_eq!(
            states(ClassicProjection { first_turn: Some(2) }, &turn),
            ["init", "running", "awaiting_user_input"]
        );
    }

    #[test]
    fn initialize_is_answered_with_the_present_state() {
        let answer = |first_turn| {
            let frames = ClassicProjection { first_turn }.initialized("01J", AgentState::Idle);
            serde_json::to_value(frames).expect("frames are JSON")
        };
        let expected = |state: &str| {
            json!([
                { "action": "initialize", "args": {}, "message": "Initialized session 01J." },
                { "observation": "agent_state_changed", "content": "", "extras": { "agent_state": state }, "message": "Now idle." },
            ])
        };
        assert_eq!(answer(None), expected("init"));
        assert_eq!(answer(Some(3)), expected("awaiting_user_input"));
        assert_eq!(serde_json::to_value(error("no".into())).expect("JSON"), json!({ "error": true, "message": "no" }));
    }

    #[test]
    fn change_agent_state_is_a_pause_a_resume_or_a_stop() {
        let request = |state: Value| {
            let frame = json!({ "action": "change_agent_state", "args": { "agent_state": state }, "id": "a" });
            parse(&frame.to_string())
        };
        let accepted = |request| Ok(ClientFrame { id: Some("a".into()), request });
        assert_eq!(request(json!("paused")), accepted(ClientRequest::Pause {}));
        assert_eq!(request(json!("running")), accepted(ClientRequest::Resume {}));
        assert_eq!(request(json!("stopped")), accepted(ClientRequest::Stop {}));
        for wrong in [json!("finished"), json!(7), Value::Null] {
            let bad = request(wrong).expect_err("the state cannot be requested");
            assert_eq!((bad.code, bad.id), ("invalid_args", Some("a".to_owned())));
            assert!(bad.message.contains("`paused`, `running` or `stopped`"), "{}", bad.message);
        }
        let code = |text: &str| parse(text).map_err(|bad| bad.code);
        assert_eq!(code(r#"{"action":"dance"}"#), Err("unknown_action"));
        assert_eq!(code(r#"{"action":"ping"}"#), Err("unknown_action"));
        assert_eq!(code(r#"{"action":"change_agent_state"}"#), Err("invalid_args"));
        let start = ClientRequest::Start { task: "go".into() };
        assert_eq!(code(r#"{"action":"start","args":{"task":"go"}}"#), Ok(ClientFrame { id: None, request: start }));
    }
}
