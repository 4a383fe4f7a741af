//! Text of items that a chat client has received, and what to send next. Pure.

use std::{borrow::Cow, collections::VecDeque};

use greenroom_protocol::{excerpt_remainder, omission_marker};
use sha2::{Digest, Sha256};

/// Text of an item that the client has.
#[derive(Debug)]
pub(super) struct SentText {
    /// Bytes that the client has, markers included.
    shown: usize,
    /// Position in the item up to which the client has its text, in bytes.
    end: usize,
    /// Digest of the item's text up to `end`. `None` if the client does not have all of it.
    digest: Option<Sha256>,
}

/// Next frames for an item.
#[derive(Debug, PartialEq)]
pub(super) enum TextStep {
    /// The client has the text.
    Known,
    /// Text that follows the first `offset` bytes that the client has.
    Append { offset: usize, content: String },
    /// Text that replaces everything that the client has of the item.
    Replace { content: String },
}

impl Default for SentText {
    /// Returns the state of an item that the client has nothing of.
    fn default() -> SentText {
        SentText { shown: 0, end: 0, digest: Some(Sha256::new()) }
    }
}

impl SentText {
    /// Returns the state of an item of which the client was sent `end` bytes.
    pub(super) fn forgotten(end: usize) -> SentText {
        SentText { shown: end, end, digest: None }
    }

    /// Takes the item's text from position `at` on.
    ///
    /// An item that begins again may have another text, after a retry of the model call, or the
    /// same text, after a restart of the session. The digest distinguishes the two.
    pub(super) fn grow(&mut self, at: usize, mut content: String) -> TextStep {
        if at == 0 && self.end > 0 {
            if !self.is_beginning_of(&content) {
                *self = SentText::default();
                self.append(0, &content);
                return TextStep::Replace { content };
            }
            content.drain(..self.end);
        } else if at < self.end {
            let known = content.ceil_char_boundary(self.end - at);
            content.drain(..known);
        }
        if content.is_empty() {
            return TextStep::Known;
        }
        let offset = self.shown;
        let missing = at.saturating_sub(self.end);
        self.append(missing, &content);
        if missing > 0 {
            content.insert_str(0, &omission_marker(missing));
        }
        TextStep::Append { offset, content }
    }

    /// Takes the text of the event that ends the item. `whole` is the text's size in bytes if
    /// `content` has only its head and tail.
    ///
    /// The last step is sent even if it is empty: its frame has the event's number.
    pub(super) fn end(self, content: String, whole: Option<usize>) -> TextStep {
        let offset = self.shown;
        if self.is_beginning_of(&content) {
            return TextStep::Append { offset, content: content[self.end..].to_owned() };
        }
        // Beyond the head of an excerpt, nothing can be compared.
        let rest = whole.and_then(|whole| excerpt_remainder(&content, whole, self.end));
        let in_head = |rest: &Cow<'_, str>| self.end + rest.len() == content.len();
        match rest.filter(|rest| !in_head(rest)) {
            Some(rest) => TextStep::Append { offset, content: rest.into_owned() },
            None => TextStep::Replace { content },
        }
    }

    /// Returns true if `text` begins with all that the client has.
    fn is_beginning_of(&self, text: &str) -> bool {
        let Some(beginning) = text.as_bytes().get(..self.end) else { return false };
        self.digest.as_ref().is_some_and(|digest| digest.clone().finalize() == Sha256::digest(beginning))
    }

    fn append(&mut self, missing: usize, content: &str) {
        if missing > 0 {
            self.shown += omission_marker(missing).len();
            self.digest = None;
        }
        self.shown += content.len();
        self.end += missing + content.len();
        if let Some(digest) = &mut self.digest {
            digest.update(content);
        }
    }
}

/// Values for the items that began last.
///
/// An agent chooses item names and need not end items. Bound: [`MAX_ITEMS`] items; the link limits
/// a name to 256 bytes. When full: the oldest is dropped.
#[derive(Debug)]
pub(super) struct ChatItems<T> {
    /// Oldest first.
    entries: VecDeque<(String, T)>,
}

/// Largest number of items. The same as that of growing items in `session/broadcast.rs`.
pub(super) const MAX_ITEMS: usize = 64;

impl<T> ChatItems<T> {
    /// Returns the value of an item, which begins with `new` if it has none.
    pub(super) fn get_or_insert_with(&mut self, item: &str, new: impl FnOnce() -> T) -> &mut T {
        let at = self.position(item).unwrap_or_else(|| {
            if self.entries.len() == MAX_ITEMS {
                self.entries.pop_front();
            }
            self.entries.push_back((item.to_owned(), new()));
            self.entries.len() - 1
        });
        &mut self.entries[at].1
    }

    pub(super) fn take(&mut self, item: &str) -> Option<T> {
        let at = self.position(item)?;
        self.entries.remove(at).map(|(_, value)| value)
    }

    pub(super) fn insert(&mut self, item: &str, value: T) {
        self.take(item);
        self.get_or_insert_with(item, || value);
    }

    /// Removes all items, and returns their names.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = String> {
        self.entries.drain(..).map(|(item, _)| item)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    fn position(&self, item: &str) -> Option<usize> {
        self.entries.iter().position(|(name, _)| name == item)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl<T> Default for ChatItems<T> {
    fn default() -> ChatItems<T> {
        ChatItems { entries: VecDeque::new() }
    }
}
