//! What a model is told of the session so far. Pure; knows no provider's format.
//!
//! It always keeps the order that providers insist on: users and assistant take turns, and every tool call is answered
//! before anything else is said.

use std::collections::HashSet;

use serde_json::Value;

use super::{Message, cut, model::Thought};

/// How many bytes of conversation are kept and sent: about 120,000 tokens of English or code.
pub(super) const BUDGET: usize = 480 * 1024;

/// What stands in place of a result that had to go.
const OUTPUT_DROPPED: &str = "[This output was left out to save room. Run the tool again if you need it.]";
const INTERRUPTED: &str = "[Interrupted before it had a result.]";
/// What makes another id of one that was given before.
const AGAIN: &str = "-again";
const DROPPED: &str = "[What came here was left out to save room.]";

/// How many of the newest entries are never shortened.
const FRESH: usize = 6;

/// One message of the conversation.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    User(String),
    Assistant(Said),
    /// The answers to the calls of the assistant's message before it, and what the user said after them.
    Results {
        results: Vec<CallResult>,
        user: String,
    },
}

/// What the assistant said in one or more steps without a result between them.
#[derive(Debug, Clone, Default)]
pub(super) struct Said {
    /// The model's signed thoughts, which it wants back as they were.
    pub thoughts: Vec<Thought>,
    pub text: String,
    pub calls: Vec<Call>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    pub id: String,
    pub name: String,
    pub arguments: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallResult {
    pub id: String,
    pub text: String,
}

/// The session so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    entries: Vec<Entry>,
    /// Of all calls.
    made: HashSet<String>,
    /// Of calls that were begun: asked again, a model may give the same id to a call that is another one for whoever reads along.
    begun: HashSet<String>,
    /// Of the calls in the assistant's last message that have no result yet.
    open: HashSet<String>,
}

impl Conversation {
    pub(super) fn message(&mut self, message: &Message) {
        let mut text = message.content.clone();
        if !message.attachments.is_empty() {
            let files: Vec<String> = message.attachments.iter().map(|path| format!("`{path}`")).collect();
            text.push_str(&format!("\n\n[Attached files, in the workspace: {}]", files.join(", ")));
        }
        self.user(&text);
    }

    /// Something from the user's side.
    pub(super) fn user(&mut self, text: &str) {
        self.answer_open_calls();
        match self.entries.last_mut() {
            Some(Entry::User(said) | Entry::Results { user: said, .. }) => join(said, text),
            Some(Entry::Assistant(_)) | None => self.entries.push(Entry::User(text.to_owned())),
        }
    }

    pub(super) fn assistant(&mut self, mut said: Said) {
        // A text of white space alone is none for a provider.
        if said.text.trim().is_empty() {
            said.text.clear();
        }
        if said.text.is_empty() && said.calls.is_empty() {
            return;
        }
        let goes_on = match self.entries.last() {
            // Calls that follow a text, or a text that follows a text, are one message; after calls come results.
            Some(Entry::Assistant(before)) => before.calls.is_empty() || said.text.is_empty(),
            _ => false,
        };
        if !goes_on {
            self.answer_open_calls();
        }
        for call in &mut said.calls {
            // In a journal that an earlier version wrote, two calls may share an id, which no provider takes.
            while !self.made.insert(call.id.clone()) {
                call.id.push_str(AGAIN);
            }
            self.open.insert(call.id.clone());
        }
        match self.entries.last_mut() {
            Some(Entry::Assistant(before)) if goes_on => {
                join(&mut before.text, &said.text);
                before.thoughts.extend(said.thoughts);
                before.calls.extend(said.calls);
            }
            _ => self.entries.push(Entry::Assistant(said)),
        }
    }

