//! Checkpoints: capture of a workspace of 10,000 files, its size on disk, and a diff beside git's.

use std::{fs, io::Write, path::Path, process::Command, time::Instant};

use flate2::{Compression, write::DeflateEncoder};
use serde_json::{Value, json};

use crate::figures::{Figures, ms, table};
use greenroom_testkit::{
    driver::TestDriver,
    model::{ScriptedModel, ScriptedRule},
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

const FILES: usize = 10_000;
const CHANGED: usize = 1_000;
const ROUNDS: usize = 10;

pub(crate) async fn run() {
    let rule = ScriptedRule { say: Some("tick ".to_owned()), times: 10, every_ms: 20, ..ScriptedRule::default() };
    let model = ScriptedModel::with(vec![rule]);
    let server = TestServer::start(TestServerOptions::anthropic(TestDriver::Process, &model)).await;
    let mut socket = TestSocket::open(&server.rest).await;
    socket.send_request("initialize", json!({})).await;
    let session = socket.session().await;
    socket.state("idle").await;
    let workspace = server.data().join("workspaces").join(&session);
    let store = server.data().join("checkpoints").join(&session);
    for file in 0..FILES {
        write(&workspace, file, 0);
    }
    let first = capture(&mut socket).await;
    let (mut unchanged, mut changed, mut growth) = (Figures::default(), Figures::default(), Figures::default());
    for round in 1..=ROUNDS {
        unchanged.add(capture(&mut socket).await);
        let before = size(&store);
        let compressed: usize = (0..CHANGED).map(|file| write(&workspace, file, round)).sum();
        changed.add(capture(&mut socket).await);
        growth.add((size(&store) - before) as f64 / compressed as f64);
    }
    let (ours, git) = diffs(&server, &session, &workspace).await;
    let row = |name: &str, figures: &Figures| vec![name.to_owned(), ms(figures.p(50)), ms(figures.p(99))];
    let rows = [
        vec!["first checkpoint of 10,000 files".to_owned(), ms(first), String::new()],
        row("checkpoint of 10,000 unchanged files", &unchanged),
        row("checkpoint with 1,000 changed files", &changed),
        row("`GET diff` of 10,000 files, 100 changed", &ours),
        row("`git diff` of the same", &git),
    ];
    table(&format!("Checkpoints ({ROUNDS} rounds)"), &["", "p50", "p99"], &rows);
    println!("size on disk beside the compressed changes: {:.2}×\n", growth.p(50));
}

/// Writes a file of text. Returns its compressed size.
fn write(workspace: &Path, file: usize, version: usize) -> usize {
    let dir = workspace.join(format!("d{}", file % 100));
    fs::create_dir_all(&dir).expect("the directory is created");
    let mut random = fastrand::Rng::with_seed((file * 1_000 + version) as u64);
    let line = |_| format!("let {}{} = {};\n", random.lowercase(), random.u16(..), random.u32(..));
    let text: String = (0..100).map(line).collect();
    fs::write(dir.join(format!("{file}.rs")), &text).expect("the file is written");
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("a vector takes all");
    encoder.finish().expect("a vector takes all").len()
}

/// Runs two turns. Returns the time between them, which the checkpoint takes, in milliseconds.
async fn capture(socket: &mut TestSocket) -> f64 {
    socket.send_request("message", json!({ "content": "one" })).await;
    socket.observation("chat").await;
    socket.send_request("message", json!({ "content": "two" })).await;
    let idle = socket.state("idle").await;
    let next = socket.observation("chat").await;
    socket.state("idle").await;
    let at = |event: &Value| event["at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
    let (idle, next) = (at(&idle).expect("a time"), at(&next).expect("a time"));
    (next.as_millisecond() - idle.as_millisecond()) as f64
}

fn size(store: &Path) -> u64 {
    let files = fs::read_dir(store).expect("the store exists").flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the times of a diff over REST and of `git diff` in a copy of the workspace.
async fn diffs(server: &TestServer, session: &str, workspace: &Path) -> (Figures, Figures) {
    let copy = tempfile::tempdir().expect("a directory");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        let run = command.args(args).current_dir(copy.path()).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
        run.expect("git is installed").stdout
    };
    let copied = Command::new("cp").arg("-a").arg(workspace.join(".")).arg(copy.path()).status();
    assert!(copied.expect("cp runs").success());
    git(&["init", "-q"]);
    git(&["add", "."]);
    let of = latest(server, session).await;
    for at in [workspace, copy.path()] {
        for file in 0..100 {
            write(at, file, 99);
        }
    }
    let (mut ours, mut theirs) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        let diff = server.rest.get(&format!("/api/sessions/{session}/diff?from={of}")).await.expect(200);
        ours.add_ms(began.elapsed());
        assert_eq!(diff["files"].as_array().map(Vec::len), Some(100));
        let began = Instant::now();
        assert!(!git(&["diff"]).is_empty());
        theirs.add_ms(began.elapsed());
    }
    (ours, theirs)
}

async fn latest(server: &TestServer, session: &str) -> String {
    let list = server.rest.get(&format!("/api/sessions/{session}/checkpoints")).await.expect(200);
    let last = list["items"].as_array().and_then(|items| items.last()).cloned().unwrap_or_default();
    last["checkpoint"].as_str().expect("a checkpoint").to_owned()
}
