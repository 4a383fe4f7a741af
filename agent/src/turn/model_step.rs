//! Relays one answer of a model as it comes: deltas while an item grows, one event at its end.

use greenroom_protocol::{DeltaKind, Observation, ObservationKind};
use greenroom_provider::{AnswerPiece, AnswerVerdict, ToolCallPiece, arguments, reader::OpaquePiece};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::{
    conversation::{AgentConversation, AssistantMessage, ToolCallRequest},
    model::ModelAnswer,
    recovery::StepFailure,
};
use crate::outgoing::OutgoingQueue;

/// Longest call id that is used as an item name, in bytes. The link closes on a name over 256
/// bytes.
const ID_LIMIT: usize = 128;

/// Answer that stands, as far as it came.
#[derive(Debug)]
pub(super) struct StandingAnswer {
    pub message: AssistantMessage,
    /// True if the answer is to be continued: it reached a limit, or the provider paused it.
    pub continues: bool,
}

/// Answer that does not stand. Its text has been reported as partial, and is in `text`.
#[derive(Debug)]
pub(super) struct IncompleteAnswer {
    pub failure: StepFailure,
    pub text: String,
    /// Set if a partial event was reported.
    pub partial: bool,
    /// Open items of calls that were begun. They end with the turn, or by
    /// [`fail_unfinished_calls`].
    pub calls: Vec<String>,
}

impl From<StepFailure> for IncompleteAnswer {
    /// Makes the failure of a request that had no answer at all.
    fn from(failure: StepFailure) -> IncompleteAnswer {
        IncompleteAnswer { failure, text: String::new(), partial: false, calls: Vec::new() }
    }
}

/// Relays the answer to its end. The calls in the returned message have ids that are unique in the
/// session.
pub(super) async fn relay_answer(
    mut answer: ModelAnswer,
    conversation: &mut AgentConversation,
    outgoing: &OutgoingQueue,
    stop: &CancellationToken,
) -> Result<StandingAnswer, IncompleteAnswer> {
    let mut relay = AnswerRelay {
        outgoing,
        conversation,
        growing: None,
        calls: Vec::new(),
        opaque: Vec::new(),
        text: String::new(),
    };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Err(StepFailure::Stopped),
        () = relay.follow(&mut answer) => Ok(answer.end()),
    };
    let failure = match end {
        Ok(end) => match relay.verdict(end.verdict) {
            AnswerVerdict::Complete => return Ok(relay.stand(false).await),
            AnswerVerdict::Limit | AnswerVerdict::Paused => return Ok(relay.stand(true).await),
            verdict @ (AnswerVerdict::Cut
            | AnswerVerdict::Refused
            | AnswerVerdict::Filtered
            | AnswerVerdict::Empty
            | AnswerVerdict::TooLong
            | AnswerVerdict::Failed) => StepFailure::Ended { verdict, error: end.error, reason: end.reason },
        },
        Err(stopped) => stopped,
    };
    let partial = relay.close(true).await;
    let calls = relay.calls.into_iter().map(|call| call.item).collect();
    Err(IncompleteAnswer { failure, text: relay.text, partial, calls })
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
    /// Calls with at least one piece, in order.
    calls: Vec<GrowingCall>,
    opaque: Vec<OpaquePiece>,
    /// Full text of this answer.
    text: String,
}

struct GrowingText {
    kind: DeltaKind,
    item: String,
    text: String,
}

struct GrowingCall {
    item: String,
    name: String,
    arguments: String,
}

impl AnswerRelay<'_> {
    async fn follow(&mut self, answer: &mut ModelAnswer) {
        while let Some(pieces) = answer.next().await {
            for piece in pieces {
                match piece {
                    AnswerPiece::Text(text) => self.grow(DeltaKind::Text, &text).await,
                    AnswerPiece::Thinking(text) => self.grow(DeltaKind::Thinking, &text).await,
                    // The text before stays open: if the answer is cut here, all of it is partial.
                    AnswerPiece::ToolCall(piece) => self.grow_call(piece).await,
                    AnswerPiece::Opaque(piece) => self.opaque.push(piece),
                }
            }
        }
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

    async fn grow_call(&mut self, ToolCallPiece { call, id, name, arguments }: ToolCallPiece) {
        while self.calls.len() <= call {
            let item = self.item_of(&id);
            self.calls.push(GrowingCall { item, name: String::new(), arguments: String::new() });
        }
        let call = &mut self.calls[call];
        call.name = name;
        call.arguments.push_str(&arguments);
        self.outgoing.delta(DeltaKind::ToolInput, &call.item, &arguments).await;
    }

    /// Returns the verdict on the answer for a turn. Thinking alone is no answer.
    fn verdict(&self, verdict: AnswerVerdict) -> AnswerVerdict {
        let is_empty = self.text.trim().is_empty() && self.calls.is_empty();
        if is_empty && verdict == AnswerVerdict::Complete { AnswerVerdict::Empty } else { verdict }
    }

    /// Ends the answer as it came, and returns it. At a limit, the last call may be cut.
    async fn stand(mut self, continues: bool) -> StandingAnswer {
        self.close(false).await;
        let last = self.calls.len().saturating_sub(1);
        let call = |(at, call): (usize, GrowingCall)| call.into_request(continues && at == last);
        let calls = self.calls.into_iter().enumerate().map(call).collect();
        StandingAnswer { message: AssistantMessage { opaque: self.opaque, text: self.text, calls }, continues }
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
}

impl GrowingCall {
    fn into_request(self, may_be_cut: bool) -> ToolCallRequest {
        let GrowingCall { item, name, arguments: text } = self;
        let (arguments, unusable) = if may_be_cut && serde_json::from_str::<Value>(&text).is_err() {
            let cut = format!(
                "your answer reached its limit of output tokens within this call, so it was not made ({} bytes of \
                 arguments arrived); make it again, with less in one call",
                text.len()
            );
            (None, Some(cut))
        } else {
            match arguments::parse(&text) {
                Ok(arguments) => (Some(arguments), None),
                Err(words) => (None, Some(format!("the arguments of `{name}` are not valid JSON: {words}"))),
            }
        };
        ToolCallRequest {
            id: item,
            name,
            arguments: arguments.unwrap_or_else(|| Value::Object(Default::default())),
            unusable,
        }
    }
}
