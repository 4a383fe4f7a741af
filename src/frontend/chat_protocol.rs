//! A session as a chat shows it: the same events in fewer words, for clients that want no more. Pure.

use std::{
    borrow::Cow,
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
};

use greenroom_protocol::{
    Action, Body, Delta, DeltaKind, Event, Observation, Seen, Source, left_out,
    observation::{Phase, State},
    rest,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::Piece;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Said {
    Message { content: String },
    Interrupt,
    Ping,
}

impl Said {
    /// How much of it is the client's own.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Said::Message { content } => content.len(),
            Said::Interrupt | Said::Ping => 0,
        }
    }
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

/// A turn's name; `None` where it is not known.
pub(super) type Turn = Option<String>;

/// How far a chat has been told.
#[derive(Debug, Default)]
pub(super) struct Dialect {
    /// The turn that the agent is in: exactly one `done` or `error` ends it.
    turn: Option<Turn>,
    /// The sandbox died, or is in trouble, and that is what ends the turn: the receipt of what was cut short with it comes first.
    has_fallen: bool,
    /// Up to where items that still grow were told, bytes.
    told: Recent<usize>,
    /// Tools that were begun: what they are called.
    tools: Recent<&'static str>,
}

impl Dialect {
    /// For a client that comes while the agent is in `turn`.
    pub(super) fn joining(turn: Option<Turn>) -> Dialect {
        Dialect { turn, ..Dialect::default() }
    }

