use std::{
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::Arc,
    time::Duration,
};

use super::*;

fn empty() -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let path = temp.path().join("data");
    (temp, path)
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("it is there").mode() & 0o7777
}

fn error_text<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    result.expect_err("it is refused").to_string()
}

#[test]
fn a_first_start_makes_everything_for_its_owner_alone() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("it opens");
    let token = data.token(&SecretString::default()).expect("a token");
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("token")), 0o600);
    assert_eq!(mode(&data.journal()), 0o700);
    assert_eq!(token.expose().len(), 64);
}

#[test]
fn token_and_node_stay_the_same_over_a_restart_and_differ_between_nodes() {
    let (_temp, path) = empty();
    let read = |path: &Path| {
        let data = DataDir::open(path).expect("it opens");
        (data.token(&SecretString::default()).expect("a token").expose().to_owned(), data.node().expect("a name"))
    };
    let first = read(&path);
    assert_eq!(read(&path), first);
    let other = read(&path.with_file_name("other"));
    assert!(other.0 != first.0 && other.1 != first.1);
}

#[test]
fn a_given_token_wins_and_leaves_no_file() {
    let (_temp, path) = empty();
    let token =
        DataDir::open(&path).and_then(|data| data.token(&SecretString::new("0123456789abcdef"))).expect("a token");
    assert!(token.matches("0123456789abcdef"));
    assert!(!path.join("token").exists());
}

#[test]
fn a_token_file_that_is_not_a_secret_is_refused() {
    let check = |plant: &dyn Fn(&Path), part: &str| {
        let (_temp, path) = empty();
        let data = DataDir::open(&path).expect("it opens");
        plant(&path.join("token"));
        let why = error_text(data.token(&SecretString::default()));
        assert!(why.contains(part) && why.contains("token"), "{why}");
    };
    let write = |path: &Path, text: &str, mode| {
        std::fs::write(path, text).expect("it is written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode is set");
    };
    check(&|path| write(path, "0123456789abcdef", 0o644), "read by other users");
    check(&|path| write(path, "\n", 0o600), "is empty");
    check(&|path| symlink("/etc/hostname", path).expect("a link"), "is a link");
    check(&|path| symlink("/nowhere", path).expect("a link"), "is a link");
    check(&|path| std::fs::create_dir(path).expect("a directory"), "is no file of ours");
    check(
        &|path| rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("a pipe"),
        "is no file of ours",
    );
}

#[test]
fn one_server_at_a_time() {
    let (_temp, path) = empty();
    let first = DataDir::open(&path).expect("it opens");
    let why = error_text(DataDir::open(&path));
    assert!(why.contains("in use") && why.contains("--data"), "{why}");
    drop(first);
    DataDir::open(&path).expect("it opens again");
}

#[test]
fn an_open_directory_is_closed_unless_it_holds_other_things() {
    let (_temp, path) = empty();
    let open_up = || std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::create_dir(&path).expect("it is made");
    open_up();
    DataDir::open(&path).and_then(|data| data.node()).expect("an empty one is taken");
    open_up();
    drop(DataDir::open(&path).expect("our own is taken"));
    assert_eq!(mode(&path), 0o700);

    std::fs::remove_file(path.join("node")).expect("it is there");
    open_up();
    let why = error_text(DataDir::open(&path));
    assert!(why.contains("holds other things") && why.contains(&format!("chmod 700 {}", path.display())), "{why}");
    assert_eq!(mode(&path), 0o755, "and it is left as it was");
}

#[test]
fn settings_and_what_a_new_file_system_has_are_nothing_foreign() {
    let (_temp, path) = empty();
    std::fs::create_dir_all(path.join("lost+found")).expect("it is made");
    std::fs::write(path.join("greenroom.toml"), "").expect("it is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    std::fs::write(path.join("thesis.tex"), "").expect("it is written");
    error_text(DataDir::open_unlocked(&path));
    std::fs::remove_file(path.join("thesis.tex")).expect("it is there");
    DataDir::open(&path).expect("it is taken");
    assert_eq!(mode(&path), 0o700);
}

#[test]
fn of_a_data_directory_and_its_copies_one_is_served_at_a_time() {
    let (_temp, path) = empty();
    let served = |path: &Path| {
        let data = DataDir::open(path)?;
        data.node().and_then(|node| data.claim_node(&node)).map(|claim| (data, claim))
    };
    let original = served(&path).expect("the first start");
    let [copy, moved] = ["copy", "moved"].map(|name| path.with_file_name(name));
    let copied = std::process::Command::new("cp").arg("-a").args([&path, &copy]).status().expect("it runs");
    assert!(copied.success());
    let why = error_text(served(&copy));
    for part in [&*copy.to_string_lossy(), "is a copy of", "greenroom export"] {
        assert!(why.contains(part), "no {part:?} in {why}");
    }
    drop(original);
    let copied = served(&copy).expect("nobody uses the original");
    std::fs::rename(&path, &moved).expect("it is moved");
    assert!(matches!(served(&moved), Err(DataError::Copy { .. })), "wherever it is by now");
    drop(copied);
    served(&moved).expect("it starts again");
}

#[test]
fn a_file_gets_its_name_where_the_file_system_cannot_move_it_there() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("it opens");
    data.create_private("one.new", "one").expect("it is written");
    link_if_free(&data.dir, "one.new", "one").expect("the name is free");
    data.create_private("one.new", "two").expect("the first is gone");
    assert_eq!(link_if_free(&data.dir, "one.new", "one"), Err(Errno::EXIST));
    assert_eq!(std::fs::read(path.join("one")).expect("it is there"), b"one");
}

