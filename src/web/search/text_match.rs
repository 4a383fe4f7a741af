//! Search for a text in another, with an excerpt around the match. Pure.
//!
//! Upper and lower case count as the same. A run of white space or control characters counts as one
//! space, in both texts.

/// Longest text that can be searched for, in characters.
pub(in crate::web) const MAX_SEARCH_CHARS: usize = 200;

/// Characters of an excerpt before its first match, and in all.
const CHARS_BEFORE: usize = 60;
const EXCERPT_CHARS: usize = 240;

/// Text to search for.
#[derive(Debug)]
pub(in crate::web) struct SearchText {
    folded: String,
    /// Length in characters.
    len: usize,
}

/// Reason why a text cannot be searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(in crate::web) enum InvalidSearchText {
    #[error("`q` is empty; give the text to search for")]
    Empty,
    #[error("`q` has {0} characters; it may have {MAX_SEARCH_CHARS}")]
    TooLong(usize),
    #[error("`q` has a control character, such as a line break; replace it with a space")]
    ControlCharacter,
}

impl SearchText {
    pub(in crate::web) fn new(text: &str) -> Result<SearchText, InvalidSearchText> {
        match text.chars().count() {
            0..=MAX_SEARCH_CHARS => {}
            count => return Err(InvalidSearchText::TooLong(count)),
        }
        if text.chars().any(char::is_control) {
            return Err(InvalidSearchText::ControlCharacter);
        }
        let folded: String = one_line(text).map(fold).collect();
        match folded.chars().count() {
            0 => Err(InvalidSearchText::Empty),
            len => Ok(SearchText { folded, len }),
        }
    }

    /// Returns the first place where `text` contains this text.
    pub(super) fn find_in(&self, text: &str) -> Option<MatchExcerpt> {
        let folded: String = one_line(text).map(fold).collect();
        let first = folded.find(&self.folded)?;
        // Folding keeps the number of characters, so a place in the folded text is one in the text.
        let first = folded[..first].chars().count();
        let plain: Vec<char> = one_line(text).collect();
        let begin = first.saturating_sub(CHARS_BEFORE);
        let end = plain.len().min((begin + EXCERPT_CHARS).max(first + self.len));
        let folded: String = plain[begin..end].iter().copied().map(fold).collect();
        let (before, after) = (if begin > 0 { "…" } else { "" }, if end < plain.len() { "…" } else { "" });
        let excerpt: String = plain[begin..end].iter().collect();
        let excerpt = format!("{before}{excerpt}{after}");
        let matches = folded.match_indices(&self.folded).map(|(at, _)| {
            let from = before.chars().count() + folded[..at].chars().count();
            [utf16_len(&excerpt, from), utf16_len(&excerpt, from + self.len)]
        });
        let matches = matches.collect();
        Some(MatchExcerpt { text: excerpt, matches })
    }
}

/// Part of a text around a match.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::web) struct MatchExcerpt {
    /// Text in one line. `…` stands for what was left out.
    pub text: String,
    /// Start and end of each match, in UTF-16 code units.
    pub matches: Vec<[usize; 2]>,
}

/// Returns the characters of a text with each run of white space or control characters as one
/// space. Leaves out such runs at both ends.
fn one_line(text: &str) -> impl Iterator<Item = char> {
    let is_gap = |c: char| c.is_whitespace() || c.is_control();
    let mut chars = text.trim_matches(is_gap).chars().peekable();
    std::iter::from_fn(move || {
        let c = chars.next()?;
        if !is_gap(c) {
            return Some(c);
        }
        while chars.next_if(|next| is_gap(*next)).is_some() {}
        Some(' ')
    })
}

/// Returns the same character for all cases of a letter. A character whose other case is several
/// characters stays as it is.
fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let upper = single(c.to_uppercase()).unwrap_or(c);
    single(upper.to_lowercase()).unwrap_or(upper)
}

fn single(mut chars: impl Iterator<Item = char>) -> Option<char> {
    let first = chars.next();
    if chars.next().is_some() { None } else { first }
}

/// Returns the length of the first `count` characters in UTF-16 code units.
fn utf16_len(text: &str, count: usize) -> usize {
    text.chars().take(count).map(char::len_utf16).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(query: &str, text: &str) -> Option<(String, Vec<String>)> {
        let search = SearchText::new(query).expect("a valid text");
        let MatchExcerpt { text, matches } = search.find_in(text)?;
        let units: Vec<u16> = text.encode_utf16().collect();
        let marked = |[from, to]: [usize; 2]| String::from_utf16(&units[from..to]).expect("whole characters");
        Some((text, matches.into_iter().map(marked).collect()))
    }

    #[test]
    fn case_and_white_space_do_not_matter() {
        let check = |query: &str, text: &str, marked: &[&str]| {
            let (_, matches) = found(query, text).unwrap_or_else(|| panic!("`{query}` is in `{text}`"));
            assert_eq!(matches, marked, "`{query}` in `{text}`");
        };
        check("hello", "Say HELLO, hello!", &["HELLO", "hello"]);
        check("two  words", "\n\n two\n\twords", &["two words"]);
        check("GRÜSSE", "viele grüsse", &["grüsse"]);
        check("σας", "ΣΑΣ", &["ΣΑΣ"]);
        check("straße", "STRAẞE", &["STRAẞE"]);
        check("привет", "ПРИВЕТ", &["ПРИВЕТ"]);
        check("日本", "日本語", &["日本"]);
        check("🦀", "a 🦀 crab 🦀", &["🦀", "🦀"]);
        check("aa", "aaaa a", &["aa", "aa"]);
        check(".*", "a.*b", &[".*"]);
        check("[a-z](", "x [A-Z](y)", &["[A-Z]("]);
        check("a b", "a\u{1b}\u{0}b", &["a b"]);
        assert_eq!(found("hello", "help"), None);
        assert_eq!(found("a.b", "axb"), None);
    }

    #[test]
    fn excerpt_is_short_and_contains_the_match() {
        let text = format!("{} Needle {}", "ä".repeat(1000), "needle ".repeat(500));
        let (excerpt, matches) = found("needle", &text).expect("it is there");
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'), "{excerpt}");
        assert_eq!(excerpt.chars().count(), EXCERPT_CHARS + 2);
        assert_eq!(matches[0], "Needle");
        assert!(matches.len() > 10 && matches[1..].iter().all(|one| one == "needle"), "{matches:?}");
        let longest = "x".repeat(MAX_SEARCH_CHARS);
        let (excerpt, matches) = found(&longest, &format!("{}{longest} y", "a ".repeat(100))).expect("it is there");
        assert_eq!(matches, [longest.as_str()]);
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'), "{excerpt}");
        let (excerpt, _) = found("b", "a b c").expect("it is there");
        assert_eq!(excerpt, "a b c");
    }

    #[test]
    fn unsuitable_text_is_rejected() {
        let check = |text: &str, expected| assert_eq!(SearchText::new(text).expect_err("it is rejected"), expected);
        check("", InvalidSearchText::Empty);
        check(" \u{a0}\u{3000}", InvalidSearchText::Empty);
        check(&"x".repeat(10_000), InvalidSearchText::TooLong(10_000));
        check("a\nb", InvalidSearchText::ControlCharacter);
        check("\u{1b}[31m", InvalidSearchText::ControlCharacter);
        check("\u{85}", InvalidSearchText::ControlCharacter);
    }
}
