//! Fragments of a WebSocket message (RFC 6455, section 5.4). Neither side keeps a buffer as large
//! as a long message.

use std::ops::Range;

/// Largest payload of a WebSocket frame that this side sends, in bytes.
pub const FRAGMENT: usize = 16 << 10;

/// Single WebSocket frame of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Byte range within the message. A range may end inside a character.
    pub bytes: Range<usize>,
    /// True for the first frame of the message. The other frames are continuations.
    pub first: bool,
    pub last: bool,
}

/// Splits a message of `len` bytes into frames of at most [`FRAGMENT`] bytes each. Returns at least
/// one frame.
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
        assert!(
            all.iter().flat_map(|fragment| fragment.bytes.clone()).eq(0..len),
            "the fragments contain each byte once, in order"
        );
        let last = all.len() - 1;
        assert!(all.iter().enumerate().all(|(n, f)| (f.first, f.last) == (n == 0, n == last)));
    }

    #[test]
    fn fragments_cover_the_message_and_stay_within_the_limit() {
        check(0, &[0]);
        check(1, &[1]);
        check(FRAGMENT, &[FRAGMENT]);
        check(FRAGMENT + 1, &[FRAGMENT, 1]);
        check(3 * FRAGMENT, &[FRAGMENT; 3]);
    }
}
