//! Uploads, downloads and changes in a workspace with a hostile agent.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
};

use rustix::fs::{FileType, Mode};

use super::*;

/// Files of one session, in a temporary directory.
pub(super) struct FilesFixture {
    pub files: WorkspaceFiles,
    pub session: SessionId,
    /// Workspace of the session.
    pub dir: PathBuf,
    temp: tempfile::TempDir,
}

impl FilesFixture {
    pub(super) fn new() -> FilesFixture {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let dirs = WorkspaceDirs { root: temp.path().join("workspaces"), shared: None, uid, gid };
        let session: SessionId = "01J00000000000000000000000".parse().expect("an id");
        let dir = dirs.dir_of(session).expect("the workspace is created");
        let files = WorkspaceFiles::open(dirs, temp.path().join("uploads")).expect("the directory is created");
        FilesFixture { files, session, dir, temp }
    }

    pub(super) fn target(&self, path: &str) -> FileTarget {
        FileTarget { session: self.session, path: plain(path) }
    }

    async fn incoming(&self, path: &str, content: &str) -> Result<IncomingFile, FileError> {
        let incoming = self.files.receive(self.target(path)).await?;
        incoming.writer().expect("a descriptor").write_all(content.as_bytes()).expect("the file is writable");
        Ok(incoming)
    }

    async fn put(&self, path: &str, content: &str, condition: WriteCondition) -> Result<PlacedFile, FileError> {
        let incoming = self.incoming(path, content).await?;
        let placed = self.files.place(self.session, vec![incoming], condition).await?;
        Ok(placed.into_iter().next().expect("one file"))
    }

    async fn put_all(&self, files: &[(&str, &str)]) -> Result<Vec<PlacedFile>, FileError> {
        let mut incoming = Vec::new();
        for (path, content) in files {
            incoming.push(self.incoming(path, content).await?);
        }
        self.files.place(self.session, incoming, WriteCondition::Any).await
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.dir.join(path)).expect("the file is text")
    }

    /// Returns all paths of the workspace, sorted.
    fn all_paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![self.dir.clone()];
        while let Some(dir) = left.pop() {
            for entry in fs::read_dir(dir).expect("a directory").flatten() {
                found.push(entry.path().strip_prefix(&self.dir).expect("below").to_string_lossy().into_owned());
                if entry.file_type().expect("a type").is_dir() {
                    left.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }

    fn records(&self) -> usize {
        fs::read_dir(self.temp.path().join("uploads")).expect("a directory").count()
    }
}

pub(super) fn plain(path: &str) -> InnerPath {
    InnerPath::parse_or_root(path, PathForm::Plain).expect("a valid path")
}

pub(super) fn make_fifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
}

#[tokio::test]
async fn upload_is_atomic_and_obeys_condition() {
    let fixture = FilesFixture::new();
    let draft = fixture.incoming("a/b/c", "half").await.expect("the upload begins");
    assert_eq!(fixture.all_paths(), Vec::<String>::new(), "an upload in progress is invisible");
    drop(draft);
    assert_eq!(fixture.all_paths(), Vec::<String>::new(), "nothing is left");
    let first = fixture.put("a/b/c", "one", WriteCondition::Free).await.expect("the name is free");
    assert_eq!((first.is_new, first.bytes, fixture.read("a/b/c").as_str()), (true, 3, "one"));
    let taken = fixture.put("a/b/c", "two", WriteCondition::Free).await;
    assert!(matches!(taken, Err(FileError::Exists(_))), "{taken:?}");
    let second = fixture.put("a/b/c", "two", WriteCondition::Tags(vec![first.etag.clone()])).await.expect("it matches");
    assert_eq!((second.is_new, fixture.read("a/b/c").as_str()), (false, "two"));
    let stale = fixture.put("a/b/c", "three", WriteCondition::Tags(vec![first.etag])).await;
    assert!(matches!(&stale, Err(FileError::Changed { etag: Some(etag), .. }) if *etag == second.etag), "{stale:?}");
    let absent = fixture.put("none", "x", WriteCondition::AnyFile).await;
    assert!(matches!(absent, Err(FileError::Changed { etag: None, .. })), "{absent:?}");
    assert_eq!((fixture.read("a/b/c").as_str(), fixture.records()), ("two", 0));
    assert_eq!(fixture.all_paths(), ["a", "a/b", "a/b/c"]);
}

