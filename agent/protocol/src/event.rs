//! Durable events: journalled, numbered without gaps, kept and replayed forever.

use serde::{Deserialize, Serialize};

use crate::{Action, Observation, observation::OpaqueFields};

/// Entry of a session's journal, exactly as a client receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event in its session: 1, 2, 3 … without gaps. Assigned by the server, never by
    /// the agent.
    pub seq: u64,
    /// Time at which the server recorded the event: RFC 3339, UTC, milliseconds.
    pub at: String,
    pub source: EventSource,
    /// `seq` of the event that led to this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<u64>,
    /// Ties deltas, an action and its result together. The agent's tool calls use the model's own
    /// call id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<String>,
    #[serde(flatten)]
    pub body: EventBody,
    /// Summary line for a person.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Origin of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema, ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum EventSource {
    User,
    Agent,
    Server,
}

/// Content of an event: an action, an observation, or a kind unknown to this version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventBody {
    Action(Action),
    Observation(Observation),
    /// Content that is passed on unchanged.
    ///
    /// A kind unknown to this version, from a newer agent or an older journal. On the way
    /// out, also an observation with more fields than its type ([`Observation::with_truncation`]).
    Opaque(OpaqueFields),
}

impl EventBody {
    /// Name on the wire: the value of `action` or `observation`.
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

    /// Summary line for a person. Empty for a kind unknown to this version.
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
