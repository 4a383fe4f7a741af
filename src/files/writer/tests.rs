//! Changes while an agent writes too.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
};

use super::*;
use crate::files::tests::plain;

/// Workspace with a writer.
struct WriterFixture {
    dir: tempfile::TempDir,
    tree: WorkspaceTree,
    writer: WorkspaceWriter,
}

impl WriterFixture {
    fn new() -> WriterFixture {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("w")).expect("the workspace is created");
        let tree = WorkspaceTree::open(&dir.path().join("w"), None).expect("the workspace opens");
        let names = TemporaryNames::open(dir.path().join("u")).expect("the directory is created");
        WriterFixture { tree, writer: WorkspaceWriter::new(names, Arc::default()), dir }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("w").join(path)
    }

    fn write(&self, path: &str, new: NewEntry<'_>, check: Option<EntryCheck<'_>>) -> Result<(), FileError> {
        let target = FileTarget { session: SessionId::generate(), path: plain(path) };
        self.writer.write(&self.tree, &target, new, check)
    }

    fn remove(&self, path: &str, check: EntryCheck<'_>) -> Result<(), FileError> {
        let target = FileTarget { session: SessionId::generate(), path: plain(path) };
        self.writer.remove(&self.tree, &target, check)
    }

    /// Checks that no temporary name is left.
    fn leaves_nothing(&self) {
        let names = fs::read_dir(self.at("")).expect("the workspace is readable").flatten();
        let temporary: Vec<_> =
            names.map(|entry| entry.file_name()).filter(|name| name != "a" && name != "b").collect();
        assert!(temporary.is_empty(), "{temporary:?}");
        assert_eq!(fs::read_dir(self.dir.path().join("u")).expect("the records are readable").count(), 0);
    }
}

const NEW: NewEntry<'static> = NewEntry::File { content: b"new", is_executable: false };

fn is_old(entry: &FoundEntry, _: Option<&FoundEntry>) -> bool {
    entry.read(100).is_ok_and(|content| content == b"old")
}