#[tokio::test]
async fn exactly_one_of_competing_uploads_with_one_tag_wins() {
    let fixture = FilesFixture::new();
    let first = fixture.put("file", "0", WriteCondition::Free).await.expect("the name is free");
    let texts: Vec<String> = (1..9).map(|n| n.to_string()).collect();
    let puts = texts.iter().map(|text| fixture.put("file", text, WriteCondition::Tags(vec![first.etag.clone()])));
    let outcomes = futures::future::join_all(puts).await;
    let winners: Vec<usize> = (0..outcomes.len()).filter(|at| outcomes[*at].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{outcomes:?}");
    assert_eq!((fixture.read("file"), fixture.all_paths()), (texts[winners[0]].clone(), vec!["file".to_owned()]));
}

#[tokio::test]
async fn replaced_file_keeps_permissions_and_all_names() {
    let fixture = FilesFixture::new();
    let at = |name: &str| fixture.dir.join(name);
    fs::write(at("file"), "old").expect("the file is written");
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o750)).expect("an own file");
    fixture.put("file", "longer than before", WriteCondition::Any).await.expect("the file is replaced");
    assert_eq!(fs::metadata(at("file")).expect("the file exists").mode() & 0o7777, 0o750);
    fs::hard_link(at("file"), at("second")).expect("a link");
    for text in ["short", "much longer than the text before", ""] {
        let placed = fixture.put("file", text, WriteCondition::Any).await.expect("the file is written");
        assert_eq!((placed.is_new, placed.bytes), (false, text.len() as u64));
        assert_eq!((fixture.read("file").as_str(), fixture.read("second").as_str()), (text, text));
    }
    let several = fixture.put_all(&[("new", "1"), ("second", "2")]).await;
    assert!(matches!(several, Err(FileError::SeveralNames(_))), "{several:?}");
    assert_eq!((fs::metadata(at("file")).expect("the file exists").nlink(), fixture.all_paths().len()), (2, 2));
}

#[tokio::test]
async fn several_files_are_placed_together_or_not_at_all() {
    let fixture = FilesFixture::new();
    fs::create_dir(fixture.dir.join("dir")).expect("a directory");
    fs::write(fixture.dir.join("old"), "old").expect("a file");
    let inode = || fs::metadata(fixture.dir.join("old")).expect("the file exists").ino();
    let before = (inode(), fixture.all_paths());
    let blocked = fixture.put_all(&[("new/a", "1"), ("old", "2"), ("new/b/c", "3"), ("dir", "4")]).await;
    assert!(matches!(blocked, Err(FileError::IsDirectory(_))), "{blocked:?}");
    assert_eq!((inode(), fixture.all_paths()), before, "everything is as before");
    assert_eq!((fixture.read("old").as_str(), fixture.records()), ("old", 0));
    let placed = fixture.put_all(&[("new/a", "1"), ("old", "2"), ("new/b/c", "3")]).await.expect("all are placed");
    assert_eq!(placed.iter().map(|file| file.is_new).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(fixture.all_paths(), ["dir", "new", "new/a", "new/b", "new/b/c", "old"]);
    assert_eq!((fixture.read("old").as_str(), fixture.records()), ("2", 0));
}

#[tokio::test]
async fn writes_follow_no_link() {
    let fixture = FilesFixture::new();
    let outside = fixture.temp.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::write(outside.join("secret"), "old").expect("a file");
    symlink(&outside, fixture.dir.join("way")).expect("a link");
    symlink(".", fixture.dir.join("here")).expect("a link");
    symlink(outside.join("secret"), fixture.dir.join("file")).expect("a link");
    fs::write(fixture.dir.join("source"), "text").expect("a file");
    for path in ["way/secret", "way/new", "way/dir/new", "here/new", "file/new"] {
        let refused = fixture.put(path, "new", WriteCondition::Any).await;
        assert!(matches!(refused, Err(FileError::ParentNotDirectory(_))), "{path}: {refused:?}");
        let target = || fixture.target(path);
        for refused in [
            fixture.files.make_dir(target()).await.map(|_| ()),
            fixture.files.remove(target(), RemovalScope::Tree).await,
            fixture.files.move_entry(target(), plain("x"), MoveTarget::MustBeFree).await.map(|_| ()),
            fixture.files.move_entry(fixture.target("source"), plain(path), MoveTarget::MustBeFree).await.map(|_| ()),
        ] {
            assert!(matches!(refused, Err(FileError::ParentNotDirectory(_))), "{path}: {refused:?}");
        }
    }
    fixture.put("file", "new", WriteCondition::Any).await.expect("an upload replaces a link");
    assert!(!fixture.dir.join("file").is_symlink());
    fixture.files.remove(fixture.target("way"), RemovalScope::Tree).await.expect("the link itself is removed");
    assert_eq!(fs::read_to_string(outside.join("secret")).expect("a file"), "old");
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 1);
}

