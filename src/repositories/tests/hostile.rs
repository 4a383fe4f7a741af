//! Workspaces whose `.git` is an attack. No program runs, and nothing outside is read.

use std::{fs, os::unix::fs::symlink};

use super::{RepositoryFixture, git};
use crate::repositories::{PushRequest, RepositoryError};

/// Writes each setting of git that names a program, with a program that leaves a mark.
fn poison(fixture: &RepositoryFixture) -> std::path::PathBuf {
    let mark = fixture.dir.path().join("mark");
    let git_dir = fixture.workspace().join(".git");
    let program = fixture.dir.path().join("program");
    fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).expect("a file");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    let (program, touch) = (program.display(), format!("touch {}", mark.display()));
    let included = git_dir.join("included");
    fs::write(&included, format!("[core]\n\tpager = {program}\n")).expect("a file");
    let config = format!(
        "[core]\n\tfsmonitor = {program}\n\tsshCommand = {program}\n\thooksPath = {hooks}\n\tpager = {program}\n\
         \taskPass = {program}\n\talternateRefsCommand = {program}\n\tgitProxy = {program}\n[uploadpack]\n\
         \tpackObjectsHook = {program}\n[include]\n\tpath = {included}\n[credential]\n\thelper = \"!{touch}\"\n\
         [filter \"x\"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n[diff]\n\texternal = {program}\n\
         [gpg]\n\tprogram = {program}\n[log]\n\tshowSignature = true\n[protocol \"ext\"]\n\tallow = always\n\
         [url \"ext::sh -c '{touch}'\"]\n\tinsteadOf = file://\n[remote \"origin\"]\n\turl = ext::sh -c '{touch}'\n\
         \tpushurl = ext::sh -c '{touch}'\n\treceivepack = {program}\n\tuploadpack = {program}\n",
        hooks = git_dir.join("hooks").display(),
        included = included.display(),
    );
    let existing = fs::read_to_string(git_dir.join("config")).expect("a file");
    fs::write(git_dir.join("config"), existing + &config).expect("a file");
    fs::create_dir_all(git_dir.join("hooks")).expect("a directory");
    for hook in ["pre-push", "post-checkout", "reference-transaction", "pre-receive", "update", "post-update"] {
        symlink(fixture.dir.path().join("program"), git_dir.join("hooks").join(hook)).expect("a link");
    }
    mark
}

#[tokio::test]
async fn configuration_and_hooks_of_the_workspace_run_nothing() {
    let fixture = RepositoryFixture::new();
    let cloned = fixture.clone(None).await.expect("the clone succeeds");
    let workspace = fixture.workspace();
    fs::write(workspace.join(".gitattributes"), "* filter=x diff=x\n").expect("a file");
    let url = "\"ext::sh -c true\"";
    fs::write(workspace.join(".gitmodules"), format!("[submodule \"s\"]\n\tpath = s\n\turl = {url}\n"))
        .expect("a file");
    let commit = fixture.commit("two");
    let mark = poison(&fixture);
    let repository = fixture.repository(None);
    fixture.repositories.status(fixture.id, &repository).await.expect("a status");
    assert_eq!(fixture.push().await.expect("the push succeeds").commit, commit);
    assert!(!mark.exists(), "a program of the workspace ran");
    // To the repository of the record, whatever the workspace's remote is.
    assert_eq!(git(&fixture.source(), &["rev-parse", &cloned.branch]), commit);
}

#[tokio::test]
async fn hooks_of_a_source_do_not_run() {
    let fixture = RepositoryFixture::new();
    let mark = fixture.dir.path().join("mark");
    let hooks = fixture.source().join(".git/hooks");
    fs::create_dir_all(&hooks).expect("a directory");
    for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction", "post-checkout"] {
        fs::write(hooks.join(hook), format!("#!/bin/sh\ntouch {}\n", mark.display())).expect("a file");
        fs::set_permissions(hooks.join(hook), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    git(&fixture.source(), &["config", "uploadpack.packObjectsHook", &format!("touch {}", mark.display())]);
    git(&fixture.source(), &["config", "core.hooksPath", &hooks.display().to_string()]);
    fixture.clone(None).await.expect("the clone succeeds");
    fixture.commit("two");
    let _mark_of_the_test = fs::remove_file(&mark);
    fixture.push().await.expect("the push succeeds");
    assert!(!mark.exists(), "a hook of the source ran");
}

/// Replaces a part of a cloned workspace's `.git`, and expects that a push fails and leaks nothing.
async fn check_rejected(what: &str, change: impl FnOnce(&RepositoryFixture)) {
    let fixture = RepositoryFixture::new();
    let cloned = fixture.clone(None).await.expect("the clone succeeds");
    fixture.commit("two");
    change(&fixture);
    let pushed = fixture.push().await;
    assert!(matches!(pushed, Err(RepositoryError::Workspace(_))), "{what}: {pushed:?}");
    let branches = git(&fixture.source(), &["branch", "--list", &cloned.branch]);
    assert_eq!(branches, "", "{what}");
    // The status reports the reason, and the server goes on.
    let status = fixture.repositories.status(fixture.id, &fixture.repository(None)).await.expect("a status");
    assert!(!status.push.possible && status.head.is_none(), "{what}: {status:?}");
}

#[tokio::test]
async fn links_and_files_in_place_of_the_repository_are_not_followed() {
    check_rejected("`.git` is a link", |fixture| {
        let git_dir = fixture.workspace().join(".git");
        fs::rename(&git_dir, fixture.dir.path().join("moved")).expect("a rename");
        symlink(fixture.dir.path().join("moved"), git_dir).expect("a link");
    })
    .await;
    check_rejected("`.git` is a file", |fixture| {
        let git_dir = fixture.workspace().join(".git");
        fs::rename(&git_dir, fixture.dir.path().join("moved")).expect("a rename");
        fs::write(git_dir, format!("gitdir: {}\n", fixture.dir.path().join("moved").display())).expect("a file");
    })
    .await;
    check_rejected("`HEAD` is a link", |fixture| {
        let head = fixture.workspace().join(".git/HEAD");
        fs::remove_file(&head).expect("a file");
        symlink(fixture.source().join(".git/HEAD"), head).expect("a link");
    })
    .await;
    check_rejected("`refs` is a link", |fixture| {
        let refs = fixture.workspace().join(".git/refs");
        fs::remove_dir_all(&refs).expect("a directory");
        symlink(fixture.source().join(".git/refs"), refs).expect("a link");
    })
    .await;
    check_rejected("`objects` is a link", |fixture| {
        let objects = fixture.workspace().join(".git/objects");
        fs::rename(&objects, fixture.dir.path().join("moved")).expect("a rename");
        symlink(fixture.dir.path().join("moved"), objects).expect("a link");
    })
    .await;
    check_rejected("an object is a FIFO", |fixture| {
        let object = loose_objects(fixture).remove(0);
        fs::remove_file(&object).expect("a file");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &object, rustix::fs::FileType::Fifo, mode, 0).expect("a FIFO");
    })
    .await;
}

