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
    path.metadata().expect("the file exists").mode() & 0o7777
}

fn error_text<T: std::fmt::Debug>(result: Result<T, DataError>) -> String {
    result.expect_err("the directory is rejected").to_string()
}

#[test]
fn first_start_creates_private_files() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("the directory opens");
    let token = data.token(&SecretString::default()).expect("a token");
    assert_eq!(mode(&path), 0o700);
    assert_eq!(mode(&path.join("token")), 0o600);
    assert_eq!(mode(&data.journal()), 0o700);
    assert_eq!(token.expose().len(), 64);
}

#[test]
fn token_and_node_survive_restart_and_differ_between_nodes() {
    let (_temp, path) = empty();
    let read = |path: &Path| {
        let data = DataDir::open(path).expect("the directory opens");
        (data.token(&SecretString::default()).expect("a token").expose().to_owned(), data.node().expect("a name"))
    };
    let first = read(&path);
    assert_eq!(read(&path), first);
    let other = read(&path.with_file_name("other"));
    assert!(other.0 != first.0 && other.1 != first.1);
}

#[test]
fn configured_token_wins_and_creates_no_file() {
    let (_temp, path) = empty();
    let token =
        DataDir::open(&path).and_then(|data| data.token(&SecretString::new("0123456789abcdef"))).expect("a token");
    assert!(token.matches("0123456789abcdef"));
    assert!(!path.join("token").exists());
}

#[test]
fn insecure_token_file_is_rejected() {
    let check = |plant: &dyn Fn(&Path), part: &str| {
        let (_temp, path) = empty();
        let data = DataDir::open(&path).expect("the directory opens");
        plant(&path.join("token"));
        let text = error_text(data.token(&SecretString::default()));
        assert!(text.contains(part) && text.contains("token"), "{text}");
    };
    let write = |path: &Path, text: &str, mode| {
        std::fs::write(path, text).expect("the file is written");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("the mode is set");
    };
    check(&|path| write(path, "0123456789abcdef", 0o644), "read by other users");
    check(&|path| write(path, "\n", 0o600), "is empty");
    check(&|path| symlink("/etc/hostname", path).expect("a link"), "is a symbolic link");
    check(&|path| symlink("/nowhere", path).expect("a link"), "is a symbolic link");
    check(&|path| std::fs::create_dir(path).expect("a directory"), "is not a regular file of this user");
    check(
        &|path| rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).expect("a pipe"),
        "is not a regular file of this user",
    );
}

#[test]
fn second_server_is_rejected() {
    let (_temp, path) = empty();
    let first = DataDir::open(&path).expect("the directory opens");
    let text = error_text(DataDir::open(&path));
    assert!(text.contains("in use") && text.contains("--data"), "{text}");
    drop(first);
    DataDir::open(&path).expect("the directory opens again");
}

#[test]
fn open_mode_is_tightened_unless_directory_is_foreign() {
    let (_temp, path) = empty();
    let open_up = || {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("the directory belongs to this user")
    };
    std::fs::create_dir(&path).expect("the directory is created");
    open_up();
    DataDir::open(&path).and_then(|data| data.node()).expect("an empty directory is accepted");
    open_up();
    drop(DataDir::open(&path).expect("an existing data directory is accepted"));
    assert_eq!(mode(&path), 0o700);

    std::fs::remove_file(path.join("node")).expect("the file exists");
    open_up();
    let text = error_text(DataDir::open(&path));
    assert!(text.contains("holds other files") && text.contains(&format!("chmod 700 {}", path.display())), "{text}");
    assert_eq!(mode(&path), 0o755, "the mode is unchanged");
}

#[test]
fn config_file_and_lost_found_count_as_empty() {
    let (_temp, path) = empty();
    std::fs::create_dir_all(path.join("lost+found")).expect("the directory is created");
    std::fs::write(path.join("greenroom.toml"), "").expect("the file is written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
        .expect("the directory belongs to this user");
    std::fs::write(path.join("thesis.tex"), "").expect("the file is written");
    error_text(DataDir::open_unlocked(&path));
    std::fs::remove_file(path.join("thesis.tex")).expect("the file exists");
    DataDir::open(&path).expect("the directory is accepted");
    assert_eq!(mode(&path), 0o700);
}

#[test]
fn copy_of_served_directory_is_rejected() {
    let (_temp, path) = empty();
    let serve = |path: &Path| {
        let data = DataDir::open(path)?;
        data.node().and_then(|node| data.claim_node(&node)).map(|claim| (data, claim))
    };
    let original = serve(&path).expect("the first start");
    let [copy, moved] = ["copy", "moved"].map(|name| path.with_file_name(name));
    let copied = std::process::Command::new("cp").arg("-a").args([&path, &copy]).status().expect("the command runs");
    assert!(copied.success());
    let text = error_text(serve(&copy));
    for part in [&*copy.to_string_lossy(), "is a copy of", "greenroom export"] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    drop(original);
    let copied = serve(&copy).expect("the original is not in use");
    std::fs::rename(&path, &moved).expect("the directory is moved");
    assert!(matches!(serve(&moved), Err(DataError::Copy { .. })), "a moved original is still recognized");
    drop(copied);
    serve(&moved).expect("the original is free again");
}

#[test]
fn link_replaces_rename_on_limited_file_systems() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("the directory opens");
    data.create_private("one.new", "one").expect("the file is written");
    link_if_free(&data.dir, "one.new", "one").expect("the name is free");
    data.create_private("one.new", "two").expect("the first file was renamed");
    assert_eq!(link_if_free(&data.dir, "one.new", "one"), Err(Errno::EXIST));
    assert_eq!(std::fs::read(path.join("one")).expect("the file exists"), b"one");
}