    /// The result of a call. One that nobody made is left out.
    pub(super) fn result(&mut self, id: &str, text: String) {
        let mut id = id.to_owned();
        while !self.open.remove(&id) {
            if !self.made.contains(&id) {
                return;
            }
            id.push_str(AGAIN);
        }
        let result = CallResult { id, text };
        match self.entries.last_mut() {
            Some(Entry::Results { results, .. }) => results.push(result),
            _ => self.entries.push(Entry::Results { results: vec![result], user: String::new() }),
        }
    }

    /// Drops what only the model that thought it can make use of.
    pub(super) fn forget_thoughts(&mut self) {
        for entry in &mut self.entries {
            if let Entry::Assistant(said) = entry {
                said.thoughts.clear();
            }
        }
    }

    /// A call is begun under that id.
    pub(super) fn begin(&mut self, id: String) {
        self.begun.insert(id);
    }

    /// Whether a call of that id was made, or begun, before: some servers count from 0 in each step, or name two alike.
    pub(super) fn knows(&self, id: &str) -> bool {
        self.made.contains(id) || self.begun.contains(id)
    }

    /// The conversation as it is sent.
    pub(super) fn to_send(&self) -> Vec<Entry> {
        let mut sent = self.clone();
        sent.answer_open_calls();
        if !matches!(sent.entries.first(), None | Some(Entry::User(_))) {
            sent.entries.insert(0, Entry::User(DROPPED.to_owned()));
        }
        sent.entries
    }

    /// Makes a conversation of more than `budget` bytes smaller for good: first old results go, then old messages; the first
    /// message, which is the task, and the newest stay, and are cut at last where they alone are too much. It shrinks well
    /// below the budget, so that the beginning of what is sent stays the same over many steps, and a provider that remembers
    /// beginnings need not read it anew each time.
    pub(super) fn fit(&mut self, budget: usize) {
        if self.size() <= budget {
            return;
        }
        let enough = budget / 4 * 3;
        // A text that alone is too much cannot stay whole, whatever else goes; cut, it leaves room for some of the others.
        cut::to_length(&mut self.entries, enough, budget / 2);
        self.drop_old(enough);
        if self.size() > budget {
            cut::to_fit(&mut self.entries, enough);
        }
    }

    fn size(&self) -> usize {
        self.entries.iter().map(Entry::size).sum()
    }

    /// Old results go, then old messages.
    fn drop_old(&mut self, enough: usize) {
        let (mut size, old) = (self.size(), self.entries.len().saturating_sub(FRESH));
        for entry in &mut self.entries[..old] {
            if size <= enough {
                break;
            }
            let before = entry.size();
            entry.shorten();
            size -= before - entry.size();
        }
        let all = self.entries.len();
        while size > enough && self.entries.len() > FRESH + 1 {
            size -= self.entries.remove(1).size();
        }
        if self.entries.len() < all {
            self.mend();
        }
    }

    /// After messages behind the first were taken out: results whose calls are gone go too, and what the user said in them,
    /// or after them, joins the first message.
    fn mend(&mut self) {
        if !matches!(self.entries.first(), Some(Entry::User(_))) {
            self.entries[0] = Entry::User(String::new());
        }
        if let Some(Entry::User(first)) = self.entries.first_mut()
            && !first.ends_with(DROPPED)
        {
            join(first, DROPPED);
        }
        while let [Entry::User(first), Entry::User(more) | Entry::Results { user: more, .. }, ..] =
            self.entries.as_mut_slice()
        {
            join(first, more);
            self.entries.remove(1);
        }
    }

    fn answer_open_calls(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let ([.., Entry::Assistant(said)] | [.., Entry::Assistant(said), Entry::Results { .. }]) =
            self.entries.as_slice()
        else {
            return;
        };
        let ids = said.calls.iter().map(|call| &call.id).filter(|id| self.open.contains(*id));
        for id in ids.cloned().collect::<Vec<_>>() {
            self.result(&id, INTERRUPTED.to_owned());
        }
    }
}

