//! Cutting a text down without losing what a reader looks for first: its beginning and its end.

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
    let text = format!("{}\n… {omitted} bytes left out …\n{}", &text[..head], &text[tail..]);
    Some(Excerpt { text, omitted })
}

#[cfg(test)]
mod tests {
    use super::*;

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
