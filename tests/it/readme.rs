//! Script blocks of the README, run as a person pastes them: as a whole, and line by line.

use std::{fs, process::Stdio};

use tokio::{io::AsyncWriteExt, process::Command};

use greenroom_testkit::{
    WORKSPACE,
    driver::TestDriver,
    greenroom_binary,
    server::{TestServer, TestServerOptions},
    within,
};

/// Returns the block of the README that sets `TOKEN`, for a server at `authority`.
fn script(authority: &str) -> String {
    let readme = fs::read_to_string(format!("{WORKSPACE}/README.md")).expect("the README exists");
    let block = readme.split("```").find(|block| block.contains("TOKEN=$(greenroom token)"));
    let block = block.expect("the README has the block").trim_start_matches("sh\n").trim();
    assert!(block.contains("127.0.0.1:3000"), "{block}");
    block.replace("127.0.0.1:3000", authority)
}

/// Feeds the lines to an interactive shell's input, one after the other. Returns the output.
async fn paste(server: &TestServer, lines: &str) -> String {
    let programs = greenroom_binary().parent().expect("a file is in a directory").display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh")
        .env("PATH", path)
        .env("GREENROOM_DATA__DIR", server.data())
        .env("XDG_CONFIG_HOME", server.home())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("`sh` is here");
    let mut input = shell.stdin.take().expect("stdin is a pipe");
    input.write_all(lines.as_bytes()).await.expect("the shell reads");
    drop(input);
    let output = within("the script", shell.wait_with_output()).await.expect("the shell ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{lines}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

async fn has_tools() -> bool {
    for tool in ["curl", "jq"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {tool}")]).output().await;
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("left out: `{tool}` is not installed (Debian: `apt install {tool}`)");
            return false;
        }
    }
    true
}

#[tokio::test]
async fn script_works_as_a_whole_and_line_by_line() {
    if !has_tools().await {
        return;
    }
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let script = script(&server.rest.authority);
    // A stream of events ends with its session only, so a script must limit it.
    let whole = paste(&server, &format!("set -e\n{script}\n")).await;
    assert!(whole.contains(r#""action":"message""#) || whole.contains("print hello"), "{whole}");
    let sessions = server.rest.get("/api/sessions").await.expect(200);
    assert_eq!(sessions["total"], 1, "the block creates one session: {whole}");
    // Each line is complete by itself: a shell accepts it without the next one.
    for line in script.lines() {
        let checked = Command::new("sh").args(["-n", "-c", line]).output().await.expect("`sh` is here");
        assert!(checked.status.success(), "`{line}` is not complete");
    }
    paste(&server, &script.replace('\n', "\n\n")).await;
    assert_eq!(server.rest.get("/api/sessions").await.expect(200)["total"], 2);
}
