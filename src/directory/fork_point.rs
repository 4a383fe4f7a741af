//! Event at which a fork may begin, found in the events of its source. Pure.
//!
//! A turn begins with its first `chat`. It ends with the state change that follows its end, or
//! before the next turn's `chat`.

use greenroom_protocol::{EventSource, checkpoint::CheckpointKind, observation::AgentState};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    session::RequestError,
    store::{JournalEvent, Seq},
};

/// Checkpoint before the first turn.
const START: &str = "start";

/// Beginning of a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForkPoint {
    /// Newest event that both sessions have.
    pub at: Seq,
    /// Name of the newest checkpoint at or before `at`.
    pub checkpoint: String,
    /// True if messages are queued at this event.
    pub has_queue: bool,
}

/// Reads the events of a session, oldest first, until the beginning of a fork is found.
#[derive(Debug)]
pub(super) struct ForkPointReader {
    /// Requested event. `None`: the end of the newest ended turn.
    wanted: Option<Seq>,
    tail: Seq,
    open_turn: Option<OpenTurn>,
    checkpoint: String,
    has_queue: bool,
    /// End of the newest ended turn, with its checkpoint.
    newest_end: Option<ForkPoint>,
    outcome: Option<Result<ForkPoint, RequestError>>,
}

#[derive(Debug)]
struct OpenTurn {
    /// Absent in events of earlier versions.
    id: Option<String>,
    chat: Seq,
}

/// Event that may begin or end a turn.
#[derive(Deserialize)]
struct TurnEdge {
    source: EventSource,
    extras: TurnEdgeExtras,
}

#[derive(Deserialize)]
struct TurnEdgeExtras {
    turn: Option<String>,
    agent_state: Option<AgentState>,
    #[serde(default)]
    turn_over: bool,
    #[serde(default)]
    items: Vec<IgnoredAny>,
    checkpoint: Option<String>,
    kind: Option<CheckpointKind>,
}

impl ForkPointReader {
    pub(super) fn new(wanted: Option<Seq>) -> ForkPointReader {
        ForkPointReader {
            wanted,
            tail: 0,
            open_turn: None,
            checkpoint: START.to_owned(),
            has_queue: false,
            newest_end: None,
            outcome: None,
        }
    }

    /// Reads the next event. Returns true if no further event is needed.
    pub(super) fn read(&mut self, seq: Seq, event: &JournalEvent) -> bool {
        self.tail = seq;
        match &*event.kind {
            "chat" | "agent_state_changed" | "queue" | "checkpoint" | "forked" => {
                // A shortened event of another shape begins and ends no turn.
                if let Ok(edge) = serde_json::from_slice::<TurnEdge>(&event.json) {
                    self.read_edge(seq, &event.kind, edge);
                }
            }
            _ => {}
        }
        // The capture of an ended turn belongs to that end.
        if let ("checkpoint" | "changes", None, Some(end)) = (&*event.kind, &self.open_turn, &mut self.newest_end)
            && end.at + 1 == seq
        {
            end.at = seq;
        }
        if self.wanted == Some(seq) && self.open_turn.is_none() {
            self.outcome = Some(Ok(self.point(seq)));
        }
        self.outcome.is_some()
    }

    /// Returns the beginning of the fork, after the last event.
    ///
    /// # Errors
    /// [`RequestError::BadArgs`] names the events at which a fork may begin.
    pub(super) fn finish(self) -> Result<ForkPoint, RequestError> {
        if let Some(outcome) = self.outcome {
            return outcome;
        }
        let reason = match (self.wanted, &self.open_turn) {
            (None, None) if self.tail > 0 => return Ok(self.point(self.tail)),
            (None, Some(turn)) => match self.newest_end {
                Some(end) => return Ok(end),
                None => format!(
                    "the first turn still runs; set `at` to {}, or fork the session after the turn",
                    turn.chat - 1
                ),
            },
            (Some(at), Some(turn)) if (turn.chat..=self.tail).contains(&at) => format!(
                "event {at} is inside {}, which still runs; use {}, or fork the session after the turn",
                turn.name(),
                turn.chat - 1
            ),
            (_, _) if self.tail == 0 => "the session has no events yet, so there is nothing to fork".to_owned(),
            (Some(at), _) => {
                format!("the session has no event {at}; `at` must be between 1 and {}", self.tail)
            }
            (None, None) => "the session has no events yet, so there is nothing to fork".to_owned(),
        };
        Err(RequestError::BadArgs(reason))
    }

    fn read_edge(&mut self, seq: Seq, kind: &str, TurnEdge { source, extras }: TurnEdge) {
        match (kind, source) {
            ("chat", EventSource::User) => {
                let is_steering =
                    self.open_turn.as_ref().is_some_and(|open| extras.turn.is_none() || open.id == extras.turn);
                if !is_steering {
                    self.end_turn(seq - 1);
                    self.open_turn = Some(OpenTurn { id: extras.turn, chat: seq });
                }
            }
            ("agent_state_changed", EventSource::Server) => {
                let is_over = match extras.agent_state {
                    Some(
                        AgentState::Idle
                        | AgentState::Starting
                        | AgentState::Stopped
                        | AgentState::Failed
                        | AgentState::Ended,
                    ) => true,
                    Some(
                        AgentState::Running
                        | AgentState::AwaitingConfirmation
                        | AgentState::Interrupting
                        | AgentState::Paused,
                    )
                    | None => extras.turn_over,
                };
                if is_over {
                    self.end_turn(seq);
                }
            }
            ("queue", EventSource::Server) => self.has_queue = !extras.items.is_empty(),
            ("checkpoint", EventSource::Server) => match extras.kind {
                Some(CheckpointKind::Restore | CheckpointKind::BeforeRestore) => {
                    self.checkpoint = extras.checkpoint.unwrap_or_else(|| std::mem::take(&mut self.checkpoint));
                }
                // The end of the turn names it.
                Some(CheckpointKind::Start | CheckpointKind::Turn) | None => {}
            },
            // The first checkpoint of the fork has the files that it began with.
            ("forked", EventSource::Server) => START.clone_into(&mut self.checkpoint),
            (_, _) => {}
        }
    }