impl Entry {
    pub(super) fn size(&self) -> usize {
        match self {
            Entry::User(text) => text.len(),
            Entry::Assistant(said) => {
                let calls = said.calls.iter().map(|call| call.name.len() + call.arguments.to_string().len());
                said.text.len() + calls.sum::<usize>()
            }
            Entry::Results { results, user } => {
                user.len() + results.iter().map(|result| result.text.len()).sum::<usize>()
            }
        }
    }

    fn shorten(&mut self) {
        if let Entry::Results { results, .. } = self {
            for result in results.iter_mut().filter(|result| result.text.len() > OUTPUT_DROPPED.len()) {
                result.text = OUTPUT_DROPPED.to_owned();
            }
        }
    }
}

fn join(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(more);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[derive(Debug, Clone)]
    enum Move {
        User(usize),
        Text(usize),
        Blank,
        Calls(u8),
        /// With arguments of about so many bytes: one text, or many.
        LongCall(usize, bool),
        /// As it was named before.
        SameCall,
        Result(u8, usize),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let size = 1usize..3000;
        let one = prop_oneof![
            size.clone().prop_map(Move::User),
            size.clone().prop_map(Move::Text),
            (1u8..4).prop_map(Move::Calls),
            (size.clone(), any::<bool>()).prop_map(|(size, one)| Move::LongCall(size, one)),
            (20_000usize..50_000).prop_map(Move::User),
            Just(Move::SameCall),
            Just(Move::Blank),
            (0u8..8, size).prop_map(|(call, size)| Move::Result(call, size)),
        ];
        proptest::collection::vec(one, 0..60)
    }

    /// What every provider insists on.
    fn assert_acceptable(entries: &[Entry]) {
        let mut ids = HashSet::new();
        for (at, entry) in entries.iter().enumerate() {
            let next = entries.get(at + 1);
            match entry {
                Entry::User(_) => assert!(matches!(next, None | Some(Entry::Assistant(_)))),
                Entry::Assistant(said) if !said.text.is_empty() && said.text.trim().is_empty() => {
                    panic!("a blank text")
                }
                Entry::Assistant(said) if said.calls.is_empty() => assert!(matches!(next, None | Some(Entry::User(_)))),
                Entry::Assistant(said) => {
                    let Some(Entry::Results { results, .. }) = next else { panic!("calls without results") };
                    assert!(said.calls.iter().all(|call| ids.insert(&call.id)), "an id twice");
                    let mut asked: Vec<_> = said.calls.iter().map(|call| &call.id).collect();
                    let mut answered: Vec<_> = results.iter().map(|result| &result.id).collect();
                    asked.sort();
                    answered.sort();
                    assert_eq!(asked, answered);
                }
                Entry::Results { .. } => {
                    assert!(at > 0 && matches!(entries[at - 1], Entry::Assistant(_)));
                    assert!(matches!(next, None | Some(Entry::Assistant(_))));
                }
            }
        }
        assert!(matches!(entries.first(), None | Some(Entry::User(_))));
    }

    /// What a text, a result or a call takes in any case, in bytes.
    const LEAST_OF_ONE: usize = 64;

    fn things(entries: &[Entry]) -> usize {
        let of_one = |entry: &Entry| match entry {
            Entry::User(_) => 1,
            Entry::Assistant(said) => 1 + said.calls.len(),
            Entry::Results { results, .. } => results.len() + 1,
        };
        entries.iter().map(of_one).sum()
    }

    proptest! {
        #[test]
        fn a_provider_accepts_it_whatever_happened(moves in moves(), budget in 0usize..20_000, fit: bool) {
            let (mut conversation, mut calls) = (Conversation::default(), 0u32);
            for step in moves {
                if fit { conversation.fit(budget); }
                match step {
                    Move::User(size) => conversation.user(&"u".repeat(size)),
                    Move::Text(size) => conversation.assistant(Said { text: "t".repeat(size), ..Said::default() }),
                    Move::Calls(count) => {
                        let calls = (0..count).map(|_| { calls += 1; Call { id: calls.to_string(), name: "run".into(), arguments: Value::Null } });
                        conversation.assistant(Said { calls: calls.collect(), ..Said::default() });
                    }
                    Move::LongCall(size, one) => {
                        calls += 1;
                        let arguments = if one { json!({ "content": "c".repeat(size) }) } else { json!(vec!["c"; size / 4]) };
                        let call = Call { id: calls.to_string(), name: "write".into(), arguments };
                        conversation.assistant(Said { calls: vec![call], ..Said::default() });
                    }
                    Move::SameCall => {
                        let call = Call { id: calls.to_string(), name: "run".into(), arguments: Value::Null };
                        conversation.assistant(Said { calls: vec![call.clone(), call], ..Said::default() });
                    }
                    Move::Blank => conversation.assistant(Said { text: " \n".into(), ..Said::default() }),
                    Move::Result(back, size) => conversation.result(&calls.saturating_sub(back.into()).to_string(), "r".repeat(size)),
                }
            }
            conversation.fit(budget);
            prop_assert!(conversation.size() <= budget.max(LEAST_OF_ONE * things(&conversation.entries)));
            assert_acceptable(&conversation.to_send());
        }
    }

    #[test]
    fn the_task_and_the_newest_survive_the_trimming() {
        let mut conversation = Conversation::default();
        conversation.user("the task");
        for n in 0..50 {
            let call = Call { id: n.to_string(), name: "run".into(), arguments: Value::Null };
            conversation.assistant(Said { calls: vec![call], ..Said::default() });
            conversation.result(&n.to_string(), format!("{n} {}", "x".repeat(1000)));
        }
        conversation.fit(10_000);
        let sent = conversation.to_send();
        assert!(matches!(&sent[0], Entry::User(text) if text.starts_with("the task")));
        assert!(matches!(sent.last(), Some(Entry::Results { results, .. }) if results[0].text.starts_with("49 xx")));
        assert!(sent.iter().map(Entry::size).sum::<usize>() <= 10_000 + DROPPED.len() + 2);
    }

    #[test]
    fn one_text_that_is_too_long_costs_no_turn_and_no_other_message() {
        let mut conversation = Conversation::default();
        conversation.user("the task");
        for n in 0..20 {
            conversation.assistant(Said { text: format!("answer {n}"), ..Said::default() });
            conversation.user(&format!("question {n}"));
        }
        conversation.user(&format!("BEGIN{}END", "x".repeat(900_000)));
        let entries = conversation.entries.len();
        conversation.fit(BUDGET);
        assert!(conversation.size() <= BUDGET);
        assert_eq!(conversation.entries.len(), entries, "nothing else had to go");
        let Some(Entry::User(last)) = conversation.entries.last() else { panic!("the user spoke last") };
        assert!(last.starts_with("question 19\n\nBEGIN") && last.ends_with("END"));
        assert!(last.contains(" bytes left out …"));
    }

    #[test]
    fn fresh_results_that_are_too_long_together_are_cut() {
        let mut conversation = Conversation::default();
        conversation.user("the task");
        let calls = (0..20).map(|n| Call { id: n.to_string(), name: "run".into(), arguments: Value::Null });
        conversation.assistant(Said { calls: calls.collect(), ..Said::default() });
        (0..20).for_each(|n| conversation.result(&n.to_string(), format!("{n} {} end", "x".repeat(30_000))));
        conversation.fit(16_000);
        assert!(conversation.size() <= 16_000 && conversation.size() > 11_000, "{}", conversation.size());
        let sent = conversation.to_send();
        assert_acceptable(&sent);
        let Some(Entry::Results { results, .. }) = sent.last() else { panic!("no results") };
        assert!(results.iter().all(|result| result.text.starts_with(&result.id) && result.text.ends_with(" end")));
    }
}
