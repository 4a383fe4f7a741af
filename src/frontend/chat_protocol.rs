//! A session as a chat shows it: the same events in fewer words, for clients that want no more. Pure.

use std::{
    borrow::Cow,
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
};

use greenroom_protocol::{
    Action, Delta, DeltaKind, Event, EventBody, EventSource, Observation, ObservationKind, excerpt_remainder,
    observation::{AgentState, SandboxPhase},
    omission_marker,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::session::DeltaChunk;

/// What a client says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatRequest {
    Message { content: String },
    Interrupt,
    Ping,
}

impl ChatRequest {
    /// How much of it is the client's own.
    pub(super) fn bytes(&self) -> usize {
        match self {
            ChatRequest::Message { content } => content.len(),
            ChatRequest::Interrupt | ChatRequest::Ping => 0,
        }
    }
}

/// What a client is told. `seq` is there where the event behind it is durable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct ChatFrame {
    #[serde(flatten)]
    pub(super) body: ChatFrameBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) seq: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatFrameBody {
    TextDelta { content: String },
    Thinking { content: String },
    ToolUseStart { tool_use_id: String, tool_name: String, tool_input: Value },
    ToolResult { tool_use_id: String, tool_name: String, content: String },
    CostUpdate { cost_usd: Option<f64>, input_tokens: u64, output_tokens: u64 },
    Done,
    Error { message: String },
    Pong,
}

impl From<ChatFrameBody> for ChatFrame {
    fn from(told: ChatFrameBody) -> ChatFrame {
        ChatFrame { body: told, seq: None }
    }
}

/// A turn's name; `None` where it is not known.
pub(super) type TurnName = Option<String>;

/// How far a chat has been told.
#[derive(Debug, Default)]
pub(super) struct ChatTranslator {
    /// The turn that the agent is in: exactly one `done` or `error` ends it.
    turn: Option<TurnName>,
    /// The sandbox died, or is in trouble, and that is what ends the turn: the receipt of what was cut short with it comes first.
    sandbox_failed: bool,
    /// Up to where items that still grow were told, bytes.
    sent_bytes: ChatItems<usize>,
    /// Tools that were begun: what they are called.
    open_tools: ChatItems<&'static str>,
}

impl ChatTranslator {
    /// For a client that comes while the agent is in `turn`.
    pub(super) fn joining(turn: Option<TurnName>) -> ChatTranslator {
        ChatTranslator { turn, ..ChatTranslator::default() }
    }

