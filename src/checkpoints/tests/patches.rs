//! Patches, applied by the real git.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    process::{Command, Output},
};

use futures::TryStreamExt;

use super::*;

/// Runs git in `dir` without the configuration of this machine.
fn git(dir: &Path, args: &[&str]) -> Output {
    let run = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CEILING_DIRECTORIES", dir.parent().expect("the directory has a parent"))
        .output();
    run.expect("git is installed; the tests of patches need it")
}

/// Path, content or target, and the permission to execute.
type FoundFile = (PathBuf, Vec<u8>, bool);

/// Returns files, links, contents and modes below `dir`.
fn contents(dir: &Path) -> Vec<FoundFile> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(&at).expect("the directory is readable") {
            let path = entry.expect("the entry is readable").path();
            let stat = fs::symlink_metadata(&path).expect("the entry is there");
            let below = path.strip_prefix(dir).expect("the path is below").to_owned();
            if stat.is_dir() {
                pending.push(path);
            } else if stat.is_symlink() {
                let target = fs::read_link(&path).expect("the link is readable");
                found.push((below, target.into_os_string().into_encoded_bytes(), false));
            } else {
                let content = fs::read(&path).expect("the file is readable");
                found.push((below, content, stat.permissions().mode() & 0o111 != 0));
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn git_applies_the_patch_of_any_change() {
    let fixture = Fixture::new();
    let lines = |from: u32, to: u32| (from..to).map(|line| format!("line {line}\n")).collect::<String>();
    let at = |path: &str| fixture.workspace().join(path);
    fixture.write("edited.txt", lines(0, 100));
    fixture.write("no end", "a\nb");
    fixture.write("gone.txt", "gone\n");
    fixture.write("moved here.txt", lines(0, 10));
    fixture.write("mode.sh", "#!/bin/sh\n");
    fixture.write("both.sh", "#!/bin/sh\necho old\n");
    fixture.write("picture.png", (0..=255).cycle().take(5_000).collect::<Vec<u8>>());
    fixture.write("gone.bin", [0; 100]);
    fixture.write("becomes-dir", "file\n");
    fixture.write("becomes-link", "file\n");
    fixture.write("empty-before", "");
    symlink("edited.txt", at("link")).expect("the link is created");
    fixture.capture("turn-1").await;
    let before = tempfile::tempdir().expect("a directory");
    copy(&fixture.workspace(), before.path());

    fixture.write("edited.txt", format!("first\n{}{}", lines(1, 50), lines(51, 100)));
    fixture.write("no end", "a\nb\n");
    for gone in ["gone.txt", "gone.bin", "becomes-dir", "becomes-link", "link"] {
        fixture.remove(gone);
    }
    fs::create_dir(at("new dir")).expect("the directory is created");
    fs::rename(at("moved here.txt"), at("new dir/mövéd\t\"there\".txt")).expect("the file is moved");
    for script in ["mode.sh", "both.sh"] {
        fs::set_permissions(at(script), fs::Permissions::from_mode(0o755)).expect("the mode is changed");
    }
    fixture.write("both.sh", "#!/bin/sh\necho new\n");
    fixture.write("picture.png", (0..=255).rev().cycle().take(4_999).collect::<Vec<u8>>());
    fixture.write("new.bin", [0, 255, 10, 13]);
    fixture.write("becomes-dir/inside", "x\n");
    symlink("edited.txt", at("becomes-link")).expect("the link is created");
    symlink("new.bin", at("link")).expect("the link is created");
    fixture.write("empty-before", "no longer\n");
    fixture.write("empty-now", "");
    fixture.write("caf\u{e9} \\ b", "x\n");

    for (from, to) in [("turn-1", "now"), ("turn-1", "turn-2")] {
        if to == "turn-2" {
            fixture.capture(to).await;
        }
        check_patch(&fixture, before.path(), (from, to), &contents(&fixture.workspace())).await;
    }
}

/// Applies the patch between two points to a copy of `before`, and compares the result.
async fn check_patch(fixture: &Fixture, before: &Path, (from, to): (&str, &str), expected: &[FoundFile]) {
    let patch = patch_of(fixture, from, to).await;
    let target = tempfile::tempdir().expect("a directory");
    copy(before, target.path());
    apply(target.path(), &patch);
    assert_eq!(contents(target.path()), expected, "{}", String::from_utf8_lossy(&patch));
}

async fn patch_of(fixture: &Fixture, from: &str, to: &str) -> Vec<u8> {
    let patch = fixture.checkpoints.patch(fixture.session, range(from, to)).await.expect("the patch begins");
    patch.try_collect::<Vec<_>>().await.expect("the patch is complete").concat()
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "."]).arg(to).current_dir(from).status();
    assert!(copied.expect("cp runs").success());
}

