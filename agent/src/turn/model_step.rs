//! Relays one answer of a model as it comes: deltas while an item grows, one event at its end.

use std::pin::pin;

use futures::{Stream, StreamExt};
use greenroom_protocol::{DeltaKind, Observation, ObservationKind};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::{
    conversation::{AgentConversation, AssistantMessage},
    model::{AnswerPiece, ModelError},
    tool_call_parser::ToolCallDelta,
};
use crate::outgoing::OutgoingQueue;

/// Longest call id that is used as an item name, in bytes. The link closes on a name over 256
/// bytes.
const ID_LIMIT: usize = 128;

/// Answer that did not complete. Its text has been reported as partial, and is in `text`.
#[derive(Debug)]
pub(super) struct IncompleteAnswer {
    pub reason: IncompleteReason,
    pub text: String,
    /// Set if a partial event was reported.
    pub partial: bool,
    /// Open items of calls that were begun. They end with the turn, or by
    /// [`fail_unfinished_calls`].
    pub calls: Vec<String>,
}

#[derive(Debug)]
pub(super) enum IncompleteReason {
    Stopped,
    Failed(ModelError),
}

/// Relays the answer to its end. The calls in the returned message have ids that are unique in the
/// session.
pub(super) async fn relay_answer(
    answer: impl Stream<Item = Result<AnswerPiece, ModelError>>,
    conversation: &mut AgentConversation,
    outgoing: &OutgoingQueue,
    stop: &CancellationToken,
) -> Result<AssistantMessage, IncompleteAnswer> {
    let mut relay = AnswerRelay { outgoing, conversation, growing: None, calls: Vec::new(), text: String::new() };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Err(IncompleteReason::Stopped),
        end = relay.follow(answer) => end.map_err(IncompleteReason::Failed),
    };
    match end {
        Ok(message) => {
            fail_unfinished_calls(relay.calls, outgoing).await;
            Ok(message)
        }
        Err(reason) => {
            let partial = relay.close(true).await;
            let AnswerRelay { calls, text, .. } = relay;
            Err(IncompleteAnswer { reason, text, partial, calls })
        }
    }
}

/// Reports an error for each call that was begun and never made, while the turn goes on.
pub(super) async fn fail_unfinished_calls(calls: Vec<String>, outgoing: &OutgoingQueue) {
    for item in calls {
        let detail = "the model's answer was cut before this call was complete".to_owned();
        let kind = ObservationKind::Error { code: "cut".to_owned(), detail };
        outgoing.event(Some(&item), Observation { kind, content: String::new() }).await;
    }
}

struct AnswerRelay<'a> {
    outgoing: &'a OutgoingQueue,
    conversation: &'a mut AgentConversation,
    /// Text or thinking that grows now.
    growing: Option<GrowingText>,
    /// Items of the calls with at least one delta, in order.
    calls: Vec<String>,
    /// Full text of this answer.
    text: String,
}

struct GrowingText {
    kind: DeltaKind,
    item: String,
    text: String,
}

impl AnswerRelay<'_> {
    async fn follow(
        &mut self,
        answer: impl Stream<Item = Result<AnswerPiece, ModelError>>,
    ) -> Result<AssistantMessage, ModelError> {
        let mut answer = pin!(answer);
        while let Some(piece) = answer.next().await {
            match piece? {
                AnswerPiece::Text(text) => self.grow(DeltaKind::Text, &text).await,
                AnswerPiece::Thinking(text) => self.grow(DeltaKind::Thinking, &text).await,
                // The text before stays open: if the answer is cut here, all of it is partial.
                AnswerPiece::ToolInput(delta) => self.tool_input(delta).await,
                AnswerPiece::End(message) => {
                    self.close(false).await;
                    return Ok(self.assign_call_ids(message));
                }
            }
        }
        Err(ModelError::Cut("the stream ended early".into()))
    }

    async fn grow(&mut self, kind: DeltaKind, text: &str) {
        if self.growing.as_ref().is_some_and(|growing| growing.kind != kind) {
            self.close(false).await;
        }
        let item = || Ulid::generate().to_string();
        let growing = self.growing.get_or_insert_with(|| GrowingText { kind, item: item(), text: String::new() });
        growing.text.push_str(text);
        if kind == DeltaKind::Text {
            self.text.push_str(text);
        }
        self.outgoing.delta(kind, &growing.item, text).await;
    }

    async fn tool_input(&mut self, ToolCallDelta { call, id, arguments }: ToolCallDelta) {
        if call >= self.calls.len() {
            let item = self.item_of(&id);
            self.calls.push(item);
        }
        self.outgoing.delta(DeltaKind::ToolInput, &self.calls[call], &arguments).await;
    }

    /// Ends the growing item with its event. Returns `false` if no item grows. Cancel-safe: if
    /// dropped before completion, no event was reported.
    async fn close(&mut self, partial: bool) -> bool {
        let Some(growing) = &self.growing else { return false };
        let kind = match growing.kind {
            DeltaKind::Thinking => ObservationKind::Think { partial },
            DeltaKind::Text | DeltaKind::ToolInput | DeltaKind::Output => ObservationKind::Message { partial },
        };
        let observation = Observation { kind, content: growing.text.clone() };
        self.outgoing.event(Some(&growing.item), observation).await;
        self.growing = None;
        true
    }

    /// Returns the item name for a call id: the model's own id if it is short enough and unused.
    fn item_of(&mut self, id: &str) -> String {
        let new_id = Ulid::generate();
        let item = match id {
            long if long.is_empty() || long.len() > ID_LIMIT => new_id.to_string(),
            id if self.conversation.has_call(id) => format!("{id}-{new_id}"),
            id => id.to_owned(),
        };
        self.conversation.begin_call(item.clone());
        item
    }

    /// Gives the calls their item names. `calls` then holds the items that were begun and not made.
    fn assign_call_ids(&mut self, mut message: AssistantMessage) -> AssistantMessage {
        let mut begun = std::mem::take(&mut self.calls).into_iter();
        for call in &mut message.calls {
            call.id = begun.next().unwrap_or_else(|| self.item_of(&call.id));
        }
        self.calls = begun.collect();
        message
    }
}
