//! Terminal and files of a session: keystrokes beside `docker exec -it`, long output beside an echo
//! server on node-pty, a large download beside `docker cp`.

use std::{
    fs::File,
    io::{Read, Write},
    path::Path,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::figures::{Figures, ms, table, times};
use greenroom_testkit::{
    driver::TestDriver,
    host,
    server::{TestServer, TestServerOptions},
};

mod client;
mod peers;

use client::BenchTerminal;
use peers::{DockerExec, NodePty, docker};

const KEYSTROKES: usize = 300;
/// Pause between keystrokes. A fast typist needs more.
const REST: Duration = Duration::from_millis(10);
/// Programs that answer each byte alone, on both sides.
const ECHO: &str = "stty raw -echo; echo READY; exec cat";
const OUTPUT: usize = 100 << 20;
const DOWNLOAD: usize = 1 << 30;
const ROUNDS: usize = 5;

pub(crate) async fn run(drivers: &[TestDriver]) {
    keystrokes(drivers).await;
    output().await;
    if drivers.contains(&TestDriver::Docker) {
        download().await;
    }
}

/// Starts a session at rest.
async fn session(driver: TestDriver) -> (TestServer, String) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session = server.rest.create(json!({})).await;
    server.rest.until_state(&session, "idle").await;
    (server, session)
}

async fn keystrokes(drivers: &[TestDriver]) {
    let mut rows = Vec::new();
    let mut engine = None;
    for driver in drivers.iter().rev() {
        let (server, session) = session(*driver).await;
        let mut terminal = BenchTerminal::of_session(&server.rest, &session).await;
        terminal.line(ECHO, "READY").await;
        let mut ours = Figures::default();
        let mut exec = None;
        if *driver == TestDriver::Docker {
            let container = host::containers(&server.data()).pop().expect("the session has a container");
            exec = Some((DockerExec::start(&container, ECHO), Figures::default()));
        }
        // In turns, so that both meet the same load.
        for n in 0..KEYSTROKES {
            tokio::time::sleep(REST).await;
            ours.add_ms(terminal.echo(key(n)).await);
            if let Some((exec, figures)) = &mut exec {
                tokio::time::sleep(REST).await;
                figures.add_ms(tokio::task::block_in_place(|| exec.echo(key(n))));
            }
        }
        if let Some((_, figures)) = exec {
            rows.push(row("`docker exec -it`", &figures, &figures));
            engine = Some(figures);
        }
        let beside = engine.as_ref().unwrap_or(&ours);
        rows.push(row(&format!("terminal, {} sandbox", driver.name()), &ours, beside));
    }
    let title = format!("Keystroke to echo ({KEYSTROKES} keys, one each 10 ms)");
    table(&title, &["", "p50", "p99", "beside the first row"], &rows);
}

/// Returns a printable byte that differs from the one before.
fn key(n: usize) -> u8 {
    b'a' + (n % 26) as u8
}

fn row(name: &str, figures: &Figures, beside: &Figures) -> Vec<String> {
    let ratio = format!("{} / {}", times(figures.p(50), beside.p(50)), times(figures.p(99), beside.p(99)));
    vec![name.to_owned(), format!("{:.2} ms", figures.p(50)), format!("{:.2} ms", figures.p(99)), ratio]
}