#[tokio::test]
async fn names_of_branches_are_no_options_and_no_paths() {
    for name in ["--upload-pack=touch x", "../../../outside", "a..b", "-f", "x\ny", "a/../../b"] {
        check_rejected(name, |fixture| {
            fs::write(fixture.workspace().join(".git/HEAD"), format!("ref: refs/heads/{name}\n")).expect("a file");
        })
        .await;
    }
    let fixture = RepositoryFixture::new();
    fixture.clone(None).await.expect("the clone succeeds");
    for name in ["--upload-pack=touch x", "a..b", "-f", "+main", "main:other", "a b"] {
        let request = PushRequest { branch: Some(name.to_owned()), force: false };
        let pushed = fixture.repositories.push(fixture.id, &fixture.repository(None), request).await;
        let is_plain_plus = name == "+main" && pushed.is_ok();
        assert!(is_plain_plus || matches!(pushed, Err(RepositoryError::BadReference(_))), "{name}: {pushed:?}");
    }
}

#[tokio::test]
async fn objects_from_outside_through_alternates_are_not_pushed() {
    check_rejected("alternates", |fixture| {
        // A private repository of the host, whose objects the workspace names and does not have.
        let private = fixture.dir.path().join("private");
        fs::create_dir(&private).expect("a directory");
        git(&private, &["init", "--quiet"]);
        fs::write(private.join("secret"), "secret\n").expect("a file");
        git(&private, &["add", "."]);
        git(&private, &["commit", "--quiet", "-m", "secret"]);
        let commit = git(&private, &["rev-parse", "HEAD"]);
        let git_dir = fixture.workspace().join(".git");
        let objects = private.join(".git/objects").display().to_string();
        fs::create_dir_all(git_dir.join("objects/info")).expect("a directory");
        fs::write(git_dir.join("objects/info/alternates"), objects + "\n").expect("a file");
        fs::write(git_dir.join("HEAD"), commit + "\n").expect("a file");
    })
    .await;
}

#[tokio::test]
async fn damaged_missing_and_oversized_objects_are_rejected() {
    check_rejected("damaged object", |fixture| {
        for object in loose_objects(fixture) {
            fs::set_permissions(&object, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("a mode");
            fs::write(object, b"x\x9c\x00damaged").expect("a file");
        }
    })
    .await;
    check_rejected("exchanged objects", |fixture| {
        let objects = loose_objects(fixture);
        let bytes = fs::read(&objects[0]).expect("a file");
        for object in &objects[1..] {
            fs::set_permissions(object, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("a mode");
            fs::write(object, &bytes).expect("a file");
        }
    })
    .await;
    check_rejected("missing objects", |fixture| {
        for object in loose_objects(fixture) {
            fs::remove_file(object).expect("a file");
        }
    })
    .await;
    check_rejected("damaged pack", |fixture| {
        let packs = fixture.workspace().join(".git/objects/pack");
        git(&fixture.workspace(), &["gc", "--quiet"]);
        for pack in fs::read_dir(packs).expect("a directory").flatten().map(|entry| entry.path()) {
            if pack.extension().is_some_and(|extension| extension == "pack") {
                fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o644)).expect("a mode");
                let mut bytes = fs::read(&pack).expect("a file");
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x40;
                fs::write(pack, bytes).expect("a file");
            }
        }
    })
    .await;
    let fixture = RepositoryFixture::with(|config| config.max_bytes = bytesize::ByteSize::mib(4));
    fixture.clone(None).await.expect("the clone succeeds");
    let pack = fixture.workspace().join(format!(".git/objects/pack/pack-{}.pack", "a".repeat(40)));
    fs::create_dir_all(pack.parent().expect("a parent")).expect("a directory");
    fixture.commit("two");
    fs::File::create(pack).expect("a file").set_len(1 << 40).expect("a sparse file");
    let pushed = fixture.push().await;
    assert!(matches!(pushed, Err(RepositoryError::TooLarge(_))), "{pushed:?}");
}

/// Returns the loose objects of the workspace.
fn loose_objects(fixture: &RepositoryFixture) -> Vec<std::path::PathBuf> {
    let objects = fixture.workspace().join(".git/objects");
    let dirs = fs::read_dir(objects).expect("a directory").flatten().filter(|dir| dir.file_name().len() == 2);
    let mut found: Vec<_> =
        dirs.flat_map(|dir| fs::read_dir(dir.path()).expect("a directory").flatten()).map(|file| file.path()).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}
