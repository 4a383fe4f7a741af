//! OpenAPI document of the real server, under the tools of its users: a linter, a generated client
//! and a fuzzer.
//!
//! `cargo xtask test --only openapi` installs the tools and runs these tests. The tools' versions
//! are pinned in `package-lock.json` and `requirements.txt`.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use greenroom_testkit::{
    WORKSPACE,
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};
use tempfile::TempDir;
use tokio::process::Command;

/// Variable with the path of `schemathesis`. `cargo xtask test` sets it.
const SCHEMATHESIS: &str = "GREENROOM_SCHEMATHESIS";

/// Directory of these tests, with the packages of `package.json`.
fn packages() -> PathBuf {
    Path::new(WORKSPACE).join("tests/openapi")
}

/// Runs a program to its end.
///
/// # Panics
/// If the program fails. The text has its whole output.
async fn run(command: &mut Command) {
    let name = format!("{command:?}");
    let output = command.kill_on_drop(true).output().await.unwrap_or_else(|e| panic!("{name}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{name}\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Returns a program of `package.json`.
fn package(name: &str) -> Command {
    let mut command = Command::new(packages().join("node_modules/.bin").join(name));
    command.current_dir(packages());
    command
}

/// Starts a server, and stores its document in a file.
async fn server_with_document() -> (TestServer, TempDir, PathBuf) {
    // Slow enough that a turn can be interrupted.
    let options = TestServerOptions::new(TestDriver::Process).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "40");
    let server = TestServer::start(options).await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let document = dir.path().join("openapi.json");
    let text = server.rest.get("/api/openapi.json").await.expect(200).to_string();
    fs::write(&document, text).expect("the document is written");
    (server, dir, document)
}

#[tokio::test]
#[ignore = "needs packages of npm; `cargo xtask test` brings them"]
async fn linter_finds_nothing() {
    let (server, _dir, document) = server_with_document().await;
    run(package("redocly").args(["lint", "--config", "redocly.yaml"]).arg(&document)).await;
    server.leaves_nothing().await;
}

#[tokio::test]
#[ignore = "needs packages of npm; `cargo xtask test` brings them"]
async fn generated_client_drives_a_session() {
    let (server, _dir, document) = server_with_document().await;
    // Node finds the packages from a directory below theirs only.
    let generated = tempfile::Builder::new().prefix("generated-").tempdir_in(packages()).expect("a directory");
    fs::copy(packages().join("client.ts"), generated.path().join("client.ts")).expect("the client is copied");
    let at = |name: &str| generated.path().join(name);
    run(package("openapi-typescript").arg(&document).arg("--output").arg(at("schema.ts"))).await;
    let project = r#"{ "extends": "../tsconfig.json", "include": ["*.ts"] }"#;
    fs::write(at("tsconfig.json"), project).expect("the project is written");
    run(package("tsc").arg("--project").arg(generated.path())).await;
    let base_url = format!("http://{}", server.rest.authority);
    run(Command::new("node").arg(at("client.js")).args([base_url, server.rest.token.clone()])).await;
    server.leaves_nothing().await;
}

#[tokio::test]
#[ignore = "needs schemathesis; `cargo xtask test` brings it"]
async fn fuzzer_finds_no_answer_that_the_document_does_not_describe() {
    let schemathesis = env::var_os(SCHEMATHESIS)
        .unwrap_or_else(|| panic!("`{SCHEMATHESIS}` is not set; run `cargo xtask test --only openapi`"));
    let (server, dir, _) = server_with_document().await;
    let config = packages().join("schemathesis.toml");
    run(Command::new(schemathesis)
        .current_dir(dir.path())
        .arg("--config-file")
        .arg(config)
        .args(["run", "--no-color", &format!("http://{}/api/openapi.json", server.rest.authority)])
        .env("GREENROOM_TOKEN", &server.rest.token))
    .await;
}