async fn output() {
    let (server, session) = session(TestDriver::Process).await;
    let workspace = server.data().join("workspaces").join(&session);
    write_lines(&workspace.join("big"), OUTPUT);
    let peer = match NodePty::start(&workspace).await {
        Ok(peer) => Some(peer),
        Err(reason) => {
            println!("(without node-pty: {reason})\n");
            None
        }
    };
    let (mut ours, mut theirs) = (Figures::default(), Figures::default());
    let before = host::forget_peak(server.pid());
    for _ in 0..ROUNDS {
        let mut terminal = BenchTerminal::of_session(&server.rest, &session).await;
        ours.add_ms(cat(&mut terminal).await);
        if let Some(peer) = &peer {
            theirs.add_ms(cat(&mut BenchTerminal::over(peer.port, "/", None).await).await);
        }
    }
    let growth = host::peak_kib(server.pid()).saturating_sub(before) / 1024;
    let mib_s = |figures: &Figures| format!("{:.0} MiB/s", OUTPUT as f64 / 1048.576 / figures.p(50));
    let mut rows = Vec::new();
    if peer.is_some() {
        rows.push(vec!["node-pty and ws".into(), ms(theirs.p(50)), mib_s(&theirs), "1.00×".into()]);
    }
    let ratio = if peer.is_some() { times(ours.p(50), theirs.p(50)) } else { "–".into() };
    rows.push(vec!["terminal, process sandbox".into(), ms(ours.p(50)), mib_s(&ours), ratio]);
    let title = format!("`cat` of 100 MiB in a terminal (median of {ROUNDS}; server {growth} MiB more at its peak)");
    table(&title, &["", "until the last line", "rate", "time beside node-pty"], &rows);
}

/// Prints the file, and returns the time until the last line has arrived.
async fn cat(terminal: &mut BenchTerminal) -> Duration {
    // The quotes keep the mark out of the echo.
    terminal.line("echo REA''DY", "READY").await;
    let began = Instant::now();
    terminal.line("cat big; echo DO''NE", "DONE").await;
    began.elapsed()
}

fn write_lines(path: &Path, bytes: usize) {
    let mut file = std::io::BufWriter::new(File::create(path).expect("the workspace is writable"));
    let (mut written, mut n) = (0, 0_u64);
    while written < bytes {
        let line = format!("{n:>10} the quick brown fox jumps over the lazy dog, again and again\n");
        file.write_all(line.as_bytes()).expect("there is room");
        (written, n) = (written + line.len(), n + 1);
    }
    file.flush().expect("there is room");
}

async fn download() {
    let (server, session) = session(TestDriver::Docker).await;
    let file = server.data().join("workspaces").join(&session).join("big");
    let piece: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(1 << 20).collect();
    let mut writer = File::create(&file).expect("the workspace is writable");
    (0..DOWNLOAD >> 20).for_each(|_| writer.write_all(&piece).expect("there is room"));
    writer.sync_all().expect("there is room");
    let container = host::containers(&server.data()).pop().expect("the session has a container");
    let target = tempfile::tempdir_in(server.home()).expect("a directory");
    let copy = target.path().join("copy");
    let (mut ours, mut theirs) = (Figures::default(), Figures::default());
    let before = host::forget_peak(server.pid());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        docker(&["cp", &format!("{container}:/workspace/big"), copy.to_str().expect("a path")]).await;
        theirs.add_ms(began.elapsed());
        check_and_remove(&copy);
        let began = Instant::now();
        let address = format!("/api/sessions/{session}/files/big");
        let mut response = server.rest.request(Method::GET, &address).send().await.expect("an answer");
        let mut saved = tokio::fs::File::create(&copy).await.expect("a file");
        while let Some(chunk) = response.chunk().await.expect("the file arrives") {
            saved.write_all(&chunk).await.expect("there is room");
        }
        saved.flush().await.expect("there is room");
        ours.add_ms(began.elapsed());
        check_and_remove(&copy);
    }
    let growth = host::peak_kib(server.pid()).saturating_sub(before) / 1024;
    let rows = [
        vec!["`docker cp`".into(), ms(theirs.p(50)), "–".into(), "1.00×".into()],
        vec!["`GET …/files/big`".into(), ms(ours.p(50)), format!("{growth} MiB"), times(ours.p(50), theirs.p(50))],
    ];
    let title = format!("Download of 1 GiB to the same disk (median of {ROUNDS})");
    table(&title, &["", "until the file is there", "server's memory, growth at its peak", "beside `docker cp`"], &rows);
}

fn check_and_remove(copy: &Path) {
    let mut head = [0; 1];
    File::open(copy).and_then(|mut file| file.read_exact(&mut head)).expect("the copy is readable");
    assert_eq!(copy.metadata().expect("the copy exists").len(), DOWNLOAD as u64);
    std::fs::remove_file(copy).expect("the copy can be removed");
}