/// Applies a patch as `git apply` does. An empty one is none.
fn apply(dir: &Path, patch: &[u8]) {
    if patch.is_empty() {
        return;
    }
    let outside = tempfile::tempdir().expect("a directory");
    let file = outside.path().join("patch");
    fs::write(&file, patch).expect("the patch is written");
    assert!(git(dir, &["init", "-q"]).status.success());
    let applied = git(dir, &["apply", "--whitespace=nowarn", file.to_str().expect("a plain path")]);
    let patch = String::from_utf8_lossy(patch);
    assert!(applied.status.success(), "{}\n{patch}", String::from_utf8_lossy(&applied.stderr));
    fs::remove_dir_all(dir.join(".git")).expect("the repository is removed");
}

/// Random tree of odd names, contents and kinds.
struct RandomTree {
    random: fastrand::Rng,
    root: PathBuf,
}

impl RandomTree {
    /// Names that git writes in different ways, and that share directories.
    const NAMES: [&[u8]; 16] = [
        b"plain",
        b"with space",
        b" ends with space ",
        b"tab\there",
        b"line\nend",
        b"\"quoted\"",
        b"back\\slash",
        b"\xff\xfe",
        "ä→ö".as_bytes(),
        b"-rf",
        b"a b/a b",
        b"d/x",
        b"d/y",
        b"d",
        b"x b/x",
        b"\x01\x7f{}",
    ];

    fn any_path(&mut self) -> PathBuf {
        let name = *self.random.choice(RandomTree::NAMES.iter()).expect("there are names");
        let dir = self.random.choice(["", "", "deep/er/"]).expect("there are names");
        self.root.join(dir).join(OsStr::from_bytes(name))
    }

    fn content(&mut self) -> Vec<u8> {
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..self.random.usize(0..40) {
            text.extend(format!("line {}\n", self.random.u8(0..20)).bytes());
        }
        match self.random.u8(0..8) {
            0 => Vec::new(),
            1 => text.into_iter().chain(*b"no end").collect(),
            2 => std::iter::repeat_with(|| self.random.u8(..)).take(200).collect(),
            3 => [&b"\r\n\xff\x0c"[..], &text].concat(),
            4 => b"\n".repeat(self.random.usize(1..5)),
            _ => text,
        }
    }

    /// Removes what is at a path, and files on the way to it.
    fn make_way(&self, path: &Path) {
        let below = path.strip_prefix(&self.root).expect("the path is below");
        let ways: Vec<PathBuf> = below.ancestors().map(|part| self.root.join(part)).collect();
        for way in ways.iter().rev().filter(|way| **way != self.root) {
            match fs::symlink_metadata(way) {
                Ok(stat) if !stat.is_dir() => fs::remove_file(way).expect("the file is removed"),
                Ok(_) if way == path => fs::remove_dir_all(way).expect("the directory is removed"),
                Ok(_) | Err(_) => {}
            }
        }
        fs::create_dir_all(path.parent().expect("a file has a parent")).expect("the directory is created");
    }

