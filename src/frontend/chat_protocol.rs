//! Chat protocol: translates a session's events into the frames of a chat client. Pure.

mod sent_text;

use greenroom_protocol::{
    Action, Delta, DeltaKind, Event, EventBody, EventSource, Observation, ObservationKind, REQUEST_ID_LIMIT,
    observation::{AgentState, SandboxPhase},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::sent_text::{ChatItems, SentText, TextStep};
use crate::session::DeltaChunk;

/// Frame from a client: a request with an optional idempotency key.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChatRequestFrame {
    pub(super) id: Option<String>,
    pub(super) request: ChatRequest,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ChatRequest {
    Message { content: String },
    Interrupt,
    Ping,
}

impl ChatRequestFrame {
    /// Reads a text frame.
    ///
    /// # Errors
    /// Returns the reason, and the id if it could be read.
    pub(super) fn parse(text: &str) -> Result<ChatRequestFrame, RejectedChatFrame> {
        let not_a_frame = |e: serde_json::Error, id| {
            let frames = r#"`{"type": "message", "content": …}`, `{"type": "interrupt"}` or `{"type": "ping"}`"#;
            RejectedChatFrame { message: format!("not a frame of a chat ({e}); send {frames}"), id }
        };
        let frame: Value = serde_json::from_str(text).map_err(|e| not_a_frame(e, None))?;
        let id = match frame.get("id") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if (1..=REQUEST_ID_LIMIT).contains(&id.len()) => Some(id.clone()),
            Some(_) => {
                let message = format!("`id` must be a string of 1 to {REQUEST_ID_LIMIT} bytes");
                return Err(RejectedChatFrame { message, id: None });
            }
        };
        match ChatRequest::deserialize(frame) {
            Ok(request) => Ok(ChatRequestFrame { id, request }),
            Err(e) => Err(not_a_frame(e, id)),
        }
    }

    /// Returns the size of the client's text, bytes.
    pub(super) fn bytes(&self) -> usize {
        match &self.request {
            ChatRequest::Message { content } => content.len(),
            ChatRequest::Interrupt | ChatRequest::Ping => 0,
        }
    }
}

/// Text frame that is no request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RejectedChatFrame {
    pub(super) message: String,
    /// Id of the frame, if it could be read.
    pub(super) id: Option<String>,
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
    TextDelta(TextPart),
    Thinking(TextPart),
    /// Withdraws all text of an item, of either kind.
    TextReset {
        item: String,
    },
    ToolUseStart {
        tool_use_id: String,
        tool_name: String,
        tool_input: Value,
    },
    ToolResult {
        tool_use_id: String,
        tool_name: String,
        content: String,
    },
    CostUpdate {
        cost_usd: Option<f64>,
        input_tokens: u64,
        output_tokens: u64,
    },
    Done {
        turn: TurnName,
    },
    /// Ends a turn.
    #[serde(rename = "error")]
    TurnFailed {
        message: String,
        turn: TurnName,
    },
    /// Rejects a client's frame, and ends no turn. `id` is null if the frame has none.
    #[serde(rename = "error")]
    Rejected {
        message: String,
        id: Option<String>,
    },
    Pong,
}

/// Piece of an item's text. The client keeps the first `offset` bytes that it has of the item, and
/// appends `content`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TextPart {
    pub(super) item: String,
    /// Bytes of the item that the client has, markers for left out bytes included.
    pub(super) offset: usize,
    pub(super) content: String,
}

impl From<ChatFrameBody> for ChatFrame {
    fn from(body: ChatFrameBody) -> ChatFrame {
        ChatFrame { body, seq: None }
    }
}

impl ChatFrame {
    /// Makes the answer to a rejected frame of the client.
    pub(super) fn rejection(message: String, id: Option<String>) -> ChatFrame {
        ChatFrameBody::Rejected { message, id }.into()
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
    /// Text sent of each item that still grows.
    sent: ChatItems<SentText>,
    /// Items of this turn that ended cut short. If the turn goes on, the model was asked again, and
    /// its new answer replaces them.
    cut: ChatItems<()>,
    /// Time of the event that cut the newest of these items. An interrupt cuts all growing items
    /// with one time.
    cut_at: String,
    /// Names of tools whose calls are open.
    open_tools: ChatItems<&'static str>,
}

/// Returns true for an event after which no turn is open.
pub(super) fn is_rest(event: &Event) -> bool {
    let EventBody::Observation(Observation { kind: ObservationKind::AgentStateChanged { agent_state, .. }, .. }) =
        &event.body
    else {
        return false;
    };
    event.source != EventSource::Agent && ends_turn(*agent_state)
}

fn ends_turn(state: AgentState) -> bool {
    match state {
        AgentState::Idle | AgentState::Stopped | AgentState::Failed | AgentState::Ended => true,
        AgentState::Starting
        | AgentState::Running
        | AgentState::AwaitingConfirmation
        | AgentState::Interrupting
        | AgentState::Paused => false,
    }
}

impl ChatTranslator {
    /// Creates the state for a client that attaches while the agent is in `turn`.
    pub(super) fn joining(turn: Option<TurnName>) -> ChatTranslator {
        ChatTranslator { turn, ..ChatTranslator::default() }
    }

