//! Language rules of the project's own code: doc comments, comment width, type names and the words
//! of the glossary.
//!
//! Reads all Rust and TypeScript sources, tests included, and `docs/glossary.md`. Each failure
//! names the line and the way out. [`ALLOWED`] lists the findings that later work removes; a count
//! there may only fall.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// Words that must not open a doc comment.
const BAD_OPENERS: [&str; 28] = [
    "It",
    "What",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Whether",
    "How",
    "Where",
    "When",
    "One",
    "Of",
    "That",
    "Those",
    "These",
    "Nobody",
    "Somebody",
    "Nothing",
    "All",
    "Which",
    "Why",
    "So",
    "As",
    "Whatever",
    "Whichever",
    "They",
    "There",
    "Anything",
];

/// Columns that a comment line may have.
const COMMENT_WIDTH: usize = 100;

/// Directories with first-party sources, relative to the workspace's root.
const SOURCES: [&str; 8] = ["src", "agent", "tests", "benches", "xtask", "static/src", "static/test", "static/dev"];

/// Directories below [`SOURCES`] with generated or foreign files.
const SKIPPED: [&str; 5] = ["node_modules", "dist", "target", "fixtures", "generated"];

/// Findings a room may still have: (rule, path prefix, count).
const ALLOWED: [(Rule, &str, usize); 0] = [];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    Opener,
    Width,
    TypeName,
    Word,
}

/// Broken rule at one place.
#[derive(Debug)]
struct Finding {
    rule: Rule,
    path: String,
    text: String,
}

#[test]
fn first_party_sources_keep_the_language_rules() {
    let sources = read_sources();
    assert!(sources.len() > 300, "only {} sources were found below {SOURCES:?}", sources.len());
    let glossary = BannedWords::read(&read(&root().join("docs/glossary.md")));
    let mut findings: Vec<Finding> = sources.iter().flat_map(|source| source.findings(&glossary)).collect();
    findings.extend(repeated_type_names(&sources));
    report(&findings);
}

/// Panics if a room has more findings of a rule than [`ALLOWED`] grants it, or fewer (then the
/// count falls).
fn report(findings: &[Finding]) {
    let mut text = String::new();
    let mut allowed: BTreeMap<(Rule, &str), (usize, usize)> = BTreeMap::new();
    for (rule, room, count) in ALLOWED {
        allowed.insert((rule, room), (count, 0));
    }
    for finding in findings {
        let granted =
            allowed.iter_mut().find(|((rule, room), _)| *rule == finding.rule && finding.path.starts_with(room));
        match granted {
            Some((_, (count, seen))) => {
                *seen += 1;
                if *seen > *count {
                    let _ = writeln!(text, "  {}", finding.text);
                }
            }
            None => {
                let _ = writeln!(text, "  {}", finding.text);
            }
        }
    }
    for ((rule, room), (count, seen)) in allowed {
        if seen < count {
            let _ = writeln!(
                text,
                "  {room}: {seen} findings of {rule:?} are left; lower its count in ALLOWED from {count}"
            );
        }
    }
    assert!(text.is_empty(), "the sources break rules of docs/glossary.md and tests/prose.rs:\n{text}");
}

/// Words that `docs/glossary.md` bans.
#[derive(Debug, Default)]
struct BannedWords {
    /// Banned as whole identifiers, in lower case, with the term to use.
    identifiers: BTreeMap<String, String>,
    /// Banned in comments too, in lower case, with the term to use.
    text: BTreeMap<String, String>,
}

impl BannedWords {
    /// Reads the table rows `| term | meaning | not used | banned identifiers | banned in text |`.
    fn read(glossary: &str) -> BannedWords {
        let mut words = BannedWords::default();
        for line in glossary.lines().filter(|line| line.starts_with('|')) {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [term, _, _, identifiers, text] = cells[..] else { continue };
            let take = |cell: &str, into: &mut BTreeMap<String, String>| {
                let quoted = cell.split('`').skip(1).step_by(2);
                into.extend(quoted.map(|word| (word.to_lowercase(), term.to_owned())));
            };
            take(identifiers, &mut words.identifiers);
            take(text, &mut words.text);
        }
        words
    }
}

/// Source file, with its path relative to the workspace's root.
struct Source {
    path: String,
    lines: Vec<Line>,
}

/// Source line, split into code (without strings) and comment.
#[derive(Debug, Default)]
struct Line {
    code: String,
    comment: String,
    width: usize,
    /// Column-independent start of the line, to recognise doc comments.
    trimmed: String,
}