    fn create(&mut self) {
        let path = self.any_path();
        self.make_way(&path);
        if self.random.u8(0..6) == 0 {
            symlink(["target", "other/target"][self.random.usize(0..2)], &path).expect("the link is created");
            return;
        }
        fs::write(&path, self.content()).expect("the file is written");
        let mode = if self.random.u8(0..4) == 0 { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the mode is changed");
    }

    /// Edits, moves or removes a file, or creates one.
    fn change(&mut self) {
        let files = contents(&self.root);
        let Some((below, content, is_executable)) = self.random.choice(files.iter()) else { return self.create() };
        let path = self.root.join(below);
        let is_link = fs::symlink_metadata(&path).expect("the file is there").is_symlink();
        match self.random.u8(0..5) {
            0 => fs::remove_file(&path).expect("the file is removed"),
            1 if !is_link => {
                let mode = if *is_executable { 0o644 } else { 0o755 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the mode is changed");
            }
            2 if !is_link => {
                let to = self.any_path();
                let edited = [&content[..], b"edited\n"].concat();
                fs::remove_file(&path).expect("the file is removed");
                self.make_way(&to);
                fs::write(&to, if self.random.bool() { &edited } else { content }).expect("the file is written");
            }
            3 if !is_link => {
                let middle = self.random.usize(0..=content.len());
                let edited = [&content[..middle], b"edited\n", &content[middle..]].concat();
                fs::write(&path, edited).expect("the file is written");
            }
            _ => self.create(),
        }
    }
}

#[tokio::test]
async fn git_applies_patches_between_random_trees() {
    for seed in 0..30 {
        let fixture = Fixture::new();
        let mut tree = RandomTree { random: fastrand::Rng::with_seed(seed), root: fixture.workspace() };
        (0..tree.random.usize(0..14)).for_each(|_| tree.create());
        fixture.capture("turn-1").await;
        let before = tempfile::tempdir().expect("a directory");
        copy(&fixture.workspace(), before.path());
        (0..tree.random.usize(1..14)).for_each(|_| tree.change());
        let (old, new) = (contents(before.path()), contents(&fixture.workspace()));
        eprintln!("seed {seed}");
        check_patch(&fixture, before.path(), ("turn-1", "now"), &new).await;
        fixture.capture("turn-2").await;
        check_patch(&fixture, &fixture.workspace(), ("turn-2", "turn-1"), &old).await;
        fixture.restore("turn-1", None).await.expect("the workspace is restored");
        assert_eq!(contents(&fixture.workspace()), old, "seed {seed}");
    }
}

#[tokio::test]
async fn moved_and_edited_file_is_a_rename() {
    let fixture = Fixture::new();
    let lines = |to: u32| (0..to).map(|line| format!("line {line}\n")).collect::<String>();
    fixture.write("old name", lines(20));
    fixture.capture("turn-1").await;
    fixture.remove("old name");
    fixture.write("new name", lines(19));
    let patch = String::from_utf8(patch_of(&fixture, "turn-1", "now").await).expect("the patch is text");
    let head = "diff --git a/old name b/new name\nsimilarity index 94%\nrename from old name\nrename to new name\n";
    assert!(patch.starts_with(head), "{patch}");
    assert!(patch.contains(" 100644\n--- a/old name\t\n+++ b/new name\t\n@@ "), "{patch}");
}

#[tokio::test]
async fn paths_that_git_denies_are_named_and_left_out() {
    let fixture = Fixture::new();
    fixture.write("kept", "x\n");
    for path in ["nested/.git/config", "n/.GIT /x", "git~1", ".git:y", "a\\.git\\b"] {
        fixture.write(path, "x\n");
    }
    symlink("x", fixture.workspace().join(".gitmodules")).expect("the link is created");
    let patch = patch_of(&fixture, "start", "now").await;
    let text = String::from_utf8_lossy(&patch).into_owned();
    assert_eq!(text.matches("# Not in this patch").count(), 6, "{text}");
    let target = tempfile::tempdir().expect("a directory");
    apply(target.path(), &patch);
    assert_eq!(contents(target.path()).len(), 1, "{text}");
}