#[test]
fn the_agent_is_installed_once_and_can_be_executed_by_anybody_who_has_it_mounted() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("it opens");
    let one = data.install_agent(b"one").expect("it is installed");
    let inode = one.metadata().expect("it is there").ino();
    assert_eq!((mode(&one), mode(&path.join("bin"))), (0o755, 0o755));
    assert_eq!(data.install_agent(b"one").expect("it is found"), one);
    assert_eq!(one.metadata().expect("it is there").ino(), inode, "a running one is not replaced");
    assert_ne!(data.install_agent(b"two").expect("it is installed"), one);
    assert_eq!(std::fs::read(&one).expect("it is still there"), b"one");
}

/// Needs root, to become somebody else: elsewhere it says so and shows nothing.
#[test]
fn another_user_reads_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return;
    }
    let (_temp, path) = empty();
    std::fs::set_permissions(path.parent().expect("it has one"), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let data = DataDir::open(&path).expect("it opens");
    data.token(&SecretString::default()).expect("a token");
    let as_nobody = |program: &str, file: &Path| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(program);
        command.uid(65534).gid(65534).arg(file).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.status().expect("it runs").success()
    };
    assert!(as_nobody("ls", path.parent().expect("it has one")), "the test itself can look that far");
    assert!(!as_nobody("ls", &path));
    assert!(!as_nobody("cat", &path.join("token")));
    std::os::unix::fs::chown(&path, Some(65534), None).expect("root may");
    drop(data);
    let why = error_text(DataDir::open(&path));
    assert!(why.contains("belongs to user 65534"), "{why}");
}

#[test]
fn a_token_is_replaced_beside_the_server_that_uses_it() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("it opens");
    let (first, kept) =
        (data.token(&SecretString::default()).expect("one"), data.token(&SecretString::default()).expect("one"));
    assert!(first.matches(kept.expose()));
    let visit = DataDir::open_unlocked(&path).expect("it can be visited while it is open");
    let second = visit.renew_token().expect("a new one");
    assert!(
        !first.matches(second.expose()) && data.token(&SecretString::default()).expect("one").matches(second.expose())
    );
    assert_eq!(mode(&path.join("token")), 0o600);
    drop(visit);
    assert!(matches!(DataDir::open(&path), Err(DataError::InUse { .. })), "the visit did not unlock it");
    assert!(DataDir::open_unlocked(&path.join("nowhere")).is_err());
}

#[tokio::test(start_paused = true)]
async fn whoever_was_let_in_hears_when_the_token_is_another() {
    let (_temp, path) = empty();
    let data = Arc::new(DataDir::open(&path).expect("it opens"));
    let token = data.token(&SecretString::default()).expect("one");
    let closing = tokio_util::sync::CancellationToken::new();
    let in_force = CurrentToken::follow(data.clone(), &SecretString::default(), token.clone(), &closing);
    let pass = in_force.grant();
    let mut revoked = Box::pin(pass.revoked());
    let for_now = Duration::from_secs(60);
    assert!(tokio::time::timeout(for_now, &mut revoked).await.is_err(), "nothing has changed");
    let new = data.renew_token().expect("a new one");
    revoked.await;
    assert!(in_force.get().matches(new.expose()) && !in_force.get().matches(token.expose()));
    let pass = in_force.grant();
    let mut later = Box::pin(pass.revoked());
    assert!(tokio::time::timeout(for_now, &mut later).await.is_err(), "whoever comes with the new one is let in");
    // One that cannot be trusted changes nothing.
    std::fs::write(path.join("token"), "").expect("it is written");
    assert!(tokio::time::timeout(for_now, &mut later).await.is_err());
    assert!(in_force.get().matches(new.expose()));
    let given = CurrentToken::follow(data.clone(), &SecretString::new("given"), BearerToken::new("given"), &closing);
    let (stays, with_it) = (given.grant(), in_force.grant());
    assert!(tokio::time::timeout(for_now, stays.revoked()).await.is_err());
    closing.cancel();
    tokio::join!(stays.revoked(), with_it.revoked());
}
