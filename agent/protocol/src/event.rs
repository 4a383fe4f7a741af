//! Durable events: what is journalled, numbered without gaps, and replayed for ever.

use serde::{Deserialize, Serialize};

use crate::{Action, Observation, observation::Opaque};

/// One entry of a session's journal, exactly as a client sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// 1, 2, 3 … in each session, without gaps. Given by the server, never by the agent.
    pub seq: u64,
    /// When the server wrote it down: RFC 3339, UTC, milliseconds.
    pub at: String,
    pub source: Source,
    /// The `seq` of the event that led to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
    /// Ties deltas, an action and its result together. The agent's tool calls use the model's own call id here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    #[serde(flatten)]
    pub body: Body,
    /// One line for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Who an event comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    User,
    Agent,
    Server,
}

/// What the event says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Body {
    Action(Action),
    Observation(Observation),
    /// A kind that this version does not know, from a newer agent or an older journal: passed on as it came. Or one that has
    /// more to it than its type ([`Observation::part_of`]), on its way out.
    Opaque(Opaque),
}

impl Body {
    /// The name on the wire: the value of `action` or `observation`.
    pub fn name(&self) -> &str {
        match self {
            Body::Action(action) => action.name(),
            Body::Observation(observation) => observation.name(),
            Body::Opaque(fields) => fields
                .get("action")
                .or_else(|| fields.get("observation"))
                .and_then(|name| name.as_str())
                .unwrap_or("unknown"),
        }
    }

    /// One line for a person; empty for what this version does not know.
    pub fn line(&self) -> String {
        match self {
            Body::Action(action) => action.line(),
            Body::Observation(observation) => observation.line(),
            Body::Opaque(fields) => {
                Observation::deserialize(fields).map_or_else(|_| String::new(), |observation| observation.line())
            }
        }
    }
}

impl From<Action> for Body {
    fn from(action: Action) -> Body {
        Body::Action(action)
    }
}

impl From<Observation> for Body {
    fn from(observation: Observation) -> Body {
        Body::Observation(observation)
    }
}