    pub(super) fn delta(&mut self, chunk: DeltaChunk) -> Vec<ChatFrame> {
        let DeltaChunk { delta: Delta { kind, item, offset, content }, at } = chunk;
        let frame = match kind {
            DeltaKind::Text => ChatFrameBody::TextDelta,
            DeltaKind::Thinking => ChatFrameBody::Thinking,
            DeltaKind::ToolInput | DeltaKind::Output => return Vec::new(),
        };
        let Ok(at) = usize::try_from(at) else { return Vec::new() };
        let mut frames = Vec::new();
        self.withdraw_cut(Some(&item), &mut frames);
        // `ChatItems` has forgotten an item that goes on in the middle of its text.
        let new = || if offset == 0 { SentText::default() } else { SentText::forgotten(at) };
        let step = self.sent.get_or_insert_with(&item, new).grow(at, content);
        push_text(step, item, frame, &mut frames);
        frames.into_iter().map(ChatFrame::from).collect()
    }

    pub(super) fn event(&mut self, event: Event) -> Vec<ChatFrame> {
        self.translate(event, None)
    }

    /// Translates an event that has only head and tail of a content of `whole` bytes.
    pub(super) fn truncated_event(&mut self, event: Event, whole: u64) -> Vec<ChatFrame> {
        self.translate(event, usize::try_from(whole).ok())
    }

    fn translate(&mut self, event: Event, whole: Option<usize>) -> Vec<ChatFrame> {
        let Event { seq, at, source, item, body, .. } = event;
        let mut frames = Vec::new();
        match body {
            EventBody::Action(action) if source == EventSource::Agent => {
                self.tool_started(seq, item, &action, &mut frames)
            }
            EventBody::Action(_) | EventBody::Opaque(_) => {}
            EventBody::Observation(Observation { kind: ObservationKind::Message { partial }, content }) => {
                let item = item.unwrap_or_else(|| seq.to_string());
                self.text_ended(EndedText { item, at, content, whole, partial }, ChatFrameBody::TextDelta, &mut frames);
            }
            EventBody::Observation(Observation { kind: ObservationKind::Think { partial }, content }) => {
                let item = item.unwrap_or_else(|| seq.to_string());
                self.text_ended(EndedText { item, at, content, whole, partial }, ChatFrameBody::Thinking, &mut frames);
            }
            EventBody::Observation(observation) => self.observation(source, item, observation, &mut frames),
        }
        frames.into_iter().map(|body| ChatFrame { body, seq: Some(seq) }).collect()
    }

    fn text_ended(&mut self, ended: EndedText, frame: fn(TextPart) -> ChatFrameBody, frames: &mut Vec<ChatFrameBody>) {
        let EndedText { item, at, content, whole, partial } = ended;
        if !partial || at != self.cut_at {
            self.withdraw_cut(Some(&item), frames);
        }
        if partial {
            self.cut.insert(&item, ());
            self.cut_at = at;
        }
        let step = self.sent.take(&item).unwrap_or_default().end(content, whole);
        push_text(step, item, frame, frames);
    }

    fn tool_started(&mut self, seq: u64, item: Option<String>, action: &Action, frames: &mut Vec<ChatFrameBody>) {
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
            | Action::SetMode { .. }
            | Action::SetModel { .. }
            | Action::SetBudget { .. }
            | Action::KillProcess { .. }
            | Action::Interrupt {}
            | Action::Pause {}
            | Action::Resume {}
            | Action::Stop {}
            | Action::End {} => return,
        }
        self.withdraw_cut(None, frames);
        let tool_use_id = item.unwrap_or_else(|| seq.to_string());
        self.open_tools.insert(&tool_use_id, action.name());
        let tool_name = action.name().to_owned();
        // An action is plain data with string keys, so this cannot fail.
        let tool_input = serde_json::to_value(action).expect("an action is JSON")["args"].take();
        frames.push(ChatFrameBody::ToolUseStart { tool_use_id, tool_name, tool_input });
    }

