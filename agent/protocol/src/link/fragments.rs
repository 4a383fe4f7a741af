//! What is long goes in fragments (RFC 6455, section 5.4), so that neither end keeps a buffer of its size.

use std::ops::Range;

/// The longest payload of one WebSocket frame that this end sends, bytes.
pub const FRAGMENT: usize = 16 << 10;

/// One WebSocket frame of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Which bytes of the message. They may end within a character.
    pub bytes: Range<usize>,
    /// Whether the message begins with it: the others are continuations.
    pub first: bool,
    pub last: bool,
}

/// A message of `len` bytes, in frames of at most [`FRAGMENT`] each; at least one.
pub fn fragments(len: usize) -> impl Iterator<Item = Fragment> {
    let count = len.div_ceil(FRAGMENT).max(1);
    (0..count).map(move |n| Fragment {
        bytes: n * FRAGMENT..len.min((n + 1) * FRAGMENT),
        first: n == 0,
        last: n + 1 == count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(len: usize, lens: &[usize]) {
        let all: Vec<_> = fragments(len).collect();
        assert_eq!(all.iter().map(|fragment| fragment.bytes.len()).collect::<Vec<_>>(), lens);
        assert!(all.iter().flat_map(|fragment| fragment.bytes.clone()).eq(0..len), "each byte once, in order");
        let last = all.len() - 1;
        assert!(all.iter().enumerate().all(|(n, f)| (f.first, f.last) == (n == 0, n == last)));
    }

    #[test]
    fn they_are_the_message_and_none_is_long() {
        check(0, &[0]);
        check(1, &[1]);
        check(FRAGMENT, &[FRAGMENT]);
        check(FRAGMENT + 1, &[FRAGMENT, 1]);
        check(3 * FRAGMENT, &[FRAGMENT; 3]);
    }
}
