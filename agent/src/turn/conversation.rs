//! Conversation as it is sent to a model. Pure; independent of the providers' formats.
//!
//! Keeps the order that providers require: user and assistant alternate, and every tool call has a
//! result before any other message.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use greenroom_provider::reader::{OpaquePiece, OpaqueSlot};
use serde_json::Value;

use super::{
    UserMessage,
    pictures::{AttachedFile, AttachmentOrigin},
    truncate,
};

/// Text that replaces a dropped tool result.
const OUTPUT_DROPPED: &str = "[This output was left out to save room. Run the tool again if you need it.]";
const INTERRUPTED: &str = "[Interrupted before it had a result.]";
/// Suffix that makes a duplicate id unique.
const DUPLICATE_SUFFIX: &str = "-again";
const DROPPED: &str = "[What came here was left out to save room.]";

/// Number of newest entries whose results are never dropped.
const UNSHORTENED_ENTRIES: usize = 6;

/// Message of the conversation.
#[derive(Debug, Clone)]
pub(super) enum ConversationEntry {
    User(UserInput),
    Assistant(AssistantMessage),
    /// Results of the calls in the assistant's message before, and the user's input after them.
    Results {
        results: Vec<ToolCallResult>,
        user: UserInput,
    },
}

/// Input of the user: text and attached files.
#[derive(Debug, Clone, Default)]
pub(super) struct UserInput {
    pub text: String,
    /// Files that are pictures, or were not read yet.
    pub files: Vec<AttachedFile>,
}

