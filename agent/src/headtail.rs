//! Growing text that keeps only its head and its tail.

use std::collections::VecDeque;

use greenroom_protocol::omission_marker;

/// Keeps a text up to a limit. Beyond the limit, keeps its first and its last half of the limit.
#[derive(Debug)]
pub struct HeadTail {
    head: String,
    /// Newest pieces after the head, as they came.
    tail: VecDeque<String>,
    tail_bytes: usize,
    half: usize,
    total: u64,
}

impl HeadTail {
    /// Returns an empty text that keeps about `limit` bytes.
    pub fn new(limit: usize) -> HeadTail {
        HeadTail { head: String::new(), tail: VecDeque::new(), tail_bytes: 0, half: limit / 2, total: 0 }
    }

    /// Appends `text`.
    pub fn push(&mut self, text: &str) {
        self.total += text.len() as u64;
        let room = if self.tail.is_empty() { self.half - self.head.len() } else { 0 };
        let (first, rest) = text.split_at(text.floor_char_boundary(room));
        self.head.push_str(first);
        if rest.is_empty() {
            return;
        }
        self.tail_bytes += rest.len();
        match self.tail.back_mut() {
            // Small pieces are joined: a command that prints byte by byte costs no string per byte.
            Some(last) if last.len() + rest.len() <= 4096 => last.push_str(rest),
            _ => self.tail.push_back(rest.to_owned()),
        }
        while self.tail.front().is_some_and(|oldest| self.tail_bytes - oldest.len() >= self.half) {
            self.tail_bytes -= self.tail.pop_front().map_or(0, |oldest| oldest.len());
        }
    }

    /// Length of the full text in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns `true` if the middle is missing.
    pub fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail_bytes) as u64
    }

    /// Returns the full text. If the middle is missing: head, a line with the number of missing
    /// bytes, and tail.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.head.len() + self.tail_bytes + 64);
        text.push_str(&self.head);
        if self.is_cut() {
            let omitted = self.total - (self.head.len() + self.tail_bytes) as u64;
            text.push_str(&omission_marker(omitted as usize));
        }
        text.extend(self.tail.iter().map(String::as_str));
        text
    }
}

impl HeadTail {
    /// Returns head and tail in about `limit` bytes, with the number of missing bytes in between.
    pub fn excerpt(&self, limit: usize) -> String {
        let head = &self.head[..self.head.floor_char_boundary(limit / 2)];
        let tail = self.end(limit / 2);
        let omitted = self.total.saturating_sub((head.len() + tail.len()) as u64);
        format!("{head}{}{tail}", omission_marker(omitted as usize))
    }

    /// Returns the end of the text: at most `limit` bytes, and at most the kept tail.
    pub fn end(&self, limit: usize) -> String {
        let tail: String = self.tail.iter().map(String::as_str).collect();
        tail[tail.ceil_char_boundary(tail.len().saturating_sub(limit))..].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_head_and_tail_within_limit(pieces in proptest::collection::vec(".{0,40}", 0..60), limit in 8usize..400) {
            let whole: String = pieces.concat();
            let mut kept = HeadTail::new(limit);
            pieces.iter().for_each(|piece| kept.push(piece));
            prop_assert_eq!(kept.total(), whole.len() as u64);
            if !kept.is_cut() {
                prop_assert_eq!(kept.text(), whole);
            } else {
                prop_assert!(whole.len() > limit - 8);
                prop_assert!(whole.starts_with(&kept.head));
                let tail: String = kept.tail.iter().map(String::as_str).collect();
                prop_assert!(whole.ends_with(&tail));
                prop_assert!(tail.len() >= limit / 2);
                prop_assert!(tail.len() <= limit / 2 + 4096);
            }
        }
    }
}