    pub(super) fn delta(&mut self, piece: Piece) -> Option<Frame> {
        let Piece { delta: Delta { kind, item, offset, mut content }, at } = piece;
        let from = usize::try_from(at).ok()?;
        let so_far = self.told.get(&item).unwrap_or_default();
        let end = from + content.len();
        if offset != at && from > so_far {
            // It has grown longer than is kept of it.
            content.insert_str(0, &left_out(from - so_far));
        } else if from < so_far {
            // It began anew: as much as was told of it before is not told again.
            let told = content.ceil_char_boundary(so_far - from);
            content.drain(..told);
            if content.is_empty() {
                return None;
            }
        }
        let told = match kind {
            DeltaKind::Text => Told::TextDelta { content },
            DeltaKind::Thinking => Told::Thinking { content },
            DeltaKind::ToolInput | DeltaKind::Output => return None,
        };
        self.told.put(&item, end);
        Some(told.into())
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<Frame> {
        self.tell(event, None)
    }

    /// One that has head and tail of what are `whole` bytes.
    pub(super) fn part(&mut self, event: Event, whole: u64) -> Vec<Frame> {
        self.tell(event, usize::try_from(whole).ok())
    }

    fn tell(&mut self, event: Event, whole: Option<usize>) -> Vec<Frame> {
        let Event { seq, source, item, body, .. } = event;
        let mut frames = Vec::new();
        match body {
            Body::Action(action) if source == Source::Agent => frames.extend(self.tool(seq, item, &action)),
            Body::Action(_) | Body::Opaque(_) => {}
            Body::Observation(observation) => self.observation(source, item, observation, whole, &mut frames),
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
            Action::Start { .. }
            | Action::Message { .. }
            | Action::Think { .. }
            | Action::Finish { .. }
            | Action::Confirm { .. }
            | Action::SetModel { .. }
            | Action::Interrupt {}
            | Action::Pause {}
            | Action::Resume {}
            | Action::Stop {}
            | Action::End {} => return None,
        }
        let tool_use_id = item.unwrap_or_else(|| seq.to_string());
        self.tools.put(&tool_use_id, action.name());
        let tool_name = action.name().to_owned();
        // An action is plain data with string keys, so this cannot fail.
        let tool_input = serde_json::to_value(action).expect("an action is JSON")["args"].take();
        Some(Told::ToolUseStart { tool_use_id, tool_name, tool_input })
    }

    fn observation(
        &mut self,
        source: Source,
        item: Option<String>,
        observation: Observation,
        whole: Option<usize>,
        frames: &mut Vec<Told>,
    ) {
        let Observation { seen, content } = observation;
        let tool = item.as_deref().and_then(|item| self.tools.take(item));
        match seen {
            Seen::Message { .. } => {
                frames.extend(self.rest(item, content, whole).map(|content| Told::TextDelta { content }));
            }
            Seen::Think { .. } => {
                frames.extend(self.rest(item, content, whole).map(|content| Told::Thinking { content }))
            }
            Seen::Error { detail, .. } if tool.is_some() => frames.extend(result(item, tool, detail)),
            // One that ends an item is not the turn's: an act of a person failed, or a tool that was begun before this client came.
            Seen::Error { .. } if item.is_some() => {}
            // It may be given up for that, which ends the turn.
            Seen::Error { code, .. } if source == Source::Server && code == "sandbox" => self.has_fallen = true,
            Seen::Error { code, detail } => {
                if source == Source::Agent || code == "agent_restarted" {
                    self.end(Told::Error { message: detail }, frames);
                }
            }
            Seen::Run { .. }
            | Seen::Read { .. }
            | Seen::Write { .. }
            | Seen::Edit { .. }
            | Seen::Browse { .. }
            | Seen::Plan { .. } => frames.extend(result(item, tool, content)),
            // How the session stands is not for an agent to say.
            Seen::Chat { .. }
            | Seen::Usage(_)
            | Seen::AgentStateChanged { .. }
            | Seen::Interrupted { .. }
            | Seen::Sandbox { .. }
                if source == Source::Agent => {}
            Seen::Chat { turn, .. } => {
                if self.turn.as_ref().is_some_and(|open| open.is_some() && *open != turn) {
                    self.end(Told::Done, frames);
                }
                self.turn = Some(turn);
            }
            Seen::Usage(usage) => frames.push(Told::CostUpdate {
                cost_usd: usage.total_cost_usd,
                input_tokens: usage.total_input_tokens,
                output_tokens: usage.total_output_tokens,
            }),
            Seen::AgentStateChanged { turn_over: true, .. } => self.end(Told::Done, frames),
            Seen::AgentStateChanged { agent_state, reason, .. } => self.stands(agent_state, reason, frames),
            Seen::Interrupted { .. } if self.has_fallen => {}
            Seen::Interrupted { .. } => self.end(Told::Done, frames),
            Seen::Sandbox { phase: Phase::Lost | Phase::Failed, .. } => self.has_fallen = true,
            Seen::Sandbox {
                phase:
                    Phase::Pulling
                    | Phase::Creating
                    | Phase::Starting
                    | Phase::Connecting
                    | Phase::Ready
                    | Phase::Paused
                    | Phase::Stopped,
                ..
            }
            | Seen::Confirm { .. }
            | Seen::Confirmed { .. }
            | Seen::Queue { .. } => {}
        }
    }

    /// The session is in another state than before.
    fn stands(&mut self, state: State, reason: Option<String>, frames: &mut Vec<Told>) {
        match state {
            State::Failed => {
                // Also where no turn is open: a message may wait for a sandbox that never came up.
                self.turn.get_or_insert(None);
                let message = reason.unwrap_or_else(|| "the sandbox failed".to_owned());
                self.end(Told::Error { message }, frames);
            }
            State::Idle | State::Stopped | State::Ended => self.end(Told::Done, frames),
            State::Starting | State::Running | State::AwaitingConfirmation | State::Interrupting | State::Paused => {}
        }
    }

    fn end(&mut self, with: Told, frames: &mut Vec<Told>) {
        if self.turn.take().is_some() {
            frames.push(with);
        }
        self.has_fallen = false;
        self.told.clear();
        self.tools.clear();
    }

    /// What was not told of an item while it grew.
    fn rest(&mut self, item: Option<String>, content: String, whole: Option<usize>) -> Option<String> {
        let told = item.and_then(|item| self.told.take(&item)).unwrap_or_default();
        let rest = match whole {
            Some(whole) => rest(&content, whole, told).unwrap_or_default(),
            None => Cow::Borrowed(content.get(told..).unwrap_or_default()),
        };
        (!rest.is_empty()).then(|| rest.into_owned())
    }
}

fn result(item: Option<String>, tool: Option<&'static str>, content: String) -> Option<Told> {
    let (tool_use_id, tool_name) = item.zip(tool)?;
    Some(Told::ToolResult { tool_use_id, tool_name: tool_name.to_owned(), content })
}

/// What is known of the items that were begun last. An agent names its items as it likes and need not end them, so there are
/// no more than so many, and their names are not kept.
#[derive(Debug)]
struct Recent<T> {
    names: RandomState,
    /// Oldest first.
    known: VecDeque<(u64, T)>,
}

/// As many as may grow at once (`session/audience.rs`).
const MOST_ITEMS: usize = 64;

impl<T: Copy> Recent<T> {
    fn get(&self, item: &str) -> Option<T> {
        let name = self.names.hash_one(item);
        self.known.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn take(&mut self, item: &str) -> Option<T> {
        let name = self.names.hash_one(item);
        let at = self.known.iter().position(|(known, _)| *known == name)?;
        self.known.remove(at).map(|(_, value)| value)
    }

    fn put(&mut self, item: &str, value: T) {
        let name = self.names.hash_one(item);
        match self.known.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => {
                if self.known.len() == MOST_ITEMS {
                    self.known.pop_front();
                }
                self.known.push_back((name, value));
            }
        }
    }

    fn clear(&mut self) {
        self.known.clear();
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Recent<T> {
        Recent { names: RandomState::new(), known: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests;