#[test]
fn file_replaces_a_link_and_never_its_target() {
    let fixture = WriterFixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::write(&outside, "outside").expect("the file is written");
    symlink(&outside, fixture.at("link")).expect("the link is created");
    symlink(fixture.dir.path(), fixture.at("dir")).expect("the link is created");
    let executable = NewEntry::File { content: b"new", is_executable: true };
    fixture.write("link", executable, Some(&|_, _| true)).expect("the link is replaced");
    fixture.write("dir/outside", NEW, Some(&|_, _| true)).expect_err("the way is a link");
    fixture.write("dir/other", NewEntry::Link { target: b"x" }, None).expect_err("the way is a link");
    fixture.remove("dir/outside", &|_, _| true).expect_err("the way is a link");
    assert_eq!(fs::read(&outside).expect("the file is there"), b"outside");
    assert_eq!(fs::read(fixture.at("link")).expect("the file is there"), b"new");
    let mode = fs::metadata(fixture.at("link")).expect("the file is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    fixture.write("a/b/c", NEW, None).expect("directories are created");
    fixture.remove("a/b/c", &|_, _| true).expect("the file is removed");
    assert!(!fixture.at("a").exists(), "empty directories are removed");
}

#[test]
fn other_names_of_a_file_keep_the_old_content() {
    let fixture = WriterFixture::new();
    fs::write(fixture.at("b"), "old").expect("the file is written");
    fs::hard_link(fixture.at("b"), fixture.at("a")).expect("the name is added");
    fixture.write("a", NEW, Some(&is_old)).expect("the name is replaced");
    assert_eq!(fs::read(fixture.at("b")).expect("the file is there"), b"old");
    assert_eq!(fs::read(fixture.at("a")).expect("the file is there"), b"new");
    fs::remove_file(fixture.at("a")).expect("the file is removed");
    fs::hard_link(fixture.at("b"), fixture.at("a")).expect("the name is added");
    fixture.remove("a", &is_old).expect("the name is removed");
    assert_eq!(fs::metadata(fixture.at("b")).expect("the file is there").nlink(), 1);
    fixture.leaves_nothing();
}

/// The check of the found entry is the last moment before the change.
#[test]
fn change_after_the_check_is_put_back() {
    type Change = fn(&WriterFixture);
    let in_place: Change = |fixture| fs::write(fixture.at("a"), "theirs").expect("the file is written");
    let by_rename: Change = |fixture| {
        fs::write(fixture.at("b"), "theirs").expect("the file is written");
        fs::rename(fixture.at("b"), fixture.at("a")).expect("the file is moved");
    };
    for change in [in_place, by_rename] {
        let fixture = WriterFixture::new();
        let check = |entry: &FoundEntry, found: Option<&FoundEntry>| {
            let is_old = is_old(entry, found);
            if found.is_none() {
                change(&fixture);
            }
            is_old
        };
        let changed = |result| matches!(result, Err(FileError::ChangedMeanwhile(_)));
        for is_write in [true, false] {
            fs::write(fixture.at("a"), "old").expect("the file is written");
            let done = if is_write { fixture.write("a", NEW, Some(&check)) } else { fixture.remove("a", &check) };
            assert!(changed(done));
            assert_eq!(fs::read(fixture.at("a")).expect("the file is there"), b"theirs");
        }
        fixture.leaves_nothing();
    }
}

#[test]
fn link_or_directory_in_place_of_a_file_stays() {
    let fixture = WriterFixture::new();
    let outside = fixture.dir.path().join("outside");
    fs::write(&outside, "old").expect("the file is written");
    let check = |entry: &FoundEntry, found: Option<&FoundEntry>| {
        let is_old = is_old(entry, found);
        if found.is_none() {
            fs::remove_file(fixture.at("a")).expect("the file is removed");
            fs::create_dir(fixture.at("a")).expect("the directory is created");
            fs::write(fixture.at("a/theirs"), "x").expect("the file is written");
        }
        is_old
    };
    fs::write(fixture.at("a"), "old").expect("the file is written");
    let denied = fixture.write("a", NEW, Some(&check)).expect_err("a directory is no file");
    assert!(matches!(denied, FileError::IsDirectory(_)), "{denied}");
    assert!(fixture.at("a/theirs").exists());
    fs::remove_dir_all(fixture.at("a")).expect("the directory is removed");
    fs::write(fixture.at("a"), "old").expect("the file is written");
    fixture.remove("a", &check).expect_err("a directory is no file");
    assert!(fixture.at("a/theirs").exists());
    fixture.leaves_nothing();
}

#[test]
fn name_that_is_taken_meanwhile_stays() {
    let fixture = WriterFixture::new();
    fs::write(fixture.at("a"), "theirs").expect("the file is written");
    let error = fixture.write("a", NEW, None).expect_err("the name is taken");
    assert!(matches!(error, FileError::ChangedMeanwhile(_)), "{error}");
    let link = NewEntry::Link { target: b"x" };
    fixture.write("a", link, None).expect_err("the name is taken");
    assert_eq!(fs::read(fixture.at("a")).expect("the file is there"), b"theirs");
    fs::remove_file(fixture.at("a")).expect("the file is removed");
    fixture.write("a", link, Some(&is_old)).expect("a removed file makes room");
    fixture.leaves_nothing();
}

#[test]
fn empty_directory_makes_way() {
    let fixture = WriterFixture::new();
    fs::create_dir(fixture.at("a")).expect("the directory is created");
    fixture.write("a", NEW, None).expect("the directory is empty");
    assert!(fixture.at("a").is_file());
    fixture.leaves_nothing();
}

/// Devices, FIFOs and sockets are not opened.
#[test]
fn special_file_stays() {
    let fixture = WriterFixture::new();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.at("a"), Mode::RWXU).expect("a FIFO");
    fixture.write("a", NEW, Some(&is_old)).expect_err("a FIFO has no content");
    fixture.remove("a", &is_old).expect_err("a FIFO has no content");
    assert!(fixture.at("a").exists());
    fixture.leaves_nothing();
}
