//! Excerpts: a long text reduced to its beginning and its end, which readers look for first.

use std::borrow::Cow;

use crate::JsonSize;

/// Head and tail of a text that exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Head, a line with the number of omitted bytes, tail.
    pub text: String,
    /// Number of omitted bytes.
    pub omitted: usize,
}

/// Returns head and tail of `text` in at most about `limit` bytes, or `None` if all of `text` fits.
///
/// Cuts only between characters. Head and tail are equally long, because a build log reports the
/// failure at its end.
pub fn excerpt(text: &str, limit: usize) -> Option<Excerpt> {
    if text.len() <= limit {
        return None;
    }
    Some(excerpt_of(text, text, text.len(), limit))
}

/// Returns head and tail of `text` in at most `limit` bytes of JSON, or `None` if all of `text`
/// fits.
///
/// `text` may be an [`excerpt`] of a text of `whole` bytes. The result then is a shorter excerpt of
/// that text.
pub fn json_excerpt(text: &str, whole: Option<usize>, limit: usize) -> Option<Excerpt> {
    if fits_json(text, limit) {
        return None;
    }
    let (head, tail, total) = match whole.and_then(|whole| Some((head_and_tail(text, whole)?, whole))) {
        Some(((head, tail), whole)) => (head, tail, whole),
        None => (text, text, text.len()),
    };
    let longest = (text.len() - 1).min(limit);
    let kept = largest(longest, |kept| fits_json(&excerpt_of(head, tail, total, kept).text, limit));
    Some(excerpt_of(head, tail, total, kept))
}

/// Returns the longest end of `text` that has at most `limit` bytes as JSON.
pub fn json_tail(text: &str, limit: usize) -> &str {
    let end = |kept| &text[text.ceil_char_boundary(text.len() - kept)..];
    end(largest(text.len().min(limit), |kept| fits_json(end(kept), limit)))
}

/// Returns true if `text` has at most `limit` bytes as JSON, without the quotes.
pub fn fits_json(text: &str, limit: usize) -> bool {
    // A byte becomes at most six bytes of JSON.
    text.len() <= limit / 6 || text.len() <= limit && JsonSize::of_text(text) <= limit
}

/// Returns the largest number up to `max` that `fits`, or 0. Smaller numbers must fit too.
fn largest(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut known, mut too_large) = (0, max + 1);
    while too_large - known > 1 {
        let middle = known.midpoint(too_large);
        if fits(middle) { known = middle } else { too_large = middle }
    }
    known
}

/// Returns the excerpt of a text of `total` bytes that keeps about `kept` bytes: half of them from
/// the beginning of `head`, and half from the end of `tail`.
fn excerpt_of(head: &str, tail: &str, total: usize, kept: usize) -> Excerpt {
    let head = &head[..head.floor_char_boundary(kept / 2)];
    let tail = &tail[tail.ceil_char_boundary(tail.len().saturating_sub(kept / 2))..];
    let omitted = total - head.len() - tail.len();
    Excerpt { text: format!("{head}{}{tail}", omission_marker(omitted)), omitted }
}

/// Returns the line that replaces this number of omitted bytes. [`excerpt_remainder`] parses it.
pub fn omission_marker(bytes: usize) -> String {
    format!("\n… {bytes} bytes left out …\n")
}

/// Returns the rest of a text of `total` bytes for a reader that has its first `received` bytes.
///
/// Source of the rest is `shortened`, the text's [`excerpt`]. A marker with the number of bytes
/// replaces a gap that the excerpt does not cover. Returns `None` if `shortened` is not such an
/// excerpt.
pub fn excerpt_remainder<'a>(shortened: &'a str, total: usize, received: usize) -> Option<Cow<'a, str>> {
    let (head, tail) = head_and_tail(shortened, total)?;
    let tail_from = total - tail.len();
    if received <= head.len() {
        return shortened.get(received..).map(Cow::Borrowed);
    }
    match received.checked_sub(tail_from) {
        Some(in_tail) => Some(Cow::Borrowed(tail.get(in_tail..).unwrap_or_default())),
        None => Some(Cow::Owned(omission_marker(tail_from - received) + tail)),
    }
}

