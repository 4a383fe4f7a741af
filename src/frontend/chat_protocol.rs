//! Chat protocol: translates a session's events into the frames of a chat client. Pure.

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

/// Frame from a client.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatRequest {
    Message { content: String },
    Interrupt,
    Ping,
}

impl ChatRequest {
    /// Returns the size of the client's text, bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            ChatRequest::Message { content } => content.len(),
            ChatRequest::Interrupt | ChatRequest::Ping => 0,
        }
    }
}

/// Frame to a client. `seq` is present if the frame stems from a durable event.
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
    fn from(body: ChatFrameBody) -> ChatFrame {
        ChatFrame { body, seq: None }
    }
}

/// Name of a turn; `None` if the name is unknown.
pub(super) type TurnName = Option<String>;

/// State of one chat: the part of the session that the client has received.
#[derive(Debug, Default)]
pub(super) struct ChatTranslator {
    /// Turn that the agent is in. Exactly one `done` or `error` ends a turn.
    turn: Option<TurnName>,
    /// The sandbox failed, and its failure ends the turn. The receipt of the interrupted turn
    /// arrives before that end.
    sandbox_failed: bool,
    /// Bytes sent of each item that still grows.
    sent_bytes: ChatItems<usize>,
    /// Names of tools whose calls are open.
    open_tools: ChatItems<&'static str>,
}

impl ChatTranslator {
    /// Creates the state for a client that attaches while the agent is in `turn`.
    pub(super) fn joining(turn: Option<TurnName>) -> ChatTranslator {
        ChatTranslator { turn, ..ChatTranslator::default() }
    }

    pub(super) fn delta(&mut self, chunk: DeltaChunk) -> Option<ChatFrame> {
        let DeltaChunk { delta: Delta { kind, item, offset, mut content }, at } = chunk;
        let from = usize::try_from(at).ok()?;
        let so_far = self.sent_bytes.get(&item).unwrap_or_default();
        let end = from + content.len();
        if offset != at && from > so_far {
            // The item has grown beyond the kept part. A marker replaces the missing bytes.
            content.insert_str(0, &omission_marker(from - so_far));
        } else if from < so_far {
            // The item was sent again from an earlier offset. Drop the bytes that the client has.
            let known = content.ceil_char_boundary(so_far - from);
            content.drain(..known);
            if content.is_empty() {
                return None;
            }
        }
        let body = match kind {
            DeltaKind::Text => ChatFrameBody::TextDelta { content },
            DeltaKind::Thinking => ChatFrameBody::Thinking { content },
            DeltaKind::ToolInput | DeltaKind::Output => return None,
        };
        self.sent_bytes.insert(&item, end);
        Some(body.into())
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<ChatFrame> {
        self.translate(event, None)
    }

    /// Translates an event that has only head and tail of a content of `whole` bytes.
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
        frames.into_iter().map(|body| ChatFrame { body, seq: Some(seq) }).collect()
    }

    fn tool_started(&mut self, seq: u64, item: Option<String>, action: &Action) -> Option<ChatFrameBody> {
        match action {
            Action::Run { .. }
            | Action::Read { .. }
            | Action::Write { .. }
            | Action::Edit { .. }
            | Action::Browse { .. }
            | Action::Tool { .. }
            | Action::Plan { .. } => {}
            Action::Start { .. }
            | Action::Message { .. }
            | Action::Think { .. }
            | Action::Finish { .. }
            | Action::Confirm { .. }
            | Action::SetModel { .. }
            | Action::SetBudget { .. }
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
        let Observation { kind, content } = observation;
        let tool = item.as_deref().and_then(|item| self.open_tools.take(item));
        match kind {
            ObservationKind::Message { .. } => {
                frames.extend(
                    self.remaining_text(item, content, whole).map(|content| ChatFrameBody::TextDelta { content }),
                );
            }
            ObservationKind::Think { .. } => frames
                .extend(self.remaining_text(item, content, whole).map(|content| ChatFrameBody::Thinking { content })),
            ObservationKind::Error { detail, .. } if tool.is_some() => frames.extend(tool_result(item, tool, detail)),
            // An error of an item does not end the turn. The item is a user action, or a tool call
            // from before the attach.
            ObservationKind::Error { .. } if item.is_some() => {}
            // The sandbox may be stopped for this error, which then ends the turn.
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
            | ObservationKind::Tool { .. }
            | ObservationKind::Plan { .. } => frames.extend(tool_result(item, tool, content)),
            // An agent must not report the session's state.
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
            | ObservationKind::Compaction { .. }
            | ObservationKind::Confirm { .. }
            | ObservationKind::Confirmed { .. }
            | ObservationKind::Queue { .. }
            | ObservationKind::Notice { .. } => {}
        }
    }

    /// Translates a change of the session's state.
    fn state_changed(&mut self, state: AgentState, reason: Option<String>, frames: &mut Vec<ChatFrameBody>) {
        match state {
            AgentState::Failed => {
                // Without an open turn, a message may wait for a sandbox that failed to start.
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

    /// Returns the part of an item that the client did not receive while the item grew.
    fn remaining_text(&mut self, item: Option<String>, content: String, whole: Option<usize>) -> Option<String> {
        let sent = item.and_then(|item| self.sent_bytes.take(&item)).unwrap_or_default();
        let rest = match whole {
            Some(whole) => excerpt_remainder(&content, whole, sent).unwrap_or_default(),
            None => Cow::Borrowed(content.get(sent..).unwrap_or_default()),
        };
        (!rest.is_empty()).then(|| rest.into_owned())
    }
}

fn tool_result(item: Option<String>, tool: Option<&'static str>, content: String) -> Option<ChatFrameBody> {
    let (tool_use_id, tool_name) = item.zip(tool)?;
    Some(ChatFrameBody::ToolResult { tool_use_id, tool_name: tool_name.to_owned(), content })
}

/// Values for the items that began last.
///
/// An agent chooses item names and need not end items. Bound: [`MAX_ITEMS`] items. When full: the
/// oldest is dropped. The names are kept as hashes.
#[derive(Debug)]
struct ChatItems<T> {
    hasher: RandomState,
    /// Oldest first.
    entries: VecDeque<(u64, T)>,
}

/// Largest number of items. The same as that of growing items in `session/broadcast.rs`.
const MAX_ITEMS: usize = 64;

impl<T: Copy> ChatItems<T> {
    fn get(&self, item: &str) -> Option<T> {
        let hash = self.hasher.hash_one(item);
        self.entries.iter().find(|(entry, _)| *entry == hash).map(|(_, value)| *value)
    }

    fn take(&mut self, item: &str) -> Option<T> {
        let hash = self.hasher.hash_one(item);
        let at = self.entries.iter().position(|(entry, _)| *entry == hash)?;
        self.entries.remove(at).map(|(_, value)| value)
    }

    fn insert(&mut self, item: &str, value: T) {
        let hash = self.hasher.hash_one(item);
        match self.entries.iter_mut().find(|(entry, _)| *entry == hash) {
            Some((_, entry)) => *entry = value,
            None => {
                if self.entries.len() == MAX_ITEMS {
                    self.entries.pop_front();
                }
                self.entries.push_back((hash, value));
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
