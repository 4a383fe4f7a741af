//! Pages of directories and searches.

use std::{fs, os::unix::fs::symlink};

use super::*;
use crate::files::{
    entry::FileKind,
    tests::{FilesFixture, make_fifo, plain},
};

/// Returns the paths of all pages, and checks their size and order.
async fn all_pages(fixture: &FilesFixture, directory: &str, recursive: bool, q: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let pattern = Some(q).filter(|q| !q.is_empty()).map(|q| NamePattern::parse(q).expect("a pattern"));
        let query = FileQuery { directory: plain(directory), recursive, pattern, cursor: cursor.take(), limit };
        let page = fixture.files.list(fixture.session, query).await.expect("a page");
        assert!(page.entries.len() <= limit, "{}", page.entries.len());
        found.extend(page.entries.into_iter().map(|entry| entry.path));
        match page.next_cursor {
            // As the client sends it back.
            Some(last) => {
                let text = percent_encoding::percent_encode(last.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
                cursor = FileQuery::parse_cursor(&text.to_string());
                assert_eq!(cursor, Some(last));
            }
            None => return found,
        }
    }
}

#[tokio::test]
async fn entries_are_described() {
    let fixture = FilesFixture::new();
    fs::create_dir(fixture.dir.join("dir")).expect("a directory");
    fs::write(fixture.dir.join(".run"), "four").expect("a file");
    fs::set_permissions(fixture.dir.join(".run"), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("an own file");
    symlink("/etc/passwd", fixture.dir.join("link")).expect("a link");
    make_fifo(&fixture.dir.join("pipe"));
    let page = fixture.files.list(fixture.session, FileQuery { limit: 9, ..FileQuery::default() }).await;
    let entries = page.expect("a page").entries;
    let facts: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.bytes)).collect();
    let expected = [
        (".run", FileKind::File, 4),
        ("dir", FileKind::Directory, 0),
        ("link", FileKind::Link, 0),
        ("pipe", FileKind::Other, 0),
    ];
    assert_eq!(facts, expected);
    assert!(entries[0].executable && entries[0].hidden && entries[0].etag.is_some());
    assert!(!entries[1].executable && !entries[1].hidden && entries[1].etag.is_none());
    assert!(entries.iter().all(|entry| entry.modified.as_deref().is_some_and(|time| time.ends_with('Z'))));
    for (path, part) in [("link", "is not a directory"), (".run", "is not a directory"), ("none", "there is no")] {
        for recursive in [false, true] {
            let query = FileQuery { directory: plain(path), recursive, limit: 9, ..FileQuery::default() };
            let error = fixture.files.list(fixture.session, query).await.expect_err(path).to_string();
            assert!(error.contains(part), "{error}");
        }
    }
    let unborn = "01J00000000000000000000001".parse().expect("an id");
    let page = fixture.files.list(unborn, FileQuery { limit: 9, ..FileQuery::default() }).await;
    assert!(page.expect("a session without workspace has no files").entries.is_empty());
}

#[tokio::test]
async fn pages_of_any_size_have_each_entry_once_in_order() {
    let fixture = FilesFixture::new();
    let mut expected: Vec<InnerPath> = Vec::new();
    for dir in ["", "a", "a/b", "a-b", "z/y/x"] {
        fs::create_dir_all(fixture.dir.join(dir)).expect("directories");
        for name in ["1.rs", "B.TXT", "c.txt", ".hidden"] {
            fs::write(fixture.dir.join(dir).join(name), "").expect("a file");
            expected.push(plain(dir).join(name.as_bytes()).expect("a path"));
        }
    }
    expected.extend(["a", "a/b", "a-b", "z", "z/y", "z/y/x"].map(plain));
    // A directory before its entries: by parts, not by text.
    expected.sort_by(|one, two| one.parts_below(&plain("")).cmp(&two.parts_below(&plain(""))));
    let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
    for limit in [1, 2, 3, 7, 1000] {
        assert_eq!(all_pages(&fixture, "", true, "", limit).await, expected, "limit {limit}");
        assert_eq!(
            all_pages(&fixture, "a", false, "", limit).await,
            ["a/.hidden", "a/1.rs", "a/B.TXT", "a/b", "a/c.txt"]
        );
    }
    let check = async |directory: &str, recursive, q: &str, count: usize| {
        let found = all_pages(&fixture, directory, recursive, q, 2).await;
        assert_eq!(found.len(), count, "{directory} {recursive} {q}: {found:?}");
    };
    check("", true, "*.txt", 10).await;
    check("", false, "*.txt", 2).await;
    check("", true, "TXT", 10).await;
    check("", true, "a/*.rs", 1).await;
    check("", true, "**/b/*.rs", 1).await;
    check("", true, "z/y/", 5).await;
    check("a", true, "b/*.rs", 1).await;
    check("", true, "{1,c}.*", 10).await;
    check("", true, "nothing", 0).await;
    for invalid in ["[", "{a", &"*".repeat(257)] {
        let error = NamePattern::parse(invalid).expect_err(invalid).to_string();
        assert!(error.starts_with("`q` "), "{error}");
    }
}

#[tokio::test]
async fn search_goes_on_when_its_last_entry_is_gone() {
    let fixture = FilesFixture::new();
    for path in ["a/1", "a/2", "b/1", "c"] {
        fs::create_dir_all(fixture.dir.join(path)).expect("directories");
    }
    let query = |cursor| FileQuery { recursive: true, cursor, limit: 2, ..FileQuery::default() };
    let first = fixture.files.list(fixture.session, query(None)).await.expect("a page");
    assert_eq!(first.next_cursor, Some(plain("a/1")));
    fs::remove_dir_all(fixture.dir.join("a")).expect("an own directory");
    let second = fixture.files.list(fixture.session, query(first.next_cursor)).await.expect("a page");
    let paths: Vec<_> = second.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(paths, ["b", "b/1"]);
}

/// Lists a directory with `count` entries, page by page and in a search.
async fn list_large_directory(count: usize) {
    let fixture = FilesFixture::new();
    fs::create_dir(fixture.dir.join("many")).expect("a directory");
    for n in 0..count {
        fs::File::create(fixture.dir.join(format!("many/{n:07}"))).expect("a file");
    }
    let query = |cursor: Option<usize>, limit| FileQuery {
        directory: plain("many"),
        cursor: cursor.map(|n| plain(&format!("many/{n:07}"))),
        limit,
        ..FileQuery::default()
    };
    for from in [0, count / 2, count - 1000] {
        let after = from.checked_sub(1);
        let page = fixture.files.list(fixture.session, query(after, 1000)).await.expect("a page");
        let names: Vec<_> = page.entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names, (from..from + 1000).map(|n| format!("{n:07}")).collect::<Vec<_>>());
        assert_eq!(page.next_cursor.is_none(), from + 1000 == count);
    }
    let found = all_pages(&fixture, "", true, "*99999", 1000).await;
    assert_eq!(found.len(), count / 100_000, "{found:?}");
}

#[tokio::test]
async fn large_directory_is_listed_page_by_page() {
    list_large_directory(100_000).await;
}

#[tokio::test]
async fn million_entries_are_listed_page_by_page() {
    list_large_directory(1_000_000).await;
}
