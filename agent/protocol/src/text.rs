//! Cutting a text down without losing what a reader looks for first: its beginning and its end.

use std::borrow::Cow;

/// The head and the tail of a text that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// Head, a line that says how much is left out, tail.
    pub text: String,
    /// How many bytes were left out.
    pub omitted: usize,
}

/// The head and the tail of `text` in at most about `limit` bytes, or `None` where the whole of it fits.
///
/// Cuts only between characters. The tail gets as much as the head: a build log says what went wrong at its end.
pub fn excerpt(text: &str, limit: usize) -> Option<Excerpt> {
    if text.len() <= limit {
        return None;
    }
    let head = text.floor_char_boundary(limit / 2);
    let tail = text.ceil_char_boundary(text.len() - limit / 2);
    let omitted = tail - head;
    let text = format!("{}{}{}", &text[..head], omission_marker(omitted), &text[tail..]);
    Some(Excerpt { text, omitted })
}

/// What stands in the place of so many bytes that are left out of a text.
pub fn omission_marker(bytes: usize) -> String {
    format!("\n… {bytes} bytes left out …\n")
}

/// What somebody lacks who has the first `told` bytes of a text of `whole` bytes, as far as its [`excerpt`] `cut` knows: what
/// is left out in between is said. `None` where `cut` is no such excerpt.
pub fn excerpt_remainder<'a>(cut: &'a str, whole: usize, told: usize) -> Option<Cow<'a, str>> {
    let (head, tail) = head_and_tail(cut, whole)?;
    let tail_from = whole - tail.len();
    if told <= head.len() {
        return cut.get(told..).map(Cow::Borrowed);
    }
    match told.checked_sub(tail_from) {
        Some(told) => Some(Cow::Borrowed(tail.get(told..).unwrap_or_default())),
        None => Some(Cow::Owned(omission_marker(tail_from - told) + tail)),
    }
}

/// Head and tail of an excerpt of a text of `whole` bytes. They are as long as each other, up to a character.
fn head_and_tail(cut: &str, whole: usize) -> Option<(&str, &str)> {
    // What is left out is told in a line whose length depends on that number: but only on how many digits it has.
    (1..=20).find_map(|digits| {
        let omitted = whole.checked_add(omission_marker(0).len() - 1 + digits)?.checked_sub(cut.len())?;
        let (mark, kept) = (omission_marker(omitted), whole.checked_sub(omitted)?);
        let about = (kept / 2).saturating_sub(3)..=kept / 2 + 3;
        about.into_iter().find_map(|head| {
            let tail = cut.get(head..)?.strip_prefix(&mark)?;
            (head + tail.len() == kept).then(|| (&cut[..head], tail))
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Of whatever was left out, somebody has as much as they were told before, and knows how much they lack.
        #[test]
        fn the_rest_goes_on_where_somebody_is(text in "[aä…\n]{0,600}", limit in 0usize..300, told in 0usize..2000) {
            let told = text.floor_char_boundary(told);
            let Some(Excerpt { text: cut, omitted }) = excerpt(&text, limit) else { return Ok(()) };
            let (head, tail) = head_and_tail(&cut, text.len()).expect("it is one");
            prop_assert_eq!(head.len() + omitted + tail.len(), text.len());
            let rest = excerpt_remainder(&cut, text.len(), told).expect("it is one");
            let lacked = (text.len() - tail.len()).saturating_sub(told.max(head.len()));
            let (known, end) = (&text[..told.max(head.len())], &text[told.max(text.len() - tail.len())..]);
            let expected = if lacked == 0 { text.clone() } else { format!("{known}{}{end}", omission_marker(lacked)) };
            prop_assert_eq!(format!("{}{rest}", &text[..told]), expected);
        }
    }

    #[test]
    fn what_is_no_excerpt_is_not_taken_for_one() {
        assert_eq!(excerpt_remainder("as short as this", 5_000_000, 3), None);
        assert_eq!(excerpt_remainder("as long as an import file says", usize::MAX, 3), None);
        assert_eq!(excerpt_remainder(&format!("a{}b", omission_marker(7)), 5_000_000, 3), None);
    }

    #[test]
    fn what_fits_is_left_alone() {
        assert_eq!(excerpt("short", 5), None);
    }

    #[test]
    fn head_and_tail_survive_and_characters_stay_whole() {
        let long = format!("BEGIN{}END", "ä".repeat(100));
        let cut = excerpt(&long, 21).expect("it is longer than 21 bytes");
        assert!(cut.text.starts_with("BEGIN"), "{}", cut.text);
        assert!(cut.text.ends_with("END"), "{}", cut.text);
        assert_eq!(cut.omitted + cut.text.chars().filter(|c| *c == 'ä').count() * 2 + 8, long.len());
    }
}