    fn end_turn(&mut self, end: Seq) {
        let Some(turn) = self.open_turn.take() else { return };
        let name = turn.name();
        if let Some(id) = turn.id {
            self.checkpoint = id;
        }
        let point = self.point(end);
        if let Some(at) = self.wanted
            && (turn.chat..=end).contains(&at)
        {
            self.outcome = Some(if at == end {
                Ok(point.clone())
            } else {
                let before = turn.chat - 1;
                Err(RequestError::BadArgs(format!("event {at} is inside {name}; use {before} or {end}")))
            });
        }
        self.newest_end = Some(point);
    }

    fn point(&self, at: Seq) -> ForkPoint {
        ForkPoint { at, checkpoint: self.checkpoint.clone(), has_queue: self.has_queue }
    }
}

impl OpenTurn {
    fn name(&self) -> String {
        self.id.as_ref().map_or_else(|| "a turn".to_owned(), |id| format!("the turn `{id}`"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Journal of a session with two ended turns and a running one.
    fn journal() -> Vec<JournalEvent> {
        let event = |kind: &'static str, source: &str, extras: serde_json::Value| JournalEvent {
            kind: kind.into(),
            json: json!({ "source": source, "extras": extras }).to_string().into(),
        };
        let state = |state: &str| event("agent_state_changed", "server", json!({ "agent_state": state }));
        vec![
            event("start", "user", json!({})),
            event("chat", "user", json!({ "turn": "turn-1" })),
            state("running"),
            event("message", "agent", json!({})),
            // The agent writes events of its own. They end no turn.
            event("agent_state_changed", "agent", json!({ "agent_state": "idle" })),
            state("idle"),
            event("checkpoint", "server", json!({ "checkpoint": "turn-1", "kind": "turn" })),
            event("queue", "server", json!({ "items": [{ "item": "message-4" }] })),
            event("chat", "user", json!({ "turn": "turn-5" })),
            event("queue", "server", json!({ "items": [] })),
            event("chat", "user", json!({ "turn": "turn-5" })),
            event("message", "agent", json!({})),
            event("chat", "user", json!({ "turn": "turn-7" })),
            state("paused"),
        ]
    }

    #[track_caller]
    fn check(events: &[JournalEvent], wanted: Option<Seq>, expected: Result<(Seq, &str, bool), &str>) {
        let mut reader = ForkPointReader::new(wanted);
        let _ = (1..).zip(events).any(|(seq, event)| reader.read(seq, event));
        let found = reader.finish().map_err(|error| error.to_string());
        let found = found.as_ref().map(|point| (point.at, point.checkpoint.as_str(), point.has_queue));
        assert_eq!(found.map_err(String::as_str), expected, "{wanted:?} of {} events", events.len());
    }

    #[test]
    fn fork_begins_outside_of_turns() {
        let events = journal();
        check(&events, Some(1), Ok((1, START, false)));
        check(&events, Some(2), Err("event 2 is inside the turn `turn-1`; use 1 or 6"));
        check(&events, Some(5), Err("event 5 is inside the turn `turn-1`; use 1 or 6"));
        check(&events, Some(6), Ok((6, "turn-1", false)));
        check(&events, Some(8), Ok((8, "turn-1", true)));
        check(&events, Some(9), Err("event 9 is inside the turn `turn-5`; use 8 or 12"));
        check(&events, Some(12), Ok((12, "turn-5", false)));
        let running =
            "event 14 is inside the turn `turn-7`, which still runs; use 12, or fork the session after the turn";
        check(&events, Some(14), Err(running));
        check(&events, Some(15), Err("the session has no event 15; `at` must be between 1 and 14"));
        check(&events, Some(0), Err("the session has no event 0; `at` must be between 1 and 14"));
    }

    #[test]
    fn fork_begins_by_default_after_newest_ended_turn() {
        let events = journal();
        check(&events, None, Ok((12, "turn-5", false)));
        check(&events[..8], None, Ok((8, "turn-1", true)));
        check(&events[..9], None, Ok((7, "turn-1", false)));
        let first = "the first turn still runs; set `at` to 1, or fork the session after the turn";
        check(&events[..4], None, Err(first));
        check(&[], None, Err("the session has no events yet, so there is nothing to fork"));
    }

    #[test]
    fn checkpoint_is_newest_before_the_fork() {
        let mut events = journal();
        events.truncate(7);
        let checkpoint = |extras: serde_json::Value| JournalEvent {
            kind: "checkpoint".into(),
            json: json!({ "source": "server", "extras": extras }).to_string().into(),
        };
        events.push(checkpoint(json!({ "checkpoint": "restore-1", "kind": "restore" })));
        check(&events, None, Ok((8, "restore-1", false)));
        check(&events, Some(7), Ok((7, "turn-1", false)));
        events.push(JournalEvent { kind: "forked".into(), json: r#"{"source":"server","extras":{}}"#.into() });
        check(&events, None, Ok((9, START, false)));
    }
}
