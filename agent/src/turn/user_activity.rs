//! User actions beside the agent, until the agent reads them.

use std::collections::VecDeque;

use greenroom_protocol::excerpt;

/// Bound: 64 KiB. When full: the oldest actions are dropped. An agent that gets no prompt reads
/// none, while the user may act for weeks.
const LIMIT: usize = 64 * 1024;

/// User actions as texts for the model. Counts the actions that were dropped.
#[derive(Debug, Default)]
pub struct UserActivity {
    waiting: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl UserActivity {
    /// Adds the text of one user action.
    pub fn push(&mut self, text: String) {
        let text = excerpt(&text, LIMIT / 2).map_or(text, |cut| cut.text);
        self.bytes += text.len();
        self.waiting.push_back(text);
        while self.bytes > LIMIT {
            self.bytes -= self.waiting.pop_front().map_or(self.bytes, |oldest| oldest.len());
            self.left_out += 1;
        }
    }

    /// Takes all texts, oldest first. The first text states how many actions were dropped, if any.
    pub fn take(&mut self) -> Vec<String> {
        let UserActivity { waiting, left_out, .. } = std::mem::take(self);
        let more = (left_out > 0).then(|| {
            format!("[Before this the user did {left_out} more things in the sandbox, left out here to save room.]")
        });
        more.into_iter().chain(waiting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_actions_are_kept_and_dropped_are_counted() {
        let mut activity = UserActivity::default();
        (0..1000).for_each(|n| activity.push(format!("{n} {}", "x".repeat(1020))));
        let taken = activity.take();
        let (first, newest) = taken.split_first().expect("actions wait");
        assert!(newest.iter().map(String::len).sum::<usize>() <= LIMIT && newest.len() >= 63);
        assert!(newest.last().is_some_and(|text| text.starts_with("999 ")));
        assert!(first.contains(&format!(" {} more things", 1000 - newest.len())), "{first}");
        assert!(activity.take().is_empty());
    }

    #[test]
    fn few_actions_are_unchanged() {
        let mut activity = UserActivity::default();
        ["one", "two"].iter().for_each(|text| activity.push((*text).to_owned()));
        assert_eq!(activity.take(), ["one", "two"]);
    }

    #[test]
    fn long_action_keeps_head_and_tail() {
        let mut activity = UserActivity::default();
        activity.push("before".to_owned());
        activity.push(format!("BEGIN{}END", "x".repeat(10 * LIMIT)));
        let taken = activity.take();
        assert!(taken[0] == "before" && taken[1].starts_with("BEGIN") && taken[1].ends_with("END"));
        assert!(taken.iter().map(String::len).sum::<usize>() <= LIMIT);
    }
}
