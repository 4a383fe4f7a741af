//! A session as a chat shows it: the same events in fewer words, for clients that want no more. Pure.

use std::collections::HashMap;

use greenroom_protocol::{Action, Body, Delta, DeltaKind, Event, Observation, Seen, Source, observation::State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Said {
    Message { content: String },
    Interrupt,
    Ping,
}

/// What a client is told. `seq` is there where the event behind it is durable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Frame {
    #[serde(flatten)]
    pub(super) told: Told,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Told {
    TextDelta { content: String },
    Thinking { content: String },
    ToolUseStart { tool_use_id: String, tool_name: String, tool_input: Value },
    ToolResult { tool_use_id: String, tool_name: String, content: String },
    CostUpdate { cost_usd: Option<f64>, input_tokens: u64, output_tokens: u64 },
    Done,
    Error { message: String },
    Pong,
}

impl From<Told> for Frame {
    fn from(told: Told) -> Frame {
        Frame { told, seq: None }
    }
}

/// How far a chat has been told.
#[derive(Debug, Default)]
pub(super) struct Dialect {
    /// The turn that the agent is in: exactly one `done` or `error` ends it. `Some(None)` where its name is not known.
    turn: Option<Option<String>>,
    /// How much of an item that still grows was told, bytes.
    told: HashMap<String, usize>,
    /// Tools that were begun: item → name.
    tools: HashMap<String, String>,
}

impl Dialect {
    /// For a client that comes while the agent works, or while it does not.
    pub(super) fn joining(works: bool) -> Dialect {
        Dialect { turn: works.then_some(None), ..Dialect::default() }
    }

    pub(super) fn delta(&mut self, delta: Delta) -> Option<Frame> {
        let Delta { kind, item, offset, mut content } = delta;
        let so_far = self.told.get(&item).copied().unwrap_or_default();
        if offset == 0 && so_far > 0 {
            // It begins anew: what was told of it before is not told again.
            content = content.get(so_far..).filter(|rest| !rest.is_empty())?.to_owned();
        }
        let bytes = content.len();
        let told = match kind {
            DeltaKind::Text => Told::TextDelta { content },
            DeltaKind::Thinking => Told::Thinking { content },
            DeltaKind::ToolInput | DeltaKind::Output => return None,
        };
        self.told.insert(item, so_far + bytes);
        Some(told.into())
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<Frame> {
        let Event { seq, source, item, body, .. } = event;
        let mut frames = Vec::new();
        match body {
            Body::Action(action) if source == Source::Agent => frames.extend(self.tool(seq, item, &action)),
            Body::Action(_) | Body::Opaque(_) => {}
            Body::Observation(observation) => self.observation(source, item, observation, &mut frames),
        }
        frames.into_iter().map(|told| Frame { told, seq: Some(seq) }).collect()
    }

    fn tool(&mut self, seq: u64, item: Option<String>, action: &Action) -> Option<Told> {
        match action {
            Action::Run { .. }
            | Action::Read { .. }
            | Action::Write { .. }
            | Action::Edit { .. }
            | Action::Browse { .. }
            | Action::Plan { .. } => {}
            _ => return None,
        }
        let tool_use_id = item.unwrap_or_else(|| seq.to_string());
        let tool_name = action.name().to_owned();
        self.tools.insert(tool_use_id.clone(), tool_name.clone());
        // An action is plain data with string keys, so this cannot fail.
        let tool_input = serde_json::to_value(action).expect("an action is JSON")["args"].take();
        Some(Told::ToolUseStart { tool_use_id, tool_name, tool_input })
    }

    fn observation(&mut self, source: Source, item: Option<String>, observation: Observation, frames: &mut Vec<Told>) {
        let Observation { seen, content } = observation;
        let tool = item.as_ref().and_then(|item| self.tools.remove_entry(item));
        match seen {
            Seen::Chat { turn, .. } => {
                if self.turn.as_ref().is_some_and(|open| open.is_some() && *open != turn) {
                    self.end(Told::Done, frames);
                }
                self.turn = Some(turn);
            }
            Seen::Message { .. } => {
                frames.extend(self.rest(item, content).map(|content| Told::TextDelta { content }));
            }
            Seen::Think { .. } => frames.extend(self.rest(item, content).map(|content| Told::Thinking { content })),
            Seen::Usage(usage) => frames.push(Told::CostUpdate {
                cost_usd: usage.total_cost_usd,
                input_tokens: usage.total_input_tokens,
                output_tokens: usage.total_output_tokens,
            }),
            Seen::Error { detail, .. } if tool.is_some() => frames.extend(result(tool, detail)),
            // One that ends an item is not the turn's: an act of a person failed, or a tool that was begun before this client came.
            Seen::Error { .. } if item.is_some() => {}
            Seen::Error { code, detail } if source == Source::Agent || code == "agent_restarted" => {
                self.end(Told::Error { message: detail }, frames);
            }
            Seen::Interrupted { .. } => self.end(Told::Done, frames),
            Seen::AgentStateChanged { agent_state: State::Failed, reason, .. } => {
                let message = reason.unwrap_or_else(|| "the sandbox failed".to_owned());
                self.end(Told::Error { message }, frames);
            }
            Seen::AgentStateChanged { agent_state: State::Idle | State::Stopped | State::Ended, .. } => {
                self.end(Told::Done, frames);
            }
            _ => frames.extend(result(tool, content)),
        }
    }

    fn end(&mut self, with: Told, frames: &mut Vec<Told>) {
        if self.turn.take().is_some() {
            frames.push(with);
        }
        self.told.clear();
    }

    /// What was not told of an item while it grew.
    fn rest(&mut self, item: Option<String>, content: String) -> Option<String> {
        let told = item.and_then(|item| self.told.remove(&item)).unwrap_or_default();
        content.get(told..).filter(|rest| !rest.is_empty()).map(str::to_owned)
    }
}

fn result(tool: Option<(String, String)>, content: String) -> Option<Told> {
    let (tool_use_id, tool_name) = tool?;
    Some(Told::ToolResult { tool_use_id, tool_name, content })
}

#[cfg(test)]
mod tests;
