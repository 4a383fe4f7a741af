//! Tests of the search on real trees.

use std::os::unix::fs::symlink;

use super::*;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (path, content) in files {
        let file = dir.path().join(path);
        fs::create_dir_all(file.parent().expect("a file has a parent")).expect("a directory");
        fs::write(file, content).expect("the directory is writable");
    }
    dir
}

fn findings(dir: &Path, arguments: Value, stop: &CancellationToken) -> Result<SearchFindings, ToolError> {
    let findings = Mutex::default();
    let arguments = SearchArguments::deserialize(arguments).expect("arguments");
    FileSearch::new(arguments, dir, &findings)?.run(stop)?;
    Ok(findings.into_inner().expect("lock is never poisoned: no holder panics"))
}

fn text(dir: &Path, arguments: Value) -> String {
    findings(dir, arguments, &CancellationToken::new()).expect("the search ends").text()
}

#[track_caller]
fn check(files: &[(&str, &str)], arguments: Value, expected: &str) {
    assert_eq!(text(tree(files).path(), arguments), expected);
}

const SOURCES: [(&str, &str); 6] = [
    (".gitignore", "/target\n*.log\n"),
    (".git/config", "main"),
    (".github/ci.yml", "run: main\n"),
    ("src/main.rs", "fn main() {\r\n    // Main\r\n}\r\n"),
    ("src/a.log", "main\n"),
    ("target/main.rs", "fn main() {}\n"),
];

#[test]
fn text_is_found_outside_ignored_files() {
    check(&SOURCES, json!({ "pattern": "main" }), ".github/ci.yml:1:run: main\nsrc/main.rs:1:fn main() {\n");
    check(
        &SOURCES,
        json!({ "pattern": "(?i)main", "path": "src" }),
        "src/main.rs:1:fn main() {\nsrc/main.rs:2:    // Main\n",
    );
    check(&SOURCES, json!({ "pattern": "^}$", "path": "src/main.rs" }), "src/main.rs:3:}\n");
    check(&SOURCES, json!({ "pattern": "main", "glob": "*.yml" }), ".github/ci.yml:1:run: main\n");
    check(&SOURCES, json!({ "pattern": "main", "glob": "*.rs", "path": "src/main.rs" }), "src/main.rs:1:fn main() {\n");
    check(&SOURCES, json!({ "pattern": "nowhere", "glob": "src/**/*.rs" }), "[No match in 1 files.]\n");
    check(&[("a", "x\n")], json!({ "pattern": "^$" }), "[No match in 1 files.]\n");
    check(&[("a", "\nx")], json!({ "pattern": "^$" }), "a:1:\n");
}

#[test]
fn names_are_found() {
    check(&SOURCES, json!({ "pattern": "main", "names_only": true }), "src/main.rs\n");
    check(&SOURCES, json!({ "pattern": "", "names_only": true, "path": "src" }), "src/main.rs\n");
    check(&[("a\nb", "")], json!({ "pattern": "a", "names_only": true }), "a\u{fffd}b\n");
}

#[test]
fn nested_ignore_files_apply() {
    let files =
        [(".gitignore", "*.txt"), ("a/.gitignore", "!b.txt"), ("a/b.txt", "yes"), ("a/c.txt", "yes"), ("d.txt", "yes")];
    check(&files, json!({ "pattern": "yes" }), "a/b.txt:1:yes\n");
    check(&files, json!({ "pattern": "yes", "path": "a" }), "a/b.txt:1:yes\n");
}

#[test]
fn links_pipes_and_binary_files_are_not_read() {
    let (dir, outside) = (tree(&[("a", "x\0"), ("b", "x\n")]), tree(&[("secret", "x\n")]));
    symlink(outside.path(), dir.path().join("link")).expect("a symlink");
    symlink(outside.path().join("secret"), dir.path().join("file")).expect("a symlink");
    symlink(dir.path(), dir.path().join("circle")).expect("a symlink");
    make_pipe(&dir.path().join("pipe"));
    assert_eq!(text(dir.path(), json!({ "pattern": "x" })), "b:1:x\n");
}

fn make_pipe(path: &Path) {
    rustix::fs::mkfifoat(rustix::fs::CWD, path, rustix::fs::Mode::RWXU).expect("a pipe");
}

#[test]
fn hostile_ignore_files_are_not_read() {
    let dir = tree(&[("a/b", "x"), ("c/.gitignore", &"*\n".repeat(1 << 20)), ("c/d", "x"), ("e/f", "x")]);
    make_pipe(&dir.path().join("a/.gitignore"));
    fs::create_dir(dir.path().join("g")).expect("a directory");
    symlink("/proc/self/pagemap", dir.path().join("g/.gitignore")).expect("a symlink");
    let found = text(dir.path(), json!({ "pattern": "x" }));
    assert_eq!(found, "e/f:1:x\n[Directories without a usable `.gitignore` left out: 3.]\n");
    let inside = findings(dir.path(), json!({ "pattern": "x", "path": "a" }), &CancellationToken::new());
    assert!(matches!(inside, Err(ToolError::Failed(detail)) if detail.contains("is not a file of at most 64 KiB")));
}

#[test]
fn result_is_bounded() {
    let (line, large) = ("x".repeat(SEARCHED_LINE_LIMIT / 2), "x".repeat(FILE_LIMIT as usize + 1));
    check(
        &[("a", &large)],
        json!({ "pattern": "x" }),
        "[No match in 0 files.]\n[Files of more than 4 MiB left out: 1.]\n",
    );
    let files = [("a", format!("{line}needle{line}"))];
    let found =
        text(tree(&files.each_ref().map(|(path, text)| (*path, text.as_str()))).path(), json!({ "pattern": "needle" }));
    assert!(found.len() < 2 * LINE_LIMIT && found.contains("xxneedlexx"), "{found}");
    let many = tree(&[("a", &"match\n".repeat(100_000)), ("b", "match\n")]);
    let found =
        findings(many.path(), json!({ "pattern": "match" }), &CancellationToken::new()).expect("the search ends");
    assert!(found.is_full && found.matches.len() <= TEXT_LIMIT);
    assert_eq!(found.locations, [ToolLocation { path: "a".into(), line: Some(1) }]);
}

#[test]
fn stop_ends_search() {
    let stop = CancellationToken::new();
    stop.cancel();
    let found = findings(tree(&SOURCES).path(), json!({ "pattern": "main" }), &stop).expect("the search ends");
    assert_eq!((found.searched, found.text().as_str()), (0, "[Searched 0 files before the end.]\n"));
}

#[test]
fn invalid_arguments_are_explained() {
    let dir = tree(&[]);
    let check = |arguments: Value, expected: &str| {
        let found = findings(dir.path(), arguments, &CancellationToken::new());
        assert!(matches!(&found, Err(ToolError::Failed(detail)) if detail.contains(expected)), "{found:?}");
    };
    check(json!({ "pattern": "(" }), "`pattern` is not a regular expression");
    check(json!({ "pattern": "x", "glob": "{a" }), "`glob` is not a glob");
    check(json!({ "pattern": "x", "path": "none" }), "`none` cannot be searched: No such file");
    check(json!({ "pattern": "x{1000}{1000}{1000}" }), "`pattern` is not a regular expression");
    let unknown =
        (TOOL.parse)(NAME, json!({ "pattern": "x", "ignore_case": true })).expect_err("the field does not exist");
    assert!(unknown.to_string().contains("unknown field `ignore_case`"), "{unknown}");
}
