//! Patterns of commands: words, in which `*` stands for any text.

use super::shell::{ShellCommand, ShellWord, base_name};

/// Certainty of a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatternMatch {
    No,
    /// Only the run decides, because the command has a variable, a glob or a substitution.
    Maybe,
    Yes,
}

/// Pattern of a simple command.
///
/// `*` inside a word stands for any part of the word. A word `*` stands for any number of words,
/// also for none. A `*` at the end stands for all further words too, so `git push*` matches
/// `git push origin`.
/// Quotes and backslashes take the meaning of `*` and of spaces away.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandPattern {
    words: Vec<PatternWord>,
    /// True if any words may follow.
    is_open: bool,
}

/// Word of a pattern: pieces of fixed text, between which any text may be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PatternWord {
    /// At least one piece.
    pieces: Vec<String>,
}

/// Directories whose programs a plain name means.
const PROGRAM_DIRS: [&str; 8] =
    ["/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/opt/homebrew/bin", "/snap/bin"];

/// Global options that a pattern may leave out, such as those of `git -C dir push`.
const SKIPPED_WORDS_LIMIT: usize = 16;

impl CommandPattern {
    pub fn new(text: &str) -> CommandPattern {
        let mut words: Vec<PatternWord> = Vec::new();
        let mut current: Option<PatternWord> = None;
        let mut quote = None;
        let mut characters = text.chars();
        while let Some(c) = characters.next() {
            let literal = match (quote, c) {
                (Some(open), c) if c == open => {
                    quote = None;
                    continue;
                }
                (Some('\''), c) => Some(c),
                (_, '\\') => characters.next(),
                (Some(_), c) => Some(c),
                (None, '\'' | '"') => {
                    quote = Some(c);
                    current.get_or_insert_with(PatternWord::empty);
                    continue;
                }
                (None, c) if c.is_whitespace() => {
                    words.extend(current.take());
                    continue;
                }
                (None, '*') => None,
                (None, c) => Some(c),
            };
            let word = current.get_or_insert_with(PatternWord::empty);
            match literal {
                Some(c) => word.pieces.last_mut().expect("a word has a piece").push(c),
                None => word.pieces.push(String::new()),
            }
        }
        words.extend(current);
        let is_open =
            words.last().is_some_and(|word| word.pieces.len() > 1 && word.pieces.last().is_some_and(String::is_empty));
        if words.last().is_some_and(PatternWord::is_any) {
            words.pop();
        }
        CommandPattern { words, is_open }
    }

    /// Matches a command strictly, for a rule that allows: the name must be the program itself, and
    /// parts that only the run decides match only `*`.
    pub fn permits(&self, command: &ShellCommand) -> bool {
        let Some((name, arguments)) = command.words.split_first() else { return false };
        let name = match name.text.rsplit_once('/') {
            Some((dir, program)) if PROGRAM_DIRS.contains(&dir) => program,
            _ => name.text.as_str(),
        };
        let words: Vec<ShellWord> = std::iter::once(ShellWord::fixed(name)).chain(arguments.iter().cloned()).collect();
        self.matches(&words) == PatternMatch::Yes
    }

    /// Matches a command widely, for a rule that asks or denies: the directory of the program and
    /// options before the first argument do not matter.
    pub fn restricts(&self, command: &ShellCommand) -> PatternMatch {
        let Some((name, arguments)) = command.words.split_first() else { return PatternMatch::No };
        let name = ShellWord::fixed(base_name(&name.text));
        let mut best = self.matches(&command.words);
        for skipped in skipped_options(arguments) {
            let rest = arguments[skipped..].iter().cloned();
            let words: Vec<ShellWord> = std::iter::once(name.clone()).chain(rest).collect();
            best = best.max(self.matches(&words));
        }
        best
    }

    /// Compares words with words, by the table of all pairs.
    fn matches(&self, words: &[ShellWord]) -> PatternMatch {
        // reach[i]: the first i pattern words match the words so far.
        let count = self.words.len();
        let mut reach = vec![PatternMatch::No; count + 1];
        reach[0] = PatternMatch::Yes;
        self.skip_any(&mut reach);
        let mut best_open = if self.is_open { reach[count] } else { PatternMatch::No };
        for word in words {
            let mut next = vec![PatternMatch::No; count + 1];
            for (at, pattern) in self.words.iter().enumerate() {
                let step = if pattern.is_any() {
                    // The word belongs to `*`, which may go on.
                    next[at] = next[at].max(reach[at]);
                    reach[at]
                } else {
                    reach[at].min(pattern.matches(word))
                };
                next[at + 1] = next[at + 1].max(step);
            }
            if !word.is_fixed {
                // A word that expands to no word, or to several.
                for at in 0..=count {
                    next[at] = next[at].max(reach[at].min(PatternMatch::Maybe));
                }
                for at in 0..count {
                    next[at + 1] = next[at + 1].max(next[at].min(PatternMatch::Maybe));
                }
            }
            self.skip_any(&mut next);
            reach = next;
            if self.is_open {
                best_open = best_open.max(reach[count]);
            }
        }
        best_open.max(reach[count])
    }

    /// Lets each `*` stand for no word.
    fn skip_any(&self, reach: &mut [PatternMatch]) {
        for (at, pattern) in self.words.iter().enumerate() {
            if pattern.is_any() {
                reach[at + 1] = reach[at + 1].max(reach[at]);
            }
        }
    }
}