/// Assistant's message: the output of one or more steps without a result between them.
#[derive(Debug, Clone, Default)]
pub(super) struct AssistantMessage {
    /// Values that the model requires back unchanged, such as signed thoughts.
    pub opaque: Vec<OpaquePiece>,
    pub text: String,
    pub calls: Vec<ToolCallRequest>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ToolCallRequest {
    pub id: String,
    pub name: String,
    /// Arguments as an object. Empty if they are unusable.
    pub arguments: Value,
    /// Reason why the call cannot be made, in words for the model: the arguments are no JSON, or
    /// the answer ended within them.
    pub unusable: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolCallResult {
    pub id: String,
    pub text: String,
}

/// Conversation of a session.
#[derive(Debug, Clone, Default)]
pub(super) struct AgentConversation {
    pub(super) entries: Vec<ConversationEntry>,
    /// Ids of all calls.
    call_ids: HashSet<String>,
    /// Ids of calls that were begun. When asked again, a model may give the same id to another
    /// call. Readers of the stream would then see one item for both.
    begun_call_ids: HashSet<String>,
    /// Ids of the calls in the assistant's last message that have no result yet.
    open_call_ids: HashSet<String>,
}

impl AgentConversation {
    pub(super) fn add_user_message(&mut self, message: &UserMessage, origin: AttachmentOrigin) {
        let mut text = message.content.clone();
        if !message.attachments.is_empty() {
            let files: Vec<String> = message.attachments.iter().map(|path| format!("`{path}`")).collect();
            text.push_str(&format!("\n\n[Attached files, in the workspace: {}]", files.join(", ")));
        }
        let files = message.attachments.iter().map(|path| AttachedFile::new(path, origin)).collect();
        self.add_user_input(UserInput { text, files });
    }

    /// Adds a text to the user's side. Open calls are answered first.
    pub(super) fn add_user_text(&mut self, text: &str) {
        self.add_user_input(UserInput { text: text.to_owned(), files: Vec::new() });
    }

    fn add_user_input(&mut self, input: UserInput) {
        self.answer_open_calls();
        match self.entries.last_mut() {
            Some(ConversationEntry::User(before) | ConversationEntry::Results { user: before, .. }) => {
                before.append(input)
            }
            Some(ConversationEntry::Assistant(_)) | None => self.entries.push(ConversationEntry::User(input)),
        }
    }

    pub(super) fn add_assistant_message(&mut self, mut message: AssistantMessage) {
        // Providers reject a text of white space alone.
        if message.text.trim().is_empty() {
            message.text.clear();
        }
        if message.text.is_empty() && message.calls.is_empty() {
            return;
        }
        let continues = match self.entries.last() {
            // Text or calls after a text join the same message. After calls come results.
            Some(ConversationEntry::Assistant(before)) => before.calls.is_empty() || message.text.is_empty(),
            _ => false,
        };
        if !continues {
            self.answer_open_calls();
        }
        for call in &mut message.calls {
            // In a journal of an earlier version, two calls may share an id. Providers reject that.
            while !self.call_ids.insert(call.id.clone()) {
                call.id.push_str(DUPLICATE_SUFFIX);
            }
            self.open_call_ids.insert(call.id.clone());
        }
        match self.entries.last_mut() {
            Some(ConversationEntry::Assistant(before)) if continues => {
                join(&mut before.text, &message.text);
                let first_call = before.calls.len();
                before.opaque.extend(message.opaque.into_iter().map(|piece| moved_by(first_call, piece)));
                before.calls.extend(message.calls);
            }
            _ => self.entries.push(ConversationEntry::Assistant(message)),
        }
    }

    /// Adds the result of a call. A result without a call is ignored.
    pub(super) fn add_result(&mut self, id: &str, text: String) {
        let mut id = id.to_owned();
        while !self.open_call_ids.remove(&id) {
            if !self.call_ids.contains(&id) {
                return;
            }
            id.push_str(DUPLICATE_SUFFIX);
        }
        let result = ToolCallResult { id, text };
        match self.entries.last_mut() {
            Some(ConversationEntry::Results { results, .. }) => results.push(result),
            _ => self.entries.push(ConversationEntry::Results { results: vec![result], user: UserInput::default() }),
        }
    }

    /// Drops all opaque values, which only the model that made them can use.
    pub(super) fn drop_opaque_values(&mut self) {
        for entry in &mut self.entries {
            if let ConversationEntry::Assistant(message) = entry {
                message.opaque.clear();
            }
        }
    }

    /// Drops the opaque values of messages without calls, at the end of a turn. Some services
    /// require the values of calls for as long as the calls are sent.
    pub(super) fn drop_opaque_values_without_calls(&mut self) {
        for entry in &mut self.entries {
            if let ConversationEntry::Assistant(message) = entry
                && message.calls.is_empty()
            {
                message.opaque.clear();
            }
        }
    }

    /// Returns the inputs of the user, oldest first.
    pub(super) fn user_inputs(&mut self) -> impl DoubleEndedIterator<Item = &mut UserInput> {
        self.entries.iter_mut().filter_map(|entry| match entry {
            ConversationEntry::User(input) | ConversationEntry::Results { user: input, .. } => Some(input),
            ConversationEntry::Assistant(_) => None,
        })
    }

    /// Records that a call was begun under this id.
    pub(super) fn begin_call(&mut self, id: String) {
        self.begun_call_ids.insert(id);
    }

    /// Returns `true` if a call with this id was made or begun before. Some servers count from 0 in
    /// each step, or give two calls the same id.
    pub(super) fn has_call(&self, id: &str) -> bool {
        self.call_ids.contains(id) || self.begun_call_ids.contains(id)
    }

    /// Returns the conversation as it is sent: open calls are answered, and the user's message
    /// comes first.
    pub(super) fn to_send(&self) -> Vec<ConversationEntry> {
        let mut sent = self.clone();
        sent.answer_open_calls();
        if !matches!(sent.entries.first(), None | Some(ConversationEntry::User(_))) {
            sent.entries.insert(0, ConversationEntry::User(UserInput { text: DROPPED.to_owned(), files: Vec::new() }));
        }
        sent.entries
    }

    /// Shrinks a conversation of more than `budget` bytes for good. First old pictures are dropped,
    /// then old results, then old messages. The first message, which is the task, and the newest
    /// messages stay. They are truncated if they alone are too large.
    ///
    /// The target is three quarters of the budget. So the beginning of the conversation stays the
    /// same over many steps. A provider that caches beginnings then does not read it anew each
    /// time.
    pub(super) fn fit(&mut self, budget: usize) {
        if self.size() <= budget {
            return;
        }
        let target = budget / 4 * 3;
        self.drop_pictures(target);
        // A text that alone exceeds the target cannot stay whole. Truncated, it leaves room for
        // other texts.
        truncate::to_length(&mut self.entries, target, budget / 2);
        self.drop_old(target);
        if self.size() > budget {
            truncate::to_fit(&mut self.entries, target);
        }
    }

    /// Size of the conversation, in bytes.
    pub(super) fn size(&self) -> usize {
        self.entries.iter().map(ConversationEntry::size).sum()
    }

    /// Drops old results, then old messages, until `target` is reached.
    fn drop_old(&mut self, target: usize) {
        let (mut size, old) = (self.size(), self.entries.len().saturating_sub(UNSHORTENED_ENTRIES));
        for entry in &mut self.entries[..old] {
            if size <= target {
                break;
            }
            let before = entry.size();
            entry.shorten();
            size -= before - entry.size();
        }
        let all = self.entries.len();
        while size > target && self.entries.len() > UNSHORTENED_ENTRIES + 1 {
            size -= self.entries.remove(1).size();
        }
        if self.entries.len() < all {
            self.repair_beginning();
        }
    }

    /// Restores the order after messages behind the first were removed. Results without their calls
    /// are removed. The user's text in or after them joins the first message.
    fn repair_beginning(&mut self) {
        if !matches!(self.entries.first(), Some(ConversationEntry::User(_))) {
            self.entries[0] = ConversationEntry::User(UserInput::default());
        }
        if let Some(ConversationEntry::User(first)) = self.entries.first_mut()
            && !first.text.ends_with(DROPPED)
        {
            join(&mut first.text, DROPPED);
        }
        self.join_beginning();
    }

    /// Joins the user's inputs at the beginning. Results without their calls are removed.
    pub(super) fn join_beginning(&mut self) {
        while let [
            ConversationEntry::User(first),
            ConversationEntry::User(more) | ConversationEntry::Results { user: more, .. },
            ..,
        ] = self.entries.as_mut_slice()
        {
            first.append(std::mem::take(more));
            self.entries.remove(1);
        }
    }

    pub(super) fn answer_open_calls(&mut self) {
        if self.open_call_ids.is_empty() {
            return;
        }
        let ([.., ConversationEntry::Assistant(message)]
        | [.., ConversationEntry::Assistant(message), ConversationEntry::Results { .. }]) = self.entries.as_slice()
        else {
            return;
        };
        let ids = message.calls.iter().map(|call| &call.id).filter(|id| self.open_call_ids.contains(*id));
        for id in ids.cloned().collect::<Vec<_>>() {
            self.add_result(&id, INTERRUPTED.to_owned());
        }
    }
}

impl ConversationEntry {
    pub(super) fn size(&self) -> usize {
        match self {
            ConversationEntry::User(input) => input.size(),
            ConversationEntry::Assistant(message) => {
                let calls = message.calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
                let opaque = message.opaque.iter().map(|piece| text_size(&piece.value));
                message.text.len() + calls.sum::<usize>() + opaque.sum::<usize>()
            }
            ConversationEntry::Results { results, user } => {
                user.size() + results.iter().map(|result| result.text.len()).sum::<usize>()
            }
        }
    }

    fn shorten(&mut self) {
        if let ConversationEntry::Results { results, .. } = self {
            for result in results.iter_mut().filter(|result| result.text.len() > OUTPUT_DROPPED.len()) {
                result.text = OUTPUT_DROPPED.to_owned();
            }
        }
    }
}

impl UserInput {
    fn size(&self) -> usize {
        self.text.len() + self.files.iter().map(AttachedFile::size).sum::<usize>()
    }

    fn append(&mut self, input: UserInput) {
        join(&mut self.text, &input.text);
        self.files.extend(input.files);
    }
}

/// Returns the piece of a message whose calls now follow `calls` earlier ones.
fn moved_by(calls: usize, mut piece: OpaquePiece) -> OpaquePiece {
    match &mut piece.slot {
        OpaqueSlot::Block { before_call: call } | OpaqueSlot::CallField { call, .. } => *call += calls,
        OpaqueSlot::MessageField(_) | OpaqueSlot::Item => {}
    }
    piece
}

/// Returns the size of the texts in a value, in bytes.
fn text_size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_size).sum(),
        Value::Object(values) => values.values().map(text_size).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

pub(super) fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}
