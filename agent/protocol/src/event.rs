//! Durable events: journalled, numbered without gaps, kept and replayed forever.

use serde::{Deserialize, Serialize};

use crate::{Action, Observation, approval::RiskAssessment, observation::OpaqueFields};

/// Entry of a session's journal, exactly as a client receives it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Risk of an agent's tool call. Set by the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<RiskAssessment>,
    #[serde(flatten)]
    pub body: EventBody,
    /// Summary line for a person. Empty in some events of earlier versions.
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum EventBody {
    Action(Action),
    Observation(Observation),
    /// Content that is passed on unchanged.
    ///
    /// A kind unknown to this version, from a newer agent or an older journal. On the way
    /// out, also an observation with more fields than its type ([`Observation::with_truncation`]).
    #[cfg_attr(test, schemars(skip))]
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

    /// Summary line for a person: never empty. Names the kind if this version does not know it.
    pub fn summary_line(&self) -> String {
        match self {
            EventBody::Action(action) => action.summary_line(),
            EventBody::Observation(observation) => observation.summary_line(),
            EventBody::Opaque(fields) => match Observation::deserialize(fields) {
                Ok(observation) => observation.summary_line(),
                Err(_) if fields.contains_key("action") => format!("Action: {}", self.name()),
                Err(_) => format!("Observation: {}", self.name()),
            },
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::{
        ObservationKind,
        generated_files::{Kind, kinds},
    };

    /// Returns a body of this kind whose texts are all `text`.
    fn body_of(kind: &Kind, (tag, fields_key): (&str, &str), text: &str) -> EventBody {
        let value = |shape: &str, values: &[String]| match shape {
            "string" => values.first().map_or(text, String::as_str).into(),
            "number" => json!(0),
            "boolean" => json!(false),
            "strings" | "objects" => json!([]),
            "object" => json!({}),
            other => panic!("no sample of a `{other}`"),
        };
        let needed = kind.fields.iter().filter(|field| !field.optional || field.kind == "strings");
        let fields: Map<_, _> = needed.map(|field| (field.name.clone(), value(field.kind, &field.values))).collect();
        let body = json!({ tag: kind.name, fields_key: fields, "content": text });
        let body: EventBody = serde_json::from_value(body).expect("every object is a body");
        assert!(!matches!(body, EventBody::Opaque(_)), "the sample of `{}` has its type", kind.name);
        body
    }

    #[test]
    fn every_kind_has_a_summary_line_whatever_its_texts_are() {
        for text in ["", " \n\t\n"] {
            let actions = kinds::<Action>("action", "args");
            let observations = kinds::<ObservationKind>("observation", "extras");
            let actions = actions.iter().map(|kind| body_of(kind, ("action", "args"), text));
            let observations = observations.iter().map(|kind| body_of(kind, ("observation", "extras"), text));
            let unknown = [json!({ "action": "dance" }), json!({ "observation": "smell", "content": text })];
            let unknown = unknown.map(|body| serde_json::from_value(body).expect("every object is a body"));
            for body in actions.chain(observations).chain(unknown) {
                assert!(!body.summary_line().trim().is_empty(), "`{}` with the text {text:?}", body.name());
            }
        }
    }

    #[test]
    fn summary_line_shows_the_text() {
        let check = |body: serde_json::Value, line: &str| {
            let body: EventBody = serde_json::from_value(body).expect("every object is a body");
            assert_eq!(body.summary_line(), line);
        };
        let observation = |name: &str, content: &str| json!({ "observation": name, "extras": {}, "content": content });
        check(observation("message", "\nIt works.\nMore below."), "It works.");
        check(observation("chat", "go"), "go");
        check(observation("think", "Let me see.\nWell."), "Thinking: Let me see.");
        let usage = json!({ "observation": "usage", "extras": {
            "model": "m", "input_tokens": 1200, "output_tokens": 30, "cost_usd": 0.00425, "total_input_tokens": 1,
            "total_output_tokens": 1, "total_cost_usd": null, "context_used": 1, "context_limit": null,
        } });
        check(usage, "Model call: 1200 tokens in, 30 out, 0.0043 USD.");
        check(json!({ "action": "dance", "args": {} }), "Action: dance");
    }
}