impl Source {
    fn findings(&self, banned: &BannedWords) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut add = |rule, number: usize, text: String| {
            let text = format!("{}:{}: {text}", self.path, number + 1);
            findings.push(Finding { rule, path: self.path.clone(), text });
        };
        let mut in_doc = false;
        for (number, line) in self.lines.iter().enumerate() {
            let doc = doc_text(&line.trimmed);
            if let Some(text) = doc
                && !in_doc
                && let Some(word) = text.split(|c: char| !c.is_alphabetic()).next()
                && BAD_OPENERS.contains(&word)
            {
                add(
                    Rule::Opener,
                    number,
                    format!("a doc comment opens with `{word}`; open with a verb (`Returns …`) or a noun"),
                );
            }
            // An empty first line does not begin the text of a block.
            in_doc = doc.is_some_and(|text| in_doc || !text.is_empty());
            if !line.comment.is_empty() && line.code.trim().is_empty() && line.width > COMMENT_WIDTH {
                add(
                    Rule::Width,
                    number,
                    format!("a comment line has {} columns; wrap it at {COMMENT_WIDTH}", line.width),
                );
            }
            for word in words(&line.code) {
                if let Some(term) = banned.identifiers.get(&word.to_lowercase()) {
                    add(
                        Rule::Word,
                        number,
                        format!("`{word}` is not used as a name; see `{term}` in docs/glossary.md"),
                    );
                }
            }
            for word in words(&line.comment) {
                if let Some(term) = banned.text.get(&word.to_lowercase()) {
                    add(Rule::Word, number, format!("a comment says `{word}`; see `{term}` in docs/glossary.md"));
                }
            }
        }
        findings
    }

    /// Names of the types that the file declares.
    fn type_names(&self) -> BTreeSet<&str> {
        self.lines.iter().filter_map(|line| declared_type(&line.code, self.is_typescript())).collect()
    }

    fn is_typescript(&self) -> bool {
        !self.path.ends_with(".rs")
    }
}

/// Type names that more than one file of a language declares.
fn repeated_type_names(sources: &[Source]) -> Vec<Finding> {
    let mut files: BTreeMap<(bool, &str), Vec<&str>> = BTreeMap::new();
    for source in sources {
        for name in source.type_names() {
            files.entry((source.is_typescript(), name)).or_default().push(&source.path);
        }
    }
    let repeated = files.into_iter().filter(|(_, files)| files.len() > 1);
    let findings = repeated.map(|((_, name), files)| Finding {
        rule: Rule::TypeName,
        path: files[0].to_owned(),
        text: format!("type `{name}` is declared in {}; give each a name of its own", files.join(", ")),
    });
    findings.collect()
}

/// Text of a line of a doc comment: after `///`, `//!` or `/**`, or after the `*` of a block that
/// goes on.
fn doc_text(trimmed: &str) -> Option<&str> {
    let text = ["///", "//!", "/**"].iter().find_map(|mark| trimmed.strip_prefix(mark));
    text.or_else(|| trimmed.strip_prefix("* ")).map(|text| text.trim().trim_end_matches("*/"))
}

fn declared_type(code: &str, typescript: bool) -> Option<&str> {
    let (prefixes, keywords): (&[&str], &[&str]) = if typescript {
        (&["export", "default", "declare", "abstract"], &["interface", "class", "enum", "type"])
    } else {
        (&["pub", "unsafe"], &["struct", "enum", "trait", "union"])
    };
    let mut words = code.split_whitespace().map(|word| word.split('(').next().unwrap_or_default());
    let mut word = words.next()?;
    while prefixes.contains(&word) {
        word = words.next()?;
        // `pub(in path)` leaves the path behind.
        if word.ends_with(')') {
            word = words.next()?;
        }
    }
    if !keywords.contains(&word) {
        return None;
    }
    let keyword_end = code.find(&format!("{word} "))? + word.len();
    let name = code[keyword_end..].trim_start();
    let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(name.len());
    // A TypeScript alias is `type Name =`; anything else is an import or a field named `type`.
    let alias = word != "type" || name[end..].trim_start().starts_with(['=', '<']);
    (end > 0 && alias).then(|| &name[..end])
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// Splits a source into lines of code and comment. Strings and character literals are left out of
/// both.
fn split(text: &str, typescript: bool) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut state = Scan::Code;
    for raw in text.lines() {
        let mut line = Line { width: raw.chars().count(), trimmed: raw.trim().to_owned(), ..Line::default() };
        let chars: Vec<char> = raw.chars().collect();
        let mut at = 0;
        while at < chars.len() {
            let rest = &chars[at..];
            at += state.step(rest, &mut line, typescript);
        }
        // Only raw strings, templates, escaped strings and block comments go on in the next line.
        if let Scan::Text { end: '\'', .. } = state {
            state = Scan::Code;
        }
        lines.push(line);
    }
    lines
}

/// State of the scanner between two characters.
enum Scan {
    Code,
    Block,
    /// Inside a literal that ends with this character and this many `#`.
    Text {
        end: char,
        hashes: usize,
        raw: bool,
    },
}

