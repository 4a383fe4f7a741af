//! Layer order of the modules of `src/`, and fences around third-party crates. Reads the sources.
//!
//! A module imports only from layers below its own. The rule keeps a session free of HTTP, Docker
//! and clocks, and every part small enough to be read alone.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Layers, lowest first. Modules of one layer do not import each other; the lowest layer is exempt.
const LAYERS: [&[&str]; 12] = [
    &["config", "telemetry", "actor_registry", "api_schema", "clock", "data", "allocator", "net", "terminal"],
    &["store", "sandbox", "gateway", "approvals"],
    &["session", "files"],
    &["checkpoints", "repositories"],
    &["frontend", "link"],
    &["directory"],
    &["sweeper"],
    &["web"],
    &["server"],
    &["cli", "doctor", "transfer"],
    &["lib"],
    &["main"],
];

/// Order of the modules inside a room, lowest first, one room a line.
///
/// Modules between two `<` do not import each other. The room's own file (`mod.rs`) and its `tests`
/// are above all others.
#[rustfmt::skip]
const INNER_LAYERS: &[(&str, &str)] = &[
    ("session", "effect loops policy request_error reviews spending title usage view < budget names transition < broadcast latest turn < journal_quota messages render < pending < actor < commit decide < approvals client_input < captures handlers plan reports repository restart terminals user_calls < fork request < testkit"),
    ("web", "assets wrong_tokens tickets < auth < shell < error < route_table search < request state < client_facts < sign_in event_reads event_stream middleware < routes < openapi"),
];

/// Only file that may register routes. It keeps router and OpenAPI document equal.
const ROUTE_TABLE: &str = "web/route_table.rs";

/// Allowed imports from the same layer: (importer, imported path).
const EXCEPTIONS: [(&str, &str); 2] = [("sandbox", "store::SessionId"), ("gateway", "store::SessionId")];

/// Crates with the only directory that may name each.
const FENCES: [(&str, &str); 9] = [
    ("bollard", "sandbox/docker"),
    ("greenroom_jailer", "sandbox"),
    ("sled", "store/local"),
    ("actix_web_actors", "frontend"),
    ("actix_http", "net"),
    ("actix_codec", "net"),
    ("actix_service", "net"),
    ("mimalloc", "allocator"),
    ("libmimalloc_sys", "allocator"),
];

/// Driver modules with the port that alone may name each. Tests may name all of them.
const DRIVERS: [(&str, &str); 2] = [("store::local", "store"), ("store::in_memory", "store")];

