//! One answer of a model, told as it comes: deltas while an item grows, one event when it is whole.

use std::pin::pin;

use futures::{Stream, StreamExt};
use greenroom_protocol::{DeltaKind, Observation, Seen};
use tokio_util::sync::CancellationToken;
use ulid::Ulid;

use super::{
    calls::Fresh,
    conversation::{Conversation, Said},
    model::{ModelError, Piece},
};
use crate::outgoing::Outgoing;

/// The longest id of a call that names its item, in bytes. The link ends for a name of more than 256.
const ID_LIMIT: usize = 128;

/// Why an answer did not become whole. What there was of it has been told, marked as partial, and is in `text`.
#[derive(Debug)]
pub(super) struct Broken {
    pub why: Why,
    pub text: String,
    /// Whether something partial was told.
    pub partial: bool,
    /// The items of calls that were begun, which are still open: they end with the turn, or by [`never_made`].
    pub calls: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Why {
    Stopped,
    Failed(ModelError),
}

/// Tells the answer until its end. The calls in what it returns have ids that no other call of the session has.
pub(super) async fn tell(
    answer: impl Stream<Item = Result<Piece, ModelError>>,
    conversation: &mut Conversation,
    outgoing: &Outgoing,
    stop: &CancellationToken,
) -> Result<Said, Broken> {
    let mut teller = Teller { outgoing, conversation, growing: None, calls: Vec::new(), text: String::new() };
    let end = tokio::select! {
        biased;
        () = stop.cancelled() => Err(Why::Stopped),
        end = teller.follow(answer) => end.map_err(Why::Failed),
    };
    match end {
        Ok(said) => {
            never_made(teller.calls, outgoing).await;
            Ok(said)
        }
        Err(why) => {
            let partial = teller.close(true).await;
            let Teller { calls, text, .. } = teller;
            Err(Broken { why, text, partial, calls })
        }
    }
}

/// Ends the items of calls that were begun and of which no more comes, where the turn goes on.
pub(super) async fn never_made(calls: Vec<String>, outgoing: &Outgoing) {
    for item in calls {
        let detail = "the model's answer broke off before it had made this call".to_owned();
        let seen = Seen::Error { code: "cut".to_owned(), detail };
        outgoing.event(Some(&item), Observation { seen, content: String::new() }).await;
    }
}

struct Teller<'a> {
    outgoing: &'a Outgoing,
    conversation: &'a mut Conversation,
    /// The text, or the thinking, that grows now.
    growing: Option<Growing>,
    /// The items of the calls of which some was told, in their order.
    calls: Vec<String>,
    /// All text of this answer.
    text: String,
}

struct Growing {
    kind: DeltaKind,
    item: String,
    text: String,
}

impl Teller<'_> {
    async fn follow(&mut self, answer: impl Stream<Item = Result<Piece, ModelError>>) -> Result<Said, ModelError> {
        let mut answer = pin!(answer);
        while let Some(piece) = answer.next().await {
            match piece? {
                Piece::Text(text) => self.grow(DeltaKind::Text, &text).await,
                Piece::Thinking(text) => self.grow(DeltaKind::Thinking, &text).await,
                // What was said before it stays open: if the answer is cut here, all of it is.
                Piece::ToolInput(fresh) => self.tool_input(fresh).await,
                Piece::End(said) => {
                    self.close(false).await;
                    return Ok(self.rename(said));
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
        let growing = self.growing.get_or_insert_with(|| Growing { kind, item: item(), text: String::new() });
        growing.text.push_str(text);
        if kind == DeltaKind::Text {
            self.text.push_str(text);
        }
        self.outgoing.delta(kind, &growing.item, text).await;
    }

    async fn tool_input(&mut self, Fresh { call, id, arguments }: Fresh) {
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
            DeltaKind::Thinking => Seen::Think { partial },
            DeltaKind::Text | DeltaKind::ToolInput | DeltaKind::Output => Seen::Message { partial },
        };
        let observation = Observation { seen, content: growing.text.clone() };
        self.outgoing.event(Some(&growing.item), observation).await;
        self.growing = None;
        true
    }

    /// How a call of this id is named here: as the model does, if it can be.
    fn item_of(&mut self, id: &str) -> String {
        let own = Ulid::generate();
        let item = match id {
            long if long.is_empty() || long.len() > ID_LIMIT => own.to_string(),
            id if self.conversation.knows(id) => format!("{id}-{own}"),
            id => id.to_owned(),
        };
        self.conversation.begin(item.clone());
        item
    }

    /// What is left in `calls` then has been begun and not made.
    fn rename(&mut self, mut said: Said) -> Said {
        let mut begun = std::mem::take(&mut self.calls).into_iter();
        for call in &mut said.calls {
            call.id = begun.next().unwrap_or_else(|| self.item_of(&call.id));
        }
        self.calls = begun.collect();
        said
    }
}