impl Scan {
    /// Takes the next characters into the line, and returns their number.
    fn step(&mut self, rest: &[char], line: &mut Line, typescript: bool) -> usize {
        let starts = |mark: &str| mark.chars().zip(rest).filter(|(a, b)| a == *b).count() == mark.chars().count();
        match *self {
            Scan::Block if starts("*/") => {
                *self = Scan::Code;
                2
            }
            Scan::Block => {
                line.comment.push(rest[0]);
                1
            }
            Scan::Text { raw: false, .. } if rest[0] == '\\' => 2,
            Scan::Text { end, hashes, .. }
                if rest[0] == end && rest[1..].iter().take_while(|c| **c == '#').count() >= hashes =>
            {
                *self = Scan::Code;
                1 + hashes
            }
            Scan::Text { .. } => 1,
            Scan::Code if starts("//") => {
                line.comment.extend(rest.iter().skip(2));
                rest.len()
            }
            Scan::Code if starts("/*") => {
                line.comment.push(' ');
                *self = Scan::Block;
                2
            }
            Scan::Code => self.step_code(rest, line, typescript),
        }
    }

    fn step_code(&mut self, rest: &[char], line: &mut Line, typescript: bool) -> usize {
        let after_word = line.code.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        match rest[0] {
            'r' if !typescript && !after_word => {
                let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
                if rest.get(1 + hashes) == Some(&'"') {
                    *self = Scan::Text { end: '"', hashes, raw: true };
                    return 2 + hashes;
                }
            }
            '"' => *self = Scan::Text { end: '"', hashes: 0, raw: false },
            '`' if typescript => *self = Scan::Text { end: '`', hashes: 0, raw: false },
            '\'' if typescript => *self = Scan::Text { end: '\'', hashes: 0, raw: false },
            // A character literal; otherwise a lifetime.
            '\'' if rest.get(1) == Some(&'\\') || rest.get(2) == Some(&'\'') => {
                *self = Scan::Text { end: '\'', hashes: 0, raw: false };
                if rest.get(1) == Some(&'\'') {
                    return 1;
                }
            }
            other => line.code.push(other),
        }
        1
    }
}

fn read_sources() -> Vec<Source> {
    let mut paths = Vec::new();
    SOURCES.iter().for_each(|dir| collect(&root().join(dir), &mut paths));
    paths.sort();
    let sources = paths.into_iter().map(|path| {
        let text = read(&path);
        let path = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
        let lines = split(&text, !path.ends_with(".rs"));
        Source { path, lines }
    });
    sources.collect()
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("`{}`: {e}", dir.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !SKIPPED.iter().any(|skipped| name.starts_with(skipped)) {
            collect(&path, found);
        } else if path.is_file() && [".rs", ".ts", ".tsx", ".mjs"].iter().any(|end| name.ends_with(end)) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn code_comments_and_strings_are_told_apart() {
    let check = |text: &str, code: &str, comment: &str| {
        let line = split(text, false).pop().expect("a line");
        assert_eq!((line.code.trim(), line.comment.trim()), (code, comment), "{text}");
    };
    check(r#"let a = "wish // no"; // thaw"#, "let a = ;", "thaw");
    check(r##"let a = r#"a "quoted" wish"#; b"##, "let a = ; b", "");
    check("fn f<'a>(c: char) { c == 'x' || c == '\\'' }", "fn f<'a>(c: char) { c ==  || c ==  }", "");
    check("a /* block */ b", "a  b", "block");
    check("let a = \"\n  // in a string\n\"; b", "; b", "");
}

#[test]
fn findings_name_the_line() {
    let glossary = BannedWords::read("| request | asked for | wish | `wish` | `wish` |\n| a | b |");
    let check = |text: &str, expected: &[Rule]| {
        let source = Source { path: "src/a.rs".to_owned(), lines: split(text, false) };
        let rules: Vec<Rule> = source.findings(&glossary).iter().map(|finding| finding.rule).collect();
        assert_eq!(rules, expected, "{text}");
    };
    check("/// What it is.\nstruct A;", &[Rule::Opener]);
    check("/// Limit of a queue.\n/// What follows may open so.\nstruct A;", &[]);
    check("let wish = 1; // a wish", &[Rule::Word, Rule::Word]);
    check("let wishes = \"wish\";", &[]);
    check(&format!("// {}", "x".repeat(98)), &[Rule::Width]);
}

#[test]
fn declared_types_are_found() {
    let check = |code: &str, typescript, expected| assert_eq!(declared_type(code, typescript), expected, "{code}");
    check("pub(crate) struct Frame<'a> {", false, Some("Frame"));
    check("enum State {", false, Some("State"));
    check("let structure = 1;", false, None);
    check("pub(in crate::store) trait Log: Send {", false, Some("Log"));
    check("export type Row = { id: string };", true, Some("Row"));
    check("export interface Row {", true, Some("Row"));
    check("  type: string;", true, None);
}
