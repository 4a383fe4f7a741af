//! Uploads on file systems without nameless files, and what a killed server leaves of them.

use std::{fs, io::Write};

use super::*;
use crate::files::{temporary::sweep, tests::plain};

fn names_and_tree(temp: &tempfile::TempDir) -> (TemporaryNames, WorkspaceTree) {
    let workspace = temp.path().join("workspace");
    fs::create_dir_all(workspace.join("dir")).expect("directories");
    let names = TemporaryNames::open(temp.path().join("uploads")).expect("the directory is created");
    (names, WorkspaceTree::open(&workspace, None).expect("the workspace opens"))
}

/// Begins an upload as on a file system without nameless files.
fn named(names: &TemporaryNames, tree: &WorkspaceTree, path: &str, content: &str) -> IncomingFile {
    let (dir, dir_path) = tree.deepest_dir(&plain(path).parent()).expect("the parent exists");
    let (mut file, temporary) = create_named(tree, names, &dir, &dir_path).expect("the file is created");
    file.write_all(content.as_bytes()).expect("the file is writable");
    IncomingFile { file, path: plain(path), temporary: Some(temporary) }
}

fn count(dir: &std::path::Path) -> usize {
    fs::read_dir(dir).expect("a directory").count()
}

#[test]
fn upload_works_without_nameless_files() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (names, tree) = names_and_tree(&temp);
    let (dir, uploads) = (temp.path().join("workspace/dir"), temp.path().join("uploads"));
    let lock = tokio::sync::Mutex::default();
    for (content, is_new) in [("one", true), ("two", false)] {
        let incoming = named(&names, &tree, "dir/file", content);
        assert_eq!((count(&uploads), fs::read_to_string(dir.join("file")).unwrap_or_default() == content), (1, false));
        let placed = place_all(&tree, &names, vec![incoming], (&WriteCondition::Any, &lock)).expect("it is placed");
        assert_eq!(placed[0].is_new, is_new);
        assert_eq!(fs::read_to_string(dir.join("file")).expect("a file"), content);
        assert_eq!((count(&dir), count(&uploads)), (1, 0), "no temporary name is left");
    }
    drop(named(&names, &tree, "dir/file", "interrupted"));
    let refused = place_all(&tree, &names, vec![named(&names, &tree, "dir/file", "3")], (&WriteCondition::Free, &lock));
    assert!(matches!(refused, Err(FileError::Exists(_))), "{refused:?}");
    assert_eq!((count(&dir), count(&uploads)), (1, 0), "no temporary name is left");
}

#[test]
fn next_server_removes_what_a_killed_one_left() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (names, tree) = names_and_tree(&temp);
    let (dir, uploads) = (temp.path().join("workspace/dir"), temp.path().join("uploads"));
    fs::write(dir.join("kept"), "kept").expect("a file");
    // A killed server runs no destructor.
    std::mem::forget(named(&names, &tree, "dir/file", "half"));
    let removed = tree.locate_dir(&plain("dir")).expect("the directory exists");
    let mut removal = names.reserve(&tree, &removed, &plain("dir")).expect("the record is written");
    fs::create_dir_all(dir.join(removal.name()).join("deep/er")).expect("directories");
    removal.put_in_use();
    std::mem::forget(removal);
    let mut elsewhere = names.reserve(&tree, &removed, &plain("gone")).expect("the record is written");
    elsewhere.put_in_use();
    std::mem::forget(elsewhere);
    fs::write(uploads.join("incomplete"), "/tmp").expect("a record");
    fs::write(uploads.join("foreign"), format!("{}\0dir\0kept", temp.path().join("workspace").display()))
        .expect("a record");
    assert_eq!((count(&dir), count(&uploads)), (3, 5));
    for record in fs::read_dir(&uploads).expect("a directory").flatten() {
        sweep(&record.path());
    }
    assert_eq!((count(&dir), count(&uploads)), (1, 0));
    assert_eq!(fs::read_to_string(dir.join("kept")).expect("a file"), "kept");
}