    pub(super) fn delta(&mut self, piece: DeltaChunk) -> Option<ChatFrame> {
        let DeltaChunk { delta: Delta { kind, item, offset, mut content }, at } = piece;
        let from = usize::try_from(at).ok()?;
        let so_far = self.sent_bytes.get(&item).unwrap_or_default();
        let end = from + content.len();
        if offset != at && from > so_far {
            // It has grown longer than is kept of it.
            content.insert_str(0, &omission_marker(from - so_far));
        } else if from < so_far {
            // It began anew: as much as was told of it before is not told again.
            let told = content.ceil_char_boundary(so_far - from);
            content.drain(..told);
            if content.is_empty() {
                return None;
            }
        }
        let told = match kind {
            DeltaKind::Text => ChatFrameBody::TextDelta { content },
            DeltaKind::Thinking => ChatFrameBody::Thinking { content },
            DeltaKind::ToolInput | DeltaKind::Output => return None,
        };
        self.sent_bytes.insert(&item, end);
        Some(told.into())
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<ChatFrame> {
        self.translate(event, None)
    }

    /// One that has head and tail of what are `whole` bytes.
    pub(super) fn truncated_event(&mut self, event: Event, whole: u64) -> Vec<ChatFrame> {
        self.translate(event, usize::try_from(whole).ok())
    }

    fn translate(&mut self, event: Event, whole: Option<usize>) -> Vec<ChatFrame> {
        let Event { seq, source, item, body, .. } = event;
        let mut frames = Vec::new();
        match body {
            EventBody::Action(action) if source == EventSource::Agent => {
                frames.extend(self.tool_started(seq, item, &action))
            }
            EventBody::Action(_) | EventBody::Opaque(_) => {}
            EventBody::Observation(observation) => self.observation(source, item, observation, whole, &mut frames),
        }
        frames.into_iter().map(|told| ChatFrame { body: told, seq: Some(seq) }).collect()
    }

    fn tool_started(&mut self, seq: u64, item: Option<String>, action: &Action) -> Option<ChatFrameBody> {
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
        self.open_tools.insert(&tool_use_id, action.name());
        let tool_name = action.name().to_owned();
        // An action is plain data with string keys, so this cannot fail.
        let tool_input = serde_json::to_value(action).expect("an action is JSON")["args"].take();
        Some(ChatFrameBody::ToolUseStart { tool_use_id, tool_name, tool_input })
    }

    fn observation(
        &mut self,
        source: EventSource,
        item: Option<String>,
        observation: Observation,
        whole: Option<usize>,
        frames: &mut Vec<ChatFrameBody>,
    ) {
        let Observation { kind: seen, content } = observation;
        let tool = item.as_deref().and_then(|item| self.open_tools.take(item));
        match seen {
            ObservationKind::Message { .. } => {
                frames.extend(
                    self.remaining_text(item, content, whole).map(|content| ChatFrameBody::TextDelta { content }),
                );
            }
            ObservationKind::Think { .. } => frames
                .extend(self.remaining_text(item, content, whole).map(|content| ChatFrameBody::Thinking { content })),
            ObservationKind::Error { detail, .. } if tool.is_some() => frames.extend(tool_result(item, tool, detail)),
            // One that ends an item is not the turn's: an act of a person failed, or a tool that was begun before this client came.
            ObservationKind::Error { .. } if item.is_some() => {}
            // It may be given up for that, which ends the turn.
            ObservationKind::Error { code, .. } if source == EventSource::Server && code == "sandbox" => {
                self.sandbox_failed = true
            }
            ObservationKind::Error { code, detail } => {
                if source == EventSource::Agent || code == "agent_restarted" {
                    self.end(ChatFrameBody::Error { message: detail }, frames);
                }
            }
            ObservationKind::Run { .. }
            | ObservationKind::Read { .. }
            | ObservationKind::Write { .. }
            | ObservationKind::Edit { .. }
            | ObservationKind::Browse { .. }
            | ObservationKind::Plan { .. } => frames.extend(tool_result(item, tool, content)),
            // How the session stands is not for an agent to say.
            ObservationKind::Chat { .. }
            | ObservationKind::Usage(_)
            | ObservationKind::AgentStateChanged { .. }
            | ObservationKind::Interrupted { .. }
            | ObservationKind::Sandbox { .. }
                if source == EventSource::Agent => {}
            ObservationKind::Chat { turn, .. } => {
                if self.turn.as_ref().is_some_and(|open| open.is_some() && *open != turn) {
                    self.end(ChatFrameBody::Done, frames);
                }
                self.turn = Some(turn);
            }
            ObservationKind::Usage(usage) => frames.push(ChatFrameBody::CostUpdate {
                cost_usd: usage.total_cost_usd,
                input_tokens: usage.total_input_tokens,
                output_tokens: usage.total_output_tokens,
            }),
            ObservationKind::AgentStateChanged { turn_over: true, .. } => self.end(ChatFrameBody::Done, frames),
            ObservationKind::AgentStateChanged { agent_state, reason, .. } => {
                self.state_changed(agent_state, reason, frames)
            }
            ObservationKind::Interrupted { .. } if self.sandbox_failed => {}
            ObservationKind::Interrupted { .. } => self.end(ChatFrameBody::Done, frames),
            ObservationKind::Sandbox { phase: SandboxPhase::Lost | SandboxPhase::Failed, .. } => {
                self.sandbox_failed = true
            }
            ObservationKind::Sandbox {
                phase:
                    SandboxPhase::Pulling
                    | SandboxPhase::Creating
                    | SandboxPhase::Starting
                    | SandboxPhase::Connecting
                    | SandboxPhase::Ready
                    | SandboxPhase::Paused
                    | SandboxPhase::Stopped,
                ..
            }
            | ObservationKind::Confirm { .. }
            | ObservationKind::Confirmed { .. }
            | ObservationKind::Queue { .. } => {}
        }
    }

    /// The session is in another state than before.
    fn state_changed(&mut self, state: AgentState, reason: Option<String>, frames: &mut Vec<ChatFrameBody>) {
        match state {
            AgentState::Failed => {
                // Also where no turn is open: a message may wait for a sandbox that never came up.
                self.turn.get_or_insert(None);
                let message = reason.unwrap_or_else(|| "the sandbox failed".to_owned());
                self.end(ChatFrameBody::Error { message }, frames);
            }
            AgentState::Idle | AgentState::Stopped | AgentState::Ended => self.end(ChatFrameBody::Done, frames),
            AgentState::Starting
            | AgentState::Running
            | AgentState::AwaitingConfirmation
            | AgentState::Interrupting
            | AgentState::Paused => {}
        }
    }

    fn end(&mut self, with: ChatFrameBody, frames: &mut Vec<ChatFrameBody>) {
        if self.turn.take().is_some() {
            frames.push(with);
        }
        self.sandbox_failed = false;
        self.sent_bytes.clear();
        self.open_tools.clear();
    }

    /// What was not told of an item while it grew.
    fn remaining_text(&mut self, item: Option<String>, content: String, whole: Option<usize>) -> Option<String> {
        let told = item.and_then(|item| self.sent_bytes.take(&item)).unwrap_or_default();
        let rest = match whole {
            Some(whole) => excerpt_remainder(&content, whole, told).unwrap_or_default(),
            None => Cow::Borrowed(content.get(told..).unwrap_or_default()),
        };
        (!rest.is_empty()).then(|| rest.into_owned())
    }
}

fn tool_result(item: Option<String>, tool: Option<&'static str>, content: String) -> Option<ChatFrameBody> {
    let (tool_use_id, tool_name) = item.zip(tool)?;
    Some(ChatFrameBody::ToolResult { tool_use_id, tool_name: tool_name.to_owned(), content })
}

/// What is known of the items that were begun last. An agent names its items as it likes and need not end them, so there are
/// no more than so many, and their names are not kept.
#[derive(Debug)]
struct ChatItems<T> {
    hasher: RandomState,
    /// Oldest first.
    entries: VecDeque<(u64, T)>,
}

/// As many as may grow at once (`session/audience.rs`).
const MAX_ITEMS: usize = 64;

impl<T: Copy> ChatItems<T> {
    fn get(&self, item: &str) -> Option<T> {
        let name = self.hasher.hash_one(item);
        self.entries.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn take(&mut self, item: &str) -> Option<T> {
        let name = self.hasher.hash_one(item);
        let at = self.entries.iter().position(|(known, _)| *known == name)?;
        self.entries.remove(at).map(|(_, value)| value)
    }

    fn insert(&mut self, item: &str, value: T) {
        let name = self.hasher.hash_one(item);
        match self.entries.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => {
                if self.entries.len() == MAX_ITEMS {
                    self.entries.pop_front();
                }
                self.entries.push_back((name, value));
            }
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
    }
}

impl<T> Default for ChatItems<T> {
    fn default() -> ChatItems<T> {
        ChatItems { hasher: RandomState::new(), entries: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests;
