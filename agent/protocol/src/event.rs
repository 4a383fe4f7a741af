//! Durable events: what is journalled, numbered without gaps, and replayed for ever.

use serde::{Deserialize, Serialize};

use crate::{Action, Observation, observation::OpaqueFields};

/// One entry of a session's journal, exactly as a client sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// 1, 2, 3 … in each session, without gaps. Given by the server, never by the agent.
    pub seq: u64,
    /// When the server wrote it down: RFC 3339, UTC, milliseconds.
    pub at: String,
    pub source: EventSource,
    /// The `seq` of the event that led to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
    /// Ties deltas, an action and its result together. The agent's tool calls use the model's own call id here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    #[serde(flatten)]
    pub body: EventBody,
    /// One line for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Who an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    User,
    Agent,
    Server,
}

/// What the event says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventBody {
    Action(Action),
    Observation(Observation),
    /// A kind that this version does not know, from a newer agent or an older journal: passed on as it came. Or one that has
    /// more to it than its type ([`Observation::part_of`]), on its way out.
    Opaque(OpaqueFields),
}

impl EventBody {
    /// The name on the wire: the value of `action` or `observation`.
    pub fn name(&self) -> &str {
        match self {
            EventBody::Action(action) => action.name(),
            EventBody::Observation(observation) => observation.name(),
            EventBody::Opaque(fields) => fields
                .get("action")
                .or_else(|| fields.get("observation"))
                .and_then(|name| name.as_str())
                .unwrap_or("unknown"),
        }
    }

    /// One line for a person; empty for what this version does not know.
    pub fn summary_line(&self) -> String {
        match self {
            EventBody::Action(action) => action.summary_line(),
            EventBody::Observation(observation) => observation.summary_line(),
            EventBody::Opaque(fields) => Observation::deserialize(fields)
                .map_or_else(|_| String::new(), |observation| observation.summary_line()),
        }
    }
}

impl From<Action> for EventBody {
    fn from(action: Action) -> EventBody {
        EventBody::Action(action)
    }
}

impl From<Observation> for EventBody {
    fn from(observation: Observation) -> EventBody {
        EventBody::Observation(observation)
    }
}