/// Splits an excerpt of a text of `total` bytes into head and tail, equally long up to a character.
fn head_and_tail(shortened: &str, total: usize) -> Option<(&str, &str)> {
    // The marker's length depends only on the number of digits of the omitted byte count.
    (1..=20).find_map(|digits| {
        let omitted = total.checked_add(omission_marker(0).len() - 1 + digits)?.checked_sub(shortened.len())?;
        let (mark, kept) = (omission_marker(omitted), total.checked_sub(omitted)?);
        let about = (kept / 2).saturating_sub(3)..=kept / 2 + 3;
        about.into_iter().find_map(|head| {
            let tail = shortened.get(head..)?.strip_prefix(&mark)?;
            (head + tail.len() == kept).then(|| (&shortened[..head], tail))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The remainder continues at the reader's position, and states the number of missing
        /// bytes.
        #[test]
        fn rest_begins_at_reader_position(text in "[aä…\n]{0,600}", limit in 0usize..300, received in 0usize..2000) {
            let received = text.floor_char_boundary(received);
            let Some(Excerpt { text: shortened, omitted }) = excerpt(&text, limit) else { return Ok(()) };
            let (head, tail) = head_and_tail(&shortened, text.len()).expect("`shortened` is an excerpt");
            prop_assert_eq!(head.len() + omitted + tail.len(), text.len());
            let rest = excerpt_remainder(&shortened, text.len(), received).expect("`shortened` is an excerpt");
            let missing = (text.len() - tail.len()).saturating_sub(received.max(head.len()));
            let (known, end) = (&text[..received.max(head.len())], &text[received.max(text.len() - tail.len())..]);
            let expected = if missing == 0 { text.clone() } else { format!("{known}{}{end}", omission_marker(missing)) };
            prop_assert_eq!(format!("{}{rest}", &text[..received]), expected);
        }
    }

    proptest! {
        /// An excerpt counts as JSON, stays an excerpt of the whole text when it is shortened
        /// again, and wastes no more than a character on each side.
        #[test]
        fn json_excerpt_fits_as_json(text in "[aä…\u{1}\"\n]{0,600}", limit in 40usize..400, shorter in 40usize..400) {
            let json = |text: &str| serde_json::to_string(text).expect("a text is JSON").len() - 2;
            let Some(first) = json_excerpt(&text, None, limit) else {
                prop_assert!(json(&text) <= limit);
                return Ok(())
            };
            prop_assert!(json(&text) > limit && json(&first.text) <= limit && json(&first.text) + 30 > limit);
            let Some(second) = json_excerpt(&first.text, Some(text.len()), shorter) else { return Ok(()) };
            prop_assert!(json(&second.text) <= shorter && shorter < limit);
            for part in [&first, &second] {
                let (head, tail) = head_and_tail(&part.text, text.len()).expect("the part is an excerpt of the text");
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + part.omitted + tail.len(), text.len());
            }
            let tail = json_tail(&text, limit);
            prop_assert!(text.ends_with(tail) && json(tail) <= limit && json(tail) + 7 > limit.min(json(&text)));
        }
    }

    #[test]
    fn text_that_is_no_excerpt_has_no_remainder() {
        assert_eq!(excerpt_remainder("as short as this", 5_000_000, 3), None);
        assert_eq!(excerpt_remainder("as long as an import file says", usize::MAX, 3), None);
        assert_eq!(excerpt_remainder(&format!("a{}b", omission_marker(7)), 5_000_000, 3), None);
    }

    #[test]
    fn text_within_limit_has_no_excerpt() {
        assert_eq!(excerpt("short", 5), None);
    }

    #[test]
    fn excerpt_keeps_head_and_tail_and_whole_characters() {
        let long = format!("BEGIN{}END", "ä".repeat(100));
        let shortened = excerpt(&long, 21).expect("the text is longer than 21 bytes");
        assert!(shortened.text.starts_with("BEGIN"), "{}", shortened.text);
        assert!(shortened.text.ends_with("END"), "{}", shortened.text);
        assert_eq!(shortened.omitted + shortened.text.chars().filter(|c| *c == 'ä').count() * 2 + 8, long.len());
    }
}
