//! One answer of a model, told as it comes: deltas while an item grows, one event when it is whole.

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

/// The longest id of a call that names its item, in bytes. The link ends for a name of more than 256.
const ID_LIMIT: usize = 128;

/// Why an answer did not become whole. What there was of it has been told, marked as partial, and is in `text`.
#[derive(Debug)]
pub(super) struct IncompleteAnswer {
    pub reason: IncompleteReason,
    pub text: String,
    /// Whether something partial was told.
    pub partial: bool,
    /// The items of calls that were begun, which are still open: they end with the turn, or by [`never_made`].
    pub calls: Vec<String>,
}

#[derive(Debug)]
pub(super) enum IncompleteReason {
    Stopped,
    Failed(ModelError),
}

/// Tells the answer until its end. The calls in what it returns have ids that no other call of the session has.
pub(super) async fn relay_answer(
    answer: impl Stream<Item = Result<AnswerPiece, ModelError>>,
    conversation: &mut AgentConversation,
    outgoing: &OutgoingQueue,
    stop: &CancellationToken,
) -> Result<AssistantMessage, IncompleteAnswer> {
    let mut teller = AnswerRelay { outgoing, conversation, growing: None, calls: Vec::new(), text: String::new() };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Err(IncompleteReason::Stopped),
        end = teller.follow(answer) => end.map_err(IncompleteReason::Failed),
    };
    match end {
        Ok(said) => {
            fail_unfinished_calls(teller.calls, outgoing).await;
            Ok(said)
        }
        Err(why) => {
            let partial = teller.close(true).await;
            let AnswerRelay { calls, text, .. } = teller;
            Err(IncompleteAnswer { reason: why, text, partial, calls })
        }
    }
}

/// Ends the items of calls that were begun and of which no more comes, where the turn goes on.
pub(super) async fn fail_unfinished_calls(calls: Vec<String>, outgoing: &OutgoingQueue) {
    for item in calls {
        let detail = "the model's answer broke off before it had made this call".to_owned();
        let seen = ObservationKind::Error { code: "cut".to_owned(), detail };
        outgoing.event(Some(&item), Observation { kind: seen, content: String::new() }).await;
    }
}

struct AnswerRelay<'a> {
    outgoing: &'a OutgoingQueue,
    conversation: &'a mut AgentConversation,
    /// The text, or the thinking, that grows now.
    growing: Option<GrowingText>,
    /// The items of the calls of which some was told, in their order.
    calls: Vec<String>,
    /// All text of this answer.
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
                // What was said before it stays open: if the answer is cut here, all of it is.
                AnswerPiece::ToolInput(fresh) => self.tool_input(fresh).await,
                AnswerPiece::End(said) => {
                    self.close(false).await;
                    return Ok(self.assign_call_ids(said));
                }
            }
        }
        Err(ModelError::Cut("it ended in the middle".into()))
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

    /// Ends what grows by its event, and says whether there was anything. Given up in the middle, it has not been done.
    async fn close(&mut self, partial: bool) -> bool {
        let Some(growing) = &self.growing else { return false };
        let seen = match growing.kind {
            DeltaKind::Thinking => ObservationKind::Think { partial },
            DeltaKind::Text | DeltaKind::ToolInput | DeltaKind::Output => ObservationKind::Message { partial },
        };
        let observation = Observation { kind: seen, content: growing.text.clone() };
        self.outgoing.event(Some(&growing.item), observation).await;
        self.growing = None;
        true
    }

    /// How a call of this id is named here: as the model does, if it can be.
    fn item_of(&mut self, id: &str) -> String {
        let own = Ulid::generate();
        let item = match id {
            long if long.is_empty() || long.len() > ID_LIMIT => own.to_string(),
            id if self.conversation.has_call(id) => format!("{id}-{own}"),
            id => id.to_owned(),
        };
        self.conversation.begin_call(item.clone());
        item
    }

    /// What is left in `calls` then has been begun and not made.
    fn assign_call_ids(&mut self, mut said: AssistantMessage) -> AssistantMessage {
        let mut begun = std::mem::take(&mut self.calls).into_iter();
        for call in &mut said.calls {
            call.id = begun.next().unwrap_or_else(|| self.item_of(&call.id));
        }
        self.calls = begun.collect();
        said
    }
}