    fn observation(
        &mut self,
        source: EventSource,
        item: Option<String>,
        observation: Observation,
        frames: &mut Vec<ChatFrameBody>,
    ) {
        let Observation { kind, content } = observation;
        let tool = item.as_deref().and_then(|item| self.open_tools.take(item));
        match kind {
            // `translate` handles texts.
            ObservationKind::Message { .. } | ObservationKind::Think { .. } => {}
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
                    self.end(Some(detail), frames);
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
                    self.end(None, frames);
                }
                if self.turn.is_none() {
                    self.cut.clear();
                }
                self.turn = Some(turn);
            }
            ObservationKind::Usage(usage) => frames.push(ChatFrameBody::CostUpdate {
                cost_usd: usage.total_cost_usd,
                input_tokens: usage.total_input_tokens,
                output_tokens: usage.total_output_tokens,
            }),
            ObservationKind::AgentStateChanged { turn_over: true, .. } => self.end(None, frames),
            ObservationKind::AgentStateChanged { agent_state, reason, .. } => {
                self.state_changed(agent_state, reason, frames)
            }
            ObservationKind::Interrupted { .. } if self.sandbox_failed => {}
            ObservationKind::Interrupted { .. } => self.end(None, frames),
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
            | ObservationKind::Commands { .. }
            | ObservationKind::Confirm { .. }
            | ObservationKind::Confirmed { .. }
            | ObservationKind::Queue { .. }
            | ObservationKind::Checkpoint(_)
            | ObservationKind::Changes(_)
            | ObservationKind::Forked(_)
            | ObservationKind::Repository(_)
            | ObservationKind::Pushed { .. }
            | ObservationKind::Notice { .. } => {}
        }
    }

    /// Translates a change of the session's state.
    fn state_changed(&mut self, state: AgentState, reason: Option<String>, frames: &mut Vec<ChatFrameBody>) {
        if state == AgentState::Failed {
            // Without an open turn, a message may wait for a sandbox that failed to start.
            self.turn.get_or_insert(None);
            self.end(Some(reason.unwrap_or_else(|| "the sandbox failed".to_owned())), frames);
        } else if ends_turn(state) {
            self.end(None, frames);
        }
    }

    /// Ends the turn, if one is open, with `failure` or without. Withdraws the text of items that
    /// no event has ended, because the journal does not have it.
    fn end(&mut self, failure: Option<String>, frames: &mut Vec<ChatFrameBody>) {
        frames.extend(self.sent.drain().map(|item| ChatFrameBody::TextReset { item }));
        if let Some(turn) = self.turn.take() {
            frames.push(match failure {
                None => ChatFrameBody::Done { turn },
                Some(message) => ChatFrameBody::TurnFailed { message, turn },
            });
        }
        self.sandbox_failed = false;
        self.cut.clear();
        self.open_tools.clear();
    }

    /// Withdraws the texts that were cut short, because the turn goes on without them. `growing` is
    /// an item whose text is sent again.
    fn withdraw_cut(&mut self, growing: Option<&str>, frames: &mut Vec<ChatFrameBody>) {
        let withdrawn = self.cut.drain().filter(|item| growing != Some(item));
        frames.extend(withdrawn.map(|item| ChatFrameBody::TextReset { item }));
    }
}

/// Event that ends the text of an item.
struct EndedText {
    item: String,
    /// Time of the event.
    at: String,
    content: String,
    /// Size of the whole text in bytes, if `content` has only its head and tail.
    whole: Option<usize>,
    partial: bool,
}

/// Adds the frames for a step of an item's text.
fn push_text(step: TextStep, item: String, frame: fn(TextPart) -> ChatFrameBody, frames: &mut Vec<ChatFrameBody>) {
    match step {
        TextStep::Known => {}
        TextStep::Append { offset, content } => frames.push(frame(TextPart { item, offset, content })),
        TextStep::Replace { content } => {
            frames.push(ChatFrameBody::TextReset { item: item.clone() });
            frames.push(frame(TextPart { item, offset: 0, content }));
        }
    }
}

fn tool_result(item: Option<String>, tool: Option<&'static str>, content: String) -> Option<ChatFrameBody> {
    let (tool_use_id, tool_name) = item.zip(tool)?;
    Some(ChatFrameBody::ToolResult { tool_use_id, tool_name: tool_name.to_owned(), content })
}

#[cfg(test)]
mod tests;