#[tokio::test]
async fn only_regular_files_are_opened() {
    let fixture = FilesFixture::new();
    let dir = &fixture.dir;
    let failure = async |path: &str| fixture.files.open_file(fixture.target(path)).await.err().map(|e| e.to_string());
    fs::create_dir(dir.join("dir")).expect("a directory");
    fs::write(dir.join("dir/file"), "text").expect("a file");
    symlink("file", dir.join("dir/link")).expect("a link");
    symlink("dir", dir.join("way")).expect("a link");
    symlink("/dev/null", dir.join("device")).expect("a link");
    make_fifo(&dir.join("fifo"));
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).expect("a socket");
    assert_eq!(failure("dir/file").await, None);
    for (path, part) in [
        ("none", "there is no"),
        ("none/file", "there is no"),
        ("dir", "is a directory"),
        ("way/file", "a parent of"),
        ("dir/file/x", "a parent of"),
        ("dir/link", "only regular files"),
        ("device", "only regular files"),
        ("fifo", "only regular files"),
        ("socket", "only regular files"),
    ] {
        let found = failure(path).await.expect(path);
        assert!(found.contains(part) && found.contains(path), "{path}: {found}");
    }
    let absent: SessionId = "01J00000000000000000000001".parse().expect("an id");
    let elsewhere = fixture.files.open_file(FileTarget { session: absent, path: plain("x") }).await;
    assert!(matches!(elsewhere, Err(FileError::Missing(_))));
    assert!(!fixture.temp.path().join("workspaces").join(absent.to_string()).exists(), "a download creates nothing");
}

/// A device is named in a workspace only if root puts it there, or a shared workspace is `/dev`.
#[tokio::test]
async fn device_is_neither_opened_nor_archived() {
    let fixture = FilesFixture::new();
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        fixture.dir.join("zero"),
        FileType::CharacterDevice,
        Mode::RUSR,
        rustix::fs::makedev(1, 5),
    );
    if made.is_err() {
        eprintln!("skipped: creating a device needs root");
        return;
    }
    let opened = fixture.files.open_file(fixture.target("zero")).await;
    assert!(matches!(opened, Err(FileError::NotRegular(_))), "{opened:?}");
    let page = fixture.files.list(fixture.session, FileQuery { limit: 9, ..FileQuery::default() }).await;
    assert_eq!(page.expect("a page").entries[0].kind, FileKind::Other);
}

#[tokio::test]
async fn any_name_works_in_each_request() {
    let fixture = FilesFixture::new();
    let names: [&[u8]; 5] = [b"a\xff.txt", b"line\nbreak", b"\x1b[2J", "ä%20".as_bytes(), b"-rf"];
    for name in names {
        fs::write(fixture.dir.join(OsStr::from_bytes(name)), "text").expect("a file");
        let list = FileQuery { limit: 9, ..FileQuery::default() };
        let page = fixture.files.list(fixture.session, list).await.expect("a page");
        let [entry] = &page.entries[..] else { panic!("one entry: {page:?}") };
        let listed = InnerPath::parse(&entry.path, PathForm::of(entry.encoded)).expect("a listed path is valid");
        assert_eq!(listed.as_bytes(), name);
        let target = || FileTarget { session: fixture.session, path: listed.clone() };
        let (mut file, head) = fixture.files.open_file(target()).await.expect("the file opens");
        let mut content = String::new();
        file.read_to_string(&mut content).expect("text");
        assert_eq!((content.as_bytes(), &head[..]), (&b"text"[..], &b"text"[..]));
        let incoming = fixture.files.receive(target()).await.expect("the upload begins");
        let tags = WriteCondition::Tags(entry.etag.clone().into_iter().collect());
        fixture.files.place(fixture.session, vec![incoming], tags).await.expect("the tag of the list matches");
        let moved = fixture.files.move_entry(target(), plain("plain"), MoveTarget::MustBeFree).await.expect("it moves");
        assert_eq!((moved.name.as_str(), moved.encoded), ("plain", false));
        let back = fixture.files.move_entry(fixture.target("plain"), listed.clone(), MoveTarget::MustBeFree).await;
        back.expect("it moves back");
        fixture.files.remove(target(), RemovalScope::Single).await.expect("it is removed");
    }
    assert_eq!(fixture.all_paths(), Vec::<String>::new());
}