#[test]
fn modules_import_only_from_layers_below() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let importer = module_of(&path);
        let own = layer_of(&importer);
        for imported in imports(&source) {
            let module = imported.split("::").next().unwrap_or_default().to_owned();
            let below = layer_of(&module) < own || (own == 0 && layer_of(&module) == 0);
            let excepted = EXCEPTIONS.iter().any(|(who, what)| *who == importer && *what == imported);
            if module != importer && !below && !excepted {
                wrong.push(format!("src/{}: `crate::{imported}`", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these imports go sideways or up:\n  {}\nMove what is shared to a lower layer, or pass it in from above (a trait \
         here, its implementation there). The order is LAYERS in tests/layers.rs",
        wrong.join("\n  ")
    );
}

#[test]
fn modules_of_a_room_import_only_from_modules_below() {
    let mut wrong = Vec::new();
    for (room, order) in INNER_LAYERS {
        let layers: Vec<Vec<&str>> = order.split(" < ").map(|layer| layer.split(' ').collect()).collect();
        let layer_of = |module: &str| layers.iter().position(|layer| layer.contains(&module));
        for (path, source) in sources().into_iter().filter(|(path, _)| module_of(path) == *room) {
            let Some(importer) = inner_module_of(&path) else { continue };
            let own = layer_of(&importer).unwrap_or_else(|| {
                panic!("`{room}::{importer}` has no place yet: add it to INNER_LAYERS in tests/layers.rs, as low as it can be")
            });
            for imported in imports(&with_absolute_paths(&path, without_inline_tests(&source))) {
                let Some(module) = imported.strip_prefix(room).and_then(|rest| rest.strip_prefix("::")) else {
                    continue;
                };
                // A name without a layer is an item of the room's own file.
                if module != importer && layer_of(module).is_none_or(|layer| layer >= own) {
                    wrong.push(format!("src/{}: `{imported}`", path.display()));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these imports inside a room go sideways or up:\n  {}\nMove what is shared to a lower module. The order is \
         INNER_LAYERS in tests/layers.rs",
        wrong.join("\n  ")
    );
}

#[test]
fn drivers_are_named_only_behind_their_ports() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
        let product = without_inline_tests(&source);
        for (driver, port) in DRIVERS {
            if !is_test && module_of(&path) != port && imports(product).contains(driver) {
                wrong.push(format!("src/{}: `crate::{driver}`", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these files name a driver:\n  {}\nOpen it with a function of the port, such as `store::open`",
        wrong.join("\n  ")
    );
}

#[test]
fn only_the_route_table_registers_routes() {
    let registers = |source: &str| source.contains(".service(") || source.contains(".route(");
    let found = sources().into_iter().filter(|(path, source)| registers(source) && path != Path::new(ROUTE_TABLE));
    let wrong: Vec<String> = found.map(|(path, _)| format!("src/{}", path.display())).collect();
    assert!(
        wrong.is_empty(),
        "these files register routes past src/{ROUTE_TABLE}:\n  {}\nA route of the API is an entry of \
         `documented_routes!` in its module; any other route is marked with `RouteTable::undocumented`",
        wrong.join("\n  ")
    );
}

#[test]
fn third_party_crates_stay_behind_their_ports() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        for (name, home) in FENCES {
            if names_crate(&source, name) && !path.to_string_lossy().starts_with(home) {
                wrong.push(format!("src/{}: `{name}` belongs to src/{home} alone", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "\n  {}\nAdd a method or a type to the port in that directory's parent, and use that",
        wrong.join("\n  ")
    );
}

/// Returns every source file of the server, by its path below `src/`, without comments.
fn sources() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&src, &mut found);
    let sources = found.into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("`{}`: {e}", path.display()));
        let below = path.strip_prefix(&src).expect("files were collected below `src/`").to_path_buf();
        (below, without_comments(&text))
    });
    sources.collect()
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("`{}`: {e}", dir.display()));
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the top-level module of a file: `session` for `session/turn/rules.rs` and `session.rs`.
fn module_of(path: &Path) -> String {
    let first = path.iter().next().expect("a path below src/").to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

fn layer_of(module: &str) -> usize {
    LAYERS.iter().position(|layer| layer.contains(&module)).unwrap_or_else(|| {
        panic!("module `{module}` has no place yet: add it to LAYERS in tests/layers.rs, as low as it can be")
    })
}

/// Returns the module of a file inside its room: `turn` for `session/turn/rules.rs`.
///
/// `None` for the room's own file, and for tests of any module.
fn inner_module_of(path: &Path) -> Option<String> {
    let name = path.iter().nth(1)?.to_string_lossy().trim_end_matches(".rs").to_owned();
    let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
    (name != "mod" && !is_test).then_some(name)
}

/// Replaces `super::` at the start of a path by the path that it stands for in this file.
fn with_absolute_paths(path: &Path, source: &str) -> String {
    let parts = path.iter().map(|part| part.to_string_lossy().trim_end_matches(".rs").to_owned());
    let own: Vec<String> = parts.filter(|part| part != "mod").collect();
    let mut text = String::new();
    let mut rest = source;
    while let Some(at) = rest.find("super::") {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let mut ancestors = own.as_slice();
        while let (Some(after), Some((_, parent))) = (rest.strip_prefix("super::"), ancestors.split_last()) {
            (rest, ancestors) = (after, parent);
        }
        let ancestors = ancestors.iter().flat_map(|part| [part.as_str(), "::"]);
        text.extend(["crate::"].into_iter().chain(ancestors));
    }
    text + rest
}

/// Returns the source up to its inline tests, in which `super` means the module itself.
fn without_inline_tests(source: &str) -> &str {
    source.split("\nmod tests {").next().unwrap_or_default()
}

fn without_comments(source: &str) -> String {
    source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// Returns the paths that a file imports from its own crate, two names deep.
///
/// `store::SessionId` for `use crate::{store::SessionId, …}`, and for a path in code.
fn imports(source: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in source.match_indices("crate::") {
        let preceded = source[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
        if !preceded {
            take(&source[at + "crate::".len()..], "", &mut found);
        }
    }
    found
}

/// Adds one path, or each path of a group, two names deep.
fn take(text: &str, prefix: &str, found: &mut BTreeSet<String>) {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        parts(group).into_iter().for_each(|part| take(part, prefix, found));
        return;
    }
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() {
        return;
    }
    match (prefix, rest.strip_prefix("::")) {
        ("", Some(rest)) => take(rest, name, found),
        ("", None) => drop(found.insert(name.to_owned())),
        (prefix, _) if name == "self" => drop(found.insert(prefix.to_owned())),
        (prefix, _) => drop(found.insert(format!("{prefix}::{name}"))),
    }
}

/// Returns the comma-separated parts of a group, up to its closing brace.
fn parts(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut parts) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[from..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts
}

fn names_crate(source: &str, name: &str) -> bool {
    source.match_indices(name).any(|(at, _)| {
        let before = source[..at].chars().next_back();
        let free = before.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == ':' || c == '"'));
        free && (source[at + name.len()..].starts_with("::") || source[..at].ends_with("use "))
    })
}

#[test]
fn imports_are_read() {
    let check = |source: &str, expected: &[&str]| {
        let found: Vec<String> = imports(&without_comments(source)).into_iter().collect();
        assert_eq!(found, expected, "{source}");
    };
    check("use crate::store::SessionId;", &["store::SessionId"]);
    check("use crate::{\n    clock,\n    store::{Seq, local::Local},\n};", &["clock", "store::Seq", "store::local"]);
    check("fn f() { crate::clock::now() } // crate::web::x", &["clock::now"]);
    check("use greenroom_crate::web;", &[]);
    check("use crate::session::{self, Turn};", &["session", "session::Turn"]);
    check("pub(crate) fn f() {}", &[]);
}

#[test]
fn relative_paths_are_resolved() {
    let check = |path: &str, source: &str, expected: &str| {
        assert_eq!(with_absolute_paths(Path::new(path), source), expected, "{path}");
    };
    check("web/error.rs", "use super::{auth, state};", "use crate::web::{auth, state};");
    check("web/routes/page.rs", "use super::super::error;", "use crate::web::error;");
    check("web/routes/mod.rs", "super::error::f(); super::auth::g()", "crate::web::error::f(); crate::web::auth::g()");
    check("session/turn/rules.rs", "use super::*;", "use crate::session::turn::*;");
    assert_eq!(inner_module_of(Path::new("web/routes/page.rs")).as_deref(), Some("routes"));
    assert_eq!(inner_module_of(Path::new("web/tests/fixture.rs")), None);
    assert_eq!(inner_module_of(Path::new("session/turn/tests.rs")), None);
    assert_eq!(inner_module_of(Path::new("session.rs")), None);
}

#[test]
fn crates_are_recognised() {
    assert!(names_crate("use sled;", "sled"));
    assert!(names_crate("let db = sled::open(path);", "sled"));
    assert!(!names_crate("let tousled = 1; \"sled::\"", "sled"));
}
