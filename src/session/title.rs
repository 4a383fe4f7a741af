//! Title of a session, from its first message. Pure.

/// Longest title, in characters.
const TITLE_CHARS: usize = 80;

/// Shortest part of a cut title, in characters, that ends at a word.
const MIN_CHARS: usize = 40;

/// Words that say nothing about a task. A line of these alone gives no title.
const EMPTY_WORDS: [&str; 24] = [
    "a",
    "afternoon",
    "again",
    "all",
    "and",
    "dear",
    "evening",
    "everyone",
    "good",
    "greetings",
    "hello",
    "hey",
    "hi",
    "morning",
    "now",
    "ok",
    "okay",
    "please",
    "so",
    "thank",
    "thanks",
    "there",
    "well",
    "you",
];

/// Returns the title of a session with this first message: its [`headline`].
pub(super) fn title_of(message: &str) -> String {
    headline(message, TITLE_CHARS)
}

/// Returns the first line that says something, without markup, in at most `limit` characters. Prose
/// precedes code. Empty if the message has no words.
pub(super) fn headline(message: &str, limit: usize) -> String {
    let (mut prose, mut code, mut fence) = (None, None, None);
    for line in message.lines() {
        match (fence, code_fence(line)) {
            (None, Some(opened)) => fence = Some(opened),
            // A longer fence of the same kind ends the code too.
            (Some(opened), Some(closed)) if closed.starts_with(opened) => fence = None,
            (Some(_), _) => code = code.or_else(|| words_of(line)),
            (None, None) => {
                let words = words_of(line);
                if words.as_deref().is_some_and(says_something) {
                    return shorten(&words.unwrap_or_default(), limit);
                }
                prose = prose.or(words);
            }
        }
    }
    shorten(&code.or(prose).unwrap_or_default(), limit)
}

/// Returns the fence if the line begins or ends a block of code.
fn code_fence(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let marks = line.len() - line.trim_start_matches(line.chars().next().filter(|mark| "`~".contains(*mark))?).len();
    (marks >= 3).then(|| &line[..marks])
}

/// Returns the line in one piece, without the markup at its beginning, tags there and control
/// characters. `None` for a line without letters and digits.
fn words_of(line: &str) -> Option<String> {
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut text = line.trim();
    loop {
        let before = text;
        text = text.trim_start_matches(['>', '|', ' ', '\u{feff}']);
        let marked = text
            .strip_prefix(['-', '+', '*'])
            .or_else(|| text.strip_prefix("[ ]"))
            .or_else(|| text.strip_prefix("[x]"));
        let marked = marked.unwrap_or_else(|| text.trim_start_matches('#'));
        // A mark of a list or a heading has a blank after it.
        text = if marked.starts_with(' ') { marked } else { text };
        for emphasis in ["**", "__", "*", "_"] {
            text = text.strip_prefix(emphasis).and_then(|inner| inner.strip_suffix(emphasis)).unwrap_or(text);
        }
        text = without_tag(text);
        if text == before {
            break;
        }
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.contains(char::is_alphanumeric).then_some(text)
}

/// Returns the text after a tag like `<task>` or `<!-- … -->` at its beginning.
fn without_tag(text: &str) -> &str {
    if let Some(comment) = text.strip_prefix("<!--") {
        return comment.split_once("-->").map_or("", |(_, rest)| rest);
    }
    let Some((tag, rest)) = text.strip_prefix('<').and_then(|tag| tag.split_once('>')) else { return text };
    let name = tag.trim_start_matches('/');
    let is_tag = name.starts_with(|c: char| c.is_ascii_alphabetic()) && !name.contains('<');
    if is_tag { rest } else { text }
}

fn says_something(words: &str) -> bool {
    let mut words = words.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.any(|word| !EMPTY_WORDS.contains(&word.to_lowercase().as_str()))
}

/// Returns the text in at most `limit` characters. A cut text ends with `…`, at a word if possible.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(limit) else { return text.to_owned() };
    let head: String = text[..end].chars().take(limit - 1).collect();
    let word_end = head.rfind(' ').filter(|at| head[..*at].chars().count() >= MIN_CHARS).unwrap_or(head.len());
    format!("{}…", head[..word_end].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(message: &str, expected: &str) {
        assert_eq!(title_of(message), expected, "{message:?}");
    }

    #[test]
    fn title_is_first_line_with_words() {
        check("print hello", "print hello");
        check("\n\n  Fix the login  \nIt fails.", "Fix the login");
        check("---\n***\n\nFix it", "Fix it");
        check("日本語のタスク\nzwei", "日本語のタスク");
        check("2 + 2?", "2 + 2?");
        check(" \n--\n", "");
    }

    #[test]
    fn title_has_no_markup() {
        check("## Fix the **login** page", "Fix the **login** page");
        check("- [ ] first step\n- [ ] second", "first step");
        check("> quoted words", "quoted words");
        check("**Task**", "Task");
        check("--help prints nothing", "--help prints nothing");
        check("#12 fails in C#", "#12 fails in C#");
        check("Explain __init__", "Explain __init__");
        check("`make` fails", "`make` fails");
        check("<task>\nFix it\n</task>", "Fix it");
        check("<!-- note -->\n<p>Fix it", "Fix it");
        check("a <b> c", "a <b> c");
        check("one\ttwo\u{1b}[31m red\u{7}", "one two [31m red");
    }

    #[test]
    fn prose_precedes_code() {
        check("```py\nprint(1)\n```\nWhy does this fail?", "Why does this fail?");
        check("```py\nimport os\nprint(1)\n```", "import os");
        check("~~~~\n```\nx = 1\n~~~\n~~~~\nExplain it", "Explain it");
        check("```\n\n}\nlet x = 1;", "let x = 1;");
        check("```py", "");
    }

    #[test]
    fn greeting_is_no_title() {
        check("Hi!\nFix the parser", "Fix the parser");
        check("Good morning,\n\nplease fix the parser.", "please fix the parser.");
        check("Hello there", "Hello there");
        check("Hi\n```py\nprint(1)\n```", "print(1)");
    }

    #[test]
    fn long_title_ends_at_a_word() {
        let title = title_of(&"word ".repeat(100));
        assert_eq!(title, format!("{}…", ["word"; 15].join(" ")));
        let title = title_of(&"ä".repeat(300));
        assert_eq!((title.chars().count(), title.chars().last()), (TITLE_CHARS, Some('…')));
        check(&"x".repeat(TITLE_CHARS), &"x".repeat(TITLE_CHARS));
    }
}