#[test]
fn agent_is_installed_once_and_world_executable() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("the directory opens");
    let one = data.install_agent(b"one").expect("the agent is installed");
    let inode = one.metadata().expect("the file exists").ino();
    assert_eq!((mode(&one), mode(&path.join("bin"))), (0o755, 0o755));
    assert_eq!(data.install_agent(b"one").expect("the installed agent is found"), one);
    assert_eq!(one.metadata().expect("the file exists").ino(), inode, "a running binary is not replaced");
    assert_ne!(data.install_agent(b"two").expect("the agent is installed"), one);
    assert_eq!(std::fs::read(&one).expect("the first version is kept"), b"one");
}

/// Needs root to act as another user. Without root, the test prints a note and checks nothing.
#[test]
fn other_user_cannot_read_data() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can act as another user");
        return;
    }
    let (_temp, path) = empty();
    std::fs::set_permissions(path.parent().expect("the path has a parent"), std::fs::Permissions::from_mode(0o755))
        .expect("the parent belongs to this user");
    let data = DataDir::open(&path).expect("the directory opens");
    data.token(&SecretString::default()).expect("a token");
    let as_nobody = |program: &str, file: &Path| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(program);
        command.uid(65534).gid(65534).arg(file).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        command.status().expect("the command runs").success()
    };
    assert!(as_nobody("ls", path.parent().expect("the path has a parent")), "the parent directory is readable");
    assert!(!as_nobody("ls", &path));
    assert!(!as_nobody("cat", &path.join("token")));
    std::os::unix::fs::chown(&path, Some(65534), None).expect("root may change the owner");
    drop(data);
    let text = error_text(DataDir::open(&path));
    assert!(text.contains("belongs to user 65534"), "{text}");
}

#[test]
fn token_is_replaced_while_server_runs() {
    let (_temp, path) = empty();
    let data = DataDir::open(&path).expect("the directory opens");
    let (first, same) = (
        data.token(&SecretString::default()).expect("a token"),
        data.token(&SecretString::default()).expect("a token"),
    );
    assert!(first.matches(same.expose()));
    let unlocked = DataDir::open_unlocked(&path).expect("a locked directory opens without the lock");
    let second = unlocked.renew_token().expect("a new one");
    assert!(
        !first.matches(second.expose())
            && data.token(&SecretString::default()).expect("a token").matches(second.expose())
    );
    assert_eq!(mode(&path.join("token")), 0o600);
    drop(unlocked);
    assert!(
        matches!(DataDir::open(&path), Err(DataError::InUse { .. })),
        "the unlocked handle leaves the lock in place"
    );
    assert!(DataDir::open_unlocked(&path.join("nowhere")).is_err());
}

#[tokio::test(start_paused = true)]
async fn grants_are_revoked_when_token_changes() {
    let (_temp, path) = empty();
    let data = Arc::new(DataDir::open(&path).expect("the directory opens"));
    let token = data.token(&SecretString::default()).expect("a token");
    let closing = tokio_util::sync::CancellationToken::new();
    let current = CurrentToken::follow(data.clone(), &SecretString::default(), token.clone(), &closing);
    let grant = current.grant();
    let mut revoked = Box::pin(grant.revoked());
    let a_minute = Duration::from_secs(60);
    assert!(tokio::time::timeout(a_minute, &mut revoked).await.is_err(), "the token is unchanged");
    let new = data.renew_token().expect("a new one");
    revoked.await;
    assert!(current.get().matches(new.expose()) && !current.get().matches(token.expose()));
    let grant = current.grant();
    let mut later = Box::pin(grant.revoked());
    assert!(tokio::time::timeout(a_minute, &mut later).await.is_err(), "a grant for the new token is valid");
    // An invalid token file changes nothing.
    std::fs::write(path.join("token"), "").expect("the file is written");
    assert!(tokio::time::timeout(a_minute, &mut later).await.is_err());
    assert!(current.get().matches(new.expose()));
    let configured =
        CurrentToken::follow(data.clone(), &SecretString::new("given"), BearerToken::new("given"), &closing);
    let (fixed_grant, current_grant) = (configured.grant(), current.grant());
    assert!(tokio::time::timeout(a_minute, fixed_grant.revoked()).await.is_err());
    closing.cancel();
    tokio::join!(fixed_grant.revoked(), current_grant.revoked());
}
