//! What the user does beside the agent, until the agent hears of it: the newest, in bounds.

use std::collections::VecDeque;

use greenroom_protocol::excerpt;

/// How many bytes wait. An agent that is never prompted hears of nothing, and the user may do things for weeks.
const LIMIT: usize = 64 * 1024;

/// Things that the user did, each as the model is told it. Where there are too many the oldest go, and their number is told.
#[derive(Debug, Default)]
pub struct UserActivity {
    waiting: VecDeque<String>,
    bytes: usize,
    left_out: u64,
}

impl UserActivity {
    /// The user did this now.
    pub fn push(&mut self, aside: String) {
        let aside = excerpt(&aside, LIMIT / 2).map_or(aside, |cut| cut.text);
        self.bytes += aside.len();
        self.waiting.push_back(aside);
        while self.bytes > LIMIT {
            self.bytes -= self.waiting.pop_front().map_or(self.bytes, |oldest| oldest.len());
            self.left_out += 1;
        }
    }

    /// All that waits, oldest first. Nothing waits any more.
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
    fn the_newest_are_told_and_how_many_were_before_them() {
        let mut asides = UserActivity::default();
        (0..1000).for_each(|n| asides.push(format!("{n} {}", "x".repeat(1020))));
        let told = asides.take();
        let (first, newest) = told.split_first().expect("there are some");
        assert!(newest.iter().map(String::len).sum::<usize>() <= LIMIT && newest.len() >= 63);
        assert!(newest.last().is_some_and(|aside| aside.starts_with("999 ")));
        assert!(first.contains(&format!(" {} more things", 1000 - newest.len())), "{first}");
        assert!(asides.take().is_empty());
    }

    #[test]
    fn few_are_told_as_they_are() {
        let mut asides = UserActivity::default();
        ["one", "two"].iter().for_each(|aside| asides.push((*aside).to_owned()));
        assert_eq!(asides.take(), ["one", "two"]);
    }

    #[test]
    fn a_long_one_is_told_with_head_and_tail() {
        let mut asides = UserActivity::default();
        asides.push("before".to_owned());
        asides.push(format!("BEGIN{}END", "x".repeat(10 * LIMIT)));
        let told = asides.take();
        assert!(told[0] == "before" && told[1].starts_with("BEGIN") && told[1].ends_with("END"));
        assert!(told.iter().map(String::len).sum::<usize>() <= LIMIT);
    }
}