/// Returns the numbers of arguments that may be global options with their values.
fn skipped_options(arguments: &[ShellWord]) -> Vec<usize> {
    let mut found = vec![0];
    let mut at = 0;
    while at < SKIPPED_WORDS_LIMIT && arguments.get(at).is_some_and(|word| word.text.starts_with(['-', '+'])) {
        found.push(at + 1);
        // The value of the option, if the next word is none itself.
        let has_value = arguments.get(at + 1).is_some_and(|word| !word.text.starts_with(['-', '+']));
        at += 1;
        if has_value && !arguments[at - 1].text.contains('=') {
            found.push(at + 1);
            at += usize::from(arguments.get(at + 1).is_some_and(|word| word.text.starts_with(['-', '+'])));
        }
    }
    found
}

impl PatternWord {
    fn empty() -> PatternWord {
        PatternWord { pieces: vec![String::new()] }
    }

    /// Returns true for a word `*`.
    fn is_any(&self) -> bool {
        self.pieces.len() > 1 && self.pieces.iter().all(String::is_empty)
    }

    fn matches(&self, word: &ShellWord) -> PatternMatch {
        match word.value() {
            _ if self.is_any() => PatternMatch::Yes,
            None => PatternMatch::Maybe,
            Some(text) if self.matches_text(text) => PatternMatch::Yes,
            Some(_) => PatternMatch::No,
        }
    }

    /// Matches pieces from the left, each as early as possible.
    fn matches_text(&self, text: &str) -> bool {
        let (first, rest) = self.pieces.split_first().expect("a word has a piece");
        let Some((last, middle)) = rest.split_last() else { return text == first };
        let Some(mut text) = text.strip_prefix(first.as_str()) else { return false };
        for piece in middle {
            match text.find(piece.as_str()) {
                Some(at) => text = &text[at + piece.len()..],
                None => return false,
            }
        }
        text.ends_with(last.as_str())
    }
}

/// Returns a text that [`CommandPattern`] reads as exactly this word. `None` for a word that would
/// need more than quotes.
pub(super) fn quoted(word: &str) -> Option<String> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,^~#".contains(c);
    match word {
        word if !word.is_empty() && word.chars().all(is_plain) => Some(word.to_owned()),
        word if word.contains(['\'', '\n', '\t']) => None,
        word => Some(format!("'{word}'")),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::shell, *};

    fn command(line: &str) -> ShellCommand {
        let parsed = shell::parse(line, "/workspace").expect(line);
        parsed.commands.into_iter().next().expect("the line has a command")
    }

    #[test]
    fn patterns_match_words() {
        let check = |pattern: &str, line: &str, permits: bool, restricts: PatternMatch| {
            let read = CommandPattern::new(pattern);
            let command = command(line);
            assert_eq!((read.permits(&command), read.restricts(&command)), (permits, restricts), "{pattern}: {line}");
        };
        use PatternMatch::{Maybe, No, Yes};
        check("git push*", "git push", true, Yes);
        check("git push*", "git push origin main", true, Yes);
        check("git push *", "git push", true, Yes);
        check("git push *", "git pushx", false, No);
        check("git push*", "git pull", false, No);
        check("git push", "git push origin", false, No);
        check("git push*", "'git' \"push\" origin", true, Yes);
        check("git push*", "\\git pu's'h", true, Yes);
        check("git push*", "/usr/bin/git push", true, Yes);
        check("git push*", "./git push", false, Yes);
        check("git push*", "/tmp/evil/git push", false, Yes);
        check("git push*", "git -C .. push origin", false, Yes);
        check("git push*", "git -c a=b --no-pager push", false, Yes);
        check("git push*", "git commit -m push", false, No);
        check("git push*", "git $X", false, Maybe);
        check("git push*", "git pu*", false, Maybe);
        check("git push *", "git push $BRANCH", true, Yes);
        check("git push origin", "git $X", false, Maybe);
        check("git * --force", "git push origin --force", true, Yes);
        check("git * --force", "git --force", true, Yes);
        check("git * --force", "git push", false, No);
        check("rm*", "rmdir x", true, Yes);
        check("*", "anything at all", true, Yes);
        check("npm run te*t", "npm run test", true, Yes);
        check("echo 'a b'", "echo \"a b\"", true, Yes);
        check("echo 'a b'", "echo a b", false, No);
        check("echo '*'", "echo x", false, No);
        check("echo \\*", "echo '*'", true, Yes);
        check("a*b*c", "aXbXbYc", true, Yes);
    }

    #[test]
    fn quoted_words_match_themselves() {
        for word in ["a", "a b", "*", "", "x=1", "$HOME", "a\"b", "ü"] {
            let pattern = CommandPattern::new(&format!("echo {}", quoted(word).expect("the word can be quoted")));
            let exact = [ShellWord::fixed("echo"), ShellWord::fixed(word)];
            assert_eq!(pattern.matches(&exact), PatternMatch::Yes, "{word}");
            assert_eq!(pattern.matches(&[ShellWord::fixed("echo"), ShellWord::fixed("other")]), PatternMatch::No);
        }
        assert_eq!(quoted("it's"), None);
    }
}