#[tokio::test]
async fn moves_obey_the_target() {
    let fixture = FilesFixture::new();
    let at = |name: &str| fixture.dir.join(name);
    fs::create_dir_all(at("full/inner")).expect("directories");
    fs::write(at("a"), "a").expect("a file");
    fs::write(at("b"), "b").expect("a file");
    let moved = async |from: &str, to: &str, target| {
        fixture.files.move_entry(fixture.target(from), plain(to), target).await.map(|entry| entry.path)
    };
    use MoveTarget::{MayBeReplaced, MustBeFree};
    assert!(matches!(moved("a", "b", MustBeFree).await, Err(FileError::Exists(_))));
    assert!(matches!(moved("a", "full", MayBeReplaced).await, Err(FileError::Exists(_))));
    assert!(matches!(moved("full", "a", MayBeReplaced).await, Err(FileError::Exists(_))));
    assert!(matches!(moved("full", "full/inner/x", MustBeFree).await, Err(FileError::IntoItself(_))));
    assert!(matches!(moved("none", "c", MustBeFree).await, Err(FileError::Missing(path)) if path == plain("none")));
    assert!(matches!(moved("a", "none/c", MustBeFree).await, Err(FileError::Missing(path)) if path == plain("none/c")));
    fs::create_dir_all(at("other/inner")).expect("directories");
    assert!(matches!(moved("other", "full", MayBeReplaced).await, Err(FileError::NotEmpty(_))));
    assert_eq!((fixture.read("a").as_str(), fixture.read("b").as_str()), ("a", "b"), "nothing has changed");
    assert_eq!(moved("a", "b", MayBeReplaced).await.expect("it moves"), "b");
    assert_eq!(moved("full", "full2", MustBeFree).await.expect("it moves"), "full2");
    assert_eq!(
        (fixture.read("b").as_str(), fixture.all_paths()),
        ("a", ["b", "full2", "full2/inner", "other", "other/inner"].map(str::to_owned).to_vec())
    );
}

#[tokio::test]
async fn directories_are_made_and_removed() {
    let fixture = FilesFixture::new();
    let (entry, is_new) = fixture.files.make_dir(fixture.target("a/b/c")).await.expect("directories");
    assert_eq!((entry.kind, is_new), (FileKind::Directory, true));
    assert!(!fixture.files.make_dir(fixture.target("a/b")).await.expect("it exists").1);
    fs::write(fixture.dir.join("a/b/file"), "text").expect("a file");
    let over_file = fixture.files.make_dir(fixture.target("a/b/file")).await;
    assert!(matches!(over_file, Err(FileError::Exists(_))), "{over_file:?}");
    let below_file = fixture.files.make_dir(fixture.target("a/b/file/x")).await;
    assert!(matches!(below_file, Err(FileError::ParentNotDirectory(_))), "{below_file:?}");
    fs::set_permissions(fixture.dir.join("a/b/c"), fs::Permissions::from_mode(0o000)).expect("an own directory");
    let single = fixture.files.remove(fixture.target("a"), RemovalScope::Single).await;
    assert!(matches!(single, Err(FileError::HasContent(_))), "{single:?}");
    fixture.files.remove(fixture.target("a/b/c"), RemovalScope::Single).await.expect("it is empty");
    fixture.files.remove(fixture.target("a"), RemovalScope::Tree).await.expect("it is removed");
    assert_eq!((fixture.all_paths(), fixture.records()), (Vec::new(), 0));
    let gone = fixture.files.remove(fixture.target("a"), RemovalScope::Tree).await;
    assert!(matches!(gone, Err(FileError::Missing(_))), "{gone:?}");
}

#[tokio::test]
async fn request_beyond_the_bound_is_rejected() {
    let fixture = FilesFixture::new();
    let all = u32::try_from(MAX_RUNNING + MAX_WAITING).expect("a small number");
    let taken = fixture.files.places.clone().acquire_many_owned(all).await.expect("all are free");
    let query = || FileQuery { limit: 1, ..FileQuery::default() };
    let rejected = fixture.files.list(fixture.session, query()).await;
    assert!(matches!(rejected, Err(FileError::Busy(_))), "{rejected:?}");
    drop(taken);
    fixture.files.list(fixture.session, query()).await.expect("a place is free again");
}
