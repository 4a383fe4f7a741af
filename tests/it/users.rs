//! Users of the sandboxes: one for each if nothing forbids it, and warnings about directories that
//! this user cannot use.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    host, on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(session_gets_a_user_of_its_own_once,);

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: only root can give a session another user");
    }
    is_root
}

/// Returns the owners of the session's home, workspace and of a file that the agent wrote.
fn owners(server: &TestServer, session: &str) -> Vec<u32> {
    let data = server.data();
    let workspace = data.join("workspaces").join(session);
    let paths = [data.join("homes").join(session), workspace.join("mine"), workspace];
    paths.iter().map(|path| path.metadata().expect("the sandbox has started").uid()).collect()
}

async fn attach(server: &TestServer, session: &str) -> TestSocket {
    TestSocket::attach_after(&server.rest, session, "tail").await
}

async fn run(socket: &mut TestSocket, command: &str) -> Value {
    socket.send_request("run", json!({ "command": command })).await;
    socket.until("the end of the command", |frame| frame["observation"] == "run").await
}

/// A sandbox that runs during the change keeps its user. Its next start gives the files to another.
async fn session_gets_a_user_of_its_own_once(driver: TestDriver) {
    if !is_root() {
        return;
    }
    let shared = TestServerOptions::new(driver).env("GREENROOM_SANDBOX__UID", "65532");
    let server = TestServer::start(shared).await;
    let session = server.rest.create(json!({})).await;
    let mut socket = attach(&server, &session).await;
    run(&mut socket, "echo a >mine; mkdir -p deep/er; echo b >deep/er/file; ln -s /etc/passwd deep/link").await;
    assert_eq!(owners(&server, &session), [65_532; 3]);
    let before = host::agents(server.home());

    let own = |options: TestServerOptions| options.env("GREENROOM_SANDBOX__UID_RANGE", "200000-200009");
    let server = server.kill9().await.restart_with(own).await;
    let mut socket = attach(&server, &session).await;
    run(&mut socket, "echo c >>mine").await;
    assert_eq!(host::agents(server.home()), before, "the sandbox keeps running");
    assert_eq!(owners(&server, &session), [65_532; 3]);

    server.rest.post(&format!("/api/sessions/{session}/stop"), json!({})).await.expect(200);
    socket.state("stopped").await;
    let ran = run(&mut socket, "echo d >>mine && echo e >>deep/er/file && cat mine && id -un && id -u").await;
    let uid: u32 = ran["content"].as_str().and_then(|text| text.trim().lines().last()?.parse().ok()).expect("a uid");
    assert!((200_000..=200_009).contains(&uid), "{ran}");
    assert!(ran["content"].as_str().is_some_and(|text| text.starts_with("a\nc\nd\nagent\n")), "{ran}");
    assert_eq!(owners(&server, &session), [uid; 3]);

    let other = server.rest.create(json!({})).await;
    run(&mut attach(&server, &other).await, "echo a >mine").await;
    assert_ne!(owners(&server, &other), [uid; 3]);
    let server = server.kill9().await.restart().await;
    server.rest.post(&format!("/api/sessions/{session}/stop"), json!({})).await.expect(200);
    let mut socket = attach(&server, &session).await;
    run(&mut socket, "true").await;
    assert_eq!(owners(&server, &session), [uid; 3], "the user stays the same");
    for session in [session, other] {
        server.rest.delete(&format!("/api/sessions/{session}?purge=true")).await.expect(204);
    }
    server.leaves_nothing().await;
}

#[tokio::test]
async fn unusable_volume_is_reported_everywhere() {
    if !is_root() {
        return;
    }
    let project = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir(project.path().join(".git")).expect("creation succeeds");
    for path in [project.path(), &project.path().join(".git")] {
        chown(path, Some(10_001), Some(10_001)).expect("owner is changed");
    }
    std::fs::set_permissions(project.path(), std::fs::Permissions::from_mode(0o755)).expect("mode is set");
    let host = project.path().display().to_string();
    let options = || {
        let options = TestServerOptions::new(TestDriver::Process);
        options.env("SANDBOX_VOLUMES", &format!("{host}:/project")).env("GREENROOM_SANDBOX__UID", "10002")
    };
    let says = |text: &str| {
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&host)).collect();
        let has = |part: &str| lines.iter().any(|line| line.contains(part) && line.contains("sandbox.uid = 10001"));
        assert!(has("cannot write") && has("dubious ownership"), "{text}");
    };

    let home = tempfile::tempdir().expect("a temporary directory");
    let doctor = TestServer::refused(home.path(), &options().arg("doctor")).await;
    says(&doctor.stdout);
    assert!(doctor.stdout.contains("all sandboxes run as user 10002"), "{doctor:?}");

    let server = TestServer::start(options()).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    let events = server.rest.events(&session).await;
    let notices = events.iter().filter(|event| event["observation"] == "notice");
    let codes: Vec<&Value> = notices.clone().map(|event| &event["extras"]["code"]).collect();
    assert_eq!(codes, ["volume_not_writable", "git_dubious_ownership"]);
    says(&notices.map(|event| event["extras"]["detail"].to_string() + "\n").collect::<String>());
    says(&server.log());
}
